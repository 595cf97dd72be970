# SPDX-License-Identifier: Apache-2.0
"""Functions over tensors, named and called as numpy's; dtypes promote as PyTorch's, and floats are f32 unless said
otherwise."""

import builtins as _b
import math as _math

from .. import _core
from . import dtypes as _d
from .errors import error
from .symbolic import SymFloat, SymInt, dim_of, is_symbolic
from .trace import apply, apply1, state

_Tensor = _core.Tensor
_NUMBERS = (bool, int, float, complex)

pi, e, inf, nan = _math.pi, _math.e, _math.inf, _math.nan
newaxis = None


def _is_number(x):
    return type(x) in (SymInt, SymFloat) or (isinstance(x, _NUMBERS) and not isinstance(x, _Tensor))


def scalar(value, dtype):
    """A 0-d tensor of a number."""
    code = dtype if isinstance(dtype, int) and not isinstance(dtype, bool) else _d.code_of(dtype)
    if type(value) is SymFloat:
        traced = value._tensor()
        if traced is not None:
            return traced.astype(_d.NAMES[code])
        value = value._number
    elif type(value) is SymInt:
        number = value._dim()
        if value._symbolic:
            return apply1("dim_value", [], value=value).astype(_d.NAMES[code])
        value = number
    return _core.from_numbers(code, (), [value])


def asarray(x, dtype=None):
    """A tensor of numbers in nested lists, or of another library's array, which it shares."""
    if not isinstance(x, _Tensor):
        if _is_number(x):
            kind = "int" if type(x) is SymInt else "float" if type(x) is SymFloat else _d.scalar_kind(x)
            default = {"bool": "bool", "int": "i64", "float": "f32", "complex": "c64"}[kind]
            return scalar(x, dtype or default)
        if isinstance(x, (list, tuple)):
            return _from_lists(x, dtype)
        if not hasattr(x, "__dlpack__") and hasattr(x, "__array__"):
            import numpy

            x = numpy.asarray(x)
        x = _core.from_dlpack(x)
    return x if dtype is None else x.astype(dtype)


array = tensor = asarray


def _from_lists(items, dtype):
    shape, level = [], items
    while isinstance(level, (list, tuple)):
        shape.append(len(level))
        if not level:
            break
        level = level[0]
    flat = []

    def walk(x, depth):
        if isinstance(x, (list, tuple)):
            if depth == len(shape) or len(x) != shape[depth]:
                raise error("TSR-F083", "the lists given for a tensor are not of one shape")
            for v in x:
                walk(v, depth + 1)
        elif depth != len(shape):
            raise error("TSR-F083", "the lists given for a tensor are not of one shape")
        else:
            flat.append(x)

    walk(items, 0)
    if _b.any(isinstance(v, _Tensor) or type(v) in (SymInt, SymFloat) for v in flat):
        code = None if dtype is None else dtype
        return stack([asarray(v, code) for v in flat]).reshape(shape)
    if dtype is None:
        kinds = {_d.scalar_kind(v) for v in flat}
        dtype = next(
            (d for k, d in (("complex", "c64"), ("float", "f32"), ("int", "i64"), ("bool", "bool")) if k in kinds), "f32"
        )
    return _core.from_numbers(_d.code_of(dtype), shape, flat)


# ------------------------------------------------------------------------------------------------------------------ elementwise


def _pair(op, a, b, floating=False):
    """Both operands in the dtype that they promote to."""
    numbers = [x for x in (a, b) if _is_number(x)]
    if len(numbers) == 2:
        a = asarray(a)
        numbers = numbers[1:]
    tensors = [None if _is_number(x) else asarray(x) for x in (a, b)]
    known = [(t._dtype(), t.ndim) for t in tensors if t is not None]
    code = known[0][0]
    if len(known) == 2 and known[0][0] != known[1][0] or numbers:
        kinds = ["int" if type(n) is SymInt else "float" if type(n) is SymFloat else _d.scalar_kind(n) for n in numbers]
        code = _d.promote(op, known, kinds)
    if floating:
        code = _d.floating(code)
    return [scalar(x, code) if t is None else t.astype(_d.NAMES[code]) for t, x in zip(tensors, (a, b))]


def _binary(name, op, floating=False, doc=""):
    def function(x1, x2):
        return apply1(op, _pair(op, x1, x2, floating))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc or f"The op `{op}`, element by element."
    return function


