# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements without computing: views, slices, concatenation, padding."""

import sympy
import torch

from ..._abi import GE, LE
from ..emit import Unsupported, is_symbolic
from .table import TABLE, axes_of, axis_of, lowers, number


@lowers(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.view_copy.default",
    "aten._reshape_copy.default",
    "aten._reshape_alias.default",
)
def _view(e, out, x, *_):
    return e.reshape(x, e.sizes(out.shape))


@lowers("aten.permute.default", "aten.permute_copy.default")
def _permute(e, out, x, dims):
    return e("transpose", x, perm=[axis_of(d, x.rank) for d in dims]) if x.rank else x


@lowers("aten.t.default")
def _t(e, out, x):
    return e("transpose", x, perm=[1, 0]) if x.rank == 2 else x


@lowers("aten.transpose.int", "aten.transpose_copy.int")
def _transpose(e, out, x, a, b):
    if x.rank == 0:
        return x
    perm = list(range(x.rank))
    a, b = axis_of(a, x.rank), axis_of(b, x.rank)
    perm[a], perm[b] = perm[b], perm[a]
    return e("transpose", x, perm=perm)


@lowers("aten.expand.default", "aten.expand_copy.default")
def _expand(e, out, x, sizes, implicit=False):
    return e.broadcast(x, e.sizes(out.shape))


@lowers("aten.unsqueeze.default")
def _unsqueeze(e, out, x, dim):
    return e("expand_dims", x, axes=[dim % (x.rank + 1)])


