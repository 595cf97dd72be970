# SPDX-License-Identifier: Apache-2.0
"""Strides that PyTorch expects of what a graph computes, whose values are dense and row-major."""

import torch

from .emit import Unsupported
from .partition import expressions, hints, is_dense


class Permuted:
    """A result that lies in another order of dimensions than its shape says."""

    def __init__(self, order):
        self.order = order
        self.inverse = [order.index(k) for k in range(len(order))]

    def __call__(self, x):
        return x.permute(self.inverse)

    def undo(self, x):
        return x.permute(self.order)


class Strided:
    """A result with gaps between its elements, or with elements that are several: a view of something larger in PyTorch."""

    def __init__(self, sizes, strides):
        self.sizes, self.strides = sizes, strides  # numbers, or expressions that each call computes

    def __call__(self, x, sizes=None, strides=None):
        sizes, strides = sizes or self.sizes, strides or self.strides
        repeated = [k for k, (n, s) in enumerate(zip(sizes, strides)) if s == 0 and n > 1]
        for k in repeated:
            x = x.narrow(k, 0, 1)
        y = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)
        return y.expand(sizes)

    def undo(self, x):
        return x


def arranged(e, value, fake):
    """The value in the order of memory that PyTorch's strides ask for, and what makes of it a tensor with these strides, or
    None."""
    if fake.dim() == 0 or is_dense(fake):
        return value, None
    strides = hints(fake.stride())
    if strides is None:  # sizes depend on data
        order = list(reversed(range(fake.dim())))
        if not is_dense(fake, order):
            raise Unsupported("a result whose size depends on data, and whose elements do not lie side by side")
        return e("transpose", value, perm=order), Permuted(order)
    order = sorted(range(fake.dim()), key=lambda k: (-strides[k], k))
    if not is_dense(fake, order):
        return value, Strided(expressions(fake.shape), expressions(fake.stride()))
    if order == list(range(fake.dim())):
        return value, None
    return e("transpose", value, perm=order), Permuted(order)
