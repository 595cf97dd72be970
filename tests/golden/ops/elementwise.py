# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops, casts and bit casts."""

import math

import ml_dtypes
import numpy as np
import torch

from golden import COMPLEX, FLOATS, INTS, Family, Rng, is_float, rounded, special_values, stored

WIDE = ["f64", "f32", "f16", "bf16"]
SIGNED = ["i8", "i16", "i32", "i64"]
ALL_INTS = list(INTS)

# op: function, range of the values, dtypes, with NaN and infinities
UNARY = {
    "exp": (torch.exp, -5, 5), "exp2": (torch.exp2, -5, 5), "expm1": (torch.expm1, -3, 3), "log": (torch.log, 0.01, 30),
    "log2": (torch.log2, 0.01, 30), "log10": (torch.log10, 0.01, 30), "log1p": (torch.log1p, -0.9, 20),
    "sqrt": (torch.sqrt, 0, 50), "rsqrt": (torch.rsqrt, 0.01, 50), "reciprocal": (torch.reciprocal, 0.1, 9),
    "cbrt": (lambda x: torch.as_tensor(np.cbrt(x.numpy())), -30, 30), "sin": (torch.sin, -7, 7), "cos": (torch.cos, -7, 7),
    "tan": (torch.tan, -1.4, 1.4), "asin": (torch.asin, -1, 1), "acos": (torch.acos, -1, 1), "atan": (torch.atan, -9, 9),
    "sinh": (torch.sinh, -4, 4), "cosh": (torch.cosh, -4, 4), "tanh": (torch.tanh, -3, 3), "asinh": (torch.asinh, -9, 9),
    "acosh": (torch.acosh, 1, 20), "atanh": (torch.atanh, -0.95, 0.95), "erf": (torch.erf, -3, 3), "erfc": (torch.erfc, -3, 5),
    "erfinv": (torch.erfinv, -0.99, 0.99), "lgamma": (torch.lgamma, 0.1, 20), "digamma": (torch.digamma, 0.1, 20),
    "sigmoid": (torch.sigmoid, -9, 9), "floor": (torch.floor, -9, 9), "ceil": (torch.ceil, -9, 9), "round": (torch.round, -9, 9),
    "trunc": (torch.trunc, -9, 9), "abs": (torch.abs, -9, 9), "neg": (torch.neg, -9, 9), "sign": (torch.sign, -9, 9),
}
# tanh of PyTorch is real(x) only away from the poles; digamma and lgamma are compared on the negative axis apart.
NO_SPECIALS = {"lgamma", "digamma"}


def unary(f):
    for op, (fn, lo, hi) in UNARY.items():
        for d in WIDE + (["f8e4m3fn", "f8e5m2"] if op in ("exp", "neg", "abs", "sqrt", "floor") else []):
            r = Rng(op + d)
            x = r.values(d, (23,), lo, hi)
            if op not in NO_SPECIALS:
                x = np.concatenate([x, special_values(d)])
            f.add(op, [(d, x)], fn)
        f.add(op, [("f32", Rng(op).values("f32", (2, 0, 3)))], fn, tag="empty")
        f.add(op, [("f32", Rng(op).values("f32", (), lo, hi))], fn, tag="scalar")
    for op, fn in {"lgamma": torch.lgamma, "digamma": torch.digamma}.items():
        x = np.array([-0.5, -1.25, -2.75, -7.4, 0.0, 1.0, 2.0, 1.4616321449683623, 30.5, 150.25, -3.0])
        for d in ("f32", "f64"):
            f.add(op, [(d, x)], fn, tag=f"{d}_negative")
    for op, fn in {"abs": torch.abs, "neg": torch.neg, "sign": torch.sign}.items():
        for d in SIGNED + ["i4"]:
            least = -(1 << (INTS[d][0] - 1))
            x = np.concatenate([Rng(op + d).values(d, (9,)), np.array([0, least, -least - 1])])
            f.add(op, [(d, x)], fn)
    for d in COMPLEX:
        for op, fn in {"exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "reciprocal": torch.reciprocal, "sin": torch.sin,
                       "cos": torch.cos, "tanh": torch.tanh, "neg": torch.neg, "conj": lambda z: z.conj().resolve_conj()}.items():
            f.add(op, [(d, Rng(op + d).values(d, (3, 5)))], fn)
        part = "f32" if d == "c64" else "f64"
        for op, fn in {"abs": torch.abs, "real": lambda z: z.real.clone(), "imag": lambda z: z.imag.clone()}.items():
            f.add(op, [(d, Rng(op + d).values(d, (3, 5)))], fn, out=[part])
    for d in WIDE + ["f8e4m3fn", "f8e5m2"]:
        x = np.concatenate([special_values(d), Rng(d).values(d, (4,))])
        for op, fn in {"is_nan": torch.isnan, "is_inf": torch.isinf, "is_finite": torch.isfinite}.items():
            f.add(op, [(d, x)], fn, out=["bool"])
    f.add("logical_not", [("bool", np.array([[True, False]]))], torch.logical_not)
    f.add("bitwise_not", [("bool", np.array([True, False]))], torch.logical_not)
    for d in ALL_INTS:
        x = Rng("not" + d).values(d, (7,))
        f.add("bitwise_not", [(d, x)], lambda v: ~v)
        mask = (1 << INTS[d][0]) - 1
        f.add("popcount", [(d, x)], lambda v: torch.tensor([bin(int(e) & mask).count("1") for e in v]))


