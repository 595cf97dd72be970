# SPDX-License-Identifier: Apache-2.0
"""Reductions over runs of rows."""

import math

import torch

from ..emit import HALVES, Unsupported
from .table import lowers, number

_SUM, _MEAN, _MAX = range(3)


@lowers("aten._embedding_bag_forward_only.default", "aten._embedding_bag.default")
def _embedding_bag(
    e,
    out,
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=_SUM,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=-1,
):
    bags, width = e.sizes(out[0].shape)
    if indices.rank != 1 or 0 in indices.sizes or include_last_offset or mode not in (_SUM, _MEAN, _MAX):
        raise Unsupported("bags of no indices, or with a last offset")
    dtype = torch.float32 if weight.dtype in HALVES else weight.dtype
    positions = e("iota", shape=indices.sizes, axis=0, dtype=offsets.dtype)
    bag = e("sub", e.cast(e("searchsorted", offsets, positions, right=True), torch.int64), 1)
    rows = e.cast(e("gather", weight, indices, axis=0), dtype)
    if per_sample_weights is not None:
        rows = e("mul", rows, e("expand_dims", e.cast(per_sample_weights, dtype), axes=[1]))
    start = -math.inf if mode == _MAX else 0
    padding_idx = number(padding_idx)
    counted = e("ne", indices, padding_idx) if padding_idx >= 0 else e("eq", indices, indices)
    if padding_idx >= 0:
        rows = e("select", e("expand_dims", counted, axes=[1]), rows, e.scalar(start, dtype))
    place = e("expand_dims", bag, axes=[1])
    into = e("full", e.scalar(start, dtype), shape=[bags, width])
    y = e("scatter_nd", into, place, rows, reduction="max" if mode == _MAX else "add")
    none = e("full", e.scalar(0, dtype), shape=[bags])
    count = e("scatter_nd", none, place, e.cast(counted, dtype), reduction="add")
    if mode == _MEAN:
        y = e("div", y, e("expand_dims", e("maximum", count, 1), axes=[1]))
    if mode == _MAX:
        y = e("select", e("expand_dims", e("eq", count, 0), axes=[1]), e.scalar(0, dtype), y)
    return [e.cast(y, out[0].dtype), None, None, None]
