# SPDX-License-Identifier: Apache-2.0
"""How ATen's operators are expressed in the standard op set: docs/aten_mapping.md as data.

`TABLE` maps "aten.name.overload" to a function lower(e, out, *args, **kwargs): `e` is the Emitter, `out` what PyTorch says of
the result (fake
tensors); tensors among the arguments are Values. It returns a Value, or a list where the operator has several results (None: a
result that is
not expressed; a node whose user reads it stays with ATen). Unsupported says that a node stays with ATen. The caller compares
the types of what
comes out with `out`, so a lowering need not check what a wrong type would show.
"""

import math

import torch

from .emit import DIVISIBLE, EQ, GE, HALVES, LE, Unsupported, Value, is_symbolic

TABLE = {}


def lowers(*names):
    def register(f):
        for name in names:
            TABLE[name] = f
        return f

    return register


def _axis(a, rank):
    if rank == 0:
        if a not in (0, -1):
            raise Unsupported(f"dimension {a} of a 0-d tensor")
        return 0
    if not -rank <= a < rank:
        raise Unsupported(f"dimension {a} of a tensor of rank {rank}")
    return a % rank


def _axes(dims, rank):
    if dims is None:
        return list(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    if len(dims) == 0:
        return list(range(rank))
    return [] if rank == 0 else sorted(_axis(d, rank) for d in dims)


def _number(x):
    if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise Unsupported("a symbolic number")
    return x


# ------------------------------------------------------------------------------------------------- elementwise, one operand

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
PLAIN_UNARY = {"neg": "neg", "sign": "sign", "sgn": "sign", "bitwise_not": "bitwise_not", "relu": "relu"}
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


@lowers("aten.abs.default")
def _abs(e, out, x):
    return x if x.dtype in (torch.uint8, torch.bool) else e("abs", x)


@lowers("aten.logical_not.default")
def _logical_not(e, out, x):
    return e("logical_not", _truth(e, x))


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
    return e("leaky_relu", x, slope=float(_number(slope)))


@lowers("aten.elu.default")
def _elu(e, out, x, alpha=1, scale=1, input_scale=1):
    if scale != 1 or input_scale != 1:
        raise Unsupported("elu with a scale")
    return e("elu", x, alpha=float(_number(alpha)))


@lowers("aten.celu.default")
def _celu(e, out, x, alpha=1.0):
    return e("celu", x, alpha=float(_number(alpha)))


@lowers("aten.softplus.default")
def _softplus(e, out, x, beta=1, threshold=20):
    return e("softplus", x, beta=float(_number(beta)), threshold=float(_number(threshold)))


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
    return e.cast(x, out.dtype)


@lowers("prims.convert_element_type.default")
def _convert(e, out, x, dtype):
    return e.cast(x, dtype)


# ------------------------------------------------------------------------------------------------ elementwise, two operands


def _operand(e, x, dtype):
    return e.cast(x, dtype) if isinstance(x, Value) else e.scalar(x, dtype)


def _wide(a, b, dtype):
    """The dtype to compute in: PyTorch takes a number beside halves as it is, so such operations are done in f32 and rounded
    once."""
    if dtype in HALVES and not (isinstance(a, Value) and isinstance(b, Value)):
        return torch.float32
    return dtype


def _binary(e, op, a, b, out_dtype, compute=None):
    dtype = compute or _wide(a, b, out_dtype)
    return e.cast(e(op, _operand(e, a, dtype), _operand(e, b, dtype)), out_dtype)


def _lower_arithmetic(op):
    def lower(e, out, a, b, alpha=1):
        if out.dtype == torch.bool:
            if alpha != 1 or op == "sub":
                raise Unsupported(f"{op} of bools")
            return e("logical_or" if op == "add" else "logical_and", _operand(e, a, torch.bool), _operand(e, b, torch.bool))
        dtype = _wide(a, b, out.dtype)
        if alpha != 1:
            if dtype in HALVES:
                dtype = torch.float32
            b = e("mul", _operand(e, b, dtype), e.scalar(alpha, dtype))
        return _binary(e, op, a, b, out.dtype, dtype)

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
    return _binary(e, "div", a, b, out.dtype)


TABLE["aten.true_divide.Tensor"] = TABLE["aten.true_divide.Scalar"] = _div


@lowers("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_mode(e, out, a, b, rounding_mode=None):
    if rounding_mode is None:
        return _div(e, out, a, b)
    if rounding_mode == "floor":
        return _binary(e, "floor_div", a, b, out.dtype)
    if not out.dtype.is_floating_point:
        return _binary(e, "div", a, b, out.dtype)
    dtype = torch.float32 if out.dtype in HALVES else out.dtype
    return e.cast(e("trunc", e("div", _operand(e, a, dtype), _operand(e, b, dtype))), out.dtype)


@lowers("aten.floor_divide.default", "aten.floor_divide.Scalar")
def _floor_divide(e, out, a, b):
    return _binary(e, "floor_div", a, b, out.dtype)


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
        TABLE[f"aten.{_aten}.{_overload}"] = lambda e, out, a, b, op=_op: _binary(e, op, a, b, out.dtype)
for _aten, _op in (
    ("maximum", "maximum"),
    ("minimum", "minimum"),
    ("fmax", "fmax"),
    ("fmin", "fmin"),
    ("atan2", "atan2"),
    ("hypot", "hypot"),
    ("nextafter", "nextafter"),
):
    TABLE[f"aten.{_aten}.default"] = lambda e, out, a, b, op=_op: _binary(e, op, a, b, out.dtype, out.dtype)
for _overload in ("Tensor", "Scalar"):
    TABLE[f"aten.copysign.{_overload}"] = lambda e, out, a, b: _binary(e, "copysign", a, b, out.dtype)


@lowers("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _pow(e, out, a, b):
    if not out.dtype.is_floating_point:
        raise Unsupported("pow of integers by a tensor, whose negative exponents are errors")
    return _binary(e, "pow", a, b, out.dtype)


@lowers("aten.pow.Tensor_Scalar")
def _pow_scalar(e, out, a, b):
    b = _number(b)
    if not out.dtype.is_floating_point:
        if isinstance(b, complex) or b < 0:
            raise Unsupported("a negative power of integers")
        return _binary(e, "pow", a, b, out.dtype)
    if b == 2 and a.dtype == out.dtype:
        return e("mul", a, a)
    if b == 0.5:
        return e("sqrt", e.cast(a, out.dtype))
    return _binary(e, "pow", a, b, out.dtype)


def _compared(e, a, b):
    """The dtype in which PyTorch compares, and the operands in it."""

    def stand_in(x):
        if not isinstance(x, Value):
            return 1 if isinstance(x, torch.SymInt) else x
        return torch.empty([1] * min(x.rank, 1), dtype=x.dtype)

    dtype = torch.result_type(stand_in(a), stand_in(b))
    dtype = _wide(a, b, dtype)
    return _operand(e, a, dtype), _operand(e, b, dtype)


for _aten in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _overload in ("Tensor", "Scalar"):
        TABLE[f"aten.{_aten}.{_overload}"] = lambda e, out, a, b, op=_aten: e(op, *_compared(e, a, b))


def _truth(e, x):
    return x if x.dtype == torch.bool else e("ne", x, 0)


for _aten in ("logical_and", "logical_or", "logical_xor"):
    TABLE[f"aten.{_aten}.default"] = lambda e, out, a, b, op=_aten: e(op, _truth(e, a), _truth(e, b))


@lowers("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def _where(e, out, condition, a, b):
    return e("select", _truth(e, condition), _operand(e, a, out.dtype), _operand(e, b, out.dtype))


@lowers("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(e, out, x, mask, value):
    return e.broadcast(e("select", mask, _operand(e, value, x.dtype), x), e.sizes(out.shape))


@lowers("aten.clamp.default", "aten.clamp.Tensor", "aten.clamp_min.default", "aten.hardtanh.default", "aten.clamp_min.Tensor")
def _clamp(e, out, x, low=None, high=None):
    bounds = [b if b is None else _operand(e, b, out.dtype) for b in (low, high)]
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
    return e("select", e("le", x, e.scalar(_number(threshold), x.dtype)), e.scalar(_number(value), x.dtype), x)


@lowers("aten.lerp.Scalar", "aten.lerp.Tensor")
def _lerp(e, out, a, b, weight):
    if not out.dtype.is_floating_point:
        raise Unsupported("lerp of integers")
    dtype = torch.float32 if out.dtype in HALVES else out.dtype  # from the nearer end, as PyTorch
    a, b, w = e.cast(a, dtype), e.cast(b, dtype), _operand(e, weight, dtype)
    d = e("sub", b, a)
    near = e("add", a, e("mul", w, d))
    far = e("sub", b, e("mul", d, e("sub", e.scalar(1, dtype), w)))
    return e.cast(e("select", e("lt", e("abs", w), 0.5), near, far), out.dtype)


@lowers("aten.signbit.default")
def _signbit(e, out, x):
    if not x.dtype.is_floating_point:
        return e("lt", x, 0)
    return e("lt", e("copysign", e.scalar(1, x.dtype), x), 0)


@lowers("aten.addmv.default")
def _addmv(e, out, bias, a, b, beta=1, alpha=1):
    return _add_product(e, out, bias, a, b, beta, alpha)


@lowers("aten.special_erfcx.default")
def _erfcx(e, out, x):
    raise Unsupported("erfcx")


def _lower_running(op):
    def lower(e, out, x, dim):
        return e.ops(op, x, axis=_axis(dim, x.rank)) if x.rank else [x, e.scalar(0, torch.int64)]

    return lower


TABLE["aten.cummax.default"] = _lower_running("cummax")
TABLE["aten.cummin.default"] = _lower_running("cummin")


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


# ------------------------------------------------------------------------------------------------------------------- reductions


def _reduce(e, op, x, dims, keepdim):
    axes = _axes(dims, x.rank)
    if not axes:
        return x
    return e(op, x, axes=axes, keepdims=bool(keepdim))


@lowers("aten.sum.default")
def _sum_all(e, out, x, dtype=None):
    return _reduce(e, "reduce_sum", e.cast(x, out.dtype), None, False)


@lowers("aten.sum.dim_IntList")
def _sum(e, out, x, dims=None, keepdim=False, dtype=None):
    return _reduce(e, "reduce_sum", e.cast(x, out.dtype), dims, keepdim)


@lowers("aten.mean.default")
def _mean_all(e, out, x, dtype=None):
    return _mean(e, out, x, None, False)


@lowers("aten.mean.dim")
def _mean(e, out, x, dims=None, keepdim=False, dtype=None):
    return _reduce(e, "mean", e.cast(x, out.dtype), dims, keepdim)


@lowers("aten.prod.default")
def _prod_all(e, out, x, dtype=None):
    return _reduce(e, "reduce_prod", e.cast(x, out.dtype), None, False)


@lowers("aten.prod.dim_int")
def _prod(e, out, x, dim, keepdim=False, dtype=None):
    return _reduce(e, "reduce_prod", e.cast(x, out.dtype), [dim], keepdim)


def _not_empty(e, x, axes):
    for a in axes:
        if x.rank and e.known(GE, x.sizes[a], 1) is not True:
            raise Unsupported("a reduction over a dimension that may be empty")


@lowers("aten.amax.default")
def _amax(e, out, x, dims=(), keepdim=False):
    _not_empty(e, x, _axes(dims, x.rank))
    return _reduce(e, "reduce_max", x, dims, keepdim)


@lowers("aten.amin.default")
def _amin(e, out, x, dims=(), keepdim=False):
    _not_empty(e, x, _axes(dims, x.rank))
    return _reduce(e, "reduce_min", x, dims, keepdim)


TABLE["aten.max.default"] = _amax
TABLE["aten.min.default"] = _amin


def _lower_bool_reduction(op):
    def lower(e, out, x, dims=None, keepdim=False):
        return e.cast(_reduce(e, op, _truth(e, x), dims, keepdim), out.dtype)

    return lower


for _aten, _op in (("any", "reduce_any"), ("all", "reduce_all")):
    for _overload in ("default", "dim", "dims"):
        TABLE[f"aten.{_aten}.{_overload}"] = _lower_bool_reduction(_op)


def _lower_arg(op):
    def lower(e, out, x, dim=None, keepdim=False):
        if dim is None:
            flat = e.reshape(x, [_product(e, x.sizes)])
            _not_empty(e, flat, [0])
            return e.reshape(e(op, flat, axis=0), e.sizes(out.shape))
        if x.rank == 0:
            return e.scalar(0, torch.int64)
        axis = _axis(dim, x.rank)
        _not_empty(e, x, [axis])
        return e(op, x, axis=axis, keepdims=bool(keepdim))

    return lower


TABLE["aten.argmax.default"] = _lower_arg("argmax")
TABLE["aten.argmin.default"] = _lower_arg("argmin")


def _lower_extreme(op, arg):
    def lower(e, out, x, dim, keepdim=False):
        if x.rank == 0:
            return [x, e.scalar(0, torch.int64)]
        axis = _axis(dim, x.rank)
        _not_empty(e, x, [axis])
        return [e(op, x, axes=[axis], keepdims=bool(keepdim)), e(arg, x, axis=axis, keepdims=bool(keepdim))]

    return lower


TABLE["aten.max.dim"] = _lower_extreme("reduce_max", "argmax")
TABLE["aten.min.dim"] = _lower_extreme("reduce_min", "argmin")


@lowers("aten.var.correction")
def _var(e, out, x, dims=None, *, correction=None, keepdim=False):
    return (
        _reduce(e, "variance", x, dims, keepdim)
        if correction is None
        else e("variance", x, axes=_axes(dims, x.rank), correction=float(_number(correction)), keepdims=bool(keepdim))
    )


@lowers("aten.var_mean.correction")
def _var_mean(e, out, x, dims=None, *, correction=None, keepdim=False):
    return [_var(e, out, x, dims, correction=correction, keepdim=keepdim), _reduce(e, "mean", x, dims, keepdim)]


@lowers("aten.std.correction")
def _std(e, out, x, dims=None, *, correction=None, keepdim=False):
    wide = torch.float32 if x.dtype in HALVES else x.dtype
    return e.cast(e("sqrt", _var(e, out, e.cast(x, wide), dims, correction=correction, keepdim=keepdim)), out.dtype)


@lowers("aten.logsumexp.default")
def _logsumexp(e, out, x, dims, keepdim=False):
    return _reduce(e, "logsumexp", e.cast(x, out.dtype), dims, keepdim) if x.rank else e.cast(x, out.dtype)


@lowers("aten.cumsum.default")
def _cumsum(e, out, x, dim, dtype=None):
    return e("cumsum", e.cast(x, out.dtype), axis=_axis(dim, x.rank)) if x.rank else e.cast(x, out.dtype)


@lowers("aten.cumprod.default")
def _cumprod(e, out, x, dim, dtype=None):
    return e("cumprod", e.cast(x, out.dtype), axis=_axis(dim, x.rank)) if x.rank else e.cast(x, out.dtype)


@lowers("aten.sort.default", "aten.sort.stable")
def _sort(e, out, x, *args, **kwargs):
    stable = kwargs.get("stable")
    args = list(args)
    if "stable" not in kwargs and args and isinstance(args[0], bool):
        stable = args.pop(0)
    dim = args[0] if args else kwargs.get("dim", -1)
    descending = args[1] if len(args) > 1 else kwargs.get("descending", False)
    if x.rank == 0:
        return [x, e.scalar(0, torch.int64)]
    values, indices = e.ops("sort", x, axis=_axis(dim, x.rank), descending=bool(descending))
    return [values, indices if stable else None]  # else the order of equal elements is PyTorch's own choice


@lowers("aten.topk.default")
def _topk(e, out, x, k, dim=-1, largest=True, sorted=True):
    if x.rank == 0:
        raise Unsupported("topk of a 0-d tensor")
    values, _ = e.ops("topk", x, k=e.size(k), axis=_axis(dim, x.rank), largest=bool(largest))
    return [values, None]  # which of equal elements it names is PyTorch's own choice


# ---------------------------------------------------------------------------------------------------------------------- shapes


def _product(e, sizes):
    n = 1
    for s in sizes:
        n = e.mul(n, s)
    return n


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
    return e("transpose", x, perm=[_axis(d, x.rank) for d in dims]) if x.rank else x


@lowers("aten.t.default")
def _t(e, out, x):
    return e("transpose", x, perm=[1, 0]) if x.rank == 2 else x


@lowers("aten.transpose.int", "aten.transpose_copy.int")
def _transpose(e, out, x, a, b):
    if x.rank == 0:
        return x
    perm = list(range(x.rank))
    a, b = _axis(a, x.rank), _axis(b, x.rank)
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
    axes = [a for a in (range(x.rank) if dims is None else _axes(dims, x.rank) if dims != [] else []) if x.sizes[a] == 1]
    return e("squeeze", x, axes=axes) if axes else x


@lowers("aten.flatten.using_ints", "aten.unflatten.int")
def _reshaped(e, out, x, *_):
    return e.reshape(x, e.sizes(out.shape))


def _place(e, index, size, limit):
    """An index of a slice, made absolute and kept within [0, size]; `limit` is what it is when it lies beyond."""
    index = e.size(index)
    if not is_symbolic(index) and index < 0:
        if e.known(GE, size, -index) is True:
            return e.add(size, index)
        if not is_symbolic(size):
            return 0
        raise Unsupported("a negative slice of a symbolic size")
    if not is_symbolic(index) and index >= (1 << 62):
        return limit
    if e.known(LE, index, size) is True:
        return index
    if e.known(GE, index, size) is True:
        return size
    raise Unsupported("a slice whose bound depends on the sizes")


def _slice_axis(e, x, axis, start, limit, step=1):
    starts, limits, strides = [0] * x.rank, list(x.sizes), [1] * x.rank
    starts[axis], limits[axis], strides[axis] = start, limit, step
    if starts == [0] * x.rank and limits == x.sizes and step == 1:
        return x
    return e("slice", x, starts=starts, limits=limits, strides=strides)


@lowers("aten.slice.Tensor", "aten.slice_copy.Tensor")
def _slice(e, out, x, dim=0, start=None, end=None, step=1):
    axis = _axis(dim, x.rank)
    size = x.sizes[axis]
    first = 0 if start is None else _place(e, start, size, size)
    last = size if end is None else _place(e, end, size, size)
    if e.known(LE, first, last) is not True:
        if e.known(GE, first, last) is not True:
            raise Unsupported("a slice that may be empty")
        last = first
    return _slice_axis(e, x, axis, first, last, _number(step))


@lowers("aten.select.int", "aten.select_copy.int")
def _select(e, out, x, dim, index):
    axis = _axis(dim, x.rank)
    index = e.size(index)
    if not is_symbolic(index) and index < 0:
        index = e.add(x.sizes[axis], index)
    return e("squeeze", _slice_axis(e, x, axis, index, e.add(index, 1)), axes=[axis])


@lowers("aten.narrow.default")
def _narrow(e, out, x, dim, start, length):
    axis = _axis(dim, x.rank)
    start = _place(e, start, x.sizes[axis], x.sizes[axis])
    return _slice_axis(e, x, axis, start, e.add(start, e.size(length)))


@lowers("aten.cat.default", "aten.concat.default")
def _cat(e, out, tensors, dim=0):
    parts = [e.cast(t, out.dtype) for t in tensors if not (t.sizes == [0] and out.dim() != 1)]  # PyTorch skips these
    return parts[0] if len(parts) == 1 else e("concat", *parts, axis=_axis(dim, out.dim()))


@lowers("aten.stack.default")
def _stack(e, out, tensors, dim=0):
    return e("stack", *[e.cast(t, out.dtype) for t in tensors], axis=_axis(dim, out.dim()))


def _pieces(e, x, axis, sizes):
    pieces, start = [], 0
    for s in sizes:
        pieces.append(_slice_axis(e, x, axis, start, e.add(start, s)))
        start = e.add(start, s)
    return pieces


@lowers("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.split_with_sizes_copy.default")
def _split(e, out, x, _sizes, dim=0):
    axis = _axis(dim, x.rank)
    return _pieces(e, x, axis, [e.size(t.shape[axis]) for t in out])


@lowers("aten.unbind.int")
def _unbind(e, out, x, dim=0):
    axis = _axis(dim, x.rank)
    return [e("squeeze", p, axes=[axis]) for p in _pieces(e, x, axis, [1] * len(out))]


@lowers("aten.flip.default")
def _flip(e, out, x, dims):
    return e("flip", x, axes=[_axis(d, x.rank) for d in dims]) if x.rank and dims else x


@lowers("aten.roll.default")
def _roll(e, out, x, shifts, dims=()):
    shifts = [_number(s) for s in (shifts if isinstance(shifts, (list, tuple)) else [shifts])]
    if x.rank == 0:
        return x
    return e("roll", x, shifts=shifts, axes=[_axis(d, x.rank) for d in dims])


@lowers("aten.repeat.default")
def _repeat(e, out, x, repeats):
    repeats = [_number(r) for r in repeats]
    return e("tile", x, repeats=repeats) if repeats else x


@lowers("aten.constant_pad_nd.default")
def _constant_pad(e, out, x, pad, value=0):
    low, high = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        axis = x.rank - 1 - i
        low[axis], high[axis] = e.size(pad[2 * i]), e.size(pad[2 * i + 1])
    return e("pad", x, e.scalar(value, x.dtype), low=low, high=high)


def _lower_edge_pad(mode):
    def lower(e, out, x, pad):
        low, high = [0] * x.rank, [0] * x.rank
        for i in range(len(pad) // 2):
            axis = x.rank - 1 - i
            low[axis], high[axis] = e.size(pad[2 * i]), e.size(pad[2 * i + 1])
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


@lowers("aten.diagonal.default", "aten.diagonal_copy.default")
def _diagonal(e, out, x, offset=0, dim1=0, dim2=1):
    return e("diagonal", x, offset=offset, axis1=_axis(dim1, x.rank), axis2=_axis(dim2, x.rank))


for _aten in ("tril", "triu"):
    TABLE[f"aten.{_aten}.default"] = lambda e, out, x, diagonal=0, op=_aten: e(op, x, diagonal=_number(diagonal))


# -------------------------------------------------------------------------------------------------------------------- creation


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


# -------------------------------------------------------------------------------------------------------------------- indexing


@lowers("aten.embedding.default")
def _embedding(e, out, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return e("embedding", weight, indices)


@lowers("aten.index_select.default")
def _index_select(e, out, x, dim, index):
    if x.rank == 0:
        raise Unsupported("index_select of a 0-d tensor")
    if index.rank == 0:
        index = e.reshape(index, [1])
    return e("gather", x, index, axis=_axis(dim, x.rank))


@lowers("aten.gather.default")
def _gather(e, out, x, dim, index, sparse_grad=False):
    if x.rank == 0 or index.rank == 0:
        raise Unsupported("gather of a 0-d tensor")
    return e("take_along_axis", x, index, axis=_axis(dim, x.rank))


@lowers("aten.take_along_dim.default")
def _take_along_dim(e, out, x, index, dim=None):
    raise Unsupported("take_along_dim")


def _wrapped(e, index, size):
    """Indices counted from the end where they are negative."""
    index = e.cast(index, torch.int64)
    n = e.scalar(size, torch.int64) if not is_symbolic(size) else e("dim_value", value=size)
    return e("select", e("lt", index, 0), e("add", index, n), index)


@lowers("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(e, out, x, indices):
    places = [k for k, i in enumerate(indices) if i is not None]
    if not places or any(indices[k].dtype == torch.bool or indices[k].dtype == torch.uint8 for k in places):
        raise Unsupported("an index that is a mask")
    if places != list(range(places[0], places[-1] + 1)):
        raise Unsupported("index tensors that are not adjacent")
    if len(places) == 1:
        return e("gather", x, _wrapped(e, indices[places[0]], x.sizes[places[0]]), axis=places[0])
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
    parts = [_wrapped(e, indices[k], x.sizes[k]) for k in places]
    shape = _broadcast_shape(e, [p.sizes for p in parts])
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
    if places != list(range(len(places))):
        raise Unsupported("index tensors behind the first dimension")
    if accumulate and x.dtype in HALVES:
        raise Unsupported("sums of halves by an index, which PyTorch rounds in another order")
    if x.rank == 0:
        raise Unsupported("an index into a 0-d tensor")
    tuples = _index_tuples(e, x, indices, places)
    values = e.broadcast(values, tuples.sizes[:-1] + x.sizes[len(places) :])
    return e("scatter_nd", x, tuples, values, reduction="add" if accumulate else "none")


def _broadcast_shape(e, shapes):
    rank = max(len(s) for s in shapes)
    result = [1] * rank
    for shape in shapes:
        for k, s in enumerate(shape):
            at = rank - len(shape) + k
            if s == 1 or s == result[at]:
                continue
            if result[at] != 1 and e.known(EQ, s, result[at]) is not True:
                raise Unsupported("shapes that may not broadcast")
            result[at] = s
    return result


@lowers("aten.scatter.src", "aten.scatter.value")
def _scatter(e, out, x, dim, index, src):
    return _scattered(e, x, dim, index, src, "none")


@lowers("aten.scatter_add.default")
def _scatter_add(e, out, x, dim, index, src):
    return _scattered(e, x, dim, index, src, "add")


@lowers("aten.scatter.reduce", "aten.scatter.value_reduce")
def _scatter_with(e, out, x, dim, index, src, *, reduce):
    return _scattered(e, x, dim, index, src, {"add": "add", "multiply": "mul"}[reduce])


@lowers("aten.scatter_reduce.two")
def _scatter_reduce(e, out, x, dim, index, src, reduce, *, include_self=True):
    names = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if reduce not in names or not include_self:
        raise Unsupported("scatter_reduce of a mean, or without the values that are there")
    return _scattered(e, x, dim, index, src, names[reduce])


@lowers("aten.index_add.default")
def _index_add(e, out, x, dim, index, source, alpha=1):
    if x.rank == 0 or index.rank == 0 or x.dtype in HALVES:
        raise Unsupported("index_add of a 0-d tensor, or of halves")
    axis = _axis(dim, x.rank)
    if alpha != 1:
        source = e("mul", source, e.scalar(_number(alpha), x.dtype))
    index = e.reshape(index, [1] * axis + index.sizes + [1] * (x.rank - axis - 1))
    return e("scatter", x, e.broadcast(index, source.sizes), source, axis=axis, reduction="add")


@lowers("aten.slice_scatter.default")
def _slice_scatter(e, out, x, src, dim=0, start=None, end=None, step=1):
    axis = _axis(dim, x.rank)
    size = x.sizes[axis]
    first = 0 if start is None else _place(e, start, size, size)
    if step != 1 or is_symbolic(first):
        raise Unsupported("slice_scatter with a step")
    return _updated(e, x, src, axis, first)


@lowers("aten.select_scatter.default")
def _select_scatter(e, out, x, src, dim, index):
    axis = _axis(dim, x.rank)
    index = e.size(index)
    if not is_symbolic(index) and index < 0:
        index = e.add(x.sizes[axis], index)
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
    return e.broadcast(_operand(e, value, x.dtype), x.sizes)


@lowers("aten.unfold.default", "aten.unfold_copy.default")
def _unfold(e, out, x, dim, size, step):
    if x.rank == 0 or is_symbolic(e.size(size)) or size == 0:
        raise Unsupported("unfold of a 0-d tensor")
    axis = _axis(dim, x.rank)
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
    return e("scatter", x, index, src, axis=_axis(dim, x.rank), reduction=reduction)


# ---------------------------------------------------------------------------------------------------------- products and
# networks


@lowers("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default")
def _matmul(e, out, a, b):
    return e("matmul", a, b)


@lowers("aten.addmm.default")
def _addmm(e, out, bias, a, b, beta=1, alpha=1):
    return _add_product(e, out, bias, a, b, beta, alpha)


@lowers("aten.baddbmm.default")
def _baddbmm(e, out, bias, a, b, beta=1, alpha=1):
    return _add_product(e, out, bias, a, b, beta, alpha)


@lowers("aten.addbmm.default")
def _addbmm(e, out, bias, a, b, beta=1, alpha=1):
    if out.dtype in HALVES or not out.dtype.is_floating_point or beta == 0:
        raise Unsupported("addbmm of halves or integers")
    y = e("reduce_sum", e("matmul", a, b), axes=[0])
    if alpha != 1:
        y = e("mul", y, e.scalar(_number(alpha), out.dtype))
    return e("add", y, bias if beta == 1 else e("mul", bias, e.scalar(_number(beta), out.dtype)))


@lowers("aten.searchsorted.Tensor")
def _searchsorted(e, out, boundaries, x, *, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None or x.rank == 0:
        raise Unsupported("searchsorted through a sorter, or of a 0-d tensor")
    if side is not None and right and side != "right":
        raise Unsupported("two sides")
    return e.cast(e("searchsorted", boundaries, x, right=bool(right or side == "right")), out.dtype)


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


def _spread(values, n):
    values = [_number(v) for v in (values if isinstance(values, (list, tuple)) else [values])]
    return values * n if len(values) == 1 else values


@lowers("aten.convolution.default")
def _convolution(e, out, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    n = weight.rank - 2
    if x.rank != weight.rank or not 1 <= n <= 3:
        raise Unsupported("a convolution of this rank")
    padding = _spread(padding, n)
    attributes = dict(
        strides=_spread(stride, n), pad_low=padding, pad_high=padding, dilations=_spread(dilation, n), groups=groups
    )
    if transposed:
        return e("conv_transpose", x, weight, bias, output_pad=_spread(output_padding, n), **attributes)
    return e("conv", x, weight, bias, **attributes)


@lowers("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def _max_pool(e, out, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    n = 2 if out[0].dim() - (x.rank - out[0].dim()) in (3, 4) and x.rank in (3, 4) else 3
    return _pooled(
        e,
        x,
        n,
        lambda v: e.ops(
            "max_pool",
            v,
            kernel=_spread(kernel, n),
            strides=_spread(stride, n) if len(stride) else _spread(kernel, n),
            pad_low=_spread(padding, n),
            pad_high=_spread(padding, n),
            dilations=_spread(dilation, n),
            ceil_mode=bool(ceil_mode),
        ),
    )


TABLE["aten.max_pool3d_with_indices.default"] = (
    lambda e, out, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False: _pooled(
        e,
        x,
        3,
        lambda v: e.ops(
            "max_pool",
            v,
            kernel=_spread(kernel, 3),
            strides=_spread(stride if len(stride) else kernel, 3),
            pad_low=_spread(padding, 3),
            pad_high=_spread(padding, 3),
            dilations=_spread(dilation, 3),
            ceil_mode=bool(ceil_mode),
        ),
    )
)
TABLE["aten.max_pool2d_with_indices.default"] = (
    lambda e, out, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False: _pooled(
        e,
        x,
        2,
        lambda v: e.ops(
            "max_pool",
            v,
            kernel=_spread(kernel, 2),
            strides=_spread(stride if len(stride) else kernel, 2),
            pad_low=_spread(padding, 2),
            pad_high=_spread(padding, 2),
            dilations=_spread(dilation, 2),
            ceil_mode=bool(ceil_mode),
        ),
    )
)


def _pooled(e, x, n, pool):
    """Applies `pool` to x with a batch dimension in front, whether or not x has one."""
    if x.rank == n + 2:
        return pool(x)
    if x.rank != n + 1:
        raise Unsupported("pooling of this rank")
    return [e("squeeze", r, axes=[0]) for r in pool(e("expand_dims", x, axes=[0]))]


for _n in (2, 3):
    TABLE[f"aten.adaptive_max_pool{_n}d.default"] = lambda e, out, x, output, n=_n: _pooled(
        e, x, n, lambda v: e.ops("adaptive_max_pool", v, output=e.sizes(out[0].shape[-n:]))
    )


def _lower_avg_pool(n):
    def lower(e, out, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        return _pooled(
            e,
            x,
            n,
            lambda v: e.ops(
                "avg_pool",
                v,
                kernel=_spread(kernel, n),
                strides=_spread(stride if len(stride) else kernel, n),
                pad_low=_spread(padding, n),
                pad_high=_spread(padding, n),
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
        lambda e, out, x, output, n=_n: _pooled(
            e, x, n, lambda v: e.ops("adaptive_avg_pool", v, output=e.sizes(out.shape[-n:]))
        )[0]
    )


@lowers("aten._softmax.default")
def _softmax(e, out, x, dim, half_to_float):
    if x.rank == 0:
        raise Unsupported("softmax of a 0-d tensor")
    return e("softmax", e.cast(x, out.dtype), axis=_axis(dim, x.rank))


@lowers("aten._log_softmax.default")
def _log_softmax(e, out, x, dim, half_to_float):
    if x.rank == 0:
        raise Unsupported("log_softmax of a 0-d tensor")
    return e("log_softmax", e.cast(x, out.dtype), axis=_axis(dim, x.rank))


@lowers("aten.native_layer_norm.default")
def _layer_norm(e, out, x, shape, weight, bias, eps):
    if any(t is not None and t.dtype != x.dtype for t in (weight, bias)):
        raise Unsupported("layer_norm of two dtypes")
    axes = list(range(x.rank - len(shape), x.rank))
    return [e("layer_norm", x, weight, bias, axis=axes[0], eps=eps), *_statistics(e, x, axes, eps, out[1].dtype)]


def _statistics(e, x, axes, eps, dtype):
    """Mean and reciprocal standard deviation as norms save them. Nobody computes them where they are not used."""
    wide = e.cast(x, torch.float32 if x.dtype in HALVES else x.dtype)
    mean = e("mean", wide, axes=axes, keepdims=True)
    variance = e("variance", wide, axes=axes, correction=0.0, keepdims=True)
    return e.cast(mean, dtype), e.cast(e("rsqrt", e("add", variance, e.scalar(eps, wide.dtype))), dtype)


@lowers("aten.native_group_norm.default")
def _group_norm(e, out, x, weight, bias, n, c, hw, groups, eps):
    if any(t is not None and t.dtype != x.dtype for t in (weight, bias)) or x.rank < 3:
        raise Unsupported("group_norm of two dtypes, or of this rank")
    return [e("group_norm", x, weight, bias, groups=groups, eps=eps), None, None]


@lowers("aten._native_batch_norm_legit_no_training.default")
def _batch_norm(e, out, x, weight, bias, mean, variance, momentum, eps):
    if any(t is not None and t.dtype != x.dtype for t in (weight, bias, mean, variance)):
        raise Unsupported("batch_norm of two dtypes")
    if x.rank == 2:
        raise Unsupported("batch_norm of rows")
    return [e("batch_norm", x, weight, bias, mean, variance, eps=eps), None, None]


@lowers("aten._native_batch_norm_legit_functional.default")
def _batch_norm_functional(e, out, x, weight, bias, mean, variance, training, momentum, eps):
    if any(t is not None and t.dtype != x.dtype for t in (weight, bias, mean, variance)) or x.dtype in HALVES:
        raise Unsupported("batch_norm of two dtypes, or of halves")
    if not training or x.rank == 2:
        raise Unsupported("batch_norm of rows, or by given statistics")
    y, new_mean, new_variance = _batch_norm_of_batch(e, x, weight, bias, eps, momentum, mean, variance)
    axes = [k for k in range(x.rank) if k != 1]
    saved = e("mean", x, axes=axes, keepdims=False)
    spread = e("variance", x, axes=axes, correction=0.0, keepdims=False)
    return [y, saved, e("rsqrt", e("add", spread, e.scalar(eps, x.dtype))), new_mean, new_variance]


@lowers("aten._native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(e, out, x, weight, bias, training, momentum, eps):
    if any(t is not None and t.dtype != x.dtype for t in (weight, bias)) or x.dtype in HALVES or x.rank == 2 or not training:
        raise Unsupported("batch_norm of two dtypes, of halves, or of rows")
    axes = [k for k in range(x.rank) if k != 1]
    mean = e("mean", x, axes=axes, keepdims=False)
    spread = e("variance", x, axes=axes, correction=0.0, keepdims=False)
    y = e("batch_norm", x, weight, bias, mean, spread, eps=eps)
    return [y, mean, e("rsqrt", e("add", spread, e.scalar(eps, x.dtype)))]


def _batch_norm_of_batch(e, x, weight, bias, eps, momentum, mean, variance):
    if mean is None or variance is None:
        raise Unsupported("batch_norm without running statistics")
    return e.ops("batch_norm_training", x, weight, bias, mean, variance, momentum=float(_number(momentum)), eps=float(eps))


@lowers("aten._scaled_dot_product_flash_attention_for_cpu.default")
def _attention(e, out, q, k, v, dropout=0.0, causal=False, *, attn_mask=None, scale=None):
    if dropout != 0.0:
        raise Unsupported("attention with dropout")
    if scale is not None and isinstance(scale, torch.SymFloat):
        raise Unsupported("attention with a symbolic scale")
    if scale == 0:
        raise Unsupported("attention with scale 0")
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, q.dtype):
        raise Unsupported("an attention mask of another dtype")
    return [e("attention", q, k, v, attn_mask, scale=float(scale or 0.0), causal=bool(causal)), None]


# Operators of ATen's core set that stay with ATen, and why.
NOT_TAKEN = {
    "aten._adaptive_avg_pool2d_backward.default": "a gradient of pooling",
    "aten._cdist_forward.default": "distances of all pairs",
    "aten._embedding_bag.default": "bags of embeddings",
    "aten._fft_c2r.default": "there is no fast Fourier transform",
    "aten._fft_r2c.default": "there is no fast Fourier transform",
    "aten._local_scalar_dense.default": "it reads a value",
    "aten._native_batch_norm_legit.default": "it writes to its arguments",
    "aten._pdist_forward.default": "distances of all pairs",
    "aten.atan2.out": "it writes to its arguments",
    "aten.avg_pool2d_backward.default": "a gradient of pooling",
    "aten.col2im.default": "sums of overlapping blocks",
    "aten.convolution_backward.default": "a gradient of convolution",
    "aten.embedding_dense_backward.default": "a gradient of embedding",
    "aten.grid_sampler_2d.default": "sampling at positions that are data",
    "aten.masked_scatter.default": "positions that are counted from a mask",
    "aten.max_pool2d_with_indices_backward.default": "a gradient of pooling",
    "aten.native_dropout.default": "random numbers are those of PyTorch's generator",
    "aten.native_group_norm_backward.default": "a gradient of a norm",
    "aten.native_layer_norm_backward.default": "a gradient of a norm",
    "aten.nonzero.default": "a size that depends on data",
    "aten.rand.default": "random numbers are those of PyTorch's generator",
    "aten.randn.default": "random numbers are those of PyTorch's generator",
    "aten.randperm.default": "random numbers are those of PyTorch's generator",
    "aten.sym_numel.default": "a size, which Python computes",
    "aten.sym_size.int": "a size, which Python computes",
    "aten.sym_storage_offset.default": "a size, which Python computes",
    "aten.sym_stride.int": "a size, which Python computes",
    "aten.upsample_bilinear2d.vec": "decomposed by PyTorch",
    "aten.upsample_nearest2d.vec": "decomposed by PyTorch",
    "aten.var.dim": "decomposed by PyTorch",
}
