# SPDX-License-Identifier: Apache-2.0
"""`tessera.jit`: a Python function that is captured on its first call, and dispatched to what was compiled later."""

import functools
import inspect
import json
import os
import threading

from .. import _core
from . import backward, tree
from .errors import error
from .symbolic import bind, settled
from .trace import Trace, current_context, here, state, use

_DEPTH = 200
_RECORD = 2  # what the library says of a call with tensors that want gradients (client/function.cpp)


class _Nested(threading.local):
    depth = 0


_nested = _Nested()
_recording_lock = threading.Lock()


class _Structure:
    """What an entry keeps of a call: how the results nest, and which tensors of the arguments are replaced."""

    __slots__ = ("skeleton", "count", "writes")

    def __init__(self, skeleton, count, writes):
        self.skeleton, self.count, self.writes = skeleton, count, writes


def _overrides(options):
    return [f"{k}={json.dumps(v)}" for k, v in (options or {}).items()]


class Function:
    """What `tessera.jit` returns. Calling it runs compiled code; `original` is the Python function."""

    def __init__(
        self, function, name=None, dynamic=None, mode=None, backend=None, options=None, fullgraph=False, guard_filter=None
    ):
        self.original = function
        self._signature = inspect.signature(function)
        self._parameters = list(self._signature.parameters.values())
        self.names = [p.name for p in self._parameters]
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._plain = all(p.kind in plain for p in self._parameters)
        self.name = name or getattr(function, "__name__", "fn").strip("<>")
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.place = (code.co_filename, code.co_firstlineno) if code else here()
        self._guard_filter = guard_filter
        self._context = current_context()
        self._records = False  # it is the function that `_recording` of another one names
        self._recording = None  # captures what calls with tensors that want gradients run
        # What follows a graph break would be a program of its own, without a backward half: fullgraph.
        self._recording_options = {
            "name": self.name,
            "dynamic": dynamic,
            "mode": mode,
            "backend": backend,
            "options": options,
            "fullgraph": True,
            "guard_filter": guard_filter,
        }
        dynamic = {None: -1, "auto": -1, False: 0, True: 1}.get(dynamic, dynamic)
        if dynamic not in (-1, 0, 1):
            raise error("TSR-F085", f"jit: dynamic is {dynamic!r}, expected None, True or False")
        self._native = _core.function(
            self._context,
            self,
            self.name,
            *self.place,
            backend,
            mode,
            dynamic,
            bool(fullgraph),
            _overrides(options),
            guard_filter is not None,
        )
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args, **kwargs):
        if state.trace is not None:
            return self._inlined(args, kwargs)
        values = args if not kwargs and self._plain and len(args) == len(self.names) else self._bound(args, kwargs)
        structure, tensors = self._native.call(values, tree.describe)
        if structure is None:
            if tensors != _RECORD:
                return self._as_it_is(values, reuse_only=tensors)
            structure, tensors = self._recorded(values)
        if structure.writes:
            values = list(values)
            for number, path in structure.writes:
                backward.keep_requiring(tree.at(values, path), tensors[number])
                tree.store(values, path, tensors[number])
        skeleton = structure.skeleton
        return tensors[skeleton.number] if type(skeleton) is tree.Slot else tree.filled(skeleton, tensors)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def _bound(self, args, kwargs):
        """The arguments by parameter: what a caller leaves out has its default."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return list(bound.arguments.values())

    def _run(self, values):
        args, kwargs = [], {}
        for p, v in zip(self._parameters, values):
            if p.kind == p.VAR_POSITIONAL:
                args.extend(v)
            elif p.kind == p.VAR_KEYWORD:
                kwargs.update(v)
            elif p.kind == p.KEYWORD_ONLY:
                kwargs[p.name] = v
            else:
                args.append(v)
        return self.original(*args, **kwargs)

    def _inlined(self, args, kwargs):
        if _nested.depth >= _DEPTH:
            raise error(
                "TSR-F047",
                f"compiled functions call each other {_DEPTH} deep while '{self.name}' is traced: a traced call always takes "
                f"the same way, so that recursion needs an end that does not depend on data",
                "recurse on a plain integer, or use while_loop",
            )
        _nested.depth += 1
        try:
            return self.original(*args, **kwargs)
        finally:
            _nested.depth -= 1

    def _recorded(self, values):
        """As a call of the library, with the backward half kept: results know of it."""
        with _recording_lock:
            if self._recording is None:
                with use(self._context):
                    self._recording = Function(self.original, **self._recording_options)
                self._recording._records = True
        made = self._recording._native.call_saving(values, tree.describe)
        if made is None:
            raise error(
                "TSR-F052",
                f"'{self.name}' gets a tensor that requires gradients, and this call runs without compiled code, which has no "
                "backward half",
                "take value and gradient in one compiled function: tessera.value_and_grad; or call it under tessera.no_grad()",
            )
        structure, tensors, saved = made
        results = backward.record(saved, backward.wanted_of(values), tensors[: structure.count])
        return structure, results + tensors[structure.count :]

    def _as_it_is(self, values, reuse_only):
        """The function as Python runs it, on tensors: no compiled code serves the call."""

        given, copies = values, None
        if tree.holds_foreign(values):
            copies = tree.Substitute(lambda leaf, o: o, lambda leaf, o: o)
            given = [copies.visit(v, (i,)) for i, v in enumerate(values)]
        before = _core.set_reuse_only(bool(reuse_only))
        try:
            with use(self._context):
                results = self._run(given)
        finally:
            _core.set_reuse_only(before)
        if copies is not None:
            changes = tree.Changes(copies.given, self.names)
            for i, v in enumerate(given):
                changes.visit(v, (i,))
            values = list(values)
            for _, path, tensor in changes.found:
                tree.store(values, path, tensor)
        return results

    # ---- what the library asks (client/function.cpp)

    def _capture(self, recorder, builder, values):
        """Runs the function over the inputs of the recorder. The library keeps what is returned with the entry."""
        trace = Trace(recorder, builder, self)
        before = state.trace, state.context
        state.trace, state.context = trace, self._context
        try:
            inputs = iter([trace.tensor(v) for v in recorder.inputs()])
            wanted = []

            def input_of(leaf, o):
                made = next(inputs)
                if self._records and backward.wants(o):
                    wanted.append(made)
                return made

            copies = tree.Substitute(input_of, lambda leaf, o: bind(trace, leaf, o))
            given = [copies.visit(v, (i,)) for i, v in enumerate(values)]
            results = self._run(given)
            skeleton, tensors = tree.taken_apart(results, settled)
            changes = tree.Changes(copies.given, self.names)
            for i, v in enumerate(given):
                changes.visit(v, (i,))
            if changes.leaf != copies.leaf:
                raise tree.restructured(self.names[0] if self.names else "its arguments")
            outputs = [trace.value_of(t) for t in tensors]
            writes = []
            for _, path, tensor in changes.found:
                writes.append((len(outputs), path))
                outputs.append(trace.value_of(tensor))
            if self._records:
                outputs += backward.outputs(trace, tensors, wanted)
            recorder.set_outputs(outputs)
            return _Structure(skeleton, len(tensors), writes)
        finally:
            state.trace, state.context = before
            trace.end()

    def _path(self, values, leaf):
        return tree.path_of(values, self.names, leaf)

    def _keep_guard(self, kind, path, text):
        return bool(self._guard_filter({1: "value", 2: "tensor", 3: "global"}[kind], path, text))

    # ---- for users

    def describe(self):
        """Entries, guards and counts, as a dict (docs/json.md, "callable")."""
        return json.loads(self._native.describe())

    def reset(self):
        """Forgets every entry, and what was learned about sizes."""
        self._native.reset()
        self._recording = None

    def recompile(self):
        """From now on the entries there are serve no call."""
        self._native.recompile()

    def compile_ahead(self, *examples, threads=0):
        """Compiles for calls before they come: each example is a tuple of arguments. How many entries were made."""
        if state.trace is not None:
            raise error(
                "TSR-F048",
                f"compile_ahead of '{self.name}' is called by a function that is being traced",
                "compile ahead before the first call",
            )
        return self._native.compile_ahead([self._bound(e, {}) for e in examples], threads, tree.describe)

    def __repr__(self):
        return f"<tessera.jit of {self.name} at {os.path.basename(self.place[0])}:{self.place[1]}>"


def jit(function=None, **options):
    """Compiles a function of arrays, numbers and containers of them for the calls that come.

    name: in messages, else the function's own; dynamic: None finds out what varies, True makes sizes symbols at once, False
    compiles for every size; mode, backend, options: of the config, options={"guards.recompile_limit": 4}; fullgraph: a graph
    break is an error; guard_filter: UNSAFE, (kind, path, text) -> whether a guard stays.
    """
    if function is None:
        return functools.partial(jit, **options)
    if isinstance(function, Function):
        function = function.original
    return Function(function, **options)
