# SPDX-License-Identifier: Apache-2.0
"""Complex numbers: made of real ones, taken apart, and moved. What computes with them stays with ATen."""

import torch

from ..emit import Unsupported
from .table import lowers

# Operators that may read or give complex tensors; the other lowerings are for real ones.
TAKE_COMPLEX = {
    "aten._to_copy.default",
    "aten.complex.default",
    "aten.polar.default",
    "aten.view_as_complex.default",
    "aten.view_as_real.default",
    "aten.real.default",
    "aten.imag.default",
    "aten.clone.default",
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


def _part(dtype):
    if dtype not in (torch.complex64, torch.complex128):
        raise Unsupported(f"dtype {dtype}")
    return torch.float32 if dtype == torch.complex64 else torch.float64


@lowers("aten.complex.default")
def _complex(e, out, re, im):
    dtype = _part(out.dtype)
    return e("complex", e.cast(re, dtype), e.cast(im, dtype))


@lowers("aten.polar.default")
def _polar(e, out, length, angle):
    _part(out.dtype)
    return e("complex", e("mul", length, e("cos", angle)), e("mul", length, e("sin", angle)))


@lowers("aten.view_as_complex.default")
def _view_as_complex(e, out, x):
    _part(out.dtype)
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