add = _binary("add", "add")
subtract = _binary("subtract", "sub")
multiply = _binary("multiply", "mul")
divide = true_divide = _binary("divide", "div", floating=True)
floor_divide = _binary("floor_divide", "floor_div")
remainder = mod = _binary("remainder", "remainder")
fmod = _binary("fmod", "fmod")
power = _binary("power", "pow")
arctan2 = _binary("arctan2", "atan2", floating=True)
hypot = _binary("hypot", "hypot", floating=True)
copysign = _binary("copysign", "copysign", floating=True)
nextafter = _binary("nextafter", "nextafter", floating=True)
maximum = _binary("maximum", "maximum")
minimum = _binary("minimum", "minimum")
fmax = _binary("fmax", "fmax")
fmin = _binary("fmin", "fmin")
bitwise_and = _binary("bitwise_and", "bitwise_and")
bitwise_or = _binary("bitwise_or", "bitwise_or")
bitwise_xor = _binary("bitwise_xor", "bitwise_xor")
left_shift = _binary("left_shift", "shift_left")
right_shift = _binary("right_shift", "shift_right")
equal = _binary("equal", "eq")
not_equal = _binary("not_equal", "ne")
less = _binary("less", "lt")
less_equal = _binary("less_equal", "le")
greater = _binary("greater", "gt")
greater_equal = _binary("greater_equal", "ge")


def _logical(name, op):
    def function(x1, x2):
        return apply1(op, [asarray(x1).astype("bool"), asarray(x2).astype("bool")])

    function.__name__ = function.__qualname__ = name
    return function


logical_and, logical_or, logical_xor = (_logical(f"logical_{n}", f"logical_{n}") for n in ("and", "or", "xor"))


def _unary(name, op, floating=True):
    def function(x):
        x = asarray(x)
        return apply1(op, [x.astype(_d.NAMES[_d.floating(x._dtype())]) if floating else x])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The op `{op}`, element by element."
    return function


