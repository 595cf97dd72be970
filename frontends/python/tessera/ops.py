# SPDX-License-Identifier: Apache-2.0
"""Every op of the standard set by its record: tessera.ops.softmax(x, axis=-1).

Operands by position (None: an omitted one), attributes by name; docs/ir.md says what each op computes. One result as a tensor,
several as a tuple. Nothing is promoted: operands have the dtypes that the record names.
"""

from .tracing.array import asarray as _asarray
from .tracing.trace import apply as _apply
from .tracing.trace import records as _records


def _function(name, record):
    def op(*operands, **attributes):
        results = _apply(name, [o if o is None else _asarray(o) for o in operands], attributes)
        return results[0] if len(results) == 1 else results

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"{record['signature']}\n\n{record['doc']}\n{record['numerics']}"
    return op


def __getattr__(name):
    record = None if name.startswith("_") else _records().get(name)
    if record is None:
        raise AttributeError(f"no op '{name}' in the standard op set")
    made = globals()[name] = _function(name, record)
    return made


def __dir__():
    return sorted(_records())
