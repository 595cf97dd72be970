# SPDX-License-Identifier: Apache-2.0
"""Operators on lists of tensors, as optimisers use them: each tensor by the operator of one tensor that it stands for."""

import torch

from ..emit import HALVES
from .table import TABLE, number, operand


def _each(lower):
    """A lowering of lists from lower(e, out, index, ...), which gives the result at an index. Nobody needs those that are not
    read."""

    def lowering(e, out, *args, **kwargs):
        return [lower(e, fake, k, *args, **kwargs) if k in e.wanted else None for k, fake in enumerate(out)]

    return lowering


def _item(x, k):
    return x[k] if isinstance(x, (list, tuple)) else x


def _by_operator(name):
    """By the table's operator, with the lists among the arguments taken item by item."""

    def lower(e, out, k, *args, **kwargs):
        return TABLE[name](e, out, *(_item(a, k) for a in args), **{key: _item(a, k) for key, a in kwargs.items()})

    return _each(lower)


_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt "
    "sigmoid sign sin sinh sqrt tan tanh trunc"
)
_OVERLOADS = {"Scalar": "Scalar", "List": "Tensor", "ScalarList": "Scalar", "Tensor": "Tensor"}


def _register():
    taken = {f"_foreach_{name}.default": f"{name}.default" for name in _UNARY.split()}
    for name in ("add", "sub", "mul", "div"):
        taken.update({f"_foreach_{name}.{lists}": f"{name}.{one}" for lists, one in _OVERLOADS.items()})
    for name, one in (("maximum", "clamp_min"), ("minimum", "clamp_max")):
        for prefix in (name, one):
            taken.update({f"_foreach_{prefix}.{lists}": f"{one}.default" for lists in ("Scalar", "ScalarList")})
            taken[f"_foreach_{prefix}.List"] = f"{name}.default"
    taken["_foreach_pow.List"] = "pow.Tensor_Tensor"
    taken["_foreach_pow.Scalar"] = taken["_foreach_pow.ScalarList"] = "pow.Tensor_Scalar"
    taken["_foreach_pow.ScalarAndTensor"] = "pow.Scalar"
    for lists, one in taken.items():
        if f"aten.{one}" in TABLE:
            TABLE[f"aten.{lists}"] = _by_operator(f"aten.{one}")


_register()


def _sum_with(op):
    """x + value * (a op b), rounded once."""

    def lower(e, out, k, x, a, b, value=1):
        dtype = torch.float32 if out.dtype in HALVES else out.dtype
        y = e(op, operand(e, a[k], dtype), operand(e, b[k], dtype))
        value = _item(value, k)
        if value != 1:
            y = e("mul", y, operand(e, value if hasattr(value, "id") else number(value), dtype))
        return e.cast(e("add", operand(e, x[k], dtype), y), out.dtype)

    return _each(lower)


for _name, _op in (("addcmul", "mul"), ("addcdiv", "div")):
    TABLE[f"aten._foreach_{_name}.Scalar"] = TABLE[f"aten._foreach_{_name}.ScalarList"] = _sum_with(_op)


def _lerp(e, out, k, x, end, weight):
    """As PyTorch has it: from the nearer end."""
    dtype, weight = torch.float32 if out.dtype in HALVES else out.dtype, _item(weight, k)
    x, end = operand(e, x[k], dtype), operand(e, end[k], dtype)
    span = e("sub", end, x)
    if hasattr(weight, "id"):
        w, one = operand(e, weight, dtype), e.scalar(1, dtype)
        near = e("add", x, e("mul", w, span))
        far = e("sub", end, e("mul", span, e("sub", one, w)))
        return e.cast(e("select", e("lt", e("abs", w), 0.5), near, far), out.dtype)
    weight = number(weight)
    if abs(weight) < 0.5:
        return e.cast(e("add", x, e("mul", span, weight)), out.dtype)
    return e.cast(e("sub", end, e("mul", span, 1 - weight)), out.dtype)


for _overload in ("List", "Scalar", "ScalarList"):
    TABLE[f"aten._foreach_lerp.{_overload}"] = _each(_lerp)
