# SPDX-License-Identifier: Apache-2.0
"""Tensors out of numbers."""

import torch

from ..emit import Unsupported
from .table import TABLE, lowers


@lowers("aten.full.default")
def _full(e, out, size, value, **_):
    return e("full", e.scalar(value, out.dtype), shape=e.sizes(out.shape))


@lowers("aten.full_like.default")
def _full_like(e, out, x, value, **_):
    return e("full", e.scalar(value, out.dtype), shape=e.sizes(out.shape))


for _aten, _value in (("zeros", 0), ("ones", 1)):
    TABLE[f"aten.{_aten}.default"] = TABLE[f"aten.{_aten}_like.default"] = lambda e, out, _, value=_value, **__: e(
        "full", e.scalar(value, out.dtype), shape=e.sizes(out.shape)
    )


@lowers(
    "aten._efficientzerotensor.default",
    "aten.empty.memory_format",
    "aten.empty_permuted.default",
    "aten.empty_strided.default",
    "aten.new_empty.default",
    "aten.empty_like.default",
    "aten.new_empty_strided.default",
)
def _empty(e, out, *_, **__):
    return e("full", e.scalar(0, out.dtype), shape=e.sizes(out.shape))  # memory without a value does not exist in a graph


@lowers("aten.scalar_tensor.default")
def _scalar_tensor(e, out, value, **_):
    return e.scalar(value, out.dtype)


def _ramp(e, out, start, step):
    """start + step * i, of integers exactly, of floats as PyTorch: in f64 for f64 and in f32's accumulation type, f64, else."""
    shape = e.sizes(out.shape)
    work = torch.int64 if not out.dtype.is_floating_point else torch.float64
    x = e("iota", shape=shape, axis=0, dtype=work)
    if isinstance(step, torch.SymInt) or step != 1:
        x = e("mul", x, e.scalar(step, work))
    if isinstance(start, torch.SymInt) or start != 0:
        x = e("add", x, e.scalar(start, work))
    return e.cast(x, out.dtype)


@lowers("aten.arange.start_step")
def _arange(e, out, start, end, step=1, **_):
    if not out.dtype.is_floating_point and any(isinstance(v, float) for v in (start, step)):
        raise Unsupported("arange of integers with float bounds")
    return _ramp(e, out, start, step)


@lowers("aten.arange.start")
def _arange_start(e, out, start, end, **_):
    return _arange(e, out, start, end)


@lowers("aten.arange.default")
def _arange_end(e, out, end, **_):
    return _ramp(e, out, 0, 1)


@lowers("prims.iota.default")
def _iota(e, out, length, *, start, step, **_):
    return _ramp(e, out, start, step)
