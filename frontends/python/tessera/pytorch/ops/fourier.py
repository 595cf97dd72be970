# SPDX-License-Identifier: Apache-2.0
"""Discrete Fourier transforms as products with matrices of roots of unity.

A length is split into factors of at most 64 (Cooley and Tukey, 1965): a transform of length n = a b is transforms of length a,
a product with roots of order n, and transforms of length b. A length with a large prime factor stays with ATen, whose
algorithms take any. So does one that calls bring, unless it is at most 64, which a guard then says: it is one product, with
roots computed at the call.
"""

import array
import math

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from ..._abi import EQ, GE, LE, LT
from ..emit import Unsupported, is_symbolic
from .complexes import complex_of, part_dtype, parts
from .table import axis_of, lowers, number, product

_SINGLE = 64  # lengths up to this one are one product
_LARGEST_FACTOR = 512
_BY_ROOT, _BY_LENGTH = 1, 2  # normalization, as ATen numbers it


def _roots(e, rows, columns, order, sign, dtype):
    """cos and sin of sign 2 pi i j / order, as constants [rows, columns]."""
    step = sign * 2 * math.pi / order
    angles = [step * (i * j % order) for i in range(rows) for j in range(columns)]

    def constant(f):
        return e.constant(dtype, [rows, columns], array.array("f" if dtype == torch.float32 else "d", map(f, angles)).tobytes())

    return constant(math.cos), constant(math.sin)


def _symbolic_roots(e, n, sign, dtype):
    """cos and sin of sign 2 pi i j / n, [n, n], for a length that every call brings: picked from the n roots."""
    k, count = e("iota", shape=[n], axis=0, dtype=torch.int64), e("dim_value", value=n)
    step = e("div", e.scalar(sign * 2 * math.pi, torch.float64), e.cast(count, torch.float64))
    angles = e("mul", e.cast(k, torch.float64), step)
    which = e("remainder", e("mul", e.reshape(k, [n, 1]), e.reshape(k, [1, n])), count)
    return tuple(e("gather", e.cast(e(f, angles), dtype), which, axis=0) for f in ("cos", "sin"))


def _rotated(e, re, im, cos, sin):
    """(re + i im)(cos + i sin)"""
    return (
        e("sub", e("mul", re, cos), e("mul", im, sin)),
        e("add", e("mul", re, sin), e("mul", im, cos)),
    )


def _factor(n):
    """The largest factor of n up to the size of one product; n itself when there is none."""
    return next((a for a in range(min(_SINGLE, n - 1), 1, -1) if n % a == 0), n) if n > _SINGLE else n


def _product(e, re, im, cos, sin):
    if im is None:
        return e("matmul", re, cos), e("matmul", re, sin)
    return (
        e("sub", e("matmul", re, cos), e("matmul", im, sin)),
        e("add", e("matmul", re, sin), e("matmul", im, cos)),
    )


def _along_last(e, re, im, sign):
    """Transforms the last dimension, which stands in two parts; im may be None."""
    n, lead = re.sizes[-1], re.sizes[:-1]
    if is_symbolic(n):
        if not e.holds(LE, n, _SINGLE):
            raise Unsupported("a Fourier transform of a symbolic length that is not small")
        return _product(e, re, im, *_symbolic_roots(e, n, sign, re.dtype))
    a = _factor(n)
    if a == n:
        if n > _LARGEST_FACTOR:
            raise Unsupported("a Fourier transform of a length with a large prime factor")
        return _product(e, re, im, *_roots(e, n, n, n, sign, re.dtype))
    # Index j = b j1 + j2 in, k = k1 + a k2 out: over j1, rotated by roots of order n, then over j2.
    b, rank = n // a, re.rank
    turn = [*range(rank - 1), rank, rank - 1]

    def columns(x):
        return x if x is None else e("transpose", e.reshape(x, [*lead, a, b]), perm=turn)

    re, im = _along_last(e, columns(re), columns(im), sign)  # [.., j2, k1]
    re, im = _rotated(e, re, im, *_roots(e, b, a, n, sign, re.dtype))
    re, im = _along_last(e, *(e("transpose", x, perm=turn) for x in (re, im)), sign)  # [.., k1, k2]
    return tuple(e.reshape(e("transpose", x, perm=turn), [*lead, n]) for x in (re, im))


