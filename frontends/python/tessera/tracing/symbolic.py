# SPDX-License-Identifier: Apache-2.0
"""Sizes and numbers that a compiled function may keep symbolic. Outside of one they are plain numbers.

Arithmetic keeps them symbolic. Reading one as a number or branching on a comparison specialises the program: what was seen
becomes a guard, with the line where it was asked for.
"""

from .._abi import ADD, EQ, FLOORDIV, GE, GT, LE, LT, MOD, MUL, NE, SUB
from .errors import error, escaped
from .trace import apply1, here, state

_NUMBER, _INPUT, _DIM = 0, 1, 2  # tsr_scalar_kind


def _place():
    file, line = here()
    return f"{file}:{line}"


def is_symbolic(n):
    return type(n) is SymInt and n._symbolic


def dim_of(n):
    """As a size of the graph."""
    return n._dim() if type(n) is SymInt else n.__index__()


class SymInt:
    """A size or an integer argument."""

    __slots__ = ("_trace", "_number", "_symbolic", "_leaf", "_where")
    __class__ = property(lambda self: int)  # isinstance(n, int) holds, as it does outside of a trace

    def __init__(self, trace, number, symbolic, leaf=None, where=None):
        self._trace, self._number, self._symbolic, self._leaf, self._where = trace, number, symbolic, leaf, where

    def _dim(self):
        if not self._trace.alive:
            raise escaped("a symbolic number of a traced function is used after the trace ended")
        if self._leaf is not None:
            self._trace.recorder.scalar_used(self._leaf, 0, None)
        return self._number

    def _why(self, otherwise):
        return f"{self._where} in size" if self._where else otherwise

    def _hint(self):
        """The value for the arguments at hand; a size that the data decides ends the segment."""
        builder = self._trace.builder
        found = builder.hint(self._number)
        if found is None and state.trace is self._trace:
            self._trace.graph_break(2, detail=f"the size {self}")
            found = builder.hint(self._number)
        return found

    def __index__(self):
        number = self._dim()
        if not self._symbolic:
            return number
        found = self._hint()
        if found is None:
            raise error(
                "TSR-G002",
                f"the size {self} depends on data, or is marked unbacked, but host code asks for its value",
                "keep it symbolic, or compute it outside the compiled function",
            )
        self._trace.builder.require(EQ, number, found, self._why("host code read this size as a number"))
        return found

    __int__ = __index__
    __trunc__ = __index__

    def __float__(self):
        return float(self.__index__())

    def __bool__(self):
        return self != 0

    def __hash__(self):
        return hash(self.__index__())

    def __format__(self, spec):
        return format(self.__index__(), spec)

    def __repr__(self):
        return self._trace.builder.text(self._number) if self._symbolic else str(self._number)

    def __divmod__(self, other):
        return self // other, self % other

    def __neg__(self):
        return 0 - self

    def __pos__(self):
        return self

    def __abs__(self):
        return abs(self.__index__())

    def __truediv__(self, other):
        return self.__index__() / other

    def __rtruediv__(self, other):
        return other / self.__index__()

    def __pow__(self, other):
        return self.__index__() ** other

    def __rpow__(self, other):
        return other ** self.__index__()


_PLAIN = {ADD: int.__add__, SUB: int.__sub__, MUL: int.__mul__, FLOORDIV: int.__floordiv__, MOD: int.__mod__}
_HOLDS = {EQ: int.__eq__, LT: int.__lt__, LE: int.__le__, NE: int.__ne__, GT: int.__gt__, GE: int.__ge__}
_NEGATED = {EQ: NE, NE: EQ, LT: GE, GE: LT, GT: LE, LE: GT}
_SIGN = {EQ: "==", NE: "!=", LT: "<", LE: "<=", GT: ">", GE: ">="}


def _is_int(x):
    return type(x) is SymInt or type(x) is int or type(x) is bool


def _combine(op, a, b):
    x, y = dim_of(a), dim_of(b)
    if not is_symbolic(a) and not is_symbolic(b):
        return _PLAIN[op](x, y)
    of = a if is_symbolic(a) else b
    made = of._trace.builder.dim(op, x, y)
    return SymInt(of._trace, made, True, None, of._where) if made < -(1 << 63) + (1 << 32) else made


def _decide(relation, a, b):
    """The answer for the call at hand holds, and becomes a guard where it is not always the same."""
    x, y = dim_of(a), dim_of(b)
    if not is_symbolic(a) and not is_symbolic(b):
        return _HOLDS[relation](x, y)
    of = a if is_symbolic(a) else b
    builder = of._trace.builder
    known = builder.known(relation, x, y)
    if known is not None:
        return known
    first, second = (n._hint() if is_symbolic(n) else dim_of(n) for n in (a, b))
    if first is None or second is None:
        raise error(
            "TSR-G002",
            f"whether {a} {_SIGN[relation]} {b} depends on data or on a size marked unbacked, but host code branches on it",
            "use tessera.cond, or compute it outside the compiled function",
        )
    holds = _HOLDS[relation](first, second)
    builder.require(relation if holds else _NEGATED[relation], x, y, of._why("host code compared these sizes"))
    return holds


