# SPDX-License-Identifier: Apache-2.0
"""Operators of ATen's core set that stay with ATen, and why."""

NOT_TAKEN = {
    "aten._local_scalar_dense.default": "it reads a value",
    "aten._native_batch_norm_legit.default": "it writes to its arguments",
    "aten.atan2.out": "it writes to its arguments",
    "aten.col2im.default": "sums of overlapping blocks",
    "aten.grid_sampler_2d.default": "decomposed by PyTorch",
    "aten.native_dropout.default": "random numbers are those of PyTorch's generator",
    "aten.rand.default": "random numbers are those of PyTorch's generator",
    "aten.randn.default": "random numbers are those of PyTorch's generator",
    "aten.randperm.default": "random numbers are those of PyTorch's generator",
    "aten.sym_numel.default": "a size, which Python computes",
    "aten.sym_size.int": "a size, which Python computes",
    "aten.sym_storage_offset.default": "a size, which Python computes",
    "aten.sym_stride.int": "a size, which Python computes",
    "aten.upsample_bilinear2d.vec": "decomposed by PyTorch",
    "aten.upsample_nearest2d.vec": "decomposed by PyTorch",
    "aten.var.dim": "decomposed by PyTorch",
}
