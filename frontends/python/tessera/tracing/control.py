# SPDX-License-Identifier: Apache-2.0
"""Control flow that stays in the graph, and what ends a graph on purpose."""

import functools
import pickle

from .. import _core
from . import tree
from .errors import error
from .symbolic import settled
from .trace import apply, here, is_traced, state, state_forbidden


def _list(x):
    return list(x) if isinstance(x, (list, tuple)) else [x]


def _traced(trace, tensors):
    from .array import asarray

    out = []
    for t in map(asarray, tensors):
        out.append(t if is_traced(t) else trace.tensor(trace.value_of(t)))
    return out


def _region(trace, function, like, scanned=(0, 0)):
    """Traces the function into a region whose inputs have the types of `like`."""
    from .array import asarray

    number, inputs = trace.builder.region([t._value for t in like], *scanned)
    outer, trace.region = trace.region, number
    lifted, trace.lifted = trace.lifted, {}
    try:
        made = function(*[trace.tensor(v) for v in inputs])
        values = [trace.value_of(asarray(t)) for t in _list(made)]
    finally:
        trace.region, trace.lifted = outer, lifted
    trace.builder.outputs(values, number)
    return number, isinstance(made, (list, tuple))


def _as(several, results):
    return tuple(results) if several else results[0]


def cond(predicate, true_function, false_function, *args):
    """true_function(*args) where the predicate holds, else false_function(*args); both stay in one graph."""
    trace = state.trace
    if trace is None:
        return (true_function if predicate else false_function)(*args)
    given = _traced(trace, args)
    regions, kinds = zip(*[_region(trace, f, given) for f in (true_function, false_function)])
    return _as(kinds[0], apply("cond", [*_traced(trace, [predicate]), *given], None, regions))


def while_loop(condition, body, init, invariants=()):
    """Repeats carried = body(*carried, *invariants) while condition(*carried, *invariants) holds."""
    trace = state.trace
    carried, fixed = _list(init), list(invariants)
    several = isinstance(init, (list, tuple))
    if trace is None:
        while condition(*carried, *fixed):
            carried = _list(body(*carried, *fixed))
        return _as(several, carried)
    given = _traced(trace, carried + fixed)
    regions = [_region(trace, f, given)[0] for f in (condition, body)]
    return _as(several, apply("while_loop", given, {"carried": len(carried)}, regions))


def scan(body, init, xs, invariants=(), reverse=False):
    """body(*carried, *slices, *invariants) -> (carried, slices out), over the first dimension of xs: (carried, stacked
    slices)."""
    trace = state.trace
    carried, scanned, fixed = _list(init), _list(xs), list(invariants)
    if not scanned:
        raise error("TSR-F030", "scan: nothing to scan over", "give at least one tensor in xs, or use while_loop")
    several = isinstance(init, (list, tuple))

    def split(made):
        new, out = made
        return _list(new), _list(out)

    if trace is None:
        from .array import asarray, stack

        scanned = [asarray(x) for x in scanned]
        steps = range(int(scanned[0].shape[0]))
        stacks = []
        for i in reversed(steps) if reverse else steps:
            carried, out = split(body(*carried, *[x[i] for x in scanned], *fixed))
            stacks.append(out)
        if reverse:
            stacks.reverse()
        made = [stack(column) for column in zip(*stacks)]
        return _as(several, carried), made[0] if len(made) == 1 else tuple(made)
    given = _traced(trace, carried + scanned + fixed)
    length = given[len(carried)].shape[0]

    def flat(*inputs):
        new, out = split(body(*inputs))
        return [*new, *out]

    region, _ = _region(trace, flat, given, (len(carried), len(carried) + len(scanned)))
    attrs = {"carried": len(carried), "scanned": len(scanned), "reverse": reverse, "length": length}
    results = apply("scan", given, attrs, [region])
    made = results[len(carried) :]
    return _as(several, results[: len(carried)]), made[0] if len(made) == 1 else tuple(made)


# ----------------------------------------------------------------------------------------------------------------- graph breaks


def graph_break(why=None):
    """Ends the segment here."""
    if state.trace is not None:
        state.trace.graph_break(12, detail=why)


class error_on_graph_break:
    """Within, a graph break is an error, as with fullgraph=True."""

    def __init__(self, on=True):
        self._on = on

    def __enter__(self):
        self._before, state_forbidden.on = state_forbidden.on, self._on

    def __exit__(self, *_):
        state_forbidden.on = self._before


def disable(function):
    """The function as it is, between the compiled parts of those that call it: it runs at every call, on tensors with memory.

    What it returns besides tensors is part of what later code goes by: another value takes another path.
    """
    plain = getattr(function, "original", function)

    @functools.wraps(plain)
    def call(*args, **kwargs):
        trace = state.trace
        if trace is None:
            return plain(*args, **kwargs)
        skeleton, tensors = tree.taken_apart((list(args), dict(kwargs)), settled)
        inputs = [trace.value_of(t) for t in tensors]

        def run(given):
            args, kwargs = tree.filled(skeleton, given)
            made, out = tree.taken_apart(plain(*args, **kwargs), settled)
            for t in out:
                if is_traced(t):
                    raise error("TSR-F002", "a disabled function returns a tensor of a traced function")
            return out, _key(made), made

        detail = getattr(plain, "__name__", None)
        _, results, made = trace.graph_break(13, detail=detail, function=run, inputs=inputs, place=here())
        return tree.filled(made, [trace.tensor(v) for v in results])

    return call


def _key(skeleton):
    """What later host code can see of an outcome, as bytes."""

    def plain(x):
        if type(x) is tree.Slot:
            return ("slot", x.number)
        if isinstance(x, (list, tuple)):
            return (type(x).__name__, [plain(v) for v in x])
        if isinstance(x, dict):
            return ("dict", [(k, plain(v)) for k, v in x.items()])
        if x is None or isinstance(x, (bool, int, float, str)):
            return (type(x).__name__, repr(x))
        return (
            type(x).__qualname__,
            [(n, plain(getattr(x, n))) for n in tree._kind_of(x).fields(x)] if tree._kind_of(x) else repr(x),
        )

    return pickle.dumps(plain(skeleton))


def is_compiling():
    """Whether a function is being captured on this thread."""
    return state.trace is not None


class set_stance:
    """How all compiled functions behave: "default", "force_eager", "eager_on_recompile", "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile". At once, or within a `with`."""

    def __init__(self, name):
        self._before = _core.set_stance(name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _core.set_stance(self._before)


def mark(kind, x, dim, least=0, most=(1 << 63) - 1):
    from .array import asarray

    x = asarray(x)
    for d in dim if isinstance(dim, (tuple, list)) else (dim,):
        x.mark(d, kind, least, most)
    return x


def mark_dynamic(x, dim, min=2, max=(1 << 63) - 1):
    """This dimension is a symbol from the first compile on, and it is an error when a function needs its value. Returns the
    tensor that is marked: x, or the tensor that shares the memory of another library's array."""
    return mark(1, x, dim, min, max)


def mark_static(x, dim):
    """This dimension is a number, whatever is seen of it."""
    return mark(2, x, dim)


def mark_unbacked(x, dim):
    """This dimension is a symbol that nothing may be guarded on."""
    return mark(3, x, dim)


def reset():
    """Forgets what every compiled function has compiled and learned; frames count from 0 again."""
    _core.reset()
