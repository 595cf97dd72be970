# SPDX-License-Identifier: Apache-2.0
"""Lowering one FX graph's values into one graph of ours: types, symbolic sizes, constants, ops by name."""

import json
import struct

import sympy
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from .. import _core
from .._abi import ADD, ATTR, EQ, FLOORDIV, GE, GT, LE, LT, MAX, MIN, MOD, MUL, NE, SUB

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "bool",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
NUMBERS = {torch_dtype: _core.dtypes[name] for torch_dtype, name in DTYPES.items()}
FROM_NUMBER = {number: torch_dtype for torch_dtype, number in NUMBERS.items()}
HALVES = (torch.float16, torch.bfloat16)

_STRUCT = {
    torch.float64: "d",
    torch.float32: "f",
    torch.float16: "e",
    torch.int8: "b",
    torch.int16: "h",
    torch.int32: "i",
    torch.int64: "q",
    torch.uint8: "B",
    torch.uint16: "H",
    torch.uint32: "I",
    torch.uint64: "Q",
    torch.bool: "?",
}
_SYMBOLIC = -(1 << 63) + (1 << 32)  # sizes below are handles of expressions (TSR_DIM_IS_EXPR)
_ARG = 1  # TSR_INPUT_ARG
_LARGEST = (1 << 63) - 1


_RELATIONS = {EQ: sympy.Eq, NE: sympy.Ne, LT: sympy.Lt, LE: sympy.Le, GT: sympy.Gt, GE: sympy.Ge}


class Unsupported(Exception):
    """This node stays with ATen; the text says why."""


class _Opaque(Exception):
    """A size that the graph's own arithmetic does not express: Python computes it at every call."""


def device_name(device):
    """A device of PyTorch's as Tessera calls it."""
    return device.type if device.type == "cpu" else f"{device.type}:{device.index or 0}"


def is_lazy(fake):
    """Whether the memory of a tensor holds its conjugate or negative. Inside of a region it is the value itself."""
    return fake.is_conj() or fake.is_neg()


def is_symbolic(size):
    return size < _SYMBOLIC


class Records:
    """What of the op records a builder needs: the kinds of attributes."""

    def __init__(self, context):
        self.attributes = {
            op["name"]: {a["name"]: ATTR[a["kind"]] for a in op["attributes"]} for op in json.loads(context.ops())["ops"]
        }


class Value:
    """A tensor of the graph under construction."""

    __slots__ = ("id", "dtype", "sizes", "dense")

    def __init__(self, id, dtype, sizes):
        self.id, self.dtype, self.sizes = id, dtype, sizes
        self.dense = None  # of an argument of a lowering: whether it fills its memory from the beginning in row-major order

    @property
    def rank(self):
        return len(self.sizes)


