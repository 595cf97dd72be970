# SPDX-License-Identifier: Apache-2.0
"""Complex numbers: made of real ones, taken apart, moved, and computed with as pairs of real ones.

A tensor whose conjugate or negative PyTorch leaves to whoever reads it is the value that the reader sees.
"""

import torch

from ..emit import Unsupported, Value
from . import elementwise, indexing, reductions  # noqa: F401, whose lowerings serve the parts
from .shapes import padding_of
from .table import TABLE, lowers, number

# Lowerings in place of the table's where an operand or a result is complex.
COMPLEX = {}
# Operators whose lowering in the table is for complex tensors too: they make them, take them apart or move them.
TAKE_COMPLEX = {
    "aten._fft_c2c.default",
    "aten._fft_c2r.default",
    "aten._fft_r2c.default",
    "aten._to_copy.default",
    "aten.complex.default",
    "aten.polar.default",
    "aten.view_as_complex.default",
    "aten.view_as_real.default",
    "aten.real.default",
    "aten.imag.default",
    "aten.clone.default",
    "aten.detach.default",
    "aten.cat.default",
    "aten.expand.default",
    "aten.permute.default",
    "aten.reshape.default",
    "aten.select.int",
    "aten.slice.Tensor",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.stack.default",
    "aten.t.default",
    "aten.transpose.int",
    "aten.unsqueeze.default",
    "aten.view.default",
}


def part_dtype(dtype):
    if dtype not in (torch.complex64, torch.complex128):
        raise Unsupported(f"dtype {dtype}")
    return torch.float32 if dtype == torch.complex64 else torch.float64


def require_one_dtype(a, b):
    """What PyTorch's capture lets through is an error of its kernels."""
    if a.dtype != b.dtype:
        raise Unsupported(f"parts of {a.dtype} and {b.dtype}, which is an error")


@lowers("aten.complex.default")
def _complex(e, out, re, im):
    require_one_dtype(re, im)
    dtype = part_dtype(out.dtype)
    return e("complex", e.cast(re, dtype), e.cast(im, dtype))


@lowers("aten.polar.default")
def _polar(e, out, length, angle):
    require_one_dtype(length, angle)
    part_dtype(out.dtype)
    return e("complex", e("mul", length, e("cos", angle)), e("mul", length, e("sin", angle)))


@lowers("aten.view_as_complex.default")
def _view_as_complex(e, out, x):
    part_dtype(out.dtype)
    last = x.rank - 1

    def part(k):
        starts, limits = [0] * last + [k], x.sizes[:last] + [k + 1]
        return e("squeeze", e("slice", x, starts=starts, limits=limits, strides=[1] * x.rank), axes=[last])

    return e("complex", part(0), part(1))


@lowers("aten.view_as_real.default")
def _view_as_real(e, out, x):
    return e("stack", e("real", x), e("imag", x), axis=x.rank)


@lowers("aten.real.default")
def _real(e, out, x):
    return e("real", x) if x.dtype.is_complex else x


@lowers("aten.imag.default")
def _imag(e, out, x):
    return e("imag", x)


# ---- pairs of real numbers


def lowers_complex(*names):
    def register(f):
        for name in names:
            COMPLEX[name] = f
        return f

    return register


def parts(e, x, dtype=None):
    """(real part, imaginary part or None) of a Value or a number, in the dtype of parts."""
    if isinstance(x, Value):
        if x.dtype.is_complex:
            pair = e("real", x), e("imag", x)
            return pair if dtype is None else tuple(e.cast(t, dtype) for t in pair)
        return (x if dtype is None else e.cast(x, dtype)), None
    if isinstance(x, complex):
        return e.scalar(x.real, dtype), e.scalar(x.imag, dtype)
    return e.scalar(x, dtype), None


def _zeros(e, x):
    return e.broadcast(e.scalar(0, x.dtype), x.sizes)


def complex_of(e, re, im):
    return e("complex", re, _zeros(e, re) if im is None else im)