def _int_methods():
    from operator import add, floordiv, mod, mul, sub

    for name, op, plain in (
        ("add", ADD, add),
        ("sub", SUB, sub),
        ("mul", MUL, mul),
        ("floordiv", FLOORDIV, floordiv),
        ("mod", MOD, mod),
    ):

        def forward(self, other, op=op, plain=plain):
            if _is_int(other):
                return _combine(op, self, other)
            return plain(self.__index__(), other) if type(other) is float else NotImplemented

        def reverse(self, other, op=op, plain=plain):
            if _is_int(other):
                return _combine(op, other, self)
            return plain(other, self.__index__()) if type(other) is float else NotImplemented

        setattr(SymInt, f"__{name}__", forward)
        setattr(SymInt, f"__r{name}__", reverse)
    for name, relation in (("eq", EQ), ("ne", NE), ("lt", LT), ("le", LE), ("gt", GT), ("ge", GE)):

        def compare(self, other, relation=relation):
            if _is_int(other):
                return _decide(relation, self, other)
            return _HOLDS_FLOAT[relation](float(self), other) if type(other) is float else NotImplemented

        setattr(SymInt, f"__{name}__", compare)


_HOLDS_FLOAT = {EQ: float.__eq__, NE: float.__ne__, LT: float.__lt__, LE: float.__le__, GT: float.__gt__, GE: float.__ge__}
_int_methods()


class SymFloat:
    """A float argument: a 0-d f64 input of the graph, or with guards.specialize_float a number until its first change."""

    __slots__ = ("_trace", "_number", "_value", "_leaves")
    __class__ = property(lambda self: float)

    def __init__(self, trace, number, value, leaves):
        self._trace, self._number, self._value, self._leaves = trace, number, value, leaves

    def _tell(self, as_number):
        if not self._trace.alive:
            raise escaped("a symbolic number of a traced function is used after the trace ended")
        for leaf in self._leaves:
            self._trace.recorder.scalar_used(leaf, as_number, _place())

    def _tensor(self):
        """The traced value; None: it is guarded by value, and the number may be used."""
        self._tell(0)
        return self._value

    def __float__(self):
        self._tell(1)
        return self._number

    def __int__(self):
        return int(float(self))

    __trunc__ = __int__

    def __bool__(self):
        return float(self) != 0

    def __hash__(self):
        return hash(float(self))

    def __format__(self, spec):
        return format(float(self), spec)

    def __repr__(self):
        return f"{self._number} (symbolic)"

    def __neg__(self):
        return self * -1.0

    def __pos__(self):
        return self

    def __abs__(self):
        return abs(float(self))

    def is_integer(self):
        return float(self).is_integer()


def number(x):
    """The plain number behind x, told to nobody."""
    return x._number if type(x) is SymFloat else x


def _arithmetic(op, compute, a, b):
    """f64 arithmetic rounds as the host's does, so that a symbolic number and a plain one give the same bits."""
    from .array import scalar

    a, b = (float(x) if type(x) is SymInt or type(x) is int or type(x) is bool else x for x in (a, b))
    values = [x._tensor() if type(x) is SymFloat else None for x in (a, b)]
    try:
        known = compute(number(a), number(b))
    except ZeroDivisionError:
        float(a), float(b)  # the exception depends on both
        raise
    if values[0] is None and values[1] is None:
        return known  # both are guarded by value, or plain
    trace = (a if type(a) is SymFloat else b)._trace
    leaves = sorted({leaf for x in (a, b) if type(x) is SymFloat for leaf in x._leaves})
    operands = [v if v is not None else scalar(number(x), "f64") for v, x in zip(values, (a, b))]
    return SymFloat(trace, known, apply1(op, operands), leaves)


def _float_methods():
    from operator import add, mul, sub, truediv

    numbers = (float, int, bool)
    for name, op, compute in (("add", "add", add), ("sub", "sub", sub), ("mul", "mul", mul), ("truediv", "div", truediv)):

        def forward(self, other, op=op, compute=compute):
            if type(other) in numbers or type(other) in (SymFloat, SymInt):
                return _arithmetic(op, compute, self, other)
            return NotImplemented

        def reverse(self, other, op=op, compute=compute):
            if type(other) in numbers or type(other) in (SymFloat, SymInt):
                return _arithmetic(op, compute, other, self)
            return NotImplemented

        setattr(SymFloat, f"__{name}__", forward)
        setattr(SymFloat, f"__r{name}__", reverse)
    for name in ("pow", "mod", "floordiv"):

        def forward(self, other, name=f"__{name}__"):
            return (
                getattr(float(self), name)(float(other))
                if type(other) in numbers or type(other) is SymFloat
                else NotImplemented
            )

        def reverse(self, other, name=f"__r{name}__"):
            return getattr(float(self), name)(float(other)) if type(other) in numbers else NotImplemented

        setattr(SymFloat, f"__{name}__", forward)
        setattr(SymFloat, f"__r{name}__", reverse)
    for name, relation in (("eq", EQ), ("ne", NE), ("lt", LT), ("le", LE), ("gt", GT), ("ge", GE)):

        def compare(self, other, relation=relation):
            if type(other) in numbers or type(other) in (SymFloat, SymInt):
                return _HOLDS_FLOAT[relation](float(self), float(other))
            return NotImplemented

        setattr(SymFloat, f"__{name}__", compare)


_float_methods()


def bind(trace, leaf, value):
    """What the function gets for a number among its arguments."""
    kind, graph_value, dim = trace.recorder.scalar(leaf)
    if isinstance(value, int):
        return SymInt(trace, dim if kind == _DIM else value, kind == _DIM, leaf)
    return SymFloat(trace, float(value), trace.tensor(graph_value) if kind == _INPUT else None, [leaf])


def settled(x):
    """A number that the function returns: read."""
    if type(x) is SymInt:
        return x.__index__()
    return float(x) if type(x) is SymFloat else x
