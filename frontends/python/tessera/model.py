# SPDX-License-Identifier: Apache-2.0
"""Models from files and from text, as callables."""

import json
import os
from dataclasses import dataclass

from . import _core


_CONTRADICTED = "TSR-T026"  # the sizes of a call break what the compiled graph assumes


def _values(overrides):
    """Overrides as `key=value` texts: a dict gives one per item, with its values written as TOML."""
    if overrides is None:
        return []
    if not isinstance(overrides, dict):
        return list(overrides)
    texts = []
    for key, value in overrides.items():
        texts.append(f"{key}={json.dumps(value)}")  # JSON's numbers, strings, booleans and lists are TOML's
    return texts


def context(config=None, set=None, plugin_dirs=()):
    return _core.Context(config=config, overrides=_values(set), plugin_dirs=list(plugin_dirs))


class Model:
    """A compiled model. Inputs by position or by name; outputs are of the library of the first input.

    A call that contradicts what the model's file lets the compiler assume is compiled for itself, and so is every kind of call
    where the file does not say enough; `outputs` are then known after the first call.
    """

    def __init__(self, executable, source=None):
        """`source`: makes the function that serves what `executable`, which may be None, cannot."""
        self._executable = executable
        self._source = source
        self._function = None
        if executable is None:
            self.inputs, self.outputs = list(self._of_calls().inputs()), []
        else:
            described = json.loads(executable.describe())
            self.inputs = [i["name"] if i["key"] is None else i["key"] for i in described["inputs"]]
            self.outputs = [o["name"] for o in described["outputs"]]

    def __call__(self, *args, **kwargs):
        if kwargs:
            args = self._by_name(args, kwargs)
        results = self._run(args)
        return [_like(args[0], r) for r in results] if args else results

    def _run(self, args):
        if self._executable is not None:
            try:
                return self._executable.run(*args)
            except _core.UserError as error:
                if error.code != _CONTRADICTED or self._source is None:
                    raise
        results = self._of_calls().call(*map(_core.from_dlpack, args))
        if not self.outputs and results:
            entry = json.loads(self._function.describe())["entries"][-1]
            self.outputs = [o["name"] for o in entry["executable"]["outputs"]]
        return results

    def _of_calls(self):
        if self._function is None:
            self._function = self._source()
        return self._function

    def _by_name(self, args, kwargs):
        given = dict(zip(self.inputs, args))
        for name, value in kwargs.items():
            if name not in self.inputs:
                raise TypeError(f"the model has no input '{name}'; it has: {', '.join(self.inputs)}")
            if name in given:
                raise TypeError(f"input '{name}' is given twice")
            given[name] = value
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise TypeError(f"missing inputs: {', '.join(missing)}")
        return [given[name] for name in self.inputs]

    def plan(self):
        """The step table and the memory plan, as text."""
        if self._executable is None:
            raise TypeError("the model is compiled for its calls: describe() lists what has been compiled")
        return self._executable.plan()

    def describe(self):
        """Signature, steps, memory and compile times, as a dict (docs/json.md, "executable").

        Of a model that is compiled for its calls alone: what has been compiled for them (docs/json.md, "callable").
        """
        return json.loads((self._executable or self._of_calls()).describe())

    def __repr__(self):
        return f"<tessera.Model of {', '.join(self.inputs)} -> {', '.join(self.outputs)}>"


def _like(example, tensor):
    """`tensor` as the library of `example` has it, without a copy."""
    module = type(example).__module__.partition(".")[0]
    if module == "numpy":
        import numpy

        return numpy.from_dlpack(tensor)
    if module == "torch":
        import torch

        return torch.from_dlpack(tensor)
    return tensor


def load(path, config=None, set=None, bind=None, plugin_dirs=()):
    """Compiles the model in a file (ONNX, text IR).

    config: the name of an installed config or a path; set: overrides, {"runtime.threads": 1}; bind: values of inputs that are
    to become constants, {"name": tensor}.
    """
    c = context(config, set, plugin_dirs)
    path = os.fspath(path)
    if bind:
        return Model(c.compile(c.load(path, dict(bind))))
    try:
        graph = c.load(path)
    except _core.UserError:
        function = c.callable(path)  # raises the same unless the file lacks only what a call says
        return Model(None, lambda: function)
    return Model(c.compile(graph), lambda: c.callable(path))


def compile(text, config=None, set=None, name="<text>", plugin_dirs=()):
    """Compiles a graph given as text IR (docs/ir.md)."""
    c = context(config, set, plugin_dirs)
    return Model(c.compile(c.parse(text, name)))


def explain(config=None, *args, set=None, plugin_dirs=(), **kwargs):
    """Every value of a config and where it came from, as a dict.

    Of a function, compiled or not, and the arguments of a call: what is captured for it, with breaks and guards (Explanation).
    """
    if callable(config):
        from .tracing.explain import explain as of_function

        return of_function(config, args, kwargs)
    set, plugin_dirs = (*args, *(set, plugin_dirs)[len(args) :])
    return json.loads(context(config, set, plugin_dirs).explain())


def modes():
    """The modes that `mode = ...` of a config names, with what each sets."""
    return json.loads(_core.modes())


@dataclass
class Difference:
    """How an output of two configs differs."""

    output: str
    largest: float  # absolute; NaN in one of them only counts as infinite


def compare(path, a, b, *inputs):
    """Runs the model in a file under two configs on the same inputs: one Difference per output."""
    import math

    first, second = load(path, a), load(path, b)
    found = []
    results = first._run(inputs), second._run(inputs)
    for name, x, y in zip(first.outputs, *results):
        largest = 0.0
        for u, v in zip(_numbers(x), _numbers(y)):
            if u == v or (math.isnan(u) and math.isnan(v)):
                continue
            largest = max(largest, math.inf if math.isnan(u - v) else abs(u - v))
        found.append(Difference(name, largest))
    return found


_FORMATS = {
    "f64": "d",
    "f32": "f",
    "f16": "e",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "bool": "?",
}


def _numbers(tensor):
    import struct

    data = tensor.tobytes()
    if tensor.dtype == "bf16":  # the upper half of a float
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    if tensor.dtype not in _FORMATS:
        raise TypeError(f"outputs of dtype {tensor.dtype} cannot be compared")
    size = struct.calcsize("<" + _FORMATS[tensor.dtype])
    return [float(v) for v in struct.unpack(f"<{len(data) // size}{_FORMATS[tensor.dtype]}", data)]
