# SPDX-License-Identifier: Apache-2.0
"""Tessera compiles tensor programs.

    model = tessera.load("model.onnx")
    y, = model(x)                         # x: a numpy array, a torch tensor, anything that speaks DLPack

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
    version as __version__,
    wait_for_compiles as _wait_for_compiles,
)
from .model import Difference, Model, compare, compile, explain, load, modes

_atexit.register(_wait_for_compiles)  # the process must not end under a compile that Ctrl-C has left to itself

__all__ = [
    "Context",
    "Difference",
    "EnvironmentFault",
    "Error",
    "Executable",
    "Graph",
    "InternalError",
    "Model",
    "Tensor",
    "UserError",
    "compare",
    "compile",
    "explain",
    "from_bytes",
    "from_dlpack",
    "load",
    "log_enabled",
    "memory_in_use",
    "modes",
]
