# SPDX-License-Identifier: Apache-2.0
"""Parts of factorised matrices: what LAPACK leaves in one tensor, taken apart."""

import torch

from ..emit import Unsupported, is_symbolic
from .table import lowers

_MOST_STEPS = 64  # columns, each of which takes some nodes


def _check_sizes(x):
    if any(is_symbolic(s) for s in x.sizes[-2:]) or 0 in x.sizes:
        raise Unsupported("a matrix of unknown or no size")


def _eye(e, rows, columns, dtype):
    row, column = (e("iota", shape=[rows, columns], axis=axis, dtype=torch.int64) for axis in (0, 1))
    return e.cast(e("eq", row, column), dtype)


@lowers("aten.lu_unpack.default")
def _lu_unpack(e, out, lu, pivots, unpack_data=True, unpack_pivots=True):
    batch, (m, n) = lu.sizes[:-2], lu.sizes[-2:]
    _check_sizes(lu)
    k, parts = min(m, n), [None, None, None]
    slice_of = lambda x, rows, columns: e(
        "slice", x, starts=[0] * x.rank, limits=[*batch, rows, columns], strides=[1] * x.rank
    )
    if unpack_data:
        lower = e("tril", slice_of(lu, m, k), diagonal=-1)
        parts[1:] = [e("add", lower, _eye(e, m, k, lu.dtype)), e("triu", slice_of(lu, k, n), diagonal=0)]
    if unpack_pivots:
        if k > _MOST_STEPS:
            raise Unsupported("pivots of a large matrix")
        places = e.broadcast(e("iota", shape=[m], axis=0, dtype=torch.int64), [*batch, m])
        order, last = places, len(batch)
        for step in range(k):  # row `step` and the one that its pivot names change places
            one = dict(starts=[0] * last + [step], limits=[*batch, step + 1], strides=[1] * (last + 1))
            other = e("sub", e.cast(e("slice", pivots, **one), torch.int64), 1)
            here, there = e("slice", order, **one), e("take_along_axis", order, other, axis=last)
            order = e("select", e("eq", places, other), here, order)
            order = e("select", e("eq", places, step), there, order)
        rows = e("iota", shape=[m, m], axis=0, dtype=torch.int64)
        parts[0] = e.cast(e("eq", e("expand_dims", order, axes=[last]), rows), lu.dtype)
    return parts


def _reflections(e, x, tau):
    """Vectors [..., m, 1] and factors [..., 1, 1] of the reflections I - t v v^T below the diagonal of x, from the first on."""
    _check_sizes(x)
    m, n, k = *x.sizes[-2:], tau.sizes[-1]
    if is_symbolic(k) or k > _MOST_STEPS:
        raise Unsupported("many reflections")
    vectors, batch = e("add", e("tril", x, diagonal=-1), _eye(e, m, n, x.dtype)), x.sizes[:-2]
    column = lambda t, i: e(
        "slice", t, starts=[0] * (t.rank - 1) + [i], limits=[*t.sizes[:-1], i + 1], strides=[1] * t.rank
    )
    return [(column(vectors, i), e("expand_dims", column(tau, i), axes=[len(batch)])) for i in range(k)]


def _reflected(e, x, v, t):
    """(I - t v v^T) x"""
    return e("sub", x, e("matmul", e("mul", v, t), e("matmul", _transposed(e, v), x)))


def _transposed(e, x):
    return e("transpose", x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])


@lowers("aten.linalg_householder_product.default")
def _householder_product(e, out, x, tau):
    reflections = _reflections(e, x, tau)
    y = e.broadcast(_eye(e, *x.sizes[-2:], x.dtype), x.sizes)
    for v, t in reversed(reflections):
        y = _reflected(e, y, v, t)
    return y


@lowers("aten.ormqr.default")
def _ormqr(e, out, x, tau, y, left=True, transpose=False):
    reflections = _reflections(e, x, tau)
    if not left:  # y Q is the transpose of Q^T y^T
        y, transpose = _transposed(e, y), not transpose
    for v, t in reflections if transpose else reversed(reflections):
        y = _reflected(e, y, v, t)
    return y if left else _transposed(e, y)
