# SPDX-License-Identifier: Apache-2.0
"""Operations: recorded while a function is captured, run at once otherwise."""

import json
import os
import sys
import threading
import weakref

from .. import _core
from .._abi import ATTR
from . import dtypes
from .errors import error, escaped

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
READ_BOOL, READ_INT, READ_FLOAT, READ_TENSOR, READ_MEMORY = 1, 2, 3, 4, 5


class _State(threading.local):
    trace = None  # of the function that this thread captures
    context = None  # the innermost use()


state = _State()
_process = None  # the context of threads that have named none
_lock = threading.Lock()


def current_context():
    if state.context is not None:
        return state.context
    global _process
    with _lock:
        if _process is None:
            _process = _core.Context(config=os.environ.get("TESSERA_CONFIG") or None)
        return _process


class use:
    """Within `with use(context)`, operations and new compiled functions of this thread are of this context."""

    def __init__(self, context):
        self._context = context

    def __enter__(self):
        self._before, state.context = state.context, self._context
        return self._context

    def __exit__(self, *_):
        state.context = self._before


def here():
    """File and line of the caller outside this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return ("<unknown>", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


class Trace:
    """One capture: the graph that is being recorded, and the tensors of it that host code still has."""

    def __init__(self, recorder, builder, function):
        self.recorder, self.builder, self.function = recorder, builder, function
        self.region = 0
        self.alive = True
        self.gradients = _core.grad_enabled()  # where they are off within, results are constants
        self.lifted = {}  # concrete tensors that became constants, by identity, per region
        self.kept = []  # keeps them from being collected meanwhile
        self.live = {}  # traced tensors by identity, as weak references

    def end(self):
        self.alive = False
        self.lifted, self.kept, self.live = {}, [], {}

    def tensor(self, value):
        from .tensor import TracedTensor

        made = TracedTensor()
        made._trace, made._value, made._region = self, value, self.region
        made._concrete, made._read = None, {}
        key = id(made)
        self.live[key] = weakref.ref(made, lambda _: self.live.pop(key, None))
        return made

    def living(self):
        return [t for t in (r() for r in list(self.live.values())) if t is not None]

    def value_of(self, tensor):
        """The value that stands for a tensor; one that is not traced becomes a constant."""
        if tensor is None:
            return -1
        if is_traced(tensor):
            if tensor._trace is not self:
                tensor._check()
                raise error("TSR-F002", "a tensor of one traced function is used in another", "pass it as an argument")
            if tensor._region != self.region:
                raise error(
                    "TSR-F003",
                    "a function given to cond, while_loop or scan uses a tensor from outside itself",
                    "pass the tensor among the args (cond) or the invariants (while_loop, scan)",
                )
            return tensor._value
        found = self.lifted.get(id(tensor))
        if found is None:
            made = self.node("constant", (), [("value", ATTR["tensor"], _dense(tensor))])
            found = self.lifted[id(tensor)] = made[0]
            self.kept.append(tensor)
        return found

    def node(self, op, operands, attributes, regions=()):
        file, line = here()
        return self.builder.node(op, operands, attributes, None, regions, self.region, file, line)

    def graph_break(self, code, read_kind=0, read=None, detail=None, function=None, inputs=(), place=None):
        """Ends the segment and moves every tensor that is still reachable to the next graph: (what was read, results,
        outcome)."""
        file, line = place or here()
        if not self.alive:
            raise escaped()
        if state.trace is not self:
            raise error(
                "TSR-F002",
                "a tensor of a traced function is used by host code that runs outside of its trace",
                "give it to the disabled function as an argument",
            )
        if self.region != 0:
            raise error(
                "TSR-G020",
                f"{file}:{line}: a function given to cond, while_loop or scan breaks the graph: {detail or 'graph_break()'}",
                "do not read values inside of it: use where(), or nested cond() and while_loop(); docs/graph_breaks.md",
            )
        tensors = self.living()
        values = sorted({t._value for t in tensors if t._region == 0})
        state.trace = None  # host steps run their operations at once
        try:
            again, found, results, outcome = self.recorder.graph_break(
                code, read_kind, file, line, detail, read, values, state_forbidden.on, function, list(inputs)
            )
        finally:
            state.trace = self
        moved = dict(zip(values, again))
        for t in tensors:
            if t._region == 0:
                t._value = moved[t._value]
            else:
                t._region = None  # of a region that is gone with its graph
        self.lifted = {}
        return found, results, outcome


class _Forbidden(threading.local):
    on = False  # error_on_graph_break


state_forbidden = _Forbidden()


def is_traced(x):
    return getattr(x, "_trace", None) is not None


def _dense(tensor):
    return tensor if tensor._is_dense() else tensor.copy(tensor.device)


# ---------------------------------------------------------------------------------------------------------------- ops by record

_records = None


def records():
    """The records of all ops of the standard set, by name: what operands and attributes each takes."""
    global _records
    if _records is None:
        _records = {}
        for r in json.loads(current_context().ops())["ops"]:
            _records[r["name"]] = r
            r["kinds"] = {a["name"]: a["kind"] for a in r["attributes"]}
    return _records


def _encoded(op, attrs):
    record = records().get(op)
    if record is None:
        raise error("TSR-F081", f"no op '{op}' in the standard op set", "tessera.ops lists them: dir(tessera.ops)")
    out = []
    for name, value in attrs.items():
        if value is None:
            continue
        kind = record["kinds"].get(name)
        if kind is None:
            raise error("TSR-F081", f"op '{op}' has no attribute '{name}'", f"it has: {', '.join(record['kinds']) or 'none'}")
        out.append((name, ATTR[kind], _attribute(kind, value)))
    return out


def _attribute(kind, value):
    from .symbolic import dim_of

    if kind == "dtype":
        return value if isinstance(value, int) and not isinstance(value, bool) else dtypes.code_of(value)
    if kind == "dim":
        return dim_of(value)
    if kind == "dims":
        return [dim_of(v) for v in value]
    if kind == "ints":
        return [int(v) for v in value]
    if kind in ("int", "bool"):
        return int(value)
    return float(value) if kind == "float" else [float(v) for v in value] if kind == "floats" else value


def apply(op, operands, attrs=None, regions=()):
    """The results of an op, as a tuple. An operand None is an omitted one."""
    from .backward import refuse_recorded

    trace = state.trace
    if trace is None:
        for t in operands:
            if is_traced(t):
                t._check()
        refuse_recorded(op, operands)
        if regions:
            raise error("TSR-F081", f"op '{op}' with regions cannot run outside a compiled function")
        return _core.eager_op(current_context(), op, list(operands), _encoded(op, attrs or {}))
    values = [trace.value_of(t) for t in operands]
    made = trace.node(op, values, _encoded(op, attrs or {}), regions)
    if made and not trace.recorder.taken(made[0]):
        return _between(trace, op, operands, attrs)
    results = tuple(trace.tensor(v) for v in made)
    if trace.gradients and not _core.grad_enabled() and op != "stop_gradient":
        return tuple(apply("stop_gradient", (r,))[0] if dtypes.is_float(r._dtype()) else r for r in results)
    return results


def apply1(op, operands, **attrs):
    return apply(op, operands, attrs)[0]


def _between(trace, op, operands, attrs):
    """Breaks the graph and runs the op now and at every later call that comes here: no backend of the function takes it."""
    present = [t for t in operands if t is not None]
    inputs = [trace.value_of(t) for t in present]

    def run(tensors):
        given = iter(tensors)
        out = apply(op, [None if t is None else next(given) for t in operands], attrs)
        return list(out), b"", None

    _, results, _ = trace.graph_break(14, detail=op, function=run, inputs=inputs)
    return tuple(trace.tensor(v) for v in results)
