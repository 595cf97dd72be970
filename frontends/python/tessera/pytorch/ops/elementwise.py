# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators of one, two and three operands."""

import math

import torch

from ..emit import HALVES, Unsupported, Value
from .table import TABLE, axis_of, binary, lowers, number, operand, truth, wide

# Of floats; integers are cast to the result's dtype first.
FLOAT_UNARY = {
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "cos": "cos",
    "cosh": "cosh",
    "digamma": "digamma",
    "erf": "erf",
    "erfc": "erfc",
    "erfinv": "erfinv",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "lgamma": "lgamma",
    "log": "log",
    "log10": "log10",
    "log1p": "log1p",
    "log2": "log2",
    "reciprocal": "reciprocal",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
    "silu": "silu",
    "mish": "mish",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
    "selu": "selu",
}
# In the dtype that comes.
PLAIN_UNARY = {"neg": "neg", "bitwise_not": "bitwise_not", "relu": "relu"}
# Integers stay as they are.
ROUNDING = {"ceil": "ceil", "floor": "floor", "round": "round", "trunc": "trunc"}


def _register_unary():
    for aten, op in FLOAT_UNARY.items():
        TABLE[f"aten.{aten}.default"] = lambda e, out, x, op=op: e(op, e.cast(x, out.dtype))
    for aten, op in PLAIN_UNARY.items():
        TABLE[f"aten.{aten}.default"] = lambda e, out, x, op=op: e(op, x)
    for aten, op in ROUNDING.items():
        TABLE[f"aten.{aten}.default"] = lambda e, out, x, op=op: e(op, x) if x.dtype.is_floating_point else x


_register_unary()


for _aten in ("sign", "sgn"):
    TABLE[f"aten.{_aten}.default"] = lambda e, out, x: x if x.dtype == torch.bool else e("sign", x)


@lowers("aten.angle.default")
def _angle(e, out, x):
    """0 or pi, and NaN of NaN."""
    y = e.cast(x, out.dtype)
    turned = e("select", e("lt", y, 0), e.scalar(math.pi, out.dtype), e.scalar(0, out.dtype))
    return e("select", e("ne", y, y), y, turned)


# Of floats: bits as integers, bits of the fraction, the exponent's bias less one.
_FLOATS = {torch.float32: (torch.int32, 23, 126), torch.float64: (torch.int64, 52, 1022)}


@lowers("aten.frexp.Tensor")
def _frexp(e, out, x):
    dtype = torch.float32 if x.dtype in HALVES else x.dtype
    ints, fraction, bias = _FLOATS[dtype]
    y = e.cast(x, dtype)
    tiny = e("lt", e("abs", y), torch.finfo(dtype).tiny)
    shift = 2 * fraction
    bits = e("bitcast", e("select", tiny, e("mul", y, 2.0**shift), y), dtype=ints)
    width = (1 << (8 if fraction == 23 else 11)) - 1
    exponent = e("sub", e("bitwise_and", e("shift_right", bits, fraction), width), bias)
    exponent = e("select", tiny, e("sub", exponent, shift), exponent)
    mask = ~(width << fraction)
    mantissa = e("bitcast", e("bitwise_or", e("bitwise_and", bits, mask), bias << fraction), dtype=dtype)
    plain = e("logical_and", e("is_finite", y), e("ne", y, 0))
    exponent = e("select", plain, exponent, e.scalar(0, ints))
    return [e.cast(e("select", plain, mantissa, y), out[0].dtype), e.cast(exponent, out[1].dtype)]


@lowers("aten.abs.default")
def _abs(e, out, x):
    return x if x.dtype in (torch.uint8, torch.bool) else e("abs", x)


@lowers("aten.logical_not.default")
def _logical_not(e, out, x):
    return e("logical_not", truth(e, x))


@lowers("aten.isnan.default")
def _isnan(e, out, x):
    return e("ne", x, x)


@lowers("aten.isinf.default")
def _isinf(e, out, x):
    return e("is_inf", x) if x.dtype.is_floating_point else e("ne", x, x)