class Emitter:
    def __init__(self, builder, records, shape_env, marks=0):
        self.builder, self.records, self.shape_env = builder, records, shape_env
        self.made = set()  # symbols of sizes that depend on data, which a node of the graph makes
        self.symbols = {}  # sympy symbol, or expression that Python computes -> size
        self.numbers = {}  # (sympy expression, dtype) -> Value: 0-d inputs that Python computes
        self.label = None  # a name for the nodes that are made
        if marks:  # TSR_MARK_*, of all nodes
            builder.set_marks(marks)
        self.wanted = {0}  # of the node that is being lowered: indices of the results that somebody reads
        self.home = None  # of that node: the GPU on which its results lie
        self._of_host = set()  # ids of numbers on the host that only a call tells
        self._expressions = {}  # symbolic size -> sympy expression
        self._constants = {}

    # ---- sizes
    def size(self, s):
        """A number, SymInt or sympy expression as a size of the graph."""
        if isinstance(s, int):
            return s
        if isinstance(s, torch.SymInt):
            s = s.node.expr
        try:
            size = self._expression(s)
        except _Opaque:
            if s not in self.symbols:
                self.symbols[s] = self._symbol(s, f"x{len(self.symbols)}")
            size = self.symbols[s]
        if is_symbolic(size):
            self._expressions.setdefault(size, s)
        return size

    def _expression(self, e):
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            if e not in self.symbols:
                bounds = self._bounds(e)
                if e.is_integer and bounds is not None and bounds.upper < 0:  # what is a size is its negative
                    if -e not in self.symbols:
                        self.symbols[-e] = self._symbol(-e, f"x{len(self.symbols)}")
                    return self.builder.dim(SUB, 0, self.symbols[-e])
                if not e.is_integer or (bounds is not None and bounds.lower < 0):
                    raise _Opaque
                self.symbols[e] = self._symbol(e, str(e))
            return self.symbols[e]
        args = e.args
        if e.is_Add:
            return self._fold(ADD, args)
        if e.is_Mul:
            return self._fold(MUL, args)
        if e.is_Pow and args[1].is_Integer and 0 < int(args[1]) < 9:
            return self._fold(MUL, [args[0]] * int(args[1]))
        name = type(e).__name__
        if name in ("FloorDiv", "CleanDiv") and len(args) == 2:
            return self.builder.dim(FLOORDIV, self._expression(args[0]), self._expression(args[1]))
        if name in ("Mod", "PythonMod") and len(args) == 2:
            return self.builder.dim(MOD, self._expression(args[0]), self._expression(args[1]))
        if name == "Max":
            return self._fold(MAX, args)
        if name == "Min":
            return self._fold(MIN, args)
        raise _Opaque

    def _fold(self, op, args):
        total = self._expression(args[0])
        for a in args[1:]:
            total = self.builder.dim(op, total, self._expression(a))
        return total

    def _bounds(self, s):
        return self.shape_env.bound_sympy(s) if self.shape_env is not None else None

    def _symbol(self, s, name):
        least, most, hint = 0, _LARGEST, -1
        bounds = self._bounds(s)
        if bounds is not None:
            if bounds.lower.is_Integer:
                least = max(0, int(bounds.lower))
            if bounds.upper.is_Integer:
                most = min(_LARGEST, int(bounds.upper))
        if most < least:
            raise Unsupported(f"the size {s}, which is negative")
        if self.shape_env is not None:
            newer = hasattr(self.shape_env, "backed_var_to_val")
            known = self.shape_env.backed_var_to_val if newer else self.shape_env.var_to_val
            found = s.xreplace(known)
            if found.is_Integer and least <= int(found) <= most:
                hint = int(found)
        return self.builder.symbol(name, least, most, hint)

    def carry_sizes(self, inputs):
        """Gives each symbol that none of these nodes of FX has as a size of its own an input that only carries it: their
        expressions, in order."""
        bare = {d.node.expr for n in inputs for d in n.meta["val"].shape if isinstance(d, torch.SymInt)}
        carried = [s for s in self.symbols if s not in bare and s not in self.made]
        for k, s in enumerate(carried):
            self.builder.input(f"size_{k}", NUMBERS[torch.bool], [self.symbols[s]], _ARG)
        return carried

    def holds(self, relation, a, b):
        """Whether a relation holds, for all sizes or for those of this call, which then becomes a guard. Unsupported where
        neither says so."""
        known = self.known(relation, a, b)
        if known is not None:
            return known
        return self.decided(_RELATIONS[relation](self.expression(a), self.expression(b)))

    def expression(self, size):
        """The sympy expression of a size."""
        if not is_symbolic(size):
            return sympy.Integer(size)
        if size not in self._expressions:
            raise Unsupported("a size of an unknown expression")
        return self._expressions[size]

    def decided(self, condition):
        """The truth of a condition on sizes in this call, which becomes a guard of PyTorch's."""
        if condition in (True, False, sympy.true, sympy.false):
            return bool(condition)
        if self.shape_env is None or any(self.is_unbacked(s) for s in condition.free_symbols):
            raise Unsupported("a choice by a size that depends on data")
        return bool(self.shape_env.evaluate_expr(condition))

    def is_unbacked(self, s):
        newer = hasattr(self.shape_env, "backed_var_to_val")
        return s not in (self.shape_env.backed_var_to_val if newer else self.shape_env.var_to_val)

    def sizes(self, shape):
        return [self.size(s) for s in shape]

    def add(self, a, b):
        return self.builder.dim(ADD, a, b) if is_symbolic(a) or is_symbolic(b) else a + b

    def sub(self, a, b):
        return self.builder.dim(SUB, a, b) if is_symbolic(a) or is_symbolic(b) else a - b

    def mul(self, a, b):
        return self.builder.dim(MUL, a, b) if is_symbolic(a) or is_symbolic(b) else a * b

    def floor_div(self, a, b):
        return self.builder.dim(FLOORDIV, a, b) if is_symbolic(a) or is_symbolic(b) else a // b

    def mod(self, a, b):
        return self.builder.dim(MOD, a, b) if is_symbolic(a) or is_symbolic(b) else a % b

    def known(self, relation, a, b):
        """Whether a relation holds for all sizes: True, False, or None when it depends on them."""
        return self.builder.known(relation, a, b)

    # ---- values
    def input(self, name, fake, order=None, donated=False):
        """An input of the graph; with an order of dimensions, the graph has them in that one: what lies dense in memory then
        needs no copy at a call. donated: a call's list lets go of it when nothing reads it any more."""
        if fake.dtype not in NUMBERS:
            raise Unsupported(f"dtype {fake.dtype}")
        sizes = self.sizes(fake.shape)
        device = device_name(fake.device)
        if order is None:
            x = Value(self.builder.input(name, NUMBERS[fake.dtype], sizes, _ARG, device, int(donated)), fake.dtype, sizes)
            if device == "cpu" and not x.rank:
                self._of_host.add(x.id)
            return x
        laid = [sizes[k] for k in order]
        x = Value(self.builder.input(name, NUMBERS[fake.dtype], laid, _ARG, device, int(donated)), fake.dtype, laid)
        return self("transpose", x, perm=[order.index(k) for k in range(len(order))])

    def value(self, id):
        number, sizes = self.builder.type(id)
        return Value(id, FROM_NUMBER[number], list(sizes))

    def ops(self, op, *operands, **attributes):
        """Applies an op; operands are values, numbers of the first value's dtype, or None where one is omitted. All results."""
        ids, like = [], next((o for o in operands if isinstance(o, Value)), None)
        for o in operands:
            if o is None:
                ids.append(-1)
            elif isinstance(o, Value):
                ids.append(o.id)
            else:
                ids.append(self.scalar(o, like.dtype).id)
        kinds = self.records.attributes[op]
        given = []
        for name, value in attributes.items():
            if isinstance(value, torch.dtype):
                value = NUMBERS[value]
            elif isinstance(value, bool):
                value = int(value)
            given.append((name, kinds[name], value))
        made = [self.value(id) for id in self.builder.node(op, ids, given, self.label)]
        if self._of_host.isdisjoint(ids) or op == "to_device":
            return made
        on_host = [x for x in made if self.device(x) == "cpu"]
        if self.home and any(x.rank for x in on_host):  # a number travels with a launch; what it fills on the host does not
            moved = [self("to_device", self.value(id), device=self.home).id if id in self._of_host else id for id in ids]
            return [self.value(id) for id in self.builder.node(op, moved, given, self.label)]
        self._of_host.update(x.id for x in on_host)
        return made

    def __call__(self, op, *operands, **attributes):
        return self.ops(op, *operands, **attributes)[0]

    def constant(self, dtype, sizes, data):
        key = (dtype, tuple(sizes), data)
        if key not in self._constants:
            tensor = _core.from_bytes(DTYPES[dtype], sizes, data)
            self._constants[key] = self.value(self.builder.node("constant", [], [("value", ATTR["tensor"], tensor)])[0])
        return self._constants[key]

    def scalar(self, value, dtype):
        """A 0-d tensor of a number, which may be a symbolic size."""
        if isinstance(value, torch.SymInt):
            bounds = self._bounds(value.node.expr)
            if bounds is not None and bounds.lower < 0:
                return self.cast(self.number(value.node.expr, torch.int64), dtype)
            value = self.size(value)
            if is_symbolic(value):
                return self.cast(self("dim_value", value=value), dtype)
        if isinstance(value, torch.SymFloat):
            return self.cast(self.number(value.node.expr, torch.float64), dtype)
        if isinstance(value, torch.SymBool):
            raise Unsupported("a symbolic bool")
        if isinstance(value, complex):
            raise Unsupported("a complex number")
        if dtype not in DTYPES or dtype.is_complex:
            raise Unsupported(f"a number of dtype {dtype}")
        return self.constant(dtype, [], scalar_bytes(value, dtype))

    def number(self, expression, dtype):
        """A 0-d input of i64 or f64 for a number that Python computes from sizes at every call."""
        if expression.is_number:
            return self.scalar(int(expression) if dtype == torch.int64 else float(expression), dtype)
        if (expression, dtype) not in self.numbers:
            made = self.builder.input(f"number_{len(self.numbers)}", NUMBERS[dtype], [], _ARG)
            self.numbers[expression, dtype] = Value(made, dtype, [])
            self._of_host.add(made)
        return self.numbers[expression, dtype]

    def tensor(self, t):
        """A constant of a real tensor, whose memory it shares where it can: nobody may write to it."""
        with unset_fake_temporarily():
            value = _core.from_dlpack(t.detach().cpu().contiguous())
        return self.value(self.builder.constant(value))

    def ints(self, values, dtype=torch.int64):
        return self.constant(dtype, [len(values)], struct.pack(f"<{len(values)}{_STRUCT[dtype]}", *values))

    def cast(self, x, dtype):
        if x.dtype == dtype:
            return x
        if dtype not in NUMBERS:
            raise Unsupported(f"dtype {dtype}")
        return self("cast", x, dtype=dtype)

    def reshape(self, x, sizes):
        return x if list(sizes) == x.sizes else self("reshape", x, shape=list(sizes))

    def broadcast(self, x, sizes):
        return x if list(sizes) == x.sizes else self("broadcast_to", x, shape=list(sizes))

    def device(self, x):
        """Where a value lies. What is made of numbers alone lies on the host until somebody on a device reads it."""
        return self.builder.layout(x.id)[0]

    def placed(self, x, device):
        """x on a device of PyTorch's."""
        name = device_name(device)
        return x if self.device(x) == name else self("to_device", x, device=name)

    def _learn(self, mine, theirs):
        """Takes a size that a node makes of data for the symbol that PyTorch has given it."""
        if isinstance(theirs, torch.SymInt) and is_symbolic(mine):
            s = theirs.node.expr
            if s.is_Symbol and s not in self.symbols and self.is_unbacked(s):
                self.symbols[s] = mine
                self.made.add(s)

    def same(self, x, fake):
        """Whether x has the type that PyTorch gives it, for all sizes; "" or what differs."""
        if x.dtype != fake.dtype:
            return f"its dtype would be {x.dtype}, not {fake.dtype}"
        if x.rank != fake.dim():
            return f"its rank would be {x.rank}, not {fake.dim()}"
        for mine, theirs in zip(x.sizes, fake.shape):
            self._learn(mine, theirs)
        for k, (mine, theirs) in enumerate(zip(x.sizes, self.sizes(fake.shape))):
            if mine == theirs:
                continue
            known = self.known(EQ, mine, theirs)
            if known is False:
                return f"its size at index {k} is not {fake.shape[k]}"
            if known is None:  # PyTorch knows more of its symbols: every call is checked
                self.builder.require(EQ, mine, theirs, "PyTorch's size of a result")
        return ""


_INTEGER_OF = {torch.bfloat16: (torch.int16, "h"), torch.float16: (torch.int16, "h"), torch.float32: (torch.int32, "i")}


def scalar_bytes(value, dtype):
    if dtype == torch.bool:
        return struct.pack("<?", bool(value))
    if dtype.is_floating_point:
        value = float(value)
        if dtype in _INTEGER_OF:  # by PyTorch's own rounding; as a fake tensor it would take milliseconds
            with unset_fake_temporarily():
                wide = torch.tensor(value, dtype=torch.bfloat16 if dtype == torch.bfloat16 else torch.float64)
                integer, code = _INTEGER_OF[dtype]
                return struct.pack("<" + code, int(wide.to(dtype).view(integer)))
        return struct.pack("<d", value)
    if isinstance(value, float):
        if value != int(value):
            raise Unsupported(f"the number {value} as {dtype}")
        value = int(value)
    value = int(value)
    info = torch.iinfo(dtype)
    if not info.min <= value <= info.max:
        raise Unsupported(f"the number {value} as {dtype}")
    return struct.pack("<" + _STRUCT[dtype], value)
