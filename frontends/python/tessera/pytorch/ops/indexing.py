# SPDX-License-Identifier: Apache-2.0
"""Gathering and scattering."""

import math

import torch

from ..emit import HALVES, Unsupported, Value, is_symbolic
from .shapes import index_of, place_of
from .table import axis_of, broadcast_shape, lowers, number, operand, wrapped


@lowers("aten.embedding.default")
def _embedding(e, out, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return e("embedding", weight, indices)


@lowers("aten.index_select.default")
def _index_select(e, out, x, dim, index):
    if x.rank == 0:  # one element, chosen once
        if index.rank == 0 or index.sizes == [1]:
            return x
        raise Unsupported("index_select of a 0-d tensor by several indices")
    if index.rank == 0:
        index = e.reshape(index, [1])
    return e("gather", x, index, axis=axis_of(dim, x.rank))


@lowers("aten.gather.default")
def _gather(e, out, x, dim, index, sparse_grad=False):
    if x.rank == 0 or index.rank == 0:
        raise Unsupported("gather of a 0-d tensor")
    if index.dtype not in (torch.int32, torch.int64):
        index = e.cast(index, torch.int64)
    return e("take_along_axis", x, index, axis=axis_of(dim, x.rank))


@lowers("aten.take_along_dim.default")
def _take_along_dim(e, out, x, index, dim=None):
    raise Unsupported("take_along_dim")


@lowers("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(e, out, x, indices):
    places = [k for k, i in enumerate(indices) if i is not None]
    if not places or any(indices[k].dtype == torch.bool or indices[k].dtype == torch.uint8 for k in places):
        raise Unsupported("an index that is a mask")
    if places != list(range(places[0], places[-1] + 1)):
        raise Unsupported("index tensors that are not adjacent")
    if len(places) == 1:
        return e("gather", x, wrapped(e, indices[places[0]], x.sizes[places[0]]), axis=places[0])
    tuples = _index_tuples(e, x, indices, places)
    first, depth, rank = places[0], len(places), tuples.rank - 1
    if first == 0:
        return e("gather_nd", x, tuples)
    # The indexed dimensions to the front; what they become, rank many, goes back to where they stood.
    rest = [k for k in range(x.rank) if k not in places]
    y = e("gather_nd", e("transpose", x, perm=places + rest), tuples)
    perm = [rank + k for k in range(first)] + list(range(rank)) + [rank + k for k in range(first, x.rank - depth)]
    return e("transpose", y, perm=perm)


def _index_tuples(e, x, indices, places):
    parts = [wrapped(e, indices[k], x.sizes[k]) for k in places]
    shape = broadcast_shape(e, [p.sizes for p in parts])
    return e("stack", *[e.broadcast(p, shape) for p in parts], axis=len(shape))


@lowers("aten.index_put.default", "aten._unsafe_index_put.default")
def _index_put(e, out, x, indices, values, accumulate=False):
    places = [k for k, i in enumerate(indices) if i is not None]
    if (
        len(places) == 1
        and indices[places[0]].dtype == torch.bool
        and indices[places[0]].sizes == x.sizes
        and values.rank == 0
        and (places[0] == 0)
    ):
        return e("select", indices[0], e("add", x, values) if accumulate else values, x)  # a mask and a number
    if not places or any(indices[k].dtype in (torch.bool, torch.uint8) for k in places):
        raise Unsupported("an index that is a mask")
    if places != list(range(places[0], places[0] + len(places))):
        raise Unsupported("index tensors that are not adjacent")
    if accumulate and x.dtype in HALVES:
        raise Unsupported("sums of halves by an index, which PyTorch rounds in another order")
    if x.rank == 0:
        raise Unsupported("an index into a 0-d tensor")
    tuples = _index_tuples(e, x, indices, places)
    first, depth, rank = places[0], len(places), tuples.rank - 1
    reduction = "add" if accumulate else "none"
    before, behind = list(range(first)), list(range(first + depth, x.rank))
    values = e.broadcast(values, x.sizes[:first] + tuples.sizes[:-1] + x.sizes[first + depth :])
    if first == 0:
        return e("scatter_nd", x, tuples, values, reduction=reduction)
    # The indexed dimensions to the front, in the target as in the values, and back again.
    perm = places + before + behind
    moved = list(range(first, first + rank)) + before + list(range(first + rank, first + rank + len(behind)))
    y = e("scatter_nd", e("transpose", x, perm=perm), tuples, e("transpose", values, perm=moved), reduction=reduction)
    return e("transpose", y, perm=[perm.index(k) for k in range(x.rank)])


@lowers("aten.scatter.src", "aten.scatter.value")
def _scatter(e, out, x, dim, index, src):
    return _scattered(e, x, dim, index, src, "none")


@lowers("aten.scatter_add.default")
def _scatter_add(e, out, x, dim, index, src):
    return _scattered(e, x, dim, index, src, "add")


@lowers("aten.scatter.reduce", "aten.scatter.value_reduce")
def _scatter_with(e, out, x, dim, index, src, *, reduce):
    return _scattered(e, x, dim, index, src, {"add": "add", "multiply": "mul"}[reduce])


def _neutral(e, reduction, dtype):
    """What a reduction begins with."""
    if reduction in ("sum", "mean"):
        return e.scalar(0, dtype)
    if reduction == "prod":
        return e.scalar(1, dtype)
    if dtype == torch.bool:
        return e.scalar(reduction == "amin", dtype)
    if dtype.is_floating_point:
        return e.scalar(math.inf if reduction == "amin" else -math.inf, dtype)
    info = torch.iinfo(dtype)
    return e.scalar(info.max if reduction == "amin" else info.min, dtype)


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}


@lowers("aten.scatter_reduce.two")
def _scatter_reduce(e, out, x, dim, index, src, reduce, *, include_self=True):
    if reduce == "mean" and (x.dtype in HALVES or x.dtype == torch.bool):
        raise Unsupported("a mean of halves or bools by an index")
    start = x
    if not include_self:
        start = _scattered(e, x, dim, index, e.broadcast(_neutral(e, reduce, x.dtype), index.sizes), "none")
    y = _scattered(e, start, dim, index, src, _REDUCTIONS[reduce])
    if reduce != "mean":
        return y
    ones = e.broadcast(e.scalar(1, x.dtype), index.sizes)
    counts = e.broadcast(e.scalar(1 if include_self else 0, x.dtype), x.sizes)
    counts = e("maximum", _scattered(e, counts, dim, index, ones, "add"), e.scalar(1, x.dtype))
    return e("div" if x.dtype.is_floating_point else "floor_div", y, counts)


@lowers("aten.index_reduce.default")
def _index_reduce(e, out, x, dim, index, source, reduce, *, include_self=True):
    if x.rank == 0:
        row = _index_reduce(e, out, e.reshape(x, [1]), 0, index, e.reshape(source, [1]), reduce, include_self=include_self)
        return e.reshape(row, [])
    if index.rank == 0:
        index = e.reshape(index, [1])
    axis = axis_of(dim, x.rank)
    index = e.reshape(index, [1] * axis + index.sizes + [1] * (x.rank - axis - 1))
    index = e.cast(e.broadcast(index, source.sizes), torch.int64)
    return _scatter_reduce(e, out, x, axis, index, source, reduce, include_self=include_self)


@lowers("aten.index_add.default")
def _index_add(e, out, x, dim, index, source, alpha=1):
    if x.dtype in HALVES:
        raise Unsupported("index_add of halves, which PyTorch rounds in another order")
    if x.rank == 0:
        return e.reshape(_index_add(e, out, e.reshape(x, [1]), 0, index, e.reshape(source, [1]), alpha), [])
    if index.rank == 0:
        index = e.reshape(index, [1])
    axis = axis_of(dim, x.rank)
    if alpha != 1:
        source = e("mul", source, e.scalar(number(alpha), x.dtype))
    index = e.reshape(index, [1] * axis + index.sizes + [1] * (x.rank - axis - 1))
    return e("scatter", x, e.broadcast(index, source.sizes), source, axis=axis, reduction="add")


@lowers("aten.slice_scatter.default")
def _slice_scatter(e, out, x, src, dim=0, start=None, end=None, step=1):
    axis = axis_of(dim, x.rank)
    size = x.sizes[axis]
    first = 0 if start is None else place_of(e, start, size)
    if step != 1 or is_symbolic(first):
        raise Unsupported("slice_scatter with a step")
    return _updated(e, x, src, axis, first)


@lowers("aten.select_scatter.default")
def _select_scatter(e, out, x, src, dim, index):
    axis = axis_of(dim, x.rank)
    index = index_of(e, index, x.sizes[axis])
    return _updated(e, x, e("expand_dims", src, axes=[axis]), axis, index)


def _updated(e, x, src, axis, first):
    start = e("dim_value", value=first) if is_symbolic(first) else e.scalar(first, torch.int64)
    zero = e.scalar(0, torch.int64)
    return e("dynamic_update_slice", x, e.cast(src, x.dtype), *[start if k == axis else zero for k in range(x.rank)])


@lowers("aten.copy.default")
def _copy(e, out, x, src, non_blocking=False):
    return e.broadcast(e.cast(src, x.dtype), x.sizes)


@lowers("aten.fill.Scalar", "aten.fill.Tensor")
def _fill(e, out, x, value):
    return e.broadcast(operand(e, value, x.dtype), x.sizes)


@lowers("aten.unfold.default", "aten.unfold_copy.default")
def _unfold(e, out, x, dim, size, step):
    if is_symbolic(e.size(size)) or size == 0:
        raise Unsupported("unfold into pieces of a symbolic size, or of none")
    if x.rank == 0:
        return e("expand_dims", x, axes=[0])
    axis = axis_of(dim, x.rank)
    count = e.sizes(out.shape)[axis]
    starts = e("reshape", e("mul", e("iota", shape=[count], axis=0, dtype=torch.int64), step), shape=[count, 1])
    y = e("gather", x, e("add", starts, e.ints(range(size))), axis=axis)  # [.., count, size, ..]
    perm = [k for k in range(x.rank + 1) if k != axis + 1] + [axis + 1]
    return e("transpose", y, perm=perm)


def _scattered(e, x, dim, index, src, reduction):
    if x.rank == 0 or index.rank == 0:
        raise Unsupported("scatter into a 0-d tensor")
    if reduction in ("add", "mul") and x.dtype in HALVES:
        raise Unsupported("a scattered sum of halves, which PyTorch rounds in another order")
    if not isinstance(src, Value):
        src = e.broadcast(e.scalar(src, x.dtype), index.sizes)
    if src.sizes != index.sizes:  # the block that the indices cover
        src = e("slice", src, starts=[0] * src.rank, limits=index.sizes, strides=[1] * src.rank)
    return e("scatter", x, index, src, axis=axis_of(dim, x.rank), reduction=reduction)
