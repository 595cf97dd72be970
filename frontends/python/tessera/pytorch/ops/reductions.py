# SPDX-License-Identifier: Apache-2.0
"""Reductions, scans, and what is sorted."""

import math

import torch

from ..._abi import GE
from ..emit import HALVES, Unsupported, is_symbolic
from .table import TABLE, axes_of, axis_of, lowers, number, product, truth, wide


def _reduce(e, op, x, dims, keepdim):
    axes = axes_of(dims, x.rank)
    if not axes:
        return x
    return e(op, x, axes=axes, keepdims=bool(keepdim))


@lowers("aten.sum.default")
def _sum_all(e, out, x, dtype=None):
    return _reduce(e, "reduce_sum", e.cast(x, out.dtype), None, False)


@lowers("aten.sum.dim_IntList")
def _sum(e, out, x, dims=None, keepdim=False, dtype=None):
    return _reduce(e, "reduce_sum", e.cast(x, out.dtype), dims, keepdim)


@lowers("aten.mean.default")
def _mean_all(e, out, x, dtype=None):
    return _mean(e, out, x, None, False)


@lowers("aten.mean.dim")
def _mean(e, out, x, dims=None, keepdim=False, dtype=None):
    return _reduce(e, "mean", e.cast(x, out.dtype), dims, keepdim)


@lowers("aten.prod.default")
def _prod_all(e, out, x, dtype=None):
    return _reduce(e, "reduce_prod", e.cast(x, out.dtype), None, False)


@lowers("aten.prod.dim_int")
def _prod(e, out, x, dim, keepdim=False, dtype=None):
    return _reduce(e, "reduce_prod", e.cast(x, out.dtype), [dim], keepdim)


def _not_empty(e, x, axes):
    for a in axes:
        if x.rank and e.known(GE, x.sizes[a], 1) is not True:
            raise Unsupported("a reduction over a dimension that may be empty")


@lowers("aten.amax.default")
def _amax(e, out, x, dims=(), keepdim=False):
    _not_empty(e, x, axes_of(dims, x.rank))
    return _reduce(e, "reduce_max", x, dims, keepdim)


@lowers("aten.amin.default")
def _amin(e, out, x, dims=(), keepdim=False):
    _not_empty(e, x, axes_of(dims, x.rank))
    return _reduce(e, "reduce_min", x, dims, keepdim)


@lowers("aten.linalg_vector_norm.default")
def _vector_norm(e, out, x, ord=2, dims=None, keepdim=False, dtype=None):
    """(sum |x|^p)^(1/p), with the limits of that at p = 0, inf and -inf; halves are summed in f32."""
    if x.dtype.is_complex:
        raise Unsupported("norms of complex numbers")
    axes, p = axes_of(dims, x.rank), float(number(ord))
    x = e.cast(x, torch.float32 if out.dtype in HALVES else out.dtype)
    if math.isinf(p):
        _not_empty(e, x, axes)
        y = _reduce(e, "reduce_max" if p > 0 else "reduce_min", e("abs", x), axes, keepdim)
    elif p == 0:
        y = _reduce(e, "reduce_sum", e.cast(e("ne", x, e.scalar(0, x.dtype)), x.dtype), axes, keepdim)
    elif p == 1 or x.rank == 0:
        y = _reduce(e, "reduce_sum", e("abs", x), axes, keepdim)
    elif p == 2:
        y = e("sqrt", _reduce(e, "reduce_sum", e("mul", x, x), axes, keepdim))
    else:
        sum_of_powers = _reduce(e, "reduce_sum", e("pow", e("abs", x), e.scalar(p, x.dtype)), axes, keepdim)
        y = e("pow", sum_of_powers, e.scalar(1 / p, x.dtype))
    return e.cast(y, out.dtype)


TABLE["aten.max.default"] = _amax
TABLE["aten.min.default"] = _amin


def _lower_bool_reduction(op):
    def lower(e, out, x, dims=None, keepdim=False):
        return e.cast(_reduce(e, op, truth(e, x), dims, keepdim), out.dtype)

    return lower


for _aten, _op in (("any", "reduce_any"), ("all", "reduce_all")):
    for _overload in ("default", "dim", "dims"):
        TABLE[f"aten.{_aten}.{_overload}"] = _lower_bool_reduction(_op)


