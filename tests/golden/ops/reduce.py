# SPDX-License-Identifier: Apache-2.0
"""Reductions, arg-reductions, scans."""

import numpy as np
import torch

from golden import COMPLEX, FLOATS, Family, Rng

WIDE = ["f64", "f32", "f16", "bf16"]
INTS = ["i8", "i16", "i32", "i64", "u8", "i4"]


def over(fn, axes, keepdims):
    """Reduces one axis after the other, the last first."""
    def run(x):
        for a in sorted((a % x.dim() for a in axes), reverse=True):
            x = fn(x, a, keepdims)
        return x
    return run


def families():
    f = Family("reduce")
    variants = [((2, 3, 4), [1], False), ((2, 3, 4), [0, -1], True), ((2, 3, 4), [0, 1, 2], False), ((2, 3), [], False),
                ((3, 1), [1], False), ((0, 3), [1], False), ((2, 0), [1], False), ((), [], False)]

    def each(op, fn, dtypes, out=None, attrs="", skip_empty=False, lo=None, hi=None, whole=False):
        for d in dtypes:
            for n, (shape, axes, keep) in enumerate(variants):
                if skip_empty and 0 in [shape[a] for a in axes]:
                    continue
                if n >= 4 and d not in ("f32", "i32", "bool"):
                    continue  # the corner shapes once per class of dtypes
                r = Rng(op + d + str(n))
                expect = (lambda x: fn(x, axes, keep)) if whole else over(fn, axes, keep)
                f.add(op, [(d, r.values(d, shape, lo, hi))], expect, attrs=f"axes = {axes}, keepdims = {str(keep).lower()}{attrs}", out=out)

    each("reduce_sum", lambda x, a, k: x.sum(a, keepdim=k), WIDE + INTS + list(COMPLEX))
    each("reduce_prod", lambda x, a, k: x.prod(a, keepdim=k), WIDE + INTS + list(COMPLEX))
    each("reduce_max", lambda x, a, k: x.amax(a, keepdim=k), WIDE + INTS + ["bool", "f8e4m3fn"], skip_empty=True)
    each("reduce_min", lambda x, a, k: x.amin(a, keepdim=k), WIDE + INTS + ["bool", "f8e5m2"], skip_empty=True)
    each("reduce_any", lambda x, a, k: x.any(a, keepdim=k), ["bool"])
    each("reduce_all", lambda x, a, k: x.all(a, keepdim=k), ["bool"])
    each("mean", lambda x, a, k: x.mean(a, keepdim=k), WIDE + list(COMPLEX))
    none_left = lambda fn: lambda x, a, k: fn(x, a, k) if a else fn(x[..., None], [-1], False)
    each("variance", none_left(lambda x, a, k: x.var(a, keepdim=k)), WIDE, whole=True)
    each("variance", none_left(lambda x, a, k: x.var(a, correction=0, keepdim=k)), WIDE, attrs=", correction = 0.0", whole=True)
    each("logsumexp", none_left(lambda x, a, k: torch.logsumexp(x, a, keepdim=k)), WIDE, whole=True)
    for p in (2.0, 1.0, 0.0, 3.0, float("inf"), float("-inf")):
        fn = none_left(lambda x, a, k: torch.linalg.vector_norm(x, p, a, keepdim=k))
        each("norm", fn, WIDE if p == 2 else ["f32"], attrs=f", p = {p}", whole=True, skip_empty=abs(p) == float("inf"))
    inf, nan = float("inf"), float("nan")
    for d in WIDE:
        x = np.array([[1.0, nan, 2.0, nan], [inf, 3.0, inf, -inf], [-inf] * 4, [2.0, 5.0, 5.0, 2.0]])
        for op, fn in {"reduce_sum": torch.sum, "reduce_max": torch.amax, "reduce_min": torch.amin, "logsumexp": torch.logsumexp,
                       "reduce_prod": torch.prod}.items():
            f.add(op, [(d, x)], lambda v: fn(v, 1), attrs="axes = [1]", tag=d + "_special")
        for op, fn in {"cummax": torch.cummax, "cummin": torch.cummin}.items():
            f.add(op, [(d, x)], lambda v: tuple(fn(v, 1)), attrs="axis = 1", out=[d, "i64"], tag=d + "_special")
        for op, fn in {"argmax": np.argmax, "argmin": np.argmin}.items():
            f.add(op, [(d, x)], lambda v: fn(v.numpy(), 1), attrs="axis = 1", out=["i64"], tag=d + "_special")
        for op, fn in {"cumsum": torch.cumsum, "cumprod": torch.cumprod}.items():
            f.add(op, [(d, x)], lambda v: fn(v, 1), attrs="axis = 1", tag=d + "_special")
    # numpy: the first of equal values is what both promise, but only numpy documents it.
    for d in WIDE + INTS + ["bool"]:
        for op, fn in {"argmax": np.argmax, "argmin": np.argmin}.items():
            r = Rng(op + d)
            x = r.values(d, (3, 5), -2, 2)
            x = np.round(x) if d in FLOATS else x  # ties
            f.add(op, [(d, x)], lambda v: fn(v.numpy(), 1), attrs="axis = 1", out=["i64"])
            f.add(op, [(d, x)], lambda v: fn(v.numpy(), 0, keepdims=True), attrs="axis = -2, keepdims = true", out=["i64"])
        if d == "bool":
            continue
        for op, fn in {"cummax": torch.cummax, "cummin": torch.cummin}.items():
            f.add(op, [(d, Rng(op + d).values(d, (3, 6), -2, 2))], lambda v: tuple(fn(v, 1)), attrs="axis = 1", out=[d, "i64"])
    for d in WIDE + INTS + list(COMPLEX):
        for op, fn, unit in (("cumsum", torch.cumsum, 0), ("cumprod", torch.cumprod, 1)):
            r = Rng(op + d)
            for exclusive in (False, True):
                for reverse in (False, True):
                    def scan(v):
                        v = v.flip(0) if reverse else v
                        v = torch.cat([torch.full_like(v[:1], unit), v[:-1]]) if exclusive else v
                        v = fn(v, 0)
                        return v.flip(0) if reverse else v
                    if d not in ("f32", "i32") and (exclusive or reverse):
                        continue
                    f.add(op, [(d, r.values(d, (5, 3)))], scan,
                          attrs=f"axis = 0, exclusive = {str(exclusive).lower()}, reverse = {str(reverse).lower()}")
    f.add("cumsum", [("f32", np.zeros((2, 0)))], lambda v: v, attrs="axis = 1", tag="empty")
    for d in ["f32", "bf16", "f64", "i32", "c64"]:
        r = Rng("sum_to" + d)
        x = r.values(d, (2, 3, 4))
        f.add("sum_to", [(d, x)], lambda v: v.sum_to_size(3, 1), attrs="shape = [3, 1]")
        f.add("sum_to", [(d, x)], lambda v: v.sum_to_size(1, 1, 4), attrs="shape = [1, 1, 4]")
        f.add("sum_to", [(d, x)], lambda v: v.sum(), attrs="shape = []")
        f.add("sum_to", [(d, x)], lambda v: v, attrs="shape = [2, 3, 4]")
    return [f]