abs = absolute = _unary("abs", "abs", floating=False)
negative = _unary("negative", "neg", floating=False)
sign = _unary("sign", "sign", floating=False)
invert = bitwise_not = _unary("invert", "bitwise_not", floating=False)
real, imag, conj = (_unary(n, n, floating=False) for n in ("real", "imag", "conj"))
exp, exp2, expm1, log, log2, log10, log1p, sqrt, cbrt, reciprocal = (
    _unary(n, n) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "reciprocal")
)
sin, cos, tan, sinh, cosh, tanh = (_unary(n, n) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh"))
arcsin, arccos, arctan, arcsinh, arccosh, arctanh = (
    _unary(n, o)
    for n, o in (
        ("arcsin", "asin"),
        ("arccos", "acos"),
        ("arctan", "atan"),
        ("arcsinh", "asinh"),
        ("arccosh", "acosh"),
        ("arctanh", "atanh"),
    )
)
isnan, isinf, isfinite = (_unary(n, o) for n, o in (("isnan", "is_nan"), ("isinf", "is_inf"), ("isfinite", "is_finite")))


def square(x):
    return asarray(x) * x


def logical_not(x):
    return apply1("logical_not", [asarray(x).astype("bool")])


def _rounding(name, op):
    def function(x):
        x = asarray(x)
        return apply1(op, [x]) if _d.is_float(x._dtype()) else x  # rounding leaves integers alone

    function.__name__ = function.__qualname__ = name
    return function


floor, ceil, round, trunc = (_rounding(n, n) for n in ("floor", "ceil", "round", "trunc"))


def clip(x, min=None, max=None):
    x = asarray(x)
    if min is None and max is None:
        raise error("TSR-F011", "clip needs a lower or an upper bound")
    bounds = [b for b in (min, max) if b is not None]
    tensors = [x] + [asarray(b) for b in bounds if not _is_number(b)]
    kinds = [
        _d.scalar_kind(b) if not type(b) in (SymInt, SymFloat) else "int" if type(b) is SymInt else "float"
        for b in bounds
        if _is_number(b)
    ]
    code = _d.promote("clip", [(t._dtype(), t.ndim) for t in tensors], kinds)

    def bound(b):
        if b is None:
            return None
        return scalar(b, code) if _is_number(b) else asarray(b).astype(_d.NAMES[code])

    return apply1("clamp", [x.astype(_d.NAMES[code]), bound(min), bound(max)])


def where(condition, x=None, y=None):
    if x is None and y is None:
        return nonzero(condition)
    a, b = _pair("where", x, y)
    return apply1("select", [asarray(condition).astype("bool"), a, b])


# ------------------------------------------------------------------------------------------------------------------- reductions


def _axis(op, axis, rank):
    axis = int(axis)
    if not -_b.max(rank, 1) <= axis < _b.max(rank, 1):
        raise error("TSR-F005", f"{op}: dimension {axis} is out of range for rank {rank}: expected {-rank}..{rank - 1}")
    return axis + rank if axis < 0 else axis


def _axes(op, axis, rank):
    if axis is None:
        return list(range(rank))
    return [_axis(op, a, rank) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]


def _wide(x):  # sums and products of integers and truth values are i64
    return x if _d.is_float(x._dtype()) or _d.is_complex(x._dtype()) else x.astype("i64")


def _as_float(x):
    return x.astype(_d.NAMES[_d.floating(x._dtype())])


def _reduction(name, op, before):
    def function(x, axis=None, keepdims=False):
        x = before(asarray(x))
        return apply1(op, [x], axes=_axes(name, axis, x.ndim), keepdims=keepdims)

    function.__name__ = function.__qualname__ = name
    return function


sum = _reduction("sum", "reduce_sum", _wide)
prod = _reduction("prod", "reduce_prod", _wide)
mean = _reduction("mean", "mean", _as_float)
max = amax = _reduction("max", "reduce_max", lambda x: x)
min = amin = _reduction("min", "reduce_min", lambda x: x)
any = _reduction("any", "reduce_any", lambda x: x.astype("bool"))
all = _reduction("all", "reduce_all", lambda x: x.astype("bool"))
logsumexp = _reduction("logsumexp", "logsumexp", _as_float)


def var(x, axis=None, ddof=0, keepdims=False):
    x = _as_float(asarray(x))
    return apply1("variance", [x], axes=_axes("var", axis, x.ndim), correction=ddof, keepdims=keepdims)


def std(x, axis=None, ddof=0, keepdims=False):
    return sqrt(var(x, axis, ddof, keepdims))


def _extreme(name):
    def function(x, axis=None, keepdims=False):
        x = asarray(x)
        if axis is None:
            x, axis = flatten(x), 0
        return apply1(name, [x], axis=_axis(name, axis, x.ndim), keepdims=keepdims)

    function.__name__ = function.__qualname__ = name
    return function


argmax, argmin = _extreme("argmax"), _extreme("argmin")


def _scan(name, op):
    def function(x, axis=None):
        x = _wide(asarray(x))
        if axis is None:
            x, axis = flatten(x), 0
        return apply1(op, [x], axis=_axis(name, axis, x.ndim))

    function.__name__ = function.__qualname__ = name
    return function


cumsum, cumprod = _scan("cumsum", "cumsum"), _scan("cumprod", "cumprod")

# ----------------------------------------------------------------------------------------------------------------------- shapes


def shape(x):
    return asarray(x).shape


def _sizes(shape):
    return list(shape) if isinstance(shape, (tuple, list)) else [shape]


def reshape(x, *shape):
    x = asarray(x)
    sizes = _sizes(shape[0]) if len(shape) == 1 else list(shape)
    unknown = [i for i, s in enumerate(sizes) if not is_symbolic(s) and dim_of(s) == -1]
    if len(unknown) > 1:
        raise error("TSR-F012", f"reshape to {sizes}: only one size may be -1")
    if unknown:
        known = 1
        for i, s in enumerate(sizes):
            if i != unknown[0]:
                known = known * s
        total = x.size
        if not is_symbolic(known) and known == 0:
            raise error("TSR-F012", f"reshape to {sizes}: the size for -1 is ambiguous when another is 0")
        if not is_symbolic(total) and not is_symbolic(known) and total % known != 0:
            raise error("TSR-F012", f"reshape: {total} elements do not fit {sizes}")
        sizes[unknown[0]] = total // known
    return apply1("reshape", [x], shape=sizes)


def flatten(x):
    return reshape(x, -1) if asarray(x).ndim != 1 else asarray(x)


ravel = flatten


def transpose(x, *axes):
    x = asarray(x)
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        axes = axes[0] or ()
    perm = [_axis("transpose", a, x.ndim) for a in axes] or list(range(x.ndim))[::-1]
    return apply1("transpose", [x], perm=perm)


permute_dims = transpose


def swapaxes(x, axis1, axis2):
    x = asarray(x)
    perm = list(range(x.ndim))
    a, b = _axis("swapaxes", axis1, x.ndim), _axis("swapaxes", axis2, x.ndim)
    perm[a], perm[b] = perm[b], perm[a]
    return apply1("transpose", [x], perm=perm)


def moveaxis(x, source, destination):
    x = asarray(x)
    perm = list(range(x.ndim))
    perm.insert(_axis("moveaxis", destination, x.ndim), perm.pop(_axis("moveaxis", source, x.ndim)))
    return apply1("transpose", [x], perm=perm)


def expand_dims(x, axis):
    x = asarray(x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    return apply1("expand_dims", [x], axes=sorted(_axes("expand_dims", axis, x.ndim + count)))


def squeeze(x, axis=None):
    x = asarray(x)
    axes = [i for i, s in enumerate(x.shape) if s == 1] if axis is None else _axes("squeeze", axis, x.ndim)
    return apply1("squeeze", [x], axes=sorted(axes)) if axes else x


def broadcast_to(x, shape):
    return apply1("broadcast_to", [asarray(x)], shape=_sizes(shape))


def _common(op, xs):
    xs = [asarray(x) for x in xs]
    if not xs:
        raise error("TSR-F019", f"{op}: no tensors")
    code = _d.promote(op, [(x._dtype(), x.ndim) for x in xs])
    return [x.astype(_d.NAMES[code]) for x in xs]


def concatenate(arrays, axis=0):
    xs = _common("concatenate", arrays)
    return apply1("concat", xs, axis=_axis("concatenate", axis, xs[0].ndim))


concat = concatenate


def stack(arrays, axis=0):
    xs = _common("stack", arrays)
    return apply1("stack", xs, axis=_axis("stack", axis, xs[0].ndim + 1))


def split(x, sections, axis=0):
    """Equal parts, `sections` of them, or parts that end at the indices it lists."""
    x = asarray(x)
    axis = _axis("split", axis, x.ndim)
    n = x.shape[axis]
    if isinstance(sections, (tuple, list)):
        at = [0, *sections, n]
        sizes = [b - a for a, b in zip(at, at[1:])]
    else:
        if n % sections != 0:
            raise error("TSR-F018", f"split: {n} elements are no {sections} equal parts")
        sizes = [n // sections] * int(sections)
    return list(apply("split", [x], {"sizes": sizes, "axis": axis}))


def flip(x, axis=None):
    x = asarray(x)
    return apply1("flip", [x], axes=_axes("flip", axis, x.ndim))


def roll(x, shift, axis=None):
    x = asarray(x)
    if axis is None:
        return reshape(roll(flatten(x), shift, 0), x.shape)
    return apply1("roll", [x], shifts=_sizes(shift), axes=_axes("roll", axis, x.ndim))


def tile(x, reps):
    x = asarray(x)
    reps = _sizes(reps)
    while x.ndim < len(reps):
        x = expand_dims(x, 0)
    return apply1("tile", [x], repeats=[1] * (x.ndim - len(reps)) + reps)


def repeat(x, repeats, axis=None):
    x = asarray(x)
    if axis is None:
        x, axis = flatten(x), 0
    axis = _axis("repeat", axis, x.ndim)
    sizes = list(x.shape)
    wide = broadcast_to(expand_dims(x, axis + 1), sizes[: axis + 1] + [repeats] + sizes[axis + 1 :])
    return reshape(wide, sizes[:axis] + [sizes[axis] * repeats] + sizes[axis + 1 :])


def tril(x, k=0):
    return apply1("tril", [asarray(x)], diagonal=k)


def triu(x, k=0):
    return apply1("triu", [asarray(x)], diagonal=k)


def diagonal(x, offset=0, axis1=0, axis2=1):
    return apply1("diagonal", [asarray(x)], offset=offset, axis1=axis1, axis2=axis2)


def pad(x, pad_width, mode="constant", constant_values=0):
    x = asarray(x)
    widths = [pad_width] * x.ndim if not isinstance(pad_width, (tuple, list)) else list(pad_width)
    if len(widths) == 2 and not isinstance(widths[0], (tuple, list)):
        widths = [tuple(widths)] * x.ndim
    widths = [(w, w) if not isinstance(w, (tuple, list)) else tuple(w) for w in widths]
    fill = scalar(constant_values, x._dtype()) if mode == "constant" else None
    return apply1("pad", [x, fill], low=[w[0] for w in widths], high=[w[1] for w in widths], mode=mode)


# ------------------------------------------------------------------------------------------------------------- choice and order


def _wrapped(indices, size):
    """Indices of the graph do not wrap; numpy's may be negative."""
    indices = indices if indices.dtype in ("i32", "i64") else indices.astype("i64")
    return where(indices < 0, indices + size, indices)


def take(x, indices, axis=None):
    x = asarray(x)
    if axis is None:
        x, axis = flatten(x), 0
    axis = _axis("take", axis, x.ndim)
    return apply1("gather", [x, _wrapped(asarray(indices), x.shape[axis])], axis=axis)


def take_along_axis(x, indices, axis):
    x = asarray(x)
    axis = _axis("take_along_axis", axis, x.ndim)
    return apply1("take_along_axis", [x, _wrapped(asarray(indices), x.shape[axis])], axis=axis)


def sort(x, axis=-1, descending=False):
    return apply("sort", [asarray(x)], {"axis": axis, "descending": descending})[0]


def argsort(x, axis=-1, descending=False):
    return apply("sort", [asarray(x)], {"axis": axis, "descending": descending})[1]


def nonzero(x):
    """One index tensor per dimension."""
    found = apply1("nonzero", [asarray(x)])
    return tuple(found[:, i] for i in range(asarray(x).ndim))


# --------------------------------------------------------------------------------------------------------------------- products


def matmul(x1, x2):
    a, b = _common("matmul", [x1, x2])
    return apply1("matmul", [a, b])


dot = matmul


def outer(a, b):
    return expand_dims(flatten(a), 1) * expand_dims(flatten(b), 0)


def tensordot(a, b, axes=2):
    a, b = _common("tensordot", [a, b])
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = ([x] if isinstance(x, int) else list(x) for x in axes)
    left, right = [_axis("tensordot", k, a.ndim) for k in left], [_axis("tensordot", k, b.ndim) for k in right]
    return apply1("dot_general", [a, b], lhs_batch=[], rhs_batch=[], lhs_contract=left, rhs_contract=right)


# ----------------------------------------------------------------------------------------------------------------- from nothing


def full(shape, fill_value, dtype=None):
    if dtype is None:
        dtype = asarray(fill_value).dtype
    return apply1("full", [scalar(fill_value, dtype)], shape=_sizes(shape))


def zeros(shape, dtype="f32"):
    return full(shape, 0, dtype)


def ones(shape, dtype="f32"):
    return full(shape, 1, dtype)


def full_like(x, fill_value, dtype=None):
    x = asarray(x)
    return full(x.shape, fill_value, dtype or x.dtype)


def zeros_like(x, dtype=None):
    return full_like(x, 0, dtype)


def ones_like(x, dtype=None):
    return full_like(x, 1, dtype)


def empty(shape, dtype="f32", device="cpu"):
    """Any contents. In a compiled function: zeros."""
    if state.trace is not None:
        return zeros(shape, dtype)
    return _core.empty(_d.code_of(dtype), [int(s) for s in _sizes(shape)], device)


def arange(start, stop=None, step=1, dtype=None):
    if stop is None:
        start, stop = 0, start
    whole = _b.all(type(v) in (int, bool, SymInt) for v in (start, stop, step))
    dtype = dtype or ("i64" if whole else "f32")
    if step == 0:
        raise error("TSR-F023", "arange: step 0")
    if not whole:
        start, stop, step = float(start), float(stop), float(step)
        count = _b.max(0, _math.ceil((stop - start) / step))
        return (apply1("iota", [], shape=[count], axis=0, dtype="f64") * step + start).astype(dtype)
    n = (stop - start + (step - 1)) // step if step > 0 else (start - stop + (-step - 1)) // -step
    n = n if is_symbolic(n) else _b.max(0, n)
    made = apply1("iota", [], shape=[n], axis=0, dtype=dtype)
    made = made if step == 1 else made * scalar(step, dtype)
    return made if not is_symbolic(start) and start == 0 else made + scalar(start, dtype)


def linspace(start, stop, num=50, dtype="f32"):
    step = (stop - start) / _b.max(num - 1, 1)
    return (apply1("iota", [], shape=[num], axis=0, dtype="f64") * step + start).astype(dtype)


def eye(n, dtype="f32"):
    i = arange(n)
    return (expand_dims(i, 1) == expand_dims(i, 0)).astype(dtype)


_IMPORTED = ("error", "apply", "apply1", "is_symbolic", "dim_of", "state", "SymInt", "SymFloat")
__all__ = [n for n in list(globals()) if not n.startswith("_") and n not in _IMPORTED]
