#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden values of every op of the standard set: for each family NAME.tsr (one graph per case) and NAME.npz (CASE/in0,
CASE/out0, ...). Expectations come from PyTorch, or from numpy where PyTorch has no such op (cbrt, f16 nextafter, first index of
argmax, unique's first occurrence). Needs numpy, torch and ml_dtypes; the result depends on nothing else.

    python3 tests/golden/ops/make_ops.py
"""

import pathlib
import sys
import warnings

import torch

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
sys.dont_write_bytecode = True

import elementwise  # noqa: E402
import nn  # noqa: E402
import random_ops  # noqa: E402
import reduce  # noqa: E402
import shape  # noqa: E402


def main():
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    total = 0
    for module in (elementwise, shape, reduce, nn, random_ops):
        for family in module.families():
            family.write(here)
            size = (here / f"{family.name}.npz").stat().st_size
            total += size
            print(f"{family.name}: {len(family.cases)} cases of {len({c.op for c in family.cases})} ops, {size} bytes")
    print(f"total {total} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
