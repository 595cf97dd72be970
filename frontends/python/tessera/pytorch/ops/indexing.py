# SPDX-License-Identifier: Apache-2.0
"""Gathering and scattering."""

import math

import torch

from ..._abi import GE
from ..emit import HALVES, Unsupported, Value, is_symbolic
from .shapes import index_of, place_of
from .table import axis_of, broadcast_shape, lowers, number, operand, product, truth, wrapped


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
    if 0 in index.sizes:
        return e("full", e.scalar(0, x.dtype), shape=index.sizes)
    if x.rank == 0 or index.rank == 0:  # as of one element each
        x, at = (e.reshape(t, [1]) if t.rank == 0 else t for t in (x, index))
        return e.reshape(_gather(e, out, x, 0, at), index.sizes)
    if index.dtype not in (torch.int32, torch.int64):
        index = e.cast(index, torch.int64)
    return e("take_along_axis", x, index, axis=axis_of(dim, x.rank))


@lowers("aten.take_along_dim.default")
def _take_along_dim(e, out, x, index, dim=None):
    raise Unsupported("take_along_dim")


@lowers("aten.take.default")
def _take(e, out, x, index):
    n = product(e, x.sizes)
    if e.known(GE, n, 1) is not True:
        raise Unsupported("elements of what may be empty")
    return e("gather", e.reshape(x, [n]), wrapped(e, index, n), axis=0)


