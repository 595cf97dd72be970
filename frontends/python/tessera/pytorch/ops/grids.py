# SPDX-License-Identifier: Apache-2.0
"""Sampling images and volumes where a grid says: grid_sampler, whose gradients are those of what is written here.

Coordinates follow ATen's rules (aten/src/ATen/native/GridSampler.h), also where its gradient makes a choice: none flows through
a coordinate that is clipped, or that lies exactly on the border.
"""

import itertools

import torch

from ..emit import Unsupported, is_symbolic
from .gradients import gradients
from .table import lowers, number, product

_LINEAR, _NEAREST, _CUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)


def _length(e, size, dtype):
    return e.cast(e("dim_value", value=size), dtype) if is_symbolic(size) else e.scalar(size, dtype)


def _source(e, coordinate, size, corners):
    """From [-1, 1] to elements."""
    up = e("add", coordinate, 1.0)
    if corners:
        return e("mul", e("div", up, 2.0), e("sub", size, 1.0))
    return e("div", e("sub", e("mul", up, size), 1.0), 2.0)


def _clipped(e, c, size):
    last = e("sub", size, 1.0)
    inside = e("logical_and", e("gt", c, 0.0), e("lt", c, last))
    edge = e("select", e("gt", c, 0.0), last, e.scalar(0, c.dtype))
    return e("select", inside, c, e("stop_gradient", edge))


def _reflected(e, c, size, corners):
    """At 0 and the last element, or half an element beyond both."""
    low = 0.0 if corners else -0.5
    span = e("sub", size, 1.0) if corners else size
    away = e("sub", c, low)
    away = e("select", e("lt", away, 0.0), e("neg", away), away)
    flips = e("stop_gradient", e("floor", e("div", away, span)))
    rest = e("sub", away, e("mul", flips, span))
    even = e("eq", e("remainder", flips, 2.0), 0.0)
    folded = e("add", e("select", even, rest, e("sub", span, rest)), low)
    # Of one element there is nothing to reflect in.
    return e("select", e("eq", span, 0.0), e.scalar(0, c.dtype), folded) if corners else folded


def _padded(e, c, size, padding, corners):
    if padding == _REFLECTION:
        c = _reflected(e, c, size, corners)
    return c if padding == _ZEROS else _clipped(e, c, size)


def _taken(e, flat, sizes, places):
    """The elements at these places (whole numbers, a tensor per dimension), zeros outside."""
    valid, at = None, None
    for place, size in zip(places, sizes):
        length = _length(e, size, place.dtype)
        inside = e("logical_and", e("ge", place, 0.0), e("lt", place, length))
        valid = inside if valid is None else e("logical_and", valid, inside)
    for place, size in zip(places, sizes):
        index = e.cast(e("select", valid, place, e.scalar(0, place.dtype)), torch.int64)
        at = index if at is None else e("add", e("mul", at, _length(e, size, torch.int64)), index)
    n, points = at.sizes
    wide = [n, flat.sizes[1], points]
    taken = e("take_along_axis", flat, e.broadcast(e.reshape(at, [n, 1, points]), wide), axis=2)
    return e("select", e.broadcast(e.reshape(valid, [n, 1, points]), wide), taken, e.scalar(0, flat.dtype))


def _weighted(e, taken, weight):
    n, points = weight.sizes
    return e("mul", taken, e.reshape(weight, [n, 1, points]))


def _cubic_weights(e, t, a=-0.75):
    """Of the four neighbours (Keys, 1981)."""

    def near(x):
        return e("add", e("mul", e("mul", e("sub", e("mul", x, a + 2), a + 3), x), x), 1.0)

    def far(x):
        inner = e("mul", e("add", e("mul", e("sub", e("mul", x, a), 5 * a), x), 8 * a), x)
        return e("sub", inner, 4 * a)

    rest = e("sub", e.scalar(1, t.dtype), t)
    return far(e("add", t, 1.0)), near(t), near(rest), far(e("add", rest, 1.0))


def _sampled(e, x, grid, mode, padding, corners):
    """x: [N, C, sizes], grid: [N, places, coordinates]; a coordinate's last number is of the first dimension."""
    n = x.rank - 2
    if x.dtype not in (torch.float32, torch.float64) or grid.dtype != x.dtype:
        raise Unsupported(f"a grid sampler of {x.dtype}")
    sizes, places = x.sizes[2:], grid.sizes[1:-1]
    batch, points = grid.sizes[0], product(e, places)
    flat = e.reshape(x, [x.sizes[0], x.sizes[1], product(e, sizes)])
    grid = e.reshape(grid, [batch, points, n])
    lengths = [_length(e, s, x.dtype) for s in sizes]
    sources = []
    for k in range(n):
        starts, limits = [0, 0, n - 1 - k], [batch, points, n - k]
        one = e.reshape(e("slice", grid, starts=starts, limits=limits, strides=[1, 1, 1]), [batch, points])
        sources.append(_source(e, one, lengths[k], corners))
    if mode == _CUBIC:
        y = _cubic(e, flat, sizes, sources, lengths, padding, corners)
    else:
        sources = [_padded(e, c, length, padding, corners) for c, length in zip(sources, lengths)]
        y = _nearest(e, flat, sizes, sources) if mode == _NEAREST else _linear(e, flat, sizes, sources)
    return e.reshape(y, [batch, x.sizes[1], *places])


def _nearest(e, flat, sizes, sources):
    return _taken(e, flat, sizes, [e("stop_gradient", e("round", c)) for c in sources])


def _linear(e, flat, sizes, sources):
    below = [e("stop_gradient", e("floor", c)) for c in sources]
    above = [e("add", b, 1.0) for b in below]
    total = None
    for corner in itertools.product((0, 1), repeat=len(sources)):
        places = [above[k] if up else below[k] for k, up in enumerate(corner)]
        weight = None
        for k, up in enumerate(corner):
            near = e("sub", sources[k], below[k]) if up else e("sub", above[k], sources[k])
            weight = near if weight is None else e("mul", weight, near)
        term = _weighted(e, _taken(e, flat, sizes, places), weight)
        total = term if total is None else e("add", total, term)
    return total


def _cubic(e, flat, sizes, sources, lengths, padding, corners):
    below = [e("stop_gradient", e("floor", c)) for c in sources]
    weights = [_cubic_weights(e, e("sub", c, b)) for c, b in zip(sources, below)]

    def tap(k, i):
        # The place of a neighbour is padded by itself; a fraction that is left of it is cut off.
        place = _padded(e, e("add", below[k], float(i - 1)), lengths[k], padding, corners)
        return e("stop_gradient", e("trunc", place))

    total = None
    for i in range(4):
        row = None
        for j in range(4):
            term = _weighted(e, _taken(e, flat, sizes, [tap(0, i), tap(1, j)]), weights[1][j])
            row = term if row is None else e("add", row, term)
        row = _weighted(e, row, weights[0][i])
        total = row if total is None else e("add", total, row)
    return total


def _options(mode, padding, corners):
    return number(mode), number(padding), bool(number(corners))


@lowers("aten.grid_sampler_3d.default")
def _forward(e, out, x, grid, mode, padding, corners):
    return _sampled(e, x, grid, *_options(mode, padding, corners))


@lowers("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def _backward(e, out, seed, x, grid, mode, padding, corners, mask):
    options = _options(mode, padding, corners)

    def sampled(a, b):
        return _sampled(e, x if a is None else a, grid if b is None else b, *options)

    dx, dgrid = gradients(e, sampled, [x if mask[0] else None, grid if mask[1] else None], seed)
    return [dx, dgrid]
