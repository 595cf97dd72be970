# SPDX-License-Identifier: Apache-2.0
"""torch.compile(module, backend="tessera").

    backend(gm, inputs, *, mode=None, options=None)   what PyTorch calls
    report()                                          what ran where, as text
    reset()                                           forget what it says

docs/pytorch.md says what `mode` and `options` take.
"""

import os
import threading

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition

from .. import _core
from ..model import _values
from .compiler import compile_graph
from .emit import Records
from .ops import TABLE
from .report import REPORT

SUPPORTED = ((2, 11), (2, 15))

# Ours, with their defaults and what they do.
OPTIONS = {
    "fallback": ("aten", "what is not taken: 'aten' runs it through ATen, 'error' refuses to compile"),
    "config": (None, "the name or path of a config of Tessera's; None: by the mode"),
    "set": ((), "overrides of the config, as a dict or 'key=value' texts"),
}
# Inductor's names for what Tessera has too.
INDUCTOR = {
    "max_autotune": lambda on: {"mode": "max-autotune"} if on else {},
    "freezing": lambda on: {"freezing": bool(on)},
    "coordinate_descent_tuning": lambda on: {"coordinate_descent_tuning": bool(on)},
    "deterministic": lambda on: {},  # always
}
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite", "eager", "aot_eager")

_lock = threading.Lock()
_contexts = {}


def list_options():
    """The options that torch.compile(options=...) takes with this backend."""
    return {**{name: text for name, (_, text) in OPTIONS.items()}, **{name: "as Inductor's" for name in INDUCTOR}}


def list_mode_options(mode=None):
    """The modes, with what each sets."""
    import json

    modes = json.loads(_core.modes())
    return modes if mode is None else modes.get(mode, modes)


def report():
    """What became of the graphs compiled so far: how many, and which operators ran through ATen for which reason."""
    return str(REPORT)


def reset():
    """Forgets what report() says. torch._dynamo.reset() calls it."""
    REPORT.clear()


def _refuse(message, hint):
    error = _core.UserError(f"error[TSR-F061] {message}\n  hint: {hint}")
    error.code, error.message, error.hint = "TSR-F061", message, hint
    return error


def _parsed(mode, options):
    chosen = {name: default for name, (default, _) in OPTIONS.items()}
    extra = {}
    for name, value in (options or {}).items():
        if name in chosen:
            chosen[name] = value
        elif name in INDUCTOR:
            extra.update(INDUCTOR[name](value))
        else:
            import difflib

            near = difflib.get_close_matches(name, [*OPTIONS, *INDUCTOR], 1)
            raise _refuse(
                f"torch.compile(options=...): the backend 'tessera' has no option '{name}'"
                + (f"; did you mean '{near[0]}'?" if near else ""),
                f"it has: {', '.join(sorted([*OPTIONS, *INDUCTOR]))}",
            )
    if chosen["fallback"] not in ("aten", "error"):
        raise _refuse(f"option 'fallback' is {chosen['fallback']!r}", "expected 'aten' or 'error'")
    if mode is not None:
        if mode not in MODES:
            raise _refuse(f"the backend 'tessera' has no mode '{mode}'", f"it has: {', '.join(MODES)}")
        extra["mode"] = mode
    return chosen, (*_values(extra), *_values(chosen["set"]))


def _context(config, texts):
    key = (config, texts, os.stat(config).st_mtime_ns if config and os.path.exists(config) else None)
    with _lock:
        if key not in _contexts:
            context = _core.Context(config=config, overrides=list(texts))
            _contexts[key] = context, Records(context)
        return _contexts[key]


# Operators that PyTorch's core set leaves whole, and whose decompositions lead to operators that have lowerings.
BEYOND_CORE = {
    "aten._batch_norm_with_update_functional.default",
    "aten.dist.default",
    "aten.grid_sampler_2d.default",
    "aten.narrow_copy.default",
    "aten.unbind_copy.int",
}


def decompositions():
    """Those of PyTorch's that lead to what has a lowering, without those that lose something on the way."""
    global _decompositions
    if _decompositions is None:
        from torch._decomp import core_aten_decompositions, decomposition_table

        kept = ("scaled_dot_product", "native_dropout.default", "native_layer_norm_backward", "embedding_dense_backward")
        table = dict(core_aten_decompositions().items())
        table.update((op, f) for op, f in decomposition_table.items() if str(op) in BEYOND_CORE)
        _decompositions = {op: f for op, f in table.items() if str(op) not in TABLE and not any(k in str(op) for k in kept)}
    return _decompositions


_decompositions = None


def _check_version():
    found = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if not SUPPORTED[0] <= found <= SUPPORTED[1]:
        raise _refuse(
            f"PyTorch {torch.__version__} is outside of {SUPPORTED[0][0]}.{SUPPORTED[0][1]} to "
            f"{SUPPORTED[1][0]}.{SUPPORTED[1][1]}, which this version of tessera supports",
            "install one of these, or a tessera that supports yours",
        )


def backend(gm, inputs, *, mode=None, options=None, name=None, **_):
    """Called by torch.compile for every graph that Dynamo captures."""
    _check_version()
    chosen, overrides = _parsed(mode, options)
    context, records = _context(chosen["config"], overrides)

    def compile_one(graph, _inputs):
        return compile_graph(graph, context, records, chosen, REPORT)

    return aot_autograd(
        fw_compiler=compile_one,
        bw_compiler=compile_one,
        inference_compiler=compile_one,
        partition_fn=default_partition,
        decompositions=decompositions(),
    )(gm, inputs)


backend.reset = reset
