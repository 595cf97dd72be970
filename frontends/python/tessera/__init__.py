# SPDX-License-Identifier: Apache-2.0
"""Tessera compiles tensor programs.

    model = tessera.load("model.onnx")
    y, = model(x)                         # x: a numpy array, a torch tensor, anything that speaks DLPack

    @tessera.jit
    def f(x, c):                          # plain Python over such arrays, compiled for the calls that come
        return tessera.numpy.tanh(x) * c

`torch.compile(module, backend="tessera")` needs no import of this package. docs/python.md and docs/pytorch.md say the rest.
"""

import atexit as _atexit

from ._core import (
    Context,
    EnvironmentFault,
    Error,
    Executable,
    Graph,
    InternalError,
    Tensor,
    UserError,
    from_bytes,
    from_dlpack,
    log_enabled,
    memory_in_use,
    memory_peak,
    version as __version__,
    wait_for_compiles as _wait_for_compiles,
)
from . import numpy, ops, optim, random
from .model import Difference, Model, compare, compile, explain, load, modes

from .tracing.array import asarray, full, ones, scalar, tensor, zeros
from .tracing.control import (
    cond,
    disable,
    error_on_graph_break,
    graph_break,
    is_compiling,
    mark_dynamic,
    mark_static,
    mark_unbacked,
    reset,
    scan,
    set_stance,
    while_loop,
)
from .tracing.custom_gradient import custom_gradient
from .tracing.explain import Explanation
from .tracing.function import Function, jit
from .tracing.gradients import checkpoint, grad, no_grad, stop_gradient, value_and_grad
from .tracing.tensor import install as _install
from .tracing.trace import use
from .tracing.tree import pytree, tree_map

_install()
_atexit.register(_wait_for_compiles)  # the process must not end under a compile that Ctrl-C has left to itself

__all__ = [
    "Context",
    "Difference",
    "EnvironmentFault",
    "Error",
    "Executable",
    "Explanation",
    "Function",
    "Graph",
    "InternalError",
    "Model",
    "Tensor",
    "UserError",
    "asarray",
    "checkpoint",
    "compare",
    "compile",
    "cond",
    "custom_gradient",
    "disable",
    "error_on_graph_break",
    "explain",
    "from_bytes",
    "from_dlpack",
    "full",
    "grad",
    "graph_break",
    "is_compiling",
    "jit",
    "load",
    "log_enabled",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "memory_in_use",
    "memory_peak",
    "modes",
    "no_grad",
    "numpy",
    "ones",
    "ops",
    "optim",
    "pytree",
    "random",
    "reset",
    "scalar",
    "scan",
    "set_stance",
    "stop_gradient",
    "tensor",
    "tree_map",
    "use",
    "value_and_grad",
    "while_loop",
    "zeros",
]
