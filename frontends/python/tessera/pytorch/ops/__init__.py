# SPDX-License-Identifier: Apache-2.0
"""How ATen's operators are expressed in the standard op set: docs/aten_mapping.md as data, one module per family.

`TABLE` maps "aten.name.overload" to a function lower(e, out, *args, **kwargs). `e` is the Emitter, `out` what PyTorch says of
the result (fake tensors); tensors among the arguments are Values. It returns a Value, or a list where the operator has several
results, with None for a result that is not expressed: a node whose user reads it stays with ATen. Unsupported says that a node
stays with ATen. The caller compares the types of what comes out with `out`, so a lowering need not check what a wrong type
would show.
"""

from . import (
    bags,
    complexes,
    creation,
    distances,
    elementwise,
    factors,
    fourier,
    gradients,
    grids,
    indexing,
    lists,
    networks,
    norms,
    reductions,
    resampling,
    shapes,
    special,
)
from .complexes import COMPLEX, TAKE_COMPLEX
from .not_taken import NOT_TAKEN
from .table import TABLE

__all__ = ["NOT_TAKEN", "TABLE", "lowering_of"]


def lowering_of(name, of_complex):
    """The lowering of an operator, or None; `of_complex`: an operand or a result is complex."""
    if not of_complex:
        return TABLE.get(name)
    return COMPLEX.get(name) or (TABLE[name] if name in TAKE_COMPLEX else None)