def _sum_of(e, op, a, b):
    """a op b of parts, either of which may be missing."""
    if b is None:
        return a
    if a is None:
        return e("neg", b) if op == "sub" else b
    return e(op, a, b)


def product_of(e, a, b):
    """The product of two pairs."""
    (ar, ai), (br, bi) = a, b
    re = e("mul", ar, br)
    if ai is not None and bi is not None:
        re = e("sub", re, e("mul", ai, bi))
    cross = [e("mul", x, y) for x, y in ((ar, bi), (ai, br)) if x is not None and y is not None]
    return re, cross[0] if len(cross) == 1 else e("add", *cross) if cross else None


def _add_or_sub(op):
    def lower(e, out, a, b, alpha=1):
        dtype = part_dtype(out.dtype)
        a, b = parts(e, a, dtype), parts(e, b, dtype)
        if alpha != 1:
            b = product_of(e, parts(e, alpha, dtype), b)
        re, im = (_sum_of(e, op, x, y) for x, y in zip(a, b))
        return complex_of(e, re, im)

    return lower


for _op in ("add", "sub"):
    for _overload in ("Tensor", "Scalar"):
        COMPLEX[f"aten.{_op}.{_overload}"] = _add_or_sub(_op)


@lowers_complex("aten.mul.Tensor", "aten.mul.Scalar")
def _mul(e, out, a, b):
    dtype = part_dtype(out.dtype)
    return complex_of(e, *product_of(e, parts(e, a, dtype), parts(e, b, dtype)))


@lowers_complex("aten.div.Tensor", "aten.div.Scalar")
def _div(e, out, a, b):
    dtype = part_dtype(out.dtype)
    a, (c, d) = parts(e, a, dtype), parts(e, b, dtype)
    if d is None:
        return complex_of(e, *(t if t is None else e("div", t, c) for t in a))
    # Scaled by the larger part of the divisor (Smith, 1962), so that its square does not overflow.
    scale = e("maximum", e("abs", c), e("abs", d))
    c, d = e("div", c, scale), e("div", d, scale)
    length = e("mul", e("add", e("mul", c, c), e("mul", d, d)), scale)
    re, im = product_of(e, a, (c, e("neg", d)))
    return complex_of(e, e("div", re, length), e("div", im, length))


@lowers_complex("aten.neg.default", "aten._neg_view.default")
def _neg(e, out, x):
    return complex_of(e, *(e("neg", t) for t in parts(e, x)))


TABLE["aten._neg_view.default"] = lambda e, out, x: e("neg", x)


@lowers_complex("aten._conj.default", "aten._conj_physical.default", "aten.conj_physical.default")
def _conj(e, out, x):
    re, im = parts(e, x)
    return complex_of(e, re, e("neg", im))


@lowers_complex("aten.abs.default")
def _abs(e, out, x):
    return e("hypot", *parts(e, x))


@lowers_complex("aten.angle.default")
def _angle(e, out, x):
    re, im = parts(e, x)
    return e("atan2", im, re)


@lowers_complex("aten.exp.default")
def _exp(e, out, x):
    re, im = parts(e, x)
    length = e("exp", re)
    return complex_of(e, e("mul", length, e("cos", im)), e("mul", length, e("sin", im)))


@lowers_complex("aten.mm.default", "aten.bmm.default")
def _product(e, out, a, b):
    (ar, ai), (br, bi) = (parts(e, t) for t in (a, b))

    def times(x, y):
        return e("matmul", x, y)

    return complex_of(e, e("sub", times(ar, br), times(ai, bi)), e("add", times(ar, bi), times(ai, br)))


@lowers_complex("aten._to_copy.default", "prims.convert_element_type.default")
def _converted(e, out, x, *_, **__):
    dtype = part_dtype(out.dtype)
    return complex_of(e, *parts(e, x, dtype))


