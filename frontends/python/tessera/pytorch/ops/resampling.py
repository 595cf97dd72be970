# SPDX-License-Identifier: Apache-2.0
"""Resampling with antialiasing: a product with a matrix of weights for each dimension, and its transpose as the gradient."""

import array

import torch

from ..emit import HALVES, Unsupported, is_symbolic
from .gradients import gradients
from .table import TABLE, number


def _triangle(t):
    return max(0.0, 1.0 - abs(t))


def _cubic(t, a=-0.5):
    """Keys (1981)."""
    t = abs(t)
    if t < 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return (((t - 5) * t + 8) * t - 4) * a if t < 2 else 0.0


def _weights(size, output, corners, factor, kernel, reach):
    """[output][size], by PyTorch's coordinate rules: the kernel is stretched where the result is smaller."""
    if corners:
        scale = (size - 1) / (output - 1) if output > 1 else 0.0
    else:
        scale = 1 / factor if factor else size / output
    support, inverse = (reach * scale, 1 / scale) if scale >= 1 else (float(reach), 1.0)
    rows = []
    for i in range(output):
        center = scale * (i + 0.5)
        first = max(int(center - support + 0.5), 0)
        last = min(int(center + support + 0.5), size)
        row = [kernel((j - center + 0.5) * inverse) if first <= j < last else 0.0 for j in range(size)]
        total = sum(row)
        rows.append([w / total if total else 0.0 for w in row])
    return rows


def _lower_antialiased(kernel, reach):
    def resampled(e, x, output, corners, factors):
        dtype = torch.float32 if x.dtype in HALVES else x.dtype
        sizes = [*x.sizes[-2:], *output]
        if x.rank != 4 or not dtype.is_floating_point or any(map(is_symbolic, sizes)) or not all(sizes):
            raise Unsupported("antialiased resampling of symbolic sizes, or of integers")
        matrices = []
        for size, n, factor in zip(sizes[:2], output, factors):
            rows = _weights(size, n, corners, factor, kernel, reach)
            data = array.array("f" if dtype == torch.float32 else "d", [w for row in rows for w in row])
            matrices.append(e.constant(dtype, [n, size], data.tobytes()))
        rows, columns = matrices
        y = e("matmul", e.cast(x, dtype), e("transpose", columns, perm=[1, 0]))
        return e.cast(e("matmul", rows, y), x.dtype)

    def forward(e, out, x, output, corners, high=None, wide=None):
        return resampled(e, x, e.sizes(output), corners, (number(high), number(wide)))

    def backward(e, out, seed, output, shape, corners, high=None, wide=None):
        like = e("full", e.scalar(0, seed.dtype), shape=e.sizes(shape))
        given = (e.sizes(output), corners, (number(high), number(wide)))
        return gradients(e, lambda x: resampled(e, x, *given), [like], seed)[0]

    return forward, backward


for _name, _kernel, _reach in (("bilinear", _triangle, 1), ("bicubic", _cubic, 2)):
    _forward, _backward = _lower_antialiased(_kernel, _reach)
    TABLE[f"aten._upsample_{_name}2d_aa.default"] = _forward
    TABLE[f"aten._upsample_{_name}2d_aa_backward.default"] = _backward
