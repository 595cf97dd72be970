#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of every differentiable op beside PyTorch's autograd, on the inputs of the golden values.

Each golden case (tests/golden/ops) names its op, its inputs and the PyTorch function that gives its results. Cases of f64 and
f32 get seeds, drawn at random; the gradients of `grad` are compared with torch.autograd.grad of that function in float64:
max|a - b| <= 1e-10 max|b| for f64 and 1e-4 max|b| for f32, per tensor. --every K takes every K-th case of each op, --backends
names the configs' backends. It fails when an op of the list has no case that was compared.

    python3 tests/python/torch/op_gradients.py [--every 10] [--backends eager,cpu]
"""

import argparse
import collections
import pathlib
import sys
import warnings

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "golden" / "ops"))
sys.dont_write_bytecode = True

import elementwise  # noqa: E402
import golden  # noqa: E402
import nn  # noqa: E402
import reduce  # noqa: E402
import shape  # noqa: E402

import tessera  # noqa: E402

LIMITS = {"f64": 1e-10, "f32": 1e-4}
# PyTorch's own formulas for these hold a constant in f32 (1/6, 1/alpha).
NARROW = {("celu", "f64"): 1e-7, ("hardsigmoid", "f64"): 1e-7}
# Operands that are tensors here and numbers in PyTorch.
NUMBERS = {("pad", 1)}
# Ops on floating-point numbers without a gradient (TSR-A001).
WITHOUT = {"bitcast", "digamma", "dynamic_broadcast_to", "nextafter", "unique"}


class Compare:
    def __init__(self, every, backends):
        self.every = every
        order = lambda b: f'backends.order=["{b}"' + ("]" if b == "eager" else ', "eager"]')
        self.contexts = {b: tessera.Context(overrides=[order(b)]) for b in backends}
        self.seen = collections.Counter()  # by op and dtype
        self.compared = collections.Counter()
        self.skipped = collections.defaultdict(set)
        self.worst = collections.defaultdict(float)
        self.failed = []

    def case(self, case, expect):
        dtypes = {d for d, _ in filter(None, case.inputs)}
        dtype = "f64" if "f64" in dtypes else "f32" if "f32" in dtypes else None
        if dtype is None or case.op in WITHOUT or case.op.startswith("random"):
            return
        key = (case.op, dtype)
        self.seen[key] += 1
        if (self.seen[key] - 1) % self.every:
            return
        given = [
            x and torch.from_numpy(np.ascontiguousarray(x[1])).reshape(x[1].shape).requires_grad_(x[0] == dtype)
            for x in case.inputs
        ]
        random = torch.Generator().manual_seed(7)
        try:
            results = expect(*given)
        except Exception as e:  # numpy's functions refuse tensors that require gradients, PyTorch's what has none
            self.skipped[case.op].add(str(e).splitlines()[0][:80])
            return
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        is_output = lambda k, r: isinstance(r, torch.Tensor) and r.requires_grad and case.outputs[k][0] == dtype
        outputs = [k for k, r in enumerate(results) if is_output(k, r)]
        wanted = [k for k, x in enumerate(given) if x is not None and x.requires_grad and (case.op, k) not in NUMBERS]
        if not outputs or not wanted:
            self.skipped[case.op].add("no result depends on an input")
            return
        if any(x.numel() == 0 for x in [results[k] for k in outputs] + [given[k] for k in wanted]):
            return
        # Where a result is not finite its seed is 0; gradients that are not finite then are left out.
        seeds = [torch.randn(results[k].shape, generator=random, dtype=torch.float64) for k in outputs]
        seeds = [torch.where(results[k].isfinite(), s, 0.0) for k, s in zip(outputs, seeds)]
        if dtype == "f32":
            seeds = [s.float().double() for s in seeds]
        try:
            expected = torch.autograd.grad([results[k] for k in outputs], [given[k] for k in wanted], seeds, allow_unused=True)
        except (RuntimeError, NotImplementedError) as e:
            self.skipped[case.op].add(str(e).splitlines()[0][:80])
            return
        expected = [torch.zeros_like(given[k]) if e is None else e for k, e in zip(wanted, expected)]
        text = self.text(case, dtype, outputs, wanted, seeds)
        kinds = {"f64": torch.float64, "f32": torch.float32}
        arguments = [self.tensor(d, x) for d, x in filter(None, case.inputs)] + [s.to(kinds[dtype]) for s in seeds]
        for backend, context in self.contexts.items():
            try:
                found = context.compile(context.parse(text)).run(*arguments)
            except tessera.Error as e:
                self.failed.append(f"{case.name} on {backend}: {e.code} {e.message}\n{text}")
                continue
            for k, f, e in zip(wanted, found, expected):
                f = torch.from_dlpack(f).double()
                where = e.isfinite() & given[k].detach().isfinite()
                f, e = f[where], e.detach()[where]
                if e.numel() == 0:
                    continue
                gap, scale = (f - e).abs().max().item(), e.abs().max().item()
                self.compared[case.op] += 1
                ratio = gap / scale if scale else (0.0 if gap == 0 else float("inf"))
                self.worst[dtype] = max(self.worst[dtype], ratio)
                if not ratio <= NARROW.get((case.op, dtype), LIMITS[dtype]):
                    self.failed.append(f"{case.name} on {backend}, input {k}: max|a-b| {gap:.3g}, max|b| {scale:.3g}\n{text}")

    @staticmethod
    def tensor(dtype, values):
        stored = np.ascontiguousarray(golden.stored(dtype, values))
        return tessera.from_bytes(dtype, list(values.shape), stored.tobytes())

    @staticmethod
    def text(case, dtype, outputs, wanted, seeds):
        inputs = [f"%x{i}: {d}[{', '.join(map(str, a.shape))}]" for i, (d, a) in case.present()]
        inputs += [f"%seed{k}: {dtype}[{', '.join(map(str, s.shape))}]" for k, s in enumerate(seeds)]
        operands = ", ".join("_" if x is None else f"%x{i}" for i, x in enumerate(case.inputs))
        results = ", ".join(f"%r{i}" for i in range(len(case.outputs)))
        attrs = f" {{{case.attrs}}}" if case.attrs else ""
        args = ", ".join([f"%r{k}" for k in outputs] + [f"%seed{k}" for k in range(len(seeds))] + [f"%x{k}" for k in wanted])
        made = ", ".join(f"%d{k}" for k in range(len(wanted)))
        return (
            f"graph @{case.name}({', '.join(inputs)}) {{\n  {results} = {case.op} {operands}{attrs}\n"
            f"  {made} = grad {args} {{outputs = {len(outputs)}, seeded = true}}\n  return {made}\n}}\n"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--backends", default="eager,cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    compare = Compare(options.every, options.backends.split(","))
    add = golden.Family.add

    def add_and_compare(self, op, inputs, expect, *args, **kwargs):
        add(self, op, inputs, expect, *args, **kwargs)
        compare.case(self.cases[-1], expect)

    golden.Family.add = add_and_compare
    for module in (elementwise, shape, reduce, nn):
        module.families()
    ops = {op for op, _ in compare.seen}
    left = {op: sorted(why) for op, why in compare.skipped.items() if compare.compared[op] == 0}
    print(f"{sum(compare.compared.values())} gradients of {len([op for op in ops if compare.compared[op]])} ops compared; "
          f"greatest max|a-b| / max|b|: " + ", ".join(f"{d} {w:.2g}" for d, w in sorted(compare.worst.items())))
    for op, why in sorted(left.items()):
        print(f"not compared: {op}: {'; '.join(why)}")
    for text in compare.failed[:20]:
        print("FAILED", text)
    print(f"{len(compare.failed)} failed")
    return 1 if compare.failed or not compare.compared else 0


if __name__ == "__main__":
    sys.exit(main())