def _lower_arg(op):
    def lower(e, out, x, dim=None, keepdim=False):
        if dim is None:
            flat = e.reshape(x, [product(e, x.sizes)])
            _not_empty(e, flat, [0])
            return e.reshape(e(op, flat, axis=0), e.sizes(out.shape))
        if x.rank == 0:
            return e.scalar(0, torch.int64)
        axis = axis_of(dim, x.rank)
        _not_empty(e, x, [axis])
        return e(op, x, axis=axis, keepdims=bool(keepdim))

    return lower


TABLE["aten.argmax.default"] = _lower_arg("argmax")
TABLE["aten.argmin.default"] = _lower_arg("argmin")


def _lower_extreme(op, arg):
    def lower(e, out, x, dim, keepdim=False):
        if x.rank == 0:
            return [x, e.scalar(0, torch.int64)]
        axis = axis_of(dim, x.rank)
        _not_empty(e, x, [axis])
        return [e(op, x, axes=[axis], keepdims=bool(keepdim)), e(arg, x, axis=axis, keepdims=bool(keepdim))]

    return lower


TABLE["aten.max.dim"] = _lower_extreme("reduce_max", "argmax")
TABLE["aten.min.dim"] = _lower_extreme("reduce_min", "argmin")


@lowers("aten.var.correction")
def _var(e, out, x, dims=None, *, correction=None, keepdim=False):
    return (
        _reduce(e, "variance", x, dims, keepdim)
        if correction is None
        else e("variance", x, axes=axes_of(dims, x.rank), correction=float(number(correction)), keepdims=bool(keepdim))
    )


@lowers("aten.var_mean.correction")
def _var_mean(e, out, x, dims=None, *, correction=None, keepdim=False):
    return [_var(e, out, x, dims, correction=correction, keepdim=keepdim), _reduce(e, "mean", x, dims, keepdim)]


@lowers("aten.std.correction")
def _std(e, out, x, dims=None, *, correction=None, keepdim=False):
    wide = torch.float32 if x.dtype in HALVES else x.dtype
    return e.cast(e("sqrt", _var(e, out, e.cast(x, wide), dims, correction=correction, keepdim=keepdim)), out.dtype)


@lowers("aten.logsumexp.default")
def _logsumexp(e, out, x, dims, keepdim=False):
    return _reduce(e, "logsumexp", e.cast(x, out.dtype), dims, keepdim) if x.rank else e.cast(x, out.dtype)


@lowers("aten.cumsum.default")
def _cumsum(e, out, x, dim, dtype=None):
    return e("cumsum", e.cast(x, out.dtype), axis=axis_of(dim, x.rank)) if x.rank else e.cast(x, out.dtype)


@lowers("aten.cumprod.default")
def _cumprod(e, out, x, dim, dtype=None):
    return e("cumprod", e.cast(x, out.dtype), axis=axis_of(dim, x.rank)) if x.rank else e.cast(x, out.dtype)


@lowers("aten.sort.default", "aten.sort.stable")
def _sort(e, out, x, *args, **kwargs):
    stable = kwargs.get("stable")
    args = list(args)
    if "stable" not in kwargs and args and isinstance(args[0], bool):
        stable = args.pop(0)
    dim = args[0] if args else kwargs.get("dim", -1)
    descending = args[1] if len(args) > 1 else kwargs.get("descending", False)
    if x.rank == 0:
        return [x, e.scalar(0, torch.int64)]
    values, indices = e.ops("sort", x, axis=axis_of(dim, x.rank), descending=bool(descending))
    return [values, indices if stable else named(x, indices)]


def named(x, indices):
    """Indices of elements of which equal ones may stand for each other, as PyTorch documents it: the first of them. Of dtypes
    with few values, among which many are equal, the choice stays PyTorch's own."""
    return indices if x.dtype in (torch.float32, torch.float64) else None


def _median(e, out, x, dim, keepdim, skip_nan):
    """(values, indices) of the lower median: NaN where one stands in a row, or of what is no NaN."""
    axis = axis_of(dim, x.rank)
    _not_empty(e, x, [axis])
    values, indices = e.ops("sort", x, axis=axis)
    count = e.scalar(x.sizes[axis], torch.int64) if not is_symbolic(x.sizes[axis]) else e("dim_value", value=x.sizes[axis])
    numbers = count
    if x.dtype.is_floating_point:
        numbers = e("reduce_sum", e.cast(e("eq", x, x), torch.int64), axes=[axis], keepdims=True)
    place = e("floor_div", e("maximum", e("sub", numbers, 1), 0), 2)
    if x.dtype.is_floating_point and not skip_nan:  # NaNs stand last
        place = e("select", e("ne", numbers, count), numbers, place)
    sizes = [1 if k == axis else s for k, s in enumerate(x.sizes)]
    found = [e("take_along_axis", t, e.broadcast(place, sizes), axis=axis) for t in (values, indices)]
    return found if keepdim else [e("squeeze", t, axes=[axis]) for t in found]