@lowers("aten.isfinite.default")
def _isfinite(e, out, x):
    return e("is_finite", x) if x.dtype.is_floating_point else e("eq", x, x)


@lowers("aten.gelu.default")
def _gelu(e, out, x, approximate="none"):
    return e("gelu", x, approximate=approximate)


@lowers("aten.leaky_relu.default")
def _leaky_relu(e, out, x, slope=0.01):
    return e("leaky_relu", x, slope=float(number(slope)))


@lowers("aten.elu.default")
def _elu(e, out, x, alpha=1, scale=1, input_scale=1):
    if scale == 1 and input_scale == 1:
        return e("elu", x, alpha=float(number(alpha)))
    dtype = torch.float32 if x.dtype in HALVES else x.dtype
    x = e.cast(x, dtype)
    below = e("mul", e("expm1", e("mul", x, e.scalar(number(input_scale), dtype))), e.scalar(number(alpha) * scale, dtype))
    return e.cast(e("select", e("gt", x, 0), e("mul", x, e.scalar(number(scale), dtype)), below), out.dtype)


@lowers("aten.celu.default")
def _celu(e, out, x, alpha=1.0):
    return e("celu", x, alpha=float(number(alpha)))


@lowers("aten.softplus.default")
def _softplus(e, out, x, beta=1, threshold=20):
    return e("softplus", x, beta=float(number(beta)), threshold=float(number(threshold)))


@lowers(
    "aten.clone.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.contiguous.default",
    "prims.view_of.default",
    "aten.positive.default",
)
def _same(e, out, x, memory_format=None):
    return x  # memory formats are layout: outputs get PyTorch's strides