@lowers("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def _squeeze(e, out, x, dims=None):
    axes = [a for a in (range(x.rank) if dims is None else axes_of(dims, x.rank) if dims != [] else []) if x.sizes[a] == 1]
    return e("squeeze", x, axes=axes) if axes else x


@lowers("aten.flatten.using_ints", "aten.unflatten.int")
def _reshaped(e, out, x, *_):
    return e.reshape(x, e.sizes(out.shape))


def place_of(e, index, size):
    """An index of a slice, made absolute and kept within [0, size]."""
    if isinstance(index, torch.SymInt):
        if e.decided(sympy.Lt(index.node.expr, 0)):
            index = index.node.expr + e.expression(size)
            return e.size(index) if e.decided(sympy.Ge(index, 0)) else 0
    elif index < 0:
        return e.add(size, index) if e.holds(GE, size, -index) else 0
    elif index >= (1 << 62):
        return size
    index = e.size(index)
    return index if e.holds(LE, index, size) else size


def index_of(e, index, size):
    """An index that must lie within the size, made absolute."""
    if isinstance(index, torch.SymInt):
        expression = index.node.expr
        return e.size(expression + e.expression(size) if e.decided(sympy.Lt(expression, 0)) else expression)
    return e.add(size, index) if index < 0 else index


def _slice_axis(e, x, axis, start, limit, step=1):
    starts, limits, strides = [0] * x.rank, list(x.sizes), [1] * x.rank
    starts[axis], limits[axis], strides[axis] = start, limit, step
    if starts == [0] * x.rank and limits == x.sizes and step == 1:
        return x
    return e("slice", x, starts=starts, limits=limits, strides=strides)


@lowers("aten.slice.Tensor", "aten.slice_copy.Tensor")
def _slice(e, out, x, dim=0, start=None, end=None, step=1):
    axis = axis_of(dim, x.rank)
    size = x.sizes[axis]
    first = 0 if start is None else place_of(e, start, size)
    last = size if end is None else place_of(e, end, size)
    if not e.holds(LE, first, last):
        last = first
    return _slice_axis(e, x, axis, first, last, number(step))


@lowers("aten.select.int", "aten.select_copy.int")
def _select(e, out, x, dim, index):
    axis = axis_of(dim, x.rank)
    index = index_of(e, index, x.sizes[axis])
    return e("squeeze", _slice_axis(e, x, axis, index, e.add(index, 1)), axes=[axis])


@lowers("aten.narrow.default")
def _narrow(e, out, x, dim, start, length):
    axis = axis_of(dim, x.rank)
    start = place_of(e, start, x.sizes[axis])
    return _slice_axis(e, x, axis, start, e.add(start, e.size(length)))


@lowers("aten.cat.default", "aten.concat.default")
def _cat(e, out, tensors, dim=0):
    parts = [e.cast(t, out.dtype) for t in tensors if not (t.sizes == [0] and out.dim() != 1)]  # PyTorch skips these
    return parts[0] if len(parts) == 1 else e("concat", *parts, axis=axis_of(dim, out.dim()))


@lowers("aten.stack.default")
def _stack(e, out, tensors, dim=0):
    return e("stack", *[e.cast(t, out.dtype) for t in tensors], axis=axis_of(dim, out.dim()))


def _pieces(e, x, axis, sizes):
    pieces, start = [], 0
    for s in sizes:
        pieces.append(_slice_axis(e, x, axis, start, e.add(start, s)))
        start = e.add(start, s)
    return pieces


@lowers("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.split_with_sizes_copy.default")
def _split(e, out, x, _sizes, dim=0):
    axis = axis_of(dim, x.rank)
    return _pieces(e, x, axis, [e.size(t.shape[axis]) for t in out])


@lowers("aten.unbind.int")
def _unbind(e, out, x, dim=0):
    axis = axis_of(dim, x.rank)
    return [e("squeeze", p, axes=[axis]) for p in _pieces(e, x, axis, [1] * len(out))]


@lowers("aten.flip.default")
def _flip(e, out, x, dims):
    return e("flip", x, axes=[axis_of(d, x.rank) for d in dims]) if x.rank and dims else x


@lowers("aten.roll.default")
def _roll(e, out, x, shifts, dims=()):
    shifts = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    if x.rank == 0:
        return x
    axes = [axis_of(d, x.rank) for d in dims]
    if axes and any(is_symbolic(e.size(s)) for s in shifts):
        for s, a in zip(shifts, axes):
            size = x.sizes[a]
            if not e.holds(GE, size, 1):
                return x
            if isinstance(s, torch.SymInt) and e.decided(sympy.Lt(s.node.expr, 0)):
                cut = e.mod(e.size(-s.node.expr), size)
            else:
                cut = e.sub(size, e.mod(e.size(s), size))
            x = e("concat", _slice_axis(e, x, a, cut, size), _slice_axis(e, x, a, 0, cut), axis=a)
        return x
    return e("roll", x, shifts=[number(s) for s in shifts], axes=axes)


@lowers("aten.repeat.default")
def _repeat(e, out, x, repeats):
    sizes = e.sizes(repeats)
    if not any(map(is_symbolic, sizes)):
        return e("tile", x, repeats=sizes) if sizes else x
    # [d] as [r, d] by broadcasting, then as [r * d].
    kept = [1] * (len(sizes) - x.rank) + x.sizes
    apart = e.reshape(x, [s for d in kept for s in (1, d)])
    return e.reshape(e.broadcast(apart, [s for pair in zip(sizes, kept) for s in pair]), e.sizes(out.shape))


def padding_of(e, x, pad):
    """PyTorch's padding, from the last dimension to the first, as sizes before and behind each dimension."""
    low, high = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        axis = x.rank - 1 - i
        low[axis], high[axis] = e.size(pad[2 * i]), e.size(pad[2 * i + 1])
    return low, high


@lowers("aten.constant_pad_nd.default")
def _constant_pad(e, out, x, pad, value=0):
    low, high = padding_of(e, x, pad)
    return e("pad", x, e.scalar(value, x.dtype), low=low, high=high)


def _lower_edge_pad(mode):
    def lower(e, out, x, pad):
        low, high = padding_of(e, x, pad)
        return e("pad", x, None, low=low, high=high, mode=mode)

    return lower


for _n in (1, 2, 3):
    TABLE[f"aten.reflection_pad{_n}d.default"] = _lower_edge_pad("reflect")
    TABLE[f"aten.replication_pad{_n}d.default"] = _lower_edge_pad("edge")


@lowers("aten.as_strided.default", "aten.as_strided_copy.default")
def _as_strided(e, out, x, size, stride, storage_offset=None):
    if not x.dense:
        raise Unsupported("as_strided of memory that is not dense")
    return e("as_strided", x, shape=e.sizes(size), strides=e.sizes(stride), offset=e.size(storage_offset or 0))


@lowers("aten.as_strided_scatter.default")
def _as_strided_scatter(e, out, x, src, size, stride, storage_offset=None):
    size, stride, offset = [[number(v) for v in of] for of in (size, stride, [storage_offset or 0])]
    total = number(out.numel())
    places = offset
    for n, step in zip(size, stride):
        places = [p + k * step for p in places for k in range(n)]
    if not x.dense or any(is_symbolic(s) for s in x.sizes) or len(set(places)) != len(places) or len(places) > 4096:
        raise Unsupported("as_strided_scatter of memory that is not dense, is large, or is written twice")
    if not places:
        return x
    if not all(0 <= p < total for p in places):
        raise Unsupported("as_strided_scatter beyond the tensor")
    flat = e("scatter", e.reshape(x, [total]), e.ints(places), e.reshape(src, [len(places)]), axis=0)
    return e.reshape(flat, x.sizes)


@lowers("aten.diagonal_scatter.default")
def _diagonal_scatter(e, out, x, src, offset=0, dim1=0, dim2=1):
    a, b, offset = axis_of(dim1, x.rank), axis_of(dim2, x.rank), number(offset)
    if any(is_symbolic(x.sizes[k]) for k in (a, b)):
        raise Unsupported("diagonal_scatter of symbolic sizes")
    rows, columns = x.sizes[a], x.sizes[b]
    length = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    if length == 0:
        return x
    # Every row takes its element of src, which stands along the rows then; what is no diagonal keeps x.
    which = e.ints([min(max(k + min(offset, 0), 0), length - 1) for k in range(rows)])
    rest = [k for k in range(x.rank) if k not in (a, b)]
    y = e("gather", src, which, axis=src.rank - 1)
    y = e("expand_dims", y, axes=[y.rank])
    order = [*rest, a, b]
    y = e("transpose", y, perm=[order.index(k) for k in range(x.rank)])
    shape = [1] * x.rank
    shape[a], shape[b] = rows, columns
    i = e("iota", shape=shape, axis=a, dtype=torch.int64)
    j = e("iota", shape=shape, axis=b, dtype=torch.int64)
    return e("select", e("eq", e("add", i, offset), j), e.cast(y, x.dtype), x)


@lowers("aten.diagonal.default", "aten.diagonal_copy.default")
def _diagonal(e, out, x, offset=0, dim1=0, dim2=1):
    return e("diagonal", x, offset=offset, axis1=axis_of(dim1, x.rank), axis2=axis_of(dim2, x.rank))


for _aten in ("tril", "triu"):
    TABLE[f"aten.{_aten}.default"] = lambda e, out, x, diagonal=0, op=_aten: e(op, x, diagonal=number(diagonal))


def _triangle_indices(e, out, rows, columns, offset, lower):
    rows, columns, offset = number(rows), number(columns), number(offset)
    pairs = [(i, j) for i in range(rows) for j in range(columns) if (j - i <= offset if lower else j - i >= offset)]
    if len(pairs) > 4096:
        raise Unsupported("indices of a large triangle")
    return e.reshape(e.ints([p[k] for k in (0, 1) for p in pairs], out.dtype), [2, len(pairs)])


@lowers("aten.tril_indices.default")
def _tril_indices(e, out, rows, columns, offset=0, **_):
    return _triangle_indices(e, out, rows, columns, offset, True)


@lowers("aten.triu_indices.default")
def _triu_indices(e, out, rows, columns, offset=0, **_):
    return _triangle_indices(e, out, rows, columns, offset, False)