@lowers("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(e, out, x, indices):
    places = [k for k, i in enumerate(indices) if i is not None]
    if places == [0] and indices[0].dtype == torch.bool and indices[0].rank and indices[0].sizes == x.sizes[: indices[0].rank]:
        return e("gather_nd", x, e("nonzero", indices[0]))
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
    if places == [0] and indices[0].dtype == torch.bool:
        return _put_by_mask(e, x, indices[0], values, accumulate)
    if not places or any(indices[k].dtype in (torch.bool, torch.uint8) for k in places):
        raise Unsupported("an index that is a mask")
    if places != list(range(places[0], places[0] + len(places))):
        raise Unsupported("index tensors that are not adjacent")
    if accumulate and x.dtype in HALVES:
        return e.cast(_index_put(e, out, e.cast(x, torch.float32), indices, e.cast(values, torch.float32), True), x.dtype)
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


def _put_by_mask(e, x, mask, values, accumulate):
    """One value, or one slice, for all that a mask over the leading dimensions chooses."""
    trailing = x.rank - mask.rank
    if mask.sizes != x.sizes[: mask.rank] or values.rank > trailing + 1 or (values.rank > trailing and values.sizes[0] != 1):
        raise Unsupported("several values by a mask")
    if values.rank > trailing:
        values = e("squeeze", values, axes=[0])
    mask = e.reshape(mask, mask.sizes + [1] * trailing)
    if accumulate:
        values = e("logical_or" if x.dtype == torch.bool else "add", x, values)
    return e("select", mask, values, x)


@lowers("aten.put.default")
def _put(e, out, x, index, source, accumulate=False):
    n = product(e, x.sizes)
    places = product(e, index.sizes)
    index = e.reshape(wrapped(e, index, n), [places])
    y = _scattered(e, e.reshape(x, [n]), 0, index, e.reshape(source, [places]), "add" if accumulate else "none")
    return e.reshape(y, x.sizes)


@lowers("aten.masked_scatter.default")
def _masked_scatter(e, out, x, mask, source):
    n = product(e, source.sizes)
    sizes = e.sizes(out.shape)
    mask, total = e.broadcast(mask, sizes), product(e, sizes)
    flat, source = e.reshape(mask, [total]), e.reshape(source, [n])
    place, nothing = e("sub", e("cumsum", e.cast(flat, torch.int64), axis=0), 1), e.scalar(0, torch.int64)
    if e.known(GE, n, 1) is not True:  # what is not chosen reads an element behind the source
        nothing = e("dim_value", value=n)
        place = e("add", place, e.cast(e("ge", place, nothing), torch.int64))
        source = e("concat", source, e("full", e.scalar(0, source.dtype), shape=[1]), axis=0)
    taken = e("gather", source, e("select", flat, place, nothing), axis=0)  # beyond the source is an error, as in PyTorch
    return e("select", mask, e.reshape(taken, sizes), e.broadcast(x, sizes))


@lowers("aten.nonzero_static.default")
def _nonzero_static(e, out, x, *, size, fill_value=-1):
    size, fill_value, n = number(size), number(fill_value), product(e, x.sizes)
    if x.rank == 0 or size == 0 or n == 0:
        return e("full", e.scalar(fill_value, torch.int64), shape=[size, x.rank])
    # The k-th element that is not zero writes its place at k; all others, and those past the end, write behind it.
    found = e.reshape(truth(e, x), [n])
    rank = e("sub", e("cumsum", e.cast(found, torch.int64), axis=0), 1)
    target = e("minimum", e("select", found, rank, e.scalar(size, torch.int64)), size)
    empty = e("full", e.scalar(-1, torch.int64), shape=[size + 1])
    places = e("scatter", empty, target, e("iota", shape=[n], axis=0, dtype=torch.int64), axis=0)
    places = e("slice", places, starts=[0], limits=[size], strides=[1])
    missing, columns = e("lt", places, 0), []
    for s in reversed(x.sizes):
        s = e.scalar(s, torch.int64) if not is_symbolic(s) else e("dim_value", value=s)
        column = e("remainder", places, s)
        columns.insert(0, e("select", missing, e.scalar(fill_value, torch.int64), column))
        places = e("floor_div", places, s)
    return e("stack", *columns, axis=1)


@lowers("aten.nonzero.default")
def _nonzero(e, out, x):
    if x.rank == 0:  # no or one tuple of no indices
        y = e("nonzero", e.reshape(x, [1]))
        return e("slice", y, starts=[0, 0], limits=[y.sizes[0], 0], strides=[1, 1])
    return e("nonzero", x)


@lowers("aten.masked_select.default")
def _masked_select(e, out, x, mask):
    return e("masked_select", x, mask)


@lowers("aten._unique2.default")
def _unique(e, out, x, sorted=True, return_inverse=False, return_counts=False):
    values, _, inverse, counts = e.ops("unique", x)
    return [values, inverse if return_inverse else None, counts if return_counts else None]


@lowers("aten.unique_consecutive.default")
def _unique_consecutive(e, out, x, return_inverse=False, return_counts=False, dim=None):
    n = product(e, x.sizes)
    if dim is not None or e.known(GE, n, 1) is not True:
        raise Unsupported("runs of what may be empty, or along a dimension")
    flat = e.reshape(x, [n])

    def part(start, limit):
        return e("slice", flat, starts=[start], limits=[limit], strides=[1])

    first = e("full", e.scalar(True, torch.bool), shape=[1])
    starts = e("concat", first, e("ne", part(1, n), part(0, e.sub(n, 1))), axis=0) if n != 1 else first
    values = e("masked_select", flat, starts)
    run = e("sub", e("cumsum", e.cast(starts, torch.int64), axis=0), 1)
    none = e("full", e.scalar(0, torch.int64), shape=values.sizes)
    counts = e("scatter", none, run, e("full", e.scalar(1, torch.int64), shape=[n]), axis=0, reduction="add")
    return [values, e.reshape(run, x.sizes) if return_inverse else None, counts if return_counts else None]


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
    if x.dtype in HALVES and reduce in ("sum", "prod", "mean"):  # rounded once
        x, src = e.cast(x, torch.float32), e.cast(src, torch.float32)
        return e.cast(_scatter_reduce(e, out, x, dim, index, src, reduce, include_self=include_self), out.dtype)
    if reduce == "mean" and x.dtype == torch.bool:
        raise Unsupported("a mean of bools by an index")
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
        x, source = e.cast(x, torch.float32), e.cast(source, torch.float32)
        return e.cast(_index_add(e, out, x, dim, index, source, alpha), out.dtype)
    if x.rank == 0:
        return e.reshape(_index_add(e, out, e.reshape(x, [1]), 0, index, e.reshape(source, [1]), alpha), [])
    if index.rank == 0:
        index = e.reshape(index, [1])
    axis = axis_of(dim, x.rank)
    if alpha != 1:
        alpha = e.scalar(number(alpha), x.dtype)
        source = e("logical_and" if x.dtype == torch.bool else "mul", source, alpha)
    index = e.reshape(index, [1] * axis + index.sizes + [1] * (x.rank - axis - 1))
    return e("scatter", x, e.broadcast(index, source.sizes), source, axis=axis, reduction="add")


@lowers("aten.slice_scatter.default")
def _slice_scatter(e, out, x, src, dim=0, start=None, end=None, step=1):
    axis = axis_of(dim, x.rank)
    size = x.sizes[axis]
    first = 0 if start is None else place_of(e, start, size)
    if step != 1:
        step, count = number(step), src.sizes[axis]
        first = e("dim_value", value=first) if is_symbolic(first) else first
        places = e("add", e("mul", e("iota", shape=[count], axis=0, dtype=torch.int64), step), first)
        places = e.reshape(places, [1] * axis + [count] + [1] * (x.rank - axis - 1))
        return e("scatter", x, e.broadcast(places, src.sizes), e.cast(src, x.dtype), axis=axis)
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
    if x.rank == 0 or index.rank == 0:  # as of one element each
        one = [e.reshape(t, [1]) if isinstance(t, Value) and t.rank == 0 else t for t in (x, index, src)]
        return e.reshape(_scattered(e, one[0], 0, one[1], one[2], reduction), x.sizes)
    if reduction in ("add", "mul") and x.dtype in HALVES:  # rounded once, not after every update
        src = e.cast(src, torch.float32) if isinstance(src, Value) else src
        return e.cast(_scattered(e, e.cast(x, torch.float32), dim, index, src, reduction), x.dtype)
    if not isinstance(src, Value):
        src = e.broadcast(e.scalar(src, x.dtype), index.sizes)
    if src.sizes != index.sizes:  # the block that the indices cover
        src = e("slice", src, starts=[0] * src.rank, limits=index.sizes, strides=[1] * src.rank)
    return e("scatter", x, index, src, axis=axis_of(dim, x.rank), reduction=reduction)