@lowers("aten._to_copy.default")
def _to_copy(e, out, x, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    return _moved(e, e.cast(x, out.dtype), out)


@lowers("prims.device_put.default")
def _device_put(e, out, x, device, non_blocking=False):
    return _moved(e, x, out)


def _moved(e, x, out):
    return x if out.device.type == "cpu" else e.placed(x, out.device)


@lowers("prims.convert_element_type.default")
def _convert(e, out, x, dtype):
    return e.cast(x, dtype)


def _lower_arithmetic(op):
    def lower(e, out, a, b, alpha=1):
        if out.dtype == torch.bool:
            if alpha != 1 or op == "sub":
                raise Unsupported(f"{op} of bools")
            return e("logical_or" if op == "add" else "logical_and", operand(e, a, torch.bool), operand(e, b, torch.bool))
        dtype = wide(a, b, out.dtype)
        if alpha != 1:
            if dtype in HALVES:
                dtype = torch.float32
            b = e("mul", operand(e, b, dtype), e.scalar(alpha, dtype))
        return binary(e, op, a, b, out.dtype, dtype)

    return lower


for _op in ("add", "sub", "mul"):
    TABLE[f"aten.{_op}.Tensor"] = TABLE[f"aten.{_op}.Scalar"] = _lower_arithmetic(_op)


@lowers("aten.rsub.Scalar", "aten.rsub.Tensor")
def _rsub(e, out, a, b, alpha=1):
    if alpha != 1:
        raise Unsupported("rsub with alpha")
    return TABLE["aten.sub.Tensor"](e, out, b, a)


@lowers("aten.div.Tensor", "aten.div.Scalar")
def _div(e, out, a, b):
    return binary(e, "div", a, b, out.dtype)


TABLE["aten.true_divide.Tensor"] = TABLE["aten.true_divide.Scalar"] = _div


@lowers("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_mode(e, out, a, b, rounding_mode=None):
    if rounding_mode is None:
        return _div(e, out, a, b)
    if rounding_mode == "floor":
        return binary(e, "floor_div", a, b, out.dtype)
    if not out.dtype.is_floating_point:
        return binary(e, "div", a, b, out.dtype)
    dtype = torch.float32 if out.dtype in HALVES else out.dtype
    return e.cast(e("trunc", e("div", operand(e, a, dtype), operand(e, b, dtype))), out.dtype)


@lowers("aten.floor_divide.default", "aten.floor_divide.Scalar")
def _floor_divide(e, out, a, b):
    return binary(e, "floor_div", a, b, out.dtype)


for _aten, _op in (
    ("remainder", "remainder"),
    ("fmod", "fmod"),
    ("bitwise_and", "bitwise_and"),
    ("bitwise_or", "bitwise_or"),
    ("bitwise_xor", "bitwise_xor"),
    ("bitwise_left_shift", "shift_left"),
    ("bitwise_right_shift", "shift_right"),
):
    for _overload in ("Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor"):
        TABLE[f"aten.{_aten}.{_overload}"] = lambda e, out, a, b, op=_op: binary(e, op, a, b, out.dtype)
for _aten, _op in (
    ("maximum", "maximum"),
    ("minimum", "minimum"),
    ("fmax", "fmax"),
    ("fmin", "fmin"),
    ("atan2", "atan2"),
    ("hypot", "hypot"),
    ("nextafter", "nextafter"),
):
    TABLE[f"aten.{_aten}.default"] = lambda e, out, a, b, op=_op: binary(e, op, a, b, out.dtype, out.dtype)


def _lower_without_nan(op, of_integers):
    return lambda e, out, a, b: binary(e, op if out.dtype.is_floating_point else of_integers, a, b, out.dtype, out.dtype)


TABLE["aten.fmax.default"] = _lower_without_nan("fmax", "maximum")
TABLE["aten.fmin.default"] = _lower_without_nan("fmin", "minimum")
for _overload in ("Tensor", "Scalar"):
    TABLE[f"aten.copysign.{_overload}"] = lambda e, out, a, b: binary(e, "copysign", a, b, out.dtype)


@lowers("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _pow(e, out, a, b):
    if not out.dtype.is_floating_point:
        raise Unsupported("pow of integers by a tensor, whose negative exponents are errors")
    return binary(e, "pow", a, b, out.dtype)


@lowers("aten.pow.Tensor_Scalar")
def _pow_scalar(e, out, a, b):
    b = number(b)
    if not out.dtype.is_floating_point:
        if isinstance(b, complex) or b < 0:
            raise Unsupported("a negative power of integers")
        return binary(e, "pow", a, b, out.dtype)
    if b == 2 and a.dtype == out.dtype:
        return e("mul", a, a)
    if b == 0.5:
        return e("sqrt", e.cast(a, out.dtype))
    return binary(e, "pow", a, b, out.dtype)


def _compared(e, a, b):
    """The dtype in which PyTorch compares, and the operands in it."""

    def stand_in(x):
        if not isinstance(x, Value):
            return 1 if isinstance(x, torch.SymInt) else x
        return torch.empty([1] * min(x.rank, 1), dtype=x.dtype)

    dtype = torch.result_type(stand_in(a), stand_in(b))
    dtype = wide(a, b, dtype)
    return operand(e, a, dtype), operand(e, b, dtype)


for _aten in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _overload in ("Tensor", "Scalar"):
        TABLE[f"aten.{_aten}.{_overload}"] = lambda e, out, a, b, op=_aten: e(op, *_compared(e, a, b))


for _aten in ("logical_and", "logical_or", "logical_xor"):
    TABLE[f"aten.{_aten}.default"] = lambda e, out, a, b, op=_aten: e(op, truth(e, a), truth(e, b))


@lowers("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def _where(e, out, condition, a, b):
    return e("select", truth(e, condition), operand(e, a, out.dtype), operand(e, b, out.dtype))


@lowers("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(e, out, x, mask, value):
    return e.broadcast(e("select", mask, operand(e, value, x.dtype), x), e.sizes(out.shape))


@lowers("aten.clamp.default", "aten.clamp.Tensor", "aten.clamp_min.default", "aten.hardtanh.default", "aten.clamp_min.Tensor")
def _clamp(e, out, x, low=None, high=None):
    bounds = [b if b is None else operand(e, b, out.dtype) for b in (low, high)]
    if out.dtype == torch.bool:
        for op, b in zip(("maximum", "minimum"), bounds):
            x = x if b is None else e(op, x, b)
        return x
    return e("clamp", e.cast(x, out.dtype), *bounds)


@lowers("aten.clamp_max.default", "aten.clamp_max.Tensor")
def _clamp_max(e, out, x, high):
    return _clamp(e, out, x, None, high)


@lowers("aten.relu6.default")
def _relu6(e, out, x):
    return _clamp(e, out, x, 0, 6)


TABLE["aten.hardtanh.default"] = lambda e, out, x, low=-1, high=1: _clamp(e, out, x, low, high)


@lowers("aten.threshold.default")
def _threshold(e, out, x, threshold, value):
    return e("select", e("le", x, e.scalar(number(threshold), x.dtype)), e.scalar(number(value), x.dtype), x)


@lowers("aten.lerp.Scalar", "aten.lerp.Tensor")
def _lerp(e, out, a, b, weight):
    if not out.dtype.is_floating_point:
        raise Unsupported("lerp of integers")
    dtype = torch.float32 if out.dtype in HALVES else out.dtype  # from the nearer end, as PyTorch
    a, b, w = e.cast(a, dtype), e.cast(b, dtype), operand(e, weight, dtype)
    d = e("sub", b, a)
    near = e("add", a, e("mul", w, d))
    far = e("sub", b, e("mul", d, e("sub", e.scalar(1, dtype), w)))
    return e.cast(e("select", e("lt", e("abs", w), 0.5), near, far), out.dtype)


@lowers("aten.ldexp.Tensor")
def _ldexp(e, out, x, exponent):
    return e("mul", e.cast(x, out.dtype), e("pow", e.scalar(2, out.dtype), e.cast(exponent, out.dtype)))


@lowers("aten.round.decimals")
def _round_decimals(e, out, x, *, decimals):
    if not x.dtype.is_floating_point:
        raise Unsupported("round of integers")
    dtype = torch.float32 if x.dtype in HALVES else x.dtype
    scale = e.scalar(10.0 ** abs(decimals), dtype)
    up, down = ("mul", "div") if decimals >= 0 else ("div", "mul")
    return e.cast(e(down, e("round", e(up, e.cast(x, dtype), scale)), scale), out.dtype)


@lowers("aten.signbit.default")
def _signbit(e, out, x):
    if not x.dtype.is_floating_point:
        return e("lt", x, 0)
    return e("lt", e("copysign", e.scalar(1, x.dtype), x), 0)


def _lower_running(op):
    def lower(e, out, x, dim):
        if x.rank == 0:
            return [x, e.scalar(0, torch.int64)]
        if x.dtype == torch.bool:
            values, indices = e.ops(op, e.cast(x, torch.uint8), axis=axis_of(dim, x.rank))
            return [e.cast(values, torch.bool), indices]
        return e.ops(op, x, axis=axis_of(dim, x.rank))

    return lower


TABLE["aten.cummax.default"] = _lower_running("cummax")
TABLE["aten.cummin.default"] = _lower_running("cummin")


@lowers("prims.fma.default")
def _fma(e, out, a, b, c):
    """Rounded once but for f64: a product of two f32 is exact in f64, one of two halves in f32."""
    work = torch.float32 if out.dtype in HALVES else torch.float64
    return e.cast(e("add", e("mul", operand(e, a, work), operand(e, b, work)), operand(e, c, work)), out.dtype)


@lowers("aten.addcmul.default")
def _addcmul(e, out, x, a, b, value=1):
    return _add_scaled(e, out, x, a, b, value, "mul")


@lowers("aten.addcdiv.default")
def _addcdiv(e, out, x, a, b, value=1):
    if not out.dtype.is_floating_point:
        raise Unsupported("addcdiv of integers")
    return _add_scaled(e, out, x, a, b, value, "div")


def _add_scaled(e, out, x, a, b, value, op):
    dtype = torch.float32 if out.dtype in HALVES else out.dtype
    t = e.cast(a, dtype)
    if value != 1:
        t = e("mul", t, e.scalar(value, dtype))
    return e.cast(e("add", e.cast(x, dtype), e(op, t, e.cast(b, dtype))), out.dtype)
