# SPDX-License-Identifier: Apache-2.0
"""Distances of all pairs, and products of three tensors."""

import math

import torch

from ..emit import HALVES, Unsupported, is_symbolic
from .table import lowers, number


def _norm(e, d, p):
    """The p-norm along the last dimension."""
    axes, a = [d.rank - 1], e("abs", d)
    if p == 0:
        return e("reduce_sum", e.cast(e("ne", d, 0), d.dtype), axes=axes, keepdims=False)
    if p == 1:
        return e("reduce_sum", a, axes=axes, keepdims=False)
    if p == 2:
        return e("sqrt", e("reduce_sum", e("mul", d, d), axes=axes, keepdims=False))
    if math.isinf(p):
        return e("reduce_max", a, axes=axes, keepdims=False)
    total = e("reduce_sum", e("pow", a, e.scalar(p, d.dtype)), axes=axes, keepdims=False)
    return e("pow", total, e.scalar(1 / p, d.dtype))


@lowers("aten._cdist_forward.default")
def _cdist(e, out, a, b, p, mode=None):
    p = float(number(p))
    if a.sizes[-1] == 0 or is_symbolic(a.sizes[-1]) or p < 0:
        raise Unsupported("distances between points of no dimension, or of a symbolic one")
    d = e("sub", e("expand_dims", a, axes=[a.rank - 1]), e("expand_dims", b, axes=[b.rank - 2]))
    return _norm(e, d, p)


_MOST_PAIRS = 4096


def pairs_of(n):
    """Of n points, (i, j) with i < j in the order of pdist."""
    if is_symbolic(n) or n * (n - 1) // 2 > _MOST_PAIRS:
        raise Unsupported("distances between many points")
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


@lowers("aten._pdist_forward.default")
def _pdist(e, out, x, p=2.0):
    n, p = x.sizes[0], float(number(p))
    if n in (0, 1) or x.sizes[1] == 0:
        return e("full", e.scalar(0, x.dtype), shape=e.sizes(out.shape))
    pairs = pairs_of(n)
    first, second = (e("gather", x, e.ints([pair[k] for pair in pairs]), axis=0) for k in (0, 1))
    return _norm(e, e("sub", first, second), p)


@lowers("aten._trilinear.default")
def _trilinear(e, out, a, b, c, expand1, expand2, expand3, sumdim, unroll_dim=1):
    dtype = torch.float32 if out.dtype in HALVES else out.dtype

    def spread(x, axes):
        x = e.cast(x, dtype)
        return e("expand_dims", x, axes=sorted(axes)) if axes else x

    y = e("mul", e("mul", spread(a, expand1), spread(b, expand2)), spread(c, expand3))
    if sumdim:
        y = e("reduce_sum", y, axes=sorted(sumdim), keepdims=False)
    return e.cast(y, out.dtype)
