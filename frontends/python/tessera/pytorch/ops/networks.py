# SPDX-License-Identifier: Apache-2.0
"""Products, convolution, pooling, norms, attention."""

import math

import torch

from ..emit import HALVES, Unsupported, Value
from .table import TABLE, axis_of, lowers, number, spread, wide


@lowers("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default")
def _matmul(e, out, a, b):
    return e("matmul", a, b)


@lowers("aten.addmm.default")
def _addmm(e, out, bias, a, b, beta=1, alpha=1):
    return _add_product(e, out, bias, a, b, beta, alpha)


@lowers("aten.addmv.default")
def _addmv(e, out, bias, a, b, beta=1, alpha=1):
    return _add_product(e, out, bias, a, b, beta, alpha)


@lowers("aten.baddbmm.default")
def _baddbmm(e, out, bias, a, b, beta=1, alpha=1):
    return _add_product(e, out, bias, a, b, beta, alpha)


@lowers("aten.addbmm.default")
def _addbmm(e, out, bias, a, b, beta=1, alpha=1):
    dtype = torch.float32 if out.dtype in HALVES else out.dtype
    y = e("reduce_sum", e("matmul", e.cast(a, dtype), e.cast(b, dtype)), axes=[0])
    if alpha != 1:
        y = e("mul", y, e.scalar(number(alpha), dtype))
    if beta != 0:  # 0 ignores even NaN
        bias = e.cast(bias, dtype)
        y = e("add", y, bias if beta == 1 else e("mul", bias, e.scalar(number(beta), dtype)))
    return e.cast(e.broadcast(y, e.sizes(out.shape)), out.dtype)


