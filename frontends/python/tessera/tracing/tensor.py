# SPDX-License-Identifier: Apache-2.0
"""Tensors with operators: those with memory (`tessera.Tensor`), and those of a function that is being captured."""

from .. import _core
from . import backward, dtypes
from .errors import error, escaped
from .symbolic import SymFloat, SymInt
from .trace import READ_BOOL, READ_FLOAT, READ_INT, READ_MEMORY, READ_TENSOR, apply1, here, is_traced

Tensor = _core.Tensor


class TracedTensor(Tensor):
    """A value of the graph that is being recorded."""

    __slots__ = ("_trace", "_value", "_region", "_concrete", "_read", "__weakref__")

    def _check(self):
        if not self._trace.alive:
            raise escaped()

    def _type(self):
        self._check()
        # Host code looks at the type: if the value is an input, the entry must be guarded on it.
        self._trace.recorder.observe(self._value)
        return self._trace.builder.type(self._value)

    def _dtype(self):
        return self._type()[0]

    @property
    def dtype(self):
        return dtypes.NAMES[self._type()[0]]

    @property
    def shape(self):
        file, line = here()
        where = f"{file}:{line}"
        limit = -(1 << 63) + (1 << 32)
        return tuple(SymInt(self._trace, d, True, None, where) if d < limit else d for d in self._type()[1])

    @property
    def device(self):
        self._type()
        return self._trace.builder.layout(self._value)[0]

    @property
    def strides(self):
        """In elements; they are read as numbers."""
        sizes = self._type()[1]
        limit = -(1 << 63) + (1 << 32)
        known = self._trace.builder.layout(self._value)[1]
        if known is not None:
            return tuple(int(SymInt(self._trace, d, True)) if d < limit else d for d in known)
        out, step = [1] * len(sizes), 1
        for k in range(len(sizes) - 1, -1, -1):
            out[k], step = step, step * int(self.shape[k])
        return tuple(out)

    requires_grad = False

    def _is_dense(self):
        self._type()
        return self._trace.builder.layout(self._value)[1] is None

    def _place(self):
        made = self._trace.builder.place(self._value)
        return made or self._trace.function.place

    def _break(self, code, kind, detail, place):
        self._type()
        if self._region != self._trace.region and self._region != 0:
            raise error("TSR-F003", "a tensor of a function given to cond, while_loop or scan is used outside of it")
        return self._trace.graph_break(code, kind, self._value, detail, place=place)[0]

    def _memory(self):
        if self._concrete is None:
            self._concrete = self._break(11, READ_MEMORY, f"the memory of {_type_text(self)}", here())
        return self._concrete

    def _elements(self, what, place):
        if self._concrete is None:
            self._concrete = self._break(11, READ_TENSOR, f"{what} of {_type_text(self)}", place)
        return self._concrete

    def _scalar(self, kind, code, what, place):
        if kind not in self._read:
            self._read[kind] = self._break(code, kind, f"{what} of {_type_text(self)}", place)
        return self._read[kind]

    def numbers(self):
        return self._elements("tolist()", here()).numbers()

    def tobytes(self):
        return self._elements("tobytes()", here()).tobytes()

    def copy(self, device=None):
        return apply1("to_device", [self], device=device) if device and device != self.device else self

    def __repr__(self):
        if not self._trace.alive:
            return "<tensor of a trace that has ended>"
        return f"{_type_text(self)} (traced)"


def _type_text(t):
    return f"{t.dtype}[{', '.join(str(s) for s in t.shape)}]"


def _one_element(t):
    n = 1
    for s in t.shape:
        n = n * s
    if n != 1:
        raise error("TSR-F007", f"item() needs a tensor of one element; this one has {n}", "index it first")


def _read(t, python):
    """What Python's bool, int, float or complex is of a tensor of one element."""
    _one_element(t)
    if not is_traced(t):
        return python(t.numbers()[0])
    code = t._dtype()
    made = t._trace.builder.place(t._value) if python is bool else None
    place = made or here()
    if python is bool:
        return t._scalar(READ_BOOL, 10, "the truth", place)
    if python is int and not dtypes.is_float(code) and not dtypes.is_complex(code):
        return t._scalar(READ_INT, 1, "int()", place)
    if python is float and not dtypes.is_complex(code):
        return t._scalar(READ_FLOAT, 1, "float()", place)
    return python(t._elements(f"{python.__name__}()", place).numbers()[0])