def _along(e, re, im, axis, sign):
    if e.holds(EQ, re.sizes[axis], 0):
        raise Unsupported("a Fourier transform of no length")
    if axis == re.rank - 1:
        return _along_last(e, re, im, sign)
    perm = [k for k in range(re.rank) if k != axis] + [axis]
    back = [perm.index(k) for k in range(re.rank)]
    moved = [x if x is None else e("transpose", x, perm=perm) for x in (re, im)]
    return tuple(e("transpose", x, perm=back) for x in _along_last(e, *moved, sign))


def _scaled(e, re, im, lengths, normalization):
    n = product(e, lengths)
    if normalization == 0 or n == 1:
        return re, im
    if is_symbolic(n):
        count = e.cast(e("dim_value", value=n), torch.float64)
        count = e("sqrt", count) if normalization == _BY_ROOT else count
        scale = e.cast(e("div", e.scalar(1.0, torch.float64), count), re.dtype)
    else:
        scale = e.scalar(1 / math.sqrt(n) if normalization == _BY_ROOT else 1 / n, re.dtype)
    return e("mul", re, scale), im if im is None else e("mul", im, scale)


@lowers("aten._fft_c2c.default")
def _complex_to_complex(e, out, x, dims, normalization, forward):
    axes = [axis_of(number(d), x.rank) for d in dims]
    re, im = parts(e, x)
    for axis in axes:
        re, im = _along(e, re, im, axis, -1 if forward else 1)
    return complex_of(e, *_scaled(e, re, im, [x.sizes[a] for a in axes], normalization))


@lowers("aten._fft_r2c.default")
def _real_to_complex(e, out, x, dims, normalization, onesided):
    part_dtype(out.dtype)
    axes = [axis_of(number(d), x.rank) for d in dims]
    last = axes[-1]
    re, im = _along(e, x, None, last, -1)
    if onesided:
        limits = list(x.sizes)
        limits[last] = e.add(e.floor_div(x.sizes[last], 2), 1)
        re, im = (e("slice", t, starts=[0] * x.rank, limits=limits, strides=[1] * x.rank) for t in (re, im))
    for axis in axes[:-1]:
        re, im = _along(e, re, im, axis, -1)
    return complex_of(e, *_scaled(e, re, im, [x.sizes[a] for a in axes], normalization))


@lowers("aten._fft_c2r.default")
def _complex_to_real(e, out, x, dims, normalization, last_length):
    axes = [axis_of(number(d), x.rank) for d in dims]
    last, n = axes[-1], e.size(last_length)
    re, im = parts(e, x)
    for axis in axes[:-1]:
        re, im = _along(e, re, im, axis, 1)
    # The second half of the spectrum is the first, conjugated and from its end.
    half = e.add(e.floor_div(n, 2), 1)
    enough = e.known(GE, x.sizes[last], half)
    if enough is None:
        enough = e.decided(sympy.Ge(e.expression(x.sizes[last]), FloorDiv(e.expression(n), 2) + 1))
    if not enough:
        raise Unsupported("a Fourier transform of less than half a spectrum")

    def part(t, first, limit):
        starts, limits = [0] * t.rank, list(t.sizes)
        starts[last], limits[last] = first, limit
        return e("slice", t, starts=starts, limits=limits, strides=[1] * t.rank)

    short = e.holds(LT, n, 3)

    def whole(t, conjugate):
        first = part(t, 0, half)
        if short:
            return first
        rest = e("flip", part(t, 1, e.add(e.sub(n, half), 1)), axes=[last])
        return e("concat", first, e("neg", rest) if conjugate else rest, axis=last)

    re, im = whole(re, False), whole(im, True)
    im = e("mul", im, _unpaired(e, n, im.dtype, [n if k == last else 1 for k in range(x.rank)]))
    re, _ = _along(e, re, im, last, 1)
    return _scaled(e, re, None, [n if a == last else x.sizes[a] for a in axes], normalization)[0]


def _unpaired(e, n, dtype, shape):
    """0 at 0 and at n / 2, where what is real in the result has no imaginary part, and 1 elsewhere."""
    if not is_symbolic(n):
        kept = [0.0 if k == 0 or 2 * k == n else 1.0 for k in range(n)]
        return e.constant(dtype, shape, array.array("f" if dtype == torch.float32 else "d", kept).tobytes())
    k = e("iota", shape=[n], axis=0, dtype=torch.int64)
    alone = e("logical_or", e("eq", k, 0), e("eq", e("add", k, k), e("dim_value", value=n)))
    return e.reshape(e("select", alone, e.scalar(0.0, dtype), e.scalar(1.0, dtype)), shape)