@lowers("aten.searchsorted.Tensor")
def _searchsorted(e, out, boundaries, x, *, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None:
        boundaries = e("take_along_axis", boundaries, e.cast(sorter, torch.int64), axis=boundaries.rank - 1)
    if not isinstance(x, Value):
        raise Unsupported("searchsorted of a number")
    if side is not None and right and side != "right":
        raise Unsupported("two sides")
    found = e("searchsorted", boundaries, e.reshape(x, [1]) if x.rank == 0 else x, right=bool(right or side == "right"))
    return e.cast(e.reshape(found, x.sizes), out.dtype)


@lowers("aten.bucketize.Tensor")
def _bucketize(e, out, x, boundaries, *, out_int32=False, right=False):
    return _searchsorted(e, out, boundaries, x, right=right)


def _add_product(e, out, bias, a, b, beta, alpha):
    if beta == 1 and alpha == 1:
        return e("add", e("matmul", a, b), bias)
    dtype = torch.float32 if out.dtype in HALVES else out.dtype
    y = e("mul", e.cast(e("matmul", a, b), dtype), e.scalar(alpha, dtype))
    if beta != 0:  # 0 ignores even NaN
        y = e("add", y, e("mul", e.cast(bias, dtype), e.scalar(beta, dtype)))
    return e.cast(y, out.dtype)


@lowers("aten.linear.default")
def _linear(e, out, x, weight, bias=None):
    return e("linear", x, weight, bias)


@lowers("aten.convolution.default")
def _convolution(e, out, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    n = weight.rank - 2
    if x.rank != weight.rank or not 1 <= n <= 3:
        raise Unsupported("a convolution of this rank")
    padding = spread(padding, n)
    attributes = dict(
        strides=spread(stride, n), pad_low=padding, pad_high=padding, dilations=spread(dilation, n), groups=groups
    )
    if transposed:
        return e("conv_transpose", x, weight, bias, output_pad=spread(output_padding, n), **attributes)
    return e("conv", x, weight, bias, **attributes)


def _lower_max_pool(n):
    def lower(e, out, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
        padding = spread(padding, n)
        attributes = dict(
            kernel=spread(kernel, n),
            strides=spread(stride if len(stride) else kernel, n),
            pad_low=padding,
            pad_high=padding,
            dilations=spread(dilation, n),
            ceil_mode=bool(ceil_mode),
        )
        return pooled(e, x, n, lambda v: e.ops("max_pool", v, **attributes))

    return lower


for _n in (2, 3):
    TABLE[f"aten.max_pool{_n}d_with_indices.default"] = _lower_max_pool(_n)


def pooled(e, x, n, pool):
    """Applies `pool` to x with a batch dimension in front, whether or not x has one."""
    if x.rank == n + 2:
        return pool(x)
    if x.rank != n + 1:
        raise Unsupported("pooling of this rank")
    return [e("squeeze", r, axes=[0]) for r in pool(e("expand_dims", x, axes=[0]))]


for _n in (2, 3):
    TABLE[f"aten.adaptive_max_pool{_n}d.default"] = lambda e, out, x, output, n=_n: pooled(
        e, x, n, lambda v: e.ops("adaptive_max_pool", v, output=e.sizes(out[0].shape[-n:]))
    )


def _lower_avg_pool(n):
    def lower(e, out, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        if divisor_override == 0:
            raise Unsupported("a divisor of zero, which is an error")
        if divisor_override is not None and divisor_override < 0:
            return e("neg", lower(e, out, x, kernel, stride, padding, ceil_mode, count_include_pad, -divisor_override))
        return pooled(
            e,
            x,
            n,
            lambda v: e.ops(
                "avg_pool",
                v,
                kernel=spread(kernel, n),
                strides=spread(stride if len(stride) else kernel, n),
                pad_low=spread(padding, n),
                pad_high=spread(padding, n),
                dilations=[1] * n,
                ceil_mode=bool(ceil_mode),
                count_include_pad=bool(count_include_pad),
                divisor=divisor_override or 0,
            ),
        )[0]

    return lower


for _n in (1, 2, 3):
    TABLE[f"aten.avg_pool{_n}d.default"] = _lower_avg_pool(_n)
    TABLE[f"aten._adaptive_avg_pool{_n}d.default"] = TABLE[f"aten.adaptive_avg_pool{_n}d.default"] = (
        lambda e, out, x, output, n=_n: pooled(
            e, x, n, lambda v: e.ops("adaptive_avg_pool", v, output=e.sizes(out.shape[-n:]))
        )[0]
    )


@lowers("aten._softmax.default")
def _softmax(e, out, x, dim, half_to_float):
    if x.rank == 0:
        raise Unsupported("softmax of a 0-d tensor")
    return e("softmax", e.cast(x, out.dtype), axis=axis_of(dim, x.rank))


@lowers("aten._log_softmax.default")
def _log_softmax(e, out, x, dim, half_to_float):
    if x.rank == 0:
        raise Unsupported("log_softmax of a 0-d tensor")
    return e("log_softmax", e.cast(x, out.dtype), axis=axis_of(dim, x.rank))


@lowers("aten._scaled_dot_product_flash_attention_for_cpu.default")
def _attention(e, out, q, k, v, dropout=0.0, causal=False, *, attn_mask=None, scale=None):
    given, attributes = attention_arguments(e, q, k, v, attn_mask, dropout, causal, scale)
    if 1 not in e.wanted:
        return [e("attention", *given, **attributes), None]
    y, lse = e.ops("attention_lse", *given, **attributes)  # backward reads the logarithm of each row's sum of exponentials
    return [y, e.cast(lse, out[1].dtype)]


def _without_dropout(e, out, y, lse, of_random):
    """Results of a kernel for GPUs; of_random: those that say where its random numbers began, of which there are none."""
    results = [y, lse] + [None] * (len(out) - 2)
    for k in of_random:
        if k in e.wanted:
            results[k] = e("full", e.scalar(0, out[k].dtype), shape=e.sizes(out[k].shape))
    return results


@lowers("aten._scaled_dot_product_flash_attention.default")
def _flash(e, out, q, k, v, dropout=0.0, causal=False, debug=False, *, scale=None):
    return _without_dropout(e, out, *_attention(e, out, q, k, v, dropout, causal, scale=scale), (6, 7))


@lowers("aten._scaled_dot_product_efficient_attention.default")
def _efficient(e, out, q, k, v, bias, logarithms, dropout=0.0, causal=False, *, scale=None):
    y, lse = _attention(e, out, q, k, v, dropout, causal, attn_mask=bias, scale=scale)
    if lse is not None:  # PyTorch's has room for rows up to a multiple of 32
        room = e.sub(e.size(out[1].shape[-1]), lse.sizes[-1])
        if room != 0:
            none = e("full", e.scalar(math.inf, lse.dtype), shape=[*lse.sizes[:-1], room])
            lse = e("concat", lse, none, axis=lse.rank - 1)
    return _without_dropout(e, out, y, lse, (2, 3))


@lowers("aten._scaled_dot_product_cudnn_attention.default")
def _cudnn(e, out, q, k, v, bias, logarithms, dropout=0.0, causal=False, debug=False, *, scale=None):
    y, lse = _attention(e, out, q, k, v, dropout, causal, attn_mask=bias, scale=scale)
    return _without_dropout(e, out, y, lse if lse is None else e.reshape(lse, e.sizes(out[1].shape)), (6, 7))


def attention_arguments(e, q, k, v, mask, dropout, causal, scale):
    """(operands, attributes) of attention and of its halves."""
    if dropout != 0.0:
        raise Unsupported("attention with dropout")
    if scale is not None and isinstance(scale, torch.SymFloat):
        raise Unsupported("attention with a symbolic scale")
    if scale == 0:
        raise Unsupported("attention with scale 0")
    if mask is not None and mask.dtype not in (torch.bool, q.dtype):
        raise Unsupported("an attention mask of another dtype")
    return (q, k, v, mask), {"scale": float(scale or 0.0), "causal": bool(causal)}
