# SPDX-License-Identifier: Apache-2.0
"""Backward operators: what ATen's autograd computes gradients with.

Where a gradient is that of an op of ours, the graph says so, and the autograd stage expands it by the op's rule. Norms, pooling
with indices and attention have formulas of their own here, for ATen hands over what its forward operators have saved.
"""

import math

import torch

from ..emit import HALVES, Unsupported, is_symbolic
from .distances import pairs_of
from .networks import attention_arguments, pooled
from .table import TABLE, lowers, number, product


def gradients(e, f, operands, seed):
    """The gradients of f's result with respect to the operands that are not None, weighted by `seed`; None for the others."""
    leaves = [None if x is None else e("leaf", x) for x in operands]
    y = f(*leaves)
    wanted = [x for x in leaves if x is not None]
    found = iter(e.ops("grad", y, e.cast(seed, y.dtype), *wanted, outputs=1, seeded=True))
    return [None if x is None else next(found) for x in leaves]


def _wide(x):
    return torch.float32 if x.dtype in HALVES else x.dtype


def _sum(e, x, axes, keepdims=False):
    return e("reduce_sum", x, axes=axes, keepdims=keepdims) if axes else x


# ---- convolution


@lowers("aten.convolution_backward.default")
def _convolution(e, out, seed, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
    forward = TABLE["aten.convolution.default"]

    def convolved(a, b):
        given = (stride, padding, dilation, transposed, output_padding, groups)
        return forward(e, None, x if a is None else a, weight if b is None else b, None, *given)

    dx = dw = db = None
    if mask[0] or mask[1]:
        dx, dw = gradients(e, convolved, [x if mask[0] else None, weight if mask[1] else None], seed)
    if mask[2]:
        axes = [k for k in range(seed.rank) if k != 1]
        db = e.cast(_sum(e, e.cast(seed, _wide(seed)), axes), seed.dtype)
    return [dx, dw, db]


# ---- pooling


def _lower_max_pool(n):
    """Each gradient goes where its maximum came from; indices count within the last n dimensions."""

    def lower(e, out, seed, x, *arguments):
        indices = arguments[-1]
        lead = x.sizes[: x.rank - n]
        axis, dtype = len(lead), _wide(x)
        zeros = e("full", e.scalar(0, dtype), shape=[*lead, product(e, x.sizes[axis:])])
        flat = [*lead, product(e, seed.sizes[axis:])]
        seed = e.cast(e.reshape(seed, flat), dtype)
        y = e("scatter", zeros, e.reshape(indices, flat), seed, axis=axis, reduction="add")
        return e.cast(e.reshape(y, x.sizes), out.dtype)

    return lower


for _n in (2, 3):
    TABLE[f"aten.max_pool{_n}d_with_indices_backward.default"] = _lower_max_pool(_n)
    TABLE[f"aten.adaptive_max_pool{_n}d_backward.default"] = _lower_max_pool(_n)
    TABLE[f"aten.fractional_max_pool{_n}d_backward.default"] = _lower_max_pool(_n)


def _register_averages():
    for n in (2, 3):

        def average(e, out, seed, x, *arguments, pool=TABLE[f"aten.avg_pool{n}d.default"]):
            return gradients(e, lambda leaf: pool(e, out, leaf, *arguments), [x], seed)[0]

        def adaptive(e, out, seed, x, n=n):
            def pool(leaf):
                return pooled(e, leaf, n, lambda v: e.ops("adaptive_avg_pool", v, output=seed.sizes[-n:]))[0]

            return gradients(e, pool, [x], seed)[0]

        TABLE[f"aten.avg_pool{n}d_backward.default"] = average
        TABLE[f"aten._adaptive_avg_pool{n}d_backward.default"] = adaptive


_register_averages()


def _register_pads():
    for n in (1, 2, 3):

        def edge(e, out, seed, x, pad, forward=TABLE[f"aten.replication_pad{n}d.default"]):
            return gradients(e, lambda leaf: forward(e, out, leaf, pad), [x], seed)[0]

        TABLE[f"aten.replication_pad{n}d_backward.default"] = edge


_register_pads()


# ---- norms: dx = r (h - mean(h) - y mean(h y)), with h the gradient times the weight and y the normalised value


def _norm(e, h, y, scale, axes):
    def mean(v):
        return e("mean", v, axes=axes, keepdims=True)

    inner = e("sub", e("sub", h, mean(h)), e("mul", y, mean(e("mul", h, y))))
    return e("mul", scale, inner)


@lowers("aten.native_layer_norm_backward.default")
def _layer_norm(e, out, seed, x, shape, mean, scale, weight, bias, mask):
    dtype = _wide(x)
    axes, rows = list(range(x.rank - len(shape), x.rank)), list(range(x.rank - len(shape)))
    seed, mean, scale = (e.cast(t, dtype) for t in (seed, mean, scale))
    y = e("mul", e("sub", e.cast(x, dtype), mean), scale)
    h = seed if weight is None else e("mul", seed, e.cast(weight, dtype))
    results = [
        _norm(e, h, y, scale, axes) if mask[0] else None,
        _sum(e, e("mul", seed, y), rows) if mask[1] and weight is not None else None,
        _sum(e, seed, rows) if mask[2] and bias is not None else None,
    ]
    return [None if r is None else e.cast(r, o.dtype) for r, o in zip(results, out)]


@lowers("aten._fused_rms_norm_backward.default")
def _rms_norm(e, out, seed, x, shape, scale, weight, mask):
    dtype = _wide(x)
    axes, rows = list(range(x.rank - len(shape), x.rank)), list(range(x.rank - len(shape)))
    seed, scale = e.cast(seed, dtype), e.cast(scale, dtype)
    y = e("mul", e.cast(x, dtype), scale)
    h = seed if weight is None else e("mul", seed, e.cast(weight, dtype))
    along = e("mean", e("mul", h, y), axes=axes, keepdims=True)
    results = [
        e("mul", scale, e("sub", h, e("mul", y, along))) if mask[0] else None,
        _sum(e, e("mul", seed, y), rows) if mask[1] and weight is not None else None,
    ]
    return [None if r is None else e.cast(r, o.dtype) for r, o in zip(results, out)]


@lowers("aten.native_group_norm_backward.default")
def _group_norm(e, out, seed, x, mean, scale, weight, n, c, hw, groups, mask):
    dtype = _wide(x)
    n, c, hw = (e.size(v) for v in (n, c, hw))
    channels = e.floor_div(c, groups)

    def grouped(t):
        return e.reshape(e.cast(t, dtype), [n, groups, channels, hw])

    mean, scale = (e.reshape(e.cast(t, dtype), [n, groups, 1, 1]) for t in (mean, scale))
    seed, y = grouped(seed), e("mul", e("sub", grouped(x), mean), scale)
    h = seed if weight is None else e("mul", seed, e.reshape(e.cast(weight, dtype), [1, groups, channels, 1]))
    results = [
        e.reshape(_norm(e, h, y, scale, [2, 3]), x.sizes) if mask[0] else None,
        e.reshape(_sum(e, e("mul", seed, y), [0, 3]), [c]) if mask[1] and weight is not None else None,
        e.reshape(_sum(e, seed, [0, 3]), [c]) if mask[2] else None,
    ]
    return [None if r is None else e.cast(r, o.dtype) for r, o in zip(results, out)]


# ---- resampling

_MODES = {
    "nearest1d": "nearest",
    "nearest2d": "nearest",
    "nearest3d": "nearest",
    "linear1d": "linear",
    "bilinear2d": "linear",
    "trilinear3d": "linear",
    "bicubic2d": "cubic",
}


def _lower_resampling(mode):
    def lower(e, out, seed, output, shape, *arguments):
        arguments = list(arguments)
        corners = bool(arguments.pop(0)) if mode != "nearest" else False
        shape, output = e.sizes(shape), e.sizes(output)
        for scale, a, b in zip(arguments, shape[2:], output):
            if scale is not None and (is_symbolic(a) or is_symbolic(b) or a * scale != b):
                raise Unsupported("resampling by a scale that is not the ratio of the sizes")
        like = e("full", e.scalar(0, seed.dtype), shape=shape)  # the operation is linear: its input is not read
        return gradients(e, lambda x: e("interpolate", x, output=output, mode=mode, align_corners=corners), [like], seed)[0]

    return lower


for _name, _mode in _MODES.items():
    TABLE[f"aten.upsample_{_name}_backward.default"] = _lower_resampling(_mode)


# ---- tables, distances and attention


@lowers("aten.embedding_dense_backward.default")
def _embedding(e, out, seed, indices, rows, padding_idx, scale_grad_by_freq):
    dtype, width = _wide(seed), seed.sizes[-1]
    rows, padding_idx = e.size(rows), number(padding_idx)
    count = product(e, indices.sizes)
    place = e.reshape(e.cast(indices, torch.int64), [count, 1])
    values = e.cast(e.reshape(seed, [count, width]), dtype)
    if padding_idx >= 0:
        values = e("select", e("eq", place, padding_idx), e.scalar(0, dtype), values)
    if scale_grad_by_freq:
        none = e("full", e.scalar(0, dtype), shape=[rows])
        ones = e("full", e.scalar(1, dtype), shape=[count])
        times = e("scatter_nd", none, place, ones, reduction="add")
        values = e("div", values, e("expand_dims", e("gather_nd", times, place), axes=[1]))
    if dtype != out.dtype and not any(is_symbolic(n) for n in (count, rows)) and count < rows:
        # Sums are in a wider type, but of the rows that are there alone, which are few: the first place that names a row has
        # its sum. The table is read out of them, so that what is added to it is one kernel with it.
        none = e("full", e.scalar(count, torch.int64), shape=[rows, 1])
        numbers = e("iota", axis=0, dtype=torch.int64, shape=[count, 1])
        firsts = e("scatter_nd", none, place, numbers, reduction="min")
        zeros = e("full", e.scalar(0, dtype), shape=[count, width])
        sums = e("scatter_nd", zeros, e("gather_nd", firsts, place), values, reduction="add")
        named = e.reshape(e("minimum", firsts, e.scalar(count - 1, torch.int64)), [rows])
        table = e("gather", e.cast(sums, out.dtype), named, axis=0)
        return e("select", e("lt", firsts, e.scalar(count, torch.int64)), table, e.scalar(0, out.dtype))
    zeros = e("full", e.scalar(0, dtype), shape=[rows, width])
    return e.cast(e("scatter_nd", zeros, place, values, reduction="add"), out.dtype)


@lowers("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def _attention(e, out, seed, q, k, v, y, lse, dropout, causal, *, attn_mask=None, scale=None):
    given, attributes = attention_arguments(e, q, k, v, attn_mask, dropout, causal, scale)
    return e.ops("attention_y_backward", seed, *given, e.cast(lse, _wide(q)), y, **attributes)


@lowers("aten._scaled_dot_product_flash_attention_backward.default")
def _flash(e, out, seed, q, k, v, y, lse, _q, _k, _most_q, _most_k, dropout, causal, _seed, _offset, *, scale=None):
    return _attention(e, out, seed, q, k, v, y, lse, dropout, causal, scale=scale)


@lowers("aten._scaled_dot_product_efficient_attention_backward.default")
def _efficient(e, out, seed, q, k, v, bias, y, lse, _seed, _offset, dropout, wanted, causal=False, *, scale=None):
    if wanted[3]:
        raise Unsupported("the gradient of an attention mask")
    return [*_attention(e, out, seed, q, k, v, y, _without_room(e, lse, q), dropout, causal, attn_mask=bias, scale=scale), None]


def _without_room(e, lse, q):
    """Logarithms of q's rows alone: this kernel of PyTorch's has room for rows up to a multiple of 32."""
    if lse.sizes[-1] == q.sizes[-2]:
        return lse
    return e("slice", lse, starts=[0] * lse.rank, limits=[*lse.sizes[:-1], q.sizes[-2]], strides=[1] * lse.rank)


@lowers("aten._scaled_dot_product_cudnn_attention_backward.default")
def _cudnn(e, out, seed, q, k, v, y, lse, _seed, _offset, bias, _q, _k, _most_q, _most_k, dropout, causal, *, scale=None):
    lse = e.reshape(lse, y.sizes[:-1])
    return _attention(e, out, seed, q, k, v, y, lse, dropout, causal, attn_mask=bias, scale=scale)


@lowers("aten._cdist_backward.default")
def _cdist(e, out, seed, a, b, p, distance):
    p, axis = float(number(p)), a.rank
    d = e("sub", e("expand_dims", a, axes=[axis - 1]), e("expand_dims", b, axes=[b.rank - 2]))
    seed, distance = (e("expand_dims", t, axes=[t.rank]) for t in (seed, distance))
    if p == 0:
        return e("full", e.scalar(0, a.dtype), shape=e.sizes(out.shape))
    if p == 1:
        slope = e("sign", d)
    elif p == 2:
        slope = e("div", d, distance)
    elif p == math.inf:
        slope = e("mul", e("sign", d), e.cast(e("eq", e("abs", d), distance), d.dtype))
    elif p > 1:
        ratio = e("div", e("abs", d), distance)
        slope = e("mul", e("sign", d), e("pow", ratio, e.scalar(p - 1, d.dtype)))
    else:
        raise Unsupported("the gradient of distances by a power below 1")
    if p > 1:  # of equal points it is 0
        slope = e("select", e("eq", distance, 0), e.scalar(0, d.dtype), slope)
    y = e("reduce_sum", e("mul", seed, slope), axes=[axis - 1])
    return e("sum_to", y, shape=e.sizes(out.shape)) if y.sizes != e.sizes(out.shape) else y


@lowers("aten._pdist_backward.default")
def _pdist(e, out, seed, x, p, distance):
    n = x.sizes[0]
    if n in (0, 1) or x.sizes[1] == 0:
        return e("full", e.scalar(0, x.dtype), shape=e.sizes(out.shape))
    pairs = {pair: k for k, pair in enumerate(pairs_of(n))}
    of_pair = e.ints([pairs.get((min(i, j), max(i, j)), 0) for i in range(n) for j in range(n)])
    seed, distance = (e.reshape(e("gather", t, of_pair, axis=0), [n, n]) for t in (seed, distance))
    same = e.reshape(e.ints([int(i == j) for i in range(n) for j in range(n)]), [n, n])
    seed, distance = (e("select", e("eq", same, 1), e.scalar(0, x.dtype), t) for t in (seed, distance))
    return _cdist(e, out, seed, x, x, p, distance)


@lowers("aten.masked_scatter_backward.default")
def _masked_scatter(e, out, seed, mask, sizes):
    total, count = product(e, seed.sizes), product(e, e.sizes(sizes))
    mask = e.reshape(e.broadcast(mask, seed.sizes), [total])
    place = e("sub", e("cumsum", e.cast(mask, torch.int64), axis=0), 1)
    place = e("select", mask, place, e.scalar(count, torch.int64) if not is_symbolic(count) else e("dim_value", value=count))
    none = e("full", e.scalar(0, seed.dtype), shape=[e.add(count, 1)])
    y = e("scatter", none, place, e.reshape(seed, [total]), axis=0)  # what no element was written to comes last
    return e.reshape(e("slice", y, starts=[0], limits=[count], strides=[1]), e.sizes(out.shape))