@lowers_complex("aten.full.default", "aten.full_like.default")
def _full(e, out, _, value, **__):
    dtype = part_dtype(out.dtype)
    value, shape = complex(number(value)), e.sizes(out.shape)
    return complex_of(e, *(e("full", e.scalar(t, dtype), shape=shape) for t in (value.real, value.imag)))


@lowers_complex("aten.fill.Scalar", "aten.fill.Tensor")
def _filled(e, out, x, value):
    shape = e.sizes(out.shape)
    re, im = parts(e, value, part_dtype(out.dtype))
    return complex_of(e, *(t if t is None else e.broadcast(t, shape) for t in (re, im)))


@lowers_complex("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(e, out, x, mask, value):
    dtype, pair = part_dtype(out.dtype), parts(e, x)
    filler = parts(e, value, dtype)
    if filler[1] is None:
        filler = filler[0], e.scalar(0, dtype)
    shape = e.sizes(out.shape)
    return complex_of(e, *(e.broadcast(e("select", mask, v, t), shape) for v, t in zip(filler, pair)))


def _constant(value):
    def lower(e, out, *_, **__):
        dtype, shape = part_dtype(out.dtype), e.sizes(out.shape)
        return complex_of(e, e("full", e.scalar(value, dtype), shape=shape), None)

    return lower


for _name in ("zeros.default", "zeros_like.default", "new_empty_strided.default", "empty_like.default", "new_empty.default"):
    COMPLEX[f"aten.{_name}"] = _constant(0)
for _name in ("ones.default", "ones_like.default"):
    COMPLEX[f"aten.{_name}"] = _constant(1)


@lowers_complex("aten.sgn.default")
def _sgn(e, out, x):
    re, im = parts(e, x)
    length = e("hypot", re, im)
    zero = e("eq", length, 0.0)
    return complex_of(e, *(e("select", zero, e.scalar(0, t.dtype), e("div", t, length)) for t in (re, im)))


@lowers_complex("aten.constant_pad_nd.default")
def _padded(e, out, x, pad, value=0):
    dtype, value = part_dtype(out.dtype), complex(number(value))
    low, high = padding_of(e, x, pad)
    both = zip(parts(e, x), (value.real, value.imag))
    return complex_of(e, *(e("pad", t, e.scalar(v, dtype), low=low, high=high) for t, v in both))


class _Part:
    """What PyTorch says of a complex result, for one of its parts."""

    def __init__(self, fake):
        self.shape, self.dtype = fake.shape, part_dtype(fake.dtype)
        self.dim, self.numel = fake.dim, fake.numel


def _by_parts(lower):
    """A lowering of real tensors, for complex ones whose parts it treats alike. Numbers among the arguments are no data."""

    def of(e, x, k):
        if isinstance(x, (list, tuple)):
            return [of(e, t, k) for t in x]
        if not isinstance(x, Value) or not (x.dtype.is_floating_point or x.dtype.is_complex):
            return x
        pair = parts(e, x)
        return pair[k] if pair[k] is not None else _zeros(e, x)

    def lower_both(e, out, *args, **kwargs):
        several = isinstance(out, (list, tuple))
        like = [_Part(o) for o in out] if several else _Part(out)
        re, im = (lower(e, like, *of(e, args, k), **{n: of(e, v, k) for n, v in kwargs.items()}) for k in (0, 1))
        return [complex_of(e, *pair) for pair in zip(re, im)] if several else complex_of(e, re, im)

    return lower_both


for _name in (
    "aten.copy.default",
    "aten.cumsum.default",
    "aten.diagonal.default",
    "aten.diagonal_scatter.default",
    "aten.flip.default",
    "aten.index.Tensor",
    "aten.index_select.default",
    "aten.mean.default",
    "aten.mean.dim",
    "aten.repeat.default",
    "aten.roll.default",
    "aten.select_scatter.default",
    "aten.slice_scatter.default",
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.sum.default",
    "aten.sum.dim_IntList",
    "aten.tril.default",
    "aten.triu.default",
    "aten.unbind.int",
    "aten.where.self",
):
    COMPLEX[_name] = _by_parts(TABLE[_name])