def python_div(a, b):
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


BINARY_INT = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": python_div,
    "floor_div": lambda a, b: a // b, "remainder": lambda a, b: a % b, "fmod": lambda a, b: a - b * python_div(a, b),
    "maximum": max, "minimum": min, "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
}


def on_integers(fn, d):
    """Python's unbounded integers, wrapped by the caller; u64 comes and goes as the bits of an int64."""
    def run(*tensors):
        arrays = np.broadcast_arrays(*[t.numpy() for t in tensors])
        flat = [[int(v) & (2**64 - 1) if d == "u64" else int(v) for v in a.reshape(-1)] for a in arrays]
        out = [fn(*v) & (2**64 - 1) for v in zip(*flat)]
        return np.array(out, dtype=np.uint64).view(np.int64).reshape(arrays[0].shape)
    return run


def binary(f):
    floats = {
        "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "floor_div": torch.floor_divide,
        "remainder": torch.remainder, "fmod": torch.fmod, "pow": torch.pow, "atan2": torch.atan2, "hypot": torch.hypot,
        "copysign": torch.copysign, "maximum": torch.maximum, "minimum": torch.minimum, "fmax": torch.fmax, "fmin": torch.fmin,
    }
    for op, fn in floats.items():
        for d in WIDE + (["f8e5m2"] if op in ("add", "mul", "maximum") else []):
            r = Rng(op + d)
            lo = 0.1 if op == "pow" else -4
            f.add(op, [(d, r.values(d, (3, 1, 4), lo, 4)), (d, r.values(d, (2, 1), lo, 4))], fn)
            if op in ("pow", "floor_div", "remainder", "fmod"):
                continue
            s = special_values(d)
            f.add(op, [(d, s.reshape(-1, 1)), (d, np.concatenate([s, [1.0, -2.0]]))], fn, tag=f"{d}_special")
        f.add(op, [("f32", r.values("f32", (0, 3))), ("f32", r.values("f32", (3,)))], fn, tag="empty")
    values = np.array([5.0, -5.0, 5.5, -5.5, 0.0, -0.0, 6.0, -6.0])
    for op in ("floor_div", "remainder", "fmod"):
        for d in WIDE:
            f.add(op, [(d, values.reshape(-1, 1)), (d, np.array([2.0, -2.0, 0.5, -1.5, 0.0]))], floats[op], tag=f"{d}_signs")
    f.add("pow", [("f32", np.array([[-2.0], [0.0], [1.0], [float("nan")], [float("inf")], [-1.0]])),
                  ("f32", np.array([0.0, 2.0, 3.0, -1.0, 0.5, float("nan"), float("-inf")]))], torch.pow, tag="f32_special")
    for op, fn in BINARY_INT.items():
        for d in ALL_INTS:
            r = Rng(op + d)
            bits, signed, _ = INTS[d]
            most = (1 << (bits - 1)) - 1 if signed else (1 << min(bits, 63)) - 1
            least = -most - 1 if signed else 0
            a = np.concatenate([r.values(d, (9,)), np.array([most, least, most])])
            b = np.concatenate([r.values(d, (9,), 1, 3) * (-1 if signed else 1), np.array([most, 1, 2 if bits > 2 else 1])])
            f.add(op, [(d, a), (d, b)], on_integers(fn, d))
    for d in ("i32", "u8", "i64"):
        r = Rng("pow" + d)
        f.add("pow", [(d, r.values(d, (8,), -5 if d[0] == "i" else 0, 5)), (d, r.values(d, (8,), 0, 30))],
              on_integers(lambda a, b: a**b, d))
    f.add("pow", [("i32", np.array([2, 1, -1, -1, 0, -3])), ("i32", np.array([-1, -2, -3, -2, -1, -1]))],
          lambda a, b: torch.pow(a.int(), b.int()).long(), tag="i32_negative")
    for d in ALL_INTS:
        bits, signed, _ = INTS[d]
        r = Rng("shift" + d)
        amounts = np.arange(8) % bits
        a = r.values(d, (8,))
        f.add("shift_left", [(d, a), (d, amounts)], on_integers(lambda x, n: x << n, d))
        f.add("shift_right", [(d, a), (d, amounts)], on_integers(lambda x, n: x >> n, d))
        if bits >= 8:
            beyond = np.array([bits, bits + 1, 100])
            f.add("shift_left", [(d, a[:3]), (d, beyond)], on_integers(lambda x, n: 0, d), tag=f"{d}_beyond")
            f.add("shift_right", [(d, a[:3]), (d, beyond)], on_integers(lambda x, n: -1 if x < 0 else 0, d), tag=f"{d}_beyond")
    for d in ("i8", "i32", "i64"):
        n = -np.array([1, 2, 100])
        f.add("shift_left", [(d, np.array([5, -5, 1])), (d, n)], on_integers(lambda x, k: 0, d), tag=f"{d}_negative")
        f.add("shift_right", [(d, np.array([5, -5, 1])), (d, n)], on_integers(lambda x, k: -1 if x < 0 else 0, d), tag=f"{d}_negative")
    bools = [("bool", np.array([[True], [False]])), ("bool", np.array([True, False]))]
    for op, fn in {"logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
                   "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor,
                   "maximum": torch.logical_or, "minimum": torch.logical_and}.items():
        f.add(op, bools, fn)
    for d in COMPLEX:
        r = Rng(d)
        for op in ("add", "sub", "mul", "div"):
            f.add(op, [(d, r.values(d, (3, 4))), (d, r.values(d, (4,)))], floats[op])
        for op, fn in {"eq": torch.eq, "ne": torch.ne}.items():
            z = r.values(d, (4,))
            f.add(op, [(d, z), (d, np.where([1, 0, 0, 1], z, 1j))], fn, out=["bool"])
    for d, z in (("f32", "c64"), ("f64", "c128")):
        r = Rng("complex" + d)
        f.add("complex", [(d, r.values(d, (3, 1))), (d, r.values(d, (4,)))], torch.complex, out=[z])
    kinds = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    for d, kind in kinds.items():
        if kind == torch.float16:  # PyTorch has none for f16
            fn = lambda a, b: np.nextafter(a.numpy().astype(np.float16), b.numpy().astype(np.float16)).astype(np.float64)
        else:
            fn = lambda a, b: torch.nextafter(a.to(kind), b.to(kind)).double()
        a = np.array([1.0, 1.0, -1.0, 0.0, -0.0, 2.0, 1.5, float("nan")] + ([float("inf")] if d in kinds else []))
        b = np.array([2.0, 0.0, -2.0, 1.0, -1.0, 2.0, float("nan"), 1.0, 0.0])
        f.add("nextafter", [(d, a), (d, b)], fn)


