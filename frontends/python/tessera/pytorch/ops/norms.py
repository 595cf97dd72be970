# SPDX-License-Identifier: Apache-2.0
"""Norms, with the statistics that their gradients read. What nobody reads is not computed."""

import torch

from ..emit import HALVES, Unsupported
from .table import lowers, number


def _wide(x):
    return torch.float32 if x.dtype in HALVES else x.dtype


@lowers("aten.native_layer_norm.default")
def _layer_norm(e, out, x, shape, weight, bias, eps):
    axes = list(range(x.rank - len(shape), x.rank))
    y = e.cast(e("layer_norm", *_of_one_dtype(e, x, weight, bias), axis=axes[0], eps=eps), out[0].dtype)
    return [y, *_statistics(e, x, axes, eps, out[1].dtype)]


def _of_one_dtype(e, x, weight, bias):
    """As they are, or in f32 where halves meet weights in f32, as under autocast."""
    given = [t for t in (x, weight, bias) if t is not None]
    if all(t.dtype == x.dtype for t in given):
        return x, weight, bias
    return tuple(None if t is None else e.cast(t, _wide(x)) for t in (x, weight, bias))


def _statistics(e, x, axes, eps, dtype):
    """Mean and reciprocal standard deviation as norms save them. Nobody computes them where they are not used."""
    wide = e.cast(x, _wide(x))
    mean = e("mean", wide, axes=axes, keepdims=True)
    variance = e("variance", wide, axes=axes, correction=0.0, keepdims=True)
    return e.cast(mean, dtype), e.cast(e("rsqrt", e("add", variance, e.scalar(eps, wide.dtype))), dtype)


@lowers("aten.native_group_norm.default")
def _group_norm(e, out, x, weight, bias, n, c, hw, groups, eps):
    if x.rank < 3:
        raise Unsupported("group_norm of this rank")
    y = e.cast(e("group_norm", *_of_one_dtype(e, x, weight, bias), groups=groups, eps=eps), out[0].dtype)
    rows = e.reshape(x, [*e.sizes(out[1].shape), e.mul(e.floor_div(e.size(c), groups), e.size(hw))])
    mean, spread = _statistics(e, rows, [2], eps, out[1].dtype)
    return [y, *(e.reshape(t, e.sizes(out[1].shape)) for t in (mean, spread))]


def _batch_norm(e, out, x, weight, bias, mean, variance, eps):
    """By given statistics: computed in f32 for halves, with a dimension behind for rows."""
    dtype = _wide(x)
    weight, bias, mean, variance = (t if t is None else e.cast(t, dtype) for t in (weight, bias, mean, variance))
    y = e.cast(x, dtype) if x.rank > 2 else e("expand_dims", e.cast(x, dtype), axes=[2])
    y = e("batch_norm", y, weight, bias, mean, variance, eps=eps)
    return e.cast(y if x.rank > 2 else e("squeeze", y, axes=[2]), out.dtype)


def _nothing(e, out):
    """Statistics that are not saved: PyTorch gives empty tensors."""
    if list(out.shape) != [0]:
        raise Unsupported("statistics that inference does not save")
    return e("full", e.scalar(0, out.dtype), shape=[0])


@lowers("aten._native_batch_norm_legit_no_training.default")
def _batch_norm_inference(e, out, x, weight, bias, mean, variance, momentum, eps):
    y = _batch_norm(e, out[0], x, weight, bias, mean, variance, eps)
    return [y, *(_nothing(e, o) if list(o.shape) == [0] else None for o in out[1:])]


@lowers("aten._native_batch_norm_legit_functional.default")
def _batch_norm_functional(e, out, x, weight, bias, mean, variance, training, momentum, eps):
    if mean is None or variance is None:
        raise Unsupported("batch_norm without running statistics")
    if not training:
        y = _batch_norm(e, out[0], x, weight, bias, mean, variance, eps)
        saved = (_nothing(e, o) if list(o.shape) == [0] else None for o in out[1:3])
        return [y, *saved, e.cast(mean, out[3].dtype), e.cast(variance, out[4].dtype)]
    dtype = _wide(x)
    wide = e.cast(x, dtype) if x.rank > 2 else e("expand_dims", e.cast(x, dtype), axes=[2])
    operands = [t if t is None else e.cast(t, dtype) for t in (weight, bias, mean, variance)]
    y, *moved = e.ops("batch_norm_training", wide, *operands, momentum=float(number(momentum)), eps=float(eps))
    y = e.cast(y if x.rank > 2 else e("squeeze", y, axes=[2]), out[0].dtype)
    saved = _statistics_of_batch(e, wide, eps)
    return [y, *(e.cast(t, o.dtype) for t, o in zip((*saved, *moved), out[1:]))]


def _statistics_of_batch(e, x, eps):
    axes = [k for k in range(x.rank) if k != 1]
    variance = e("variance", x, axes=axes, correction=0.0, keepdims=False)
    return e("mean", x, axes=axes, keepdims=False), e("rsqrt", e("add", variance, e.scalar(eps, x.dtype)))


@lowers("aten._native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(e, out, x, weight, bias, training, momentum, eps):
    if not training:
        raise Unsupported("batch_norm without statistics")
    dtype = _wide(x)
    wide = e.cast(x, dtype) if x.rank > 2 else e("expand_dims", e.cast(x, dtype), axes=[2])
    axes = [k for k in range(wide.rank) if k != 1]
    mean = e("mean", wide, axes=axes, keepdims=False)
    variance = e("variance", wide, axes=axes, correction=0.0, keepdims=False)
    y = _batch_norm(e, out[0], x, weight, bias, mean, variance, eps)
    saved = _statistics_of_batch(e, wide, eps)
    return [y, *(e.cast(t, o.dtype) for t, o in zip(saved, out[1:]))]