def _lower_median(skip_nan):
    def of_all(e, out, x):
        if x.rank == 0:
            return x
        return _median(e, out, e.reshape(x, [product(e, x.sizes)]), 0, False, skip_nan)[0]

    def along(e, out, x, dim, keepdim=False):
        if x.rank == 0:
            return [x, e.scalar(0, torch.int64)]
        values, indices = _median(e, out, x, dim, keepdim, skip_nan)
        return [values, named(x, indices)]

    return of_all, along


for _aten, _skip in (("median", False), ("nanmedian", True)):
    TABLE[f"aten.{_aten}.default"], TABLE[f"aten.{_aten}.dim"] = _lower_median(_skip)


@lowers("aten.kthvalue.default")
def _kthvalue(e, out, x, k, dim=-1, keepdim=False):
    if x.rank == 0:
        return [x, e.scalar(0, torch.int64)]
    axis, k = axis_of(dim, x.rank), number(k)
    starts, limits = [0] * x.rank, list(x.sizes)
    starts[axis], limits[axis] = k - 1, k
    found = [e("slice", t, starts=starts, limits=limits, strides=[1] * x.rank) for t in e.ops("sort", x, axis=axis)]
    values, indices = found if keepdim else [e("squeeze", t, axes=[axis]) for t in found]
    return [values, named(x, indices)]


@lowers("aten.histc.default")
def _histc(e, out, x, bins=100, min=0, max=0):
    bins, low, high, n = number(bins), number(min), number(max), product(e, x.sizes)
    if e.known(GE, n, 1) is not True:
        raise Unsupported("a histogram of what may be empty")
    x = e.reshape(x, [n])
    if low == high == 0:
        low, high = (_reduce(e, op, x, None, False) for op in ("reduce_min", "reduce_max"))
        same = e("eq", low, high)
        low, high = e("select", same, e("sub", low, 1), low), e("select", same, e("add", high, 1), high)
    else:
        if low == high:
            low, high = low - 1, high + 1
        low, high = e.scalar(low, x.dtype), e.scalar(high, x.dtype)
    inside = e("logical_and", e("ge", x, low), e("le", x, high))
    place = e("div", e("mul", e("sub", x, low), e.scalar(bins, x.dtype)), e("sub", high, low))
    place = e("minimum", e.cast(e("select", inside, place, e.scalar(0, x.dtype)), torch.int64), bins - 1)
    place = e("select", inside, place, e.scalar(bins, torch.int64))
    none = e("full", e.scalar(0, torch.int64), shape=[bins + 1])
    count = e("scatter", none, place, e.cast(inside, torch.int64), axis=0, reduction="add")
    return e.cast(e("slice", count, starts=[0], limits=[bins], strides=[1]), out.dtype)


@lowers("aten.topk.default")
def _topk(e, out, x, k, dim=-1, largest=True, sorted=True):
    if x.rank == 0:
        raise Unsupported("topk of a 0-d tensor")
    values, indices = e.ops("topk", x, k=e.size(k), axis=axis_of(dim, x.rank), largest=bool(largest))
    return [values, named(x, indices)]


@lowers("aten.logcumsumexp.default")
def _logcumsumexp(e, out, x, dim):
    """By doubling steps: after step k every element holds the sum over the 2^k before it."""
    if x.rank == 0:
        return x
    axis, dtype = axis_of(dim, x.rank), torch.float32 if x.dtype in HALVES else x.dtype
    n, y, step = x.sizes[axis], e.cast(x, dtype), 1
    if is_symbolic(n):
        raise Unsupported("logcumsumexp along a symbolic dimension")
    none = e.scalar(-math.inf, dtype)
    while step < n:
        starts, limits, low = [0] * x.rank, list(x.sizes), [0] * x.rank
        limits[axis], low[axis] = n - step, step
        before = e("slice", y, starts=starts, limits=limits, strides=[1] * x.rank)
        before = e("pad", before, none, low=low, high=[0] * x.rank)
        most, least = e("maximum", y, before), e("minimum", y, before)
        both = e("add", most, e("log1p", e("exp", e("sub", least, most))))
        y = e("select", e("is_inf", most), most, both)
        step *= 2
    return e.cast(y, out.dtype)