def compare(f):
    fns = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}
    for op, fn in fns.items():
        for d in WIDE + ["f8e4m3fn", "f4e2m1"]:
            values = np.array([0.0, -0.0, 1.0, -1.5, 2.0])
            if d != "f4e2m1":
                values = np.concatenate([values, special_values(d)])
            f.add(op, [(d, values.reshape(-1, 1)), (d, values)], fn, out=["bool"])
        for d in ALL_INTS:
            if d == "u64":
                continue  # beyond int64 below
            r = Rng(op + d)
            f.add(op, [(d, r.values(d, (5, 1), -3, 3)), (d, r.values(d, (5,), -3, 3))], fn, out=["bool"])
        python = {"eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}[op]
        big = np.array([0, 1, 2**63 - 1, -(2**63), -1])
        f.add(op, [("u64", big.reshape(-1, 1)), ("u64", big)], on_integers(lambda a, b: int(python(a, b)), "u64"), out=["bool"])
        b = np.array([True, False])
        f.add(op, [("bool", b.reshape(-1, 1)), ("bool", b)], fn, out=["bool"])


def choose(f):
    for d in ["f32", "bf16", "f64", "f8e4m3fn", "i4", "i32", "u64", "bool", "c64", "f4e2m1"]:
        r = Rng("select" + d)
        f.add("select", [("bool", r.values("bool", (3, 1))), (d, r.values(d, (2, 1, 4), -2, 2)), (d, r.values(d, (4,), -2, 2))],
              torch.where, out=[d])
    nan = float("nan")
    for d in WIDE:
        r = Rng("clamp" + d)
        x = np.concatenate([r.values(d, (6,)), [nan, 5.0]])
        for lo, hi, tag in ((-1.0, 1.0, ""), (None, 0.5, "_hi"), (0.25, None, "_lo"), (1.0, -1.0, "_crossed"), (nan, 1.0, "_nan")):
            f.add("clamp", [(d, x), None if lo is None else (d, np.array(lo)), None if hi is None else (d, np.array(hi))],
                  lambda v, a, b: torch.clamp(v, a, b), tag=d + tag)
    for d in ("i32", "u8", "i64", "i4"):
        r = Rng("clamp" + d)
        f.add("clamp", [(d, r.values(d, (3, 4), 0, 7)), (d, r.values(d, (4,), 1, 2)), (d, np.array(5))], torch.clamp)


def saturate(x, d):
    """Float to integer as docs/ir.md, 7 has it; PyTorch leaves what does not fit undefined."""
    bits, signed, _ = INTS[d]
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    out = []
    for v in x.numpy().reshape(-1):
        k = 0 if math.isnan(v) else least if v == -math.inf else most if v == math.inf else max(least, min(most, int(v)))
        out.append(k & (2**64 - 1))
    return np.array(out, dtype=np.uint64).view(np.int64).reshape(x.shape)


def casts(f):
    everything = list(FLOATS) + ["f4e2m1"] + ALL_INTS + list(COMPLEX) + ["bool"]
    for a in everything:
        for b in everything:
            r = Rng(f"cast{a}{b}")
            if is_float(a):
                x = np.concatenate([r.values(a, (6,), -5, 5), [0.0, 1.0] if a == "f4e2m1" else special_values(a),
                                    [] if a == "f4e2m1" else [240.0, -240.0]])
                if b == "f4e2m1":
                    x = x[~np.isnan(x)]
                if b.startswith("f8") and a in HAS_OVERFLOW:
                    x = x[np.isfinite(x)]
            else:
                x = r.values(a, (9,))
            if b in INTS and (is_float(a) or a in COMPLEX):
                fn = lambda v: saturate(v.real if v.is_complex() else v, b)
            elif b in INTS:
                fn = lambda v: v
            elif b == "bool":
                fn = lambda v: v != 0
            elif b in COMPLEX:
                fn = lambda v: v.to(torch.complex128)
            else:
                fn = lambda v: (v.real if v.is_complex() else v).double()
            f.add("cast", [(a, x)], fn, attrs=f"dtype = {b}", out=[b], tag=f"{a}_{b}")


# Overflow and infinities into f8 are the business of tests/golden/dtypes.
HAS_OVERFLOW = {"f64", "f32", "f16", "bf16", "f8e5m2", "f8e5m2fnuz", "f8e4m3fn", "f8e4m3fnuz"}


def bitcasts(f):
    pairs = [("f32", "i32"), ("i32", "f32"), ("f64", "u64"), ("u64", "f64"), ("f16", "i16"), ("u16", "bf16"), ("bf16", "f16"),
             ("f8e4m3fn", "u8"), ("i8", "f8e5m2"), ("i4", "u4"), ("u4", "f4e2m1"), ("c64", "u64"), ("bool", "u8")]
    for a, b in pairs:
        r = Rng(f"bitcast{a}{b}")
        x = rounded(a, r.values(a, (3, 3)))

        def fn(v):
            raw = np.asarray(stored(a, rounded(a, v))).tobytes()
            return decode(b, raw).reshape(v.shape)
        f.add("bitcast", [(a, x)], fn, attrs=f"dtype = {b}", out=[b], tag=f"{a}_{b}")


def decode(d, raw):
    if d == "f4e2m1":
        return (np.frombuffer(raw, np.uint8) & 15).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    if d in FLOATS:
        return torch.frombuffer(bytearray(raw), dtype=FLOATS[d][0]).double().numpy()
    if d in ("i4", "u4"):
        v = np.frombuffer(raw, np.uint8).astype(np.int64) & 15
        return v - ((v >> 3) << 4) if d == "i4" else v
    if d == "bool":
        return np.frombuffer(raw, np.uint8) != 0
    return np.frombuffer(raw, INTS[d][2])


def families():
    arithmetic, relations, conversion = Family("elementwise"), Family("compare"), Family("cast")
    unary(arithmetic)
    binary(arithmetic)
    compare(relations)
    choose(relations)
    casts(conversion)
    bitcasts(conversion)
    return [arithmetic, relations, conversion]
