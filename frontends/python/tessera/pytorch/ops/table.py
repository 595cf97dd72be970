# SPDX-License-Identifier: Apache-2.0
"""The table of lowerings, and what the families of operators share."""

import torch
from torch._dynamo.source import TensorPropertySource

from ..._abi import EQ
from ..emit import HALVES, Unsupported, Value, is_symbolic

TABLE = {}


def lowers(*names):
    def register(f):
        for name in names:
            TABLE[name] = f
        return f

    return register


def axis_of(a, rank):
    if rank == 0:
        if a not in (0, -1):
            raise Unsupported(f"dimension {a} of a 0-d tensor")
        return 0
    if not -rank <= a < rank:
        raise Unsupported(f"dimension {a} of a tensor of rank {rank}")
    return a % rank


def axes_of(dims, rank):
    if dims is None:
        return list(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    if len(dims) == 0:
        return list(range(rank))
    return [] if rank == 0 else sorted(axis_of(d, rank) for d in dims)


def number(x):
    """x as a plain number. One that only the program's own numbers determine is fixed by a guard, as other backends do; one
    that depends on the sizes of tensors is not."""
    if not isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return x
    node = x.node
    symbols = node.expr.free_symbols
    sources = getattr(node.shape_env, "var_to_sources", {})
    if not all(s in sources and not any(isinstance(o, TensorPropertySource) for o in sources[s]) for s in symbols):
        raise Unsupported("a number that depends on sizes")
    if isinstance(x, torch.SymBool):
        return bool(x)
    return int(x) if isinstance(x, torch.SymInt) else float(x)


def operand(e, x, dtype):
    return e.cast(x, dtype) if isinstance(x, Value) else e.scalar(x, dtype)


def wide(a, b, dtype):
    """The dtype to compute in: PyTorch takes a number beside halves as it is, so such operations are done in f32 and rounded
    once."""
    if dtype in HALVES and not (isinstance(a, Value) and isinstance(b, Value)):
        return torch.float32
    return dtype


def binary(e, op, a, b, out_dtype, compute=None):
    dtype = compute or wide(a, b, out_dtype)
    return e.cast(e(op, operand(e, a, dtype), operand(e, b, dtype)), out_dtype)


def truth(e, x):
    return x if x.dtype == torch.bool else e("ne", x, 0)


def product(e, sizes):
    n = 1
    for s in sizes:
        n = e.mul(n, s)
    return n


def wrapped(e, index, size):
    """Indices counted from the end where they are negative."""
    index = e.cast(index, torch.int64)
    n = e.scalar(size, torch.int64) if not is_symbolic(size) else e("dim_value", value=size)
    return e("select", e("lt", index, 0), e("add", index, n), index)


def broadcast_shape(e, shapes):
    rank = max(len(s) for s in shapes)
    result = [1] * rank
    for shape in shapes:
        for k, s in enumerate(shape):
            at = rank - len(shape) + k
            if s == 1 or s == result[at]:
                continue
            if result[at] != 1 and e.known(EQ, s, result[at]) is not True:
                raise Unsupported("shapes that may not broadcast")
            result[at] = s
    return result


def spread(values, n):
    values = [number(v) for v in (values if isinstance(values, (list, tuple)) else [values])]
    return values * n if len(values) == 1 else values