class _Methods:
    """What every tensor has, with memory or without. Tensors are values: none of these changes one."""

    def _dtype(self):
        return dtypes.CODES[self.dtype]

    def _is_dense(self):
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size == 0:
                return True
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        n = 1
        for s in self.shape:
            n = n * s
        return n

    @property
    def T(self):
        return self.transpose()

    def item(self):
        if dtypes.is_bool(self._dtype()):
            return _read(self, bool)
        if dtypes.is_complex(self._dtype()):
            return _read(self, complex)
        return _read(self, float if dtypes.is_float(self._dtype()) else int)

    def __bool__(self):
        return _read(self, bool)

    def __int__(self):
        return _read(self, int)

    def __float__(self):
        return _read(self, float)

    def __complex__(self):
        return _read(self, complex)

    def __index__(self):
        if dtypes.is_float(self._dtype()) or dtypes.is_complex(self._dtype()):
            raise TypeError(f"a {self.dtype} tensor is no index")
        return _read(self, int)

    def tolist(self):
        """The elements as nested lists of Python's numbers."""
        numbers = iter(self.numbers())
        shape = [int(s) for s in self.shape]

        def nested(axis):
            if axis == len(shape):
                return next(numbers)
            return [nested(axis + 1) for _ in range(shape[axis])]

        return nested(0)

    def __len__(self):
        if not self.shape:
            raise TypeError("a 0-d tensor has no length")
        return int(self.shape[0])

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __array__(self, dtype=None, copy=None):
        import numpy

        made = numpy.from_dlpack(self)
        return made if dtype is None else made.astype(dtype)

    def __getitem__(self, items):
        from .indexing import index

        return index(self, items)

    def __setitem__(self, items, value):
        raise error(
            "TSR-F082",
            "tensors are values: an element cannot be assigned",
            "make another tensor: tessera.numpy.where(mask, a, b), tessera.ops.scatter, tessera.numpy.concatenate",
        )

    def astype(self, dtype):
        code = dtypes.code_of(dtype)
        return self if code == self._dtype() else apply1("cast", [self], dtype=code)

    def to(self, device):
        return self if device == self.device else self.copy(device)

    def requires_grad_(self, on=True):
        """Whether compiled functions record their calls with this tensor, so that backward() of a result adds to its `grad`."""
        if is_traced(self):
            raise error(
                "TSR-F063", "requires_grad_ of a tensor that is being traced", "call it on the tensor before it is passed"
            )
        if on and not dtypes.is_float(self._dtype()):
            raise error("TSR-F050", f"requires_grad_ of a tensor of dtype {self.dtype}, expected a floating-point dtype")
        self.requires_grad = on
        if not on:
            self._record = None
        return self

    @property
    def grad(self):
        """What backward() has added up for this tensor, or None."""
        return self._record.sum if type(self._record) is backward.Gradient else None

    def zero_grad(self):
        if type(self._record) is backward.Gradient:
            self._record.sum = None

    def backward(self, seed=None):
        """Runs the backward halves of the calls that this result comes from, which releases them; see `grad`.

        seed: the cotangent of this tensor; for a tensor of one element it is 1.
        """
        backward.backward(self, seed)

    def detach(self):
        return apply1("stop_gradient", [self]) if is_traced(self) else self.strided(self.shape, self.strides)

    def __hash__(self):
        return id(self)


def _repr(self):
    if self.size > 1000:
        return f"<tessera.Tensor {_type_text(self)} on {self.device}>"
    return f"{self.tolist()} {_type_text(self)}"


def _forwarded():
    """Methods named as the functions of tessera.numpy that take a tensor first."""
    from . import array

    names = (
        "reshape transpose squeeze sum prod mean max min argmax argmin any all cumsum var std clip round sort argsort take "
        "flatten repeat swapaxes dot"
    )
    for name in names.split():
        function = getattr(array, name)

        def method(self, *args, _function=function, **kwargs):
            return _function(self, *args, **kwargs)

        method.__name__, method.__doc__ = name, function.__doc__
        setattr(Tensor, name, method)


def _operators():
    from . import array

    def two(function):
        def forward(self, other):
            return function(self, other) if _operand(other) else NotImplemented

        def reverse(self, other):
            return function(other, self) if _operand(other) else NotImplemented

        return forward, reverse

    names = {
        "add": array.add,
        "sub": array.subtract,
        "mul": array.multiply,
        "truediv": array.divide,
        "floordiv": array.floor_divide,
        "mod": array.remainder,
        "pow": array.power,
        "matmul": array.matmul,
        "and": array.bitwise_and,
        "or": array.bitwise_or,
        "xor": array.bitwise_xor,
        "lshift": array.left_shift,
        "rshift": array.right_shift,
    }
    for name, function in names.items():
        forward, reverse = two(function)
        setattr(Tensor, f"__{name}__", forward)
        setattr(Tensor, f"__r{name}__", reverse)
    for name, function in {
        "eq": array.equal,
        "ne": array.not_equal,
        "lt": array.less,
        "le": array.less_equal,
        "gt": array.greater,
        "ge": array.greater_equal,
    }.items():
        setattr(Tensor, f"__{name}__", two(function)[0])
    Tensor.__neg__ = lambda self: array.negative(self)
    Tensor.__pos__ = lambda self: self
    Tensor.__abs__ = lambda self: array.abs(self)
    Tensor.__invert__ = lambda self: array.invert(self)


def _operand(x):
    return (
        isinstance(x, (Tensor, bool, int, float, complex))
        or type(x) in (SymInt, SymFloat)
        or hasattr(x, "__array__")
        or hasattr(x, "__dlpack__")
    )


def install():
    """Gives the type of the module its operators: they are Python's, and of one making with those of traced tensors."""
    for name, value in vars(_Methods).items():
        if name not in ("__module__", "__dict__", "__weakref__", "__doc__", "__qualname__"):
            setattr(Tensor, name, value)
    Tensor.__repr__ = _repr
    Tensor.__array_priority__ = 1000  # numpy's arrays leave operators to it
    Tensor.__array_ufunc__ = None
    _operators()
    _forwarded()
