# SPDX-License-Identifier: Apache-2.0
"""Reductions over runs of rows."""

import math

import torch

from ..emit import HALVES, Unsupported, is_symbolic
from .table import lowers, number

_SUM, _MEAN, _MAX = range(3)


@lowers("aten._embedding_bag_forward_only.default", "aten._embedding_bag.default")
def _embedding_bag(
    e,
    out,
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=_SUM,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=-1,
):
    bags, width = e.sizes(out[0].shape)
    if indices.rank != 1 or 0 in indices.sizes or include_last_offset or mode not in (_SUM, _MEAN, _MAX):
        raise Unsupported("bags of no indices, or with a last offset")
    dtype = torch.float32 if weight.dtype in HALVES else weight.dtype
    positions = e("iota", shape=indices.sizes, axis=0, dtype=offsets.dtype)
    bag = e("sub", e.cast(e("searchsorted", offsets, positions, right=True), torch.int64), 1)
    rows = e.cast(e("gather", weight, indices, axis=0), dtype)
    if per_sample_weights is not None:
        rows = e("mul", rows, e("expand_dims", e.cast(per_sample_weights, dtype), axes=[1]))
    start = -math.inf if mode == _MAX else 0
    padding_idx = number(padding_idx)
    counted = e("ne", indices, padding_idx) if padding_idx >= 0 else e("eq", indices, indices)
    if padding_idx >= 0:
        rows = e("select", e("expand_dims", counted, axes=[1]), rows, e.scalar(start, dtype))
    place = e("expand_dims", bag, axes=[1])
    into = e("full", e.scalar(start, dtype), shape=[bags, width])
    y = e("scatter_nd", into, place, rows, reduction="max" if mode == _MAX else "add")
    none = e("full", e.scalar(0, dtype), shape=[bags])
    count = e("scatter_nd", none, place, e.cast(counted, dtype), reduction="add")
    if mode == _MEAN:
        y = e("div", y, e("expand_dims", e("maximum", count, 1), axes=[1]))
    if mode == _MAX:
        y = e("select", e("expand_dims", e("eq", count, 0), axes=[1]), e.scalar(0, dtype), y)
    return [e.cast(y, out[0].dtype), None, None, None]


_EMPTY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCTION = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}


def _segments(e, x, lengths, offsets, axis, checked=False):
    """(for every row of x the segment that it belongs to, the number of segments, their lengths). Rows outside of all have the
    number of segments. checked: lengths that are negative or do not add up to the rows are an error, as in ATen."""
    bounds = lengths if offsets is None else offsets
    if bounds is None or bounds.rank != 1 or (number(axis) or 0) != 0:
        raise Unsupported("segments of several lists")
    bounds, rows = e.cast(bounds, torch.int64), e("iota", shape=[x.sizes[0]], axis=0, dtype=torch.int64)
    if offsets is None:
        count, ends = bounds.sizes[0], e("cumsum", bounds, axis=0)
        segment = e.cast(e("searchsorted", ends, rows, right=True), torch.int64)
        if checked:
            total, none = e("reduce_sum", bounds, axes=[0]), e.scalar(0, torch.int64)
            rows = e("dim_value", value=x.sizes[0]) if is_symbolic(x.sizes[0]) else e.scalar(x.sizes[0], torch.int64)
            wrong = e("logical_or", e("ne", total, rows), e("lt", e("reduce_min", bounds, axes=[0]), none))
            # The second of one element is out of range.
            zero = e("gather", e("full", none, shape=[1]), e("select", wrong, e.scalar(1, torch.int64), none), axis=0)
            segment = e("add", segment, zero)
        return segment, count, bounds
    count = e.sub(bounds.sizes[0], 1)
    starts, ends = (
        e("slice", bounds, starts=[k], limits=[e.add(count, k)], strides=[1]) for k in (0, 1)
    )
    segment = e("sub", e.cast(e("searchsorted", bounds, rows, right=True), torch.int64), 1)
    outside = e("dim_value", value=count) if is_symbolic(count) else e.scalar(count, torch.int64)
    return e("select", e("lt", segment, 0), outside, segment), count, e("sub", ends, starts)


def _reduced(e, rows, segment, count, start, reduction):
    """What lies behind the last segment goes to a row that is cut off."""
    shape = [e.add(count, 1), *rows.sizes[1:]]
    into = e("full", e.scalar(start, rows.dtype), shape=shape)
    y = e("scatter_nd", into, e("expand_dims", segment, axes=[1]), rows, reduction=reduction)
    return e("slice", y, starts=[0] * rows.rank, limits=[count, *rows.sizes[1:]], strides=[1] * rows.rank)


def _per_row(e, x, rank):
    return e("expand_dims", x, axes=list(range(1, rank))) if rank > 1 else x


@lowers("aten.segment_reduce.default")
def _segment_reduce(e, out, x, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    if indices is not None:
        raise Unsupported("segments of indices")
    segment, count, of_segment = _segments(e, x, lengths, offsets, axis, checked=not unsafe)
    start = _EMPTY[reduce] if initial is None else float(number(initial))
    dtype = torch.float32 if x.dtype in HALVES else x.dtype
    y = _reduced(e, e.cast(x, dtype), segment, count, start, _REDUCTION[reduce])
    if reduce == "mean":
        empty = e.scalar(math.nan if initial is None else start, dtype)
        mean = e("div", y, _per_row(e, e.cast(e("maximum", of_segment, 1), dtype), y.rank))
        y = e("select", _per_row(e, e("eq", of_segment, 0), y.rank), empty, mean)
    return e.cast(y, out.dtype)


@lowers("aten._segment_reduce_backward.default")
def _segment_reduce_backward(e, out, seed, y, x, reduce, *, lengths=None, offsets=None, axis=0, initial=None):
    segment, count, of_segment = _segments(e, x, lengths, offsets, axis)
    # Rows behind the last segment read a row of zeros.
    dtype = torch.float32 if x.dtype in HALVES else x.dtype
    zeros = e("full", e.scalar(0, dtype), shape=[1, *x.sizes[1:]])
    of_row = lambda t: e("gather", e("concat", e.cast(t, dtype), zeros, axis=0), segment, axis=0)
    x, g = e.cast(x, dtype), of_row(seed)
    if reduce == "mean":
        g = of_row(e("div", e.cast(seed, dtype), _per_row(e, e.cast(e("maximum", of_segment, 1), dtype), x.rank)))
    elif reduce in ("max", "min"):  # equals share it, where it is positive: ATen divides no other
        chosen = e("logical_or", e("ne", x, x), e("eq", x, of_row(y)))
        shares = _reduced(e, e.cast(chosen, dtype), segment, count, 0.0, "add")
        shared = e("select", e("gt", g, 0), e("div", g, e("maximum", of_row(shares), 1)), g)
        g = e("select", chosen, shared, e.scalar(0, dtype))
    elif reduce == "prod":  # the product of the others
        zero, one = e("eq", x, 0), e.scalar(1, dtype)
        start = 1.0 if initial is None else float(number(initial))
        others = of_row(_reduced(e, e("select", zero, one, x), segment, count, start, "mul"))
        zeros_of = of_row(_reduced(e, e.cast(zero, dtype), segment, count, 0.0, "add"))
        others = e("select", zero, others, e("div", others, x))
        left = e("sub", zeros_of, e.cast(zero, dtype))  # zeros among the others
        g = e("select", e("eq", left, 0), e("mul", g, others), e.scalar(0, dtype))
    return e.cast(g, out.dtype)
