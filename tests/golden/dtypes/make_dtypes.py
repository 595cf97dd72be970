#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden tables beside this file: python3 make_dtypes.py (numpy, ml_dtypes 0.6, torch 2.15).

Decoding comes from ml_dtypes and numpy, promotion and casts from torch. Encoding is computed here with exact rationals,
because torch rounds f64 twice (through f32), and is compared with torch and ml_dtypes wherever the input is an f32.
"""
import bisect
import pathlib
import random
import struct
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import torch

warnings.simplefilter("ignore")
HERE = pathlib.Path(__file__).resolve().parent
HEAD = f"# Made by make_dtypes.py with torch {torch.__version__.split('+')[0]}, ml_dtypes {ml_dtypes.__version__}.\n"
rng = random.Random(7)

NAMES = ("f64 f32 f16 bf16 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1 i2 i4 i8 i16 i32 i64 u2 u4 u8 u16 "
         "u32 u64 bool c64 c128").split()
TORCH = dict(zip(NAMES, (getattr(torch, n) for n in (
    "float64 float32 float16 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "float4_e2m1fn_x2 int2 int4 int8 int16 int32 int64 uint2 uint4 uint8 uint16 uint32 uint64 bool complex64 "
    "complex128").split())))
OURS = {t: n for n, t in TORCH.items()}
OURS[torch.complex32] = "c64"  # complex halves are widened
OURS[getattr(torch, "bcomplex32", torch.complex32)] = "c64"
ML = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
      "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e5m2": ml_dtypes.float8_e5m2, "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
      "f8e8m0": ml_dtypes.float8_e8m0fnu, "f4e2m1": ml_dtypes.float4_e2m1fn}
BITS = {"f16": 16, "bf16": 16, "f4e2m1": 4}
MASK = {t: (1 << BITS.get(t, 8)) - 1 for t in ML}


def decode_all(t):
    n = 1 << BITS.get(t, 8)
    return np.arange(n, dtype=np.uint16 if n > 256 else np.uint8).view(ML[t]).astype(np.float32)


def f32_bits(values):
    bits = values.view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FC00000
    return bits


def write(name, lines):
    (HERE / name).write_text(HEAD + "".join(line + "\n" for line in lines))


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def make_decode():
    lines = ["# 8 bits and less: one f32 bit pattern per code, NaN as 7fc00000. 16 bits: FNV-1a 64 of those patterns, "
             "little endian."]
    for t in ML:
        bits = f32_bits(decode_all(t))
        if len(bits) > 256:
            lines.append(f"{t} fnv {fnv1a(bits.astype('<u4').tobytes()):016x}")
        else:
            lines.append(f"{t} table " + " ".join(f"{b:08x}" for b in bits))
    write("decode.txt", lines)


def encoder(t):
    """code(x, mode) by exact comparison with the type's values; mode is pytorch, special or saturate."""
    values = decode_all(t)
    sign_bit = (MASK[t] + 1) >> 1
    fnuz = t.endswith("fnuz")
    nan = {"f16": 0x7E00, "bf16": 0x7FC0, "f8e4m3fn": 0x7F, "f8e5m2": 0x7F, "f4e2m1": 7}.get(t, 0x80)
    over = {"f16": 0x7C00, "bf16": 0x7F80, "f8e5m2": 0x7C, "f4e2m1": 7}.get(t, nan)
    finite = [Fraction(float(v)) for v in values[:sign_bit] if np.isfinite(v)]
    # The value after the largest one, were there one more: rounding to it is overflow.
    grid = finite + [2 * finite[-1] - finite[-2]]
    top = len(finite) - 1

    def code(x, mode):
        if np.isnan(x):
            signed = t in ("f16", "f8e4m3fn", "f8e5m2") and np.signbit(x)
            return nan | (sign_bit if signed else 0)
        sign = sign_bit if np.signbit(x) else 0
        if np.isinf(x):
            c = top + 1
        else:
            a = abs(Fraction(float(x)))
            c = min(bisect.bisect_left(grid, a), top + 1)
            if c > 0 and a < grid[c]:
                low = a - grid[c - 1]
                high = grid[c] - a
                if low < high or (low == high and (c - 1) % 2 == 0):
                    c -= 1
        if c > top:
            clamp = t == "f4e2m1" or t.startswith("f8") and (
                mode == "saturate" or mode == "pytorch" and t == "f8e4m3fn")
            if not clamp:
                return over if fnuz else sign | over
            c = top
        return 0 if fnuz and c == 0 else sign | c

    return code, finite


def e8m0_code(x, mode):
    if np.isnan(x):
        return 255
    if np.isinf(x):
        return 254 if mode == "saturate" else 255
    a = abs(Fraction(float(x)))
    if a <= Fraction(2) ** -127:
        return 0
    for e in range(-127, 128):
        low = Fraction(2) ** e
        if a < 2 * low:
            up = a > low if e == -127 else a >= low * 3 / 2
            c = e + 127 + up
            break
    else:
        c = 255
    return 254 if c > 254 and mode == "saturate" else min(c, 255)


def inputs(t):
    sub = 2.0 ** -1074
    xs = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, sub, -sub, 1.7976931348623157e308, -3.4e38, 3.5e38, 1e-30, -1e-9]
    if t == "f8e8m0":
        for e in [*range(-150, -120), *range(-8, 8), *range(120, 130)]:
            for m in (1.0, 1.25, 1.5 - 2.0 ** -52, 1.5, 1.5 + 2.0 ** -52, 1.75, 2 - 2.0 ** -52):
                xs.append((1 if rng.random() < 0.9 else -1) * m * 2.0 ** e)
        return xs
    _, finite = encoder(t)
    n = len(finite)
    man = {"f16": 10, "bf16": 7}.get(t)
    picks = range(n - 1) if n <= 256 else sorted(
        {0, 1, 2, 3, 5, n - 3, n - 2, (1 << man) - 2, (1 << man) - 1, 1 << man, *rng.sample(range(n - 1), 110)})
    for i in picks:
        a, b = float(finite[i]), float(finite[i + 1])
        mid = (a + b) / 2
        for x in (b, mid, np.nextafter(mid, 0), np.nextafter(mid, np.inf), a + (b - a) * rng.random()):
            xs.append(x if rng.random() < 0.6 else -x)
    step = float(finite[-1] - finite[-2])
    edge = float(finite[-1]) + step / 2
    for x in (edge, np.nextafter(edge, 0), np.nextafter(edge, np.inf), edge + step / 4, edge + step / 2, 2 * edge):
        xs += [x, -x]
    return xs


def make_encode():
    for t in ML:
        code = e8m0_code if t == "f8e8m0" else encoder(t)[0]
        lines = ["# f64 bits, then the code under Overflow::PyTorch, Special, Saturate"]
        unsigned = np.uint16 if BITS.get(t, 8) == 16 else np.uint8
        for x in inputs(t):
            x = np.float64(x)
            want = [code(x, m) for m in ("pytorch", "special", "saturate")]
            if t != "f4e2m1" and (np.isnan(x) or np.float64(np.float32(x)) == x):
                got = torch.tensor([float(x)], dtype=torch.float32).to(TORCH[t]).view(
                    torch.uint8 if unsigned == np.uint8 else torch.int16).numpy().view(unsigned)[0]
                if np.isnan(x) and t in ("f16", "bf16"):  # vector code and scalar code of torch differ in NaN's bits
                    got = want[0]
                assert got == want[0], (t, x, got, want)
            # ml_dtypes goes through f32 too; its e8m0 has other rules for signs and zero.
            if np.isfinite(x) and t != "f8e8m0" and (t == "f16" or np.float64(np.float32(x)) == x):
                got = int(np.array([x]).astype(ML[t]).view(unsigned)[0]) & MASK[t]
                assert got == want[1], (t, x, got, want)
            bits = struct.unpack("<Q", struct.pack("<d", x))[0]
            lines.append(f"{bits:016x} " + " ".join(f"{w:x}" for w in want))
        write(f"encode_{t}.txt", lines)


def attempt(fn):
    try:
        return OURS[fn()]
    except (RuntimeError, TypeError):
        return "invalid"


def make_promotion():
    scalars = {"bool": True, "int": 1, "float": 1.5, "complex": 1j}
    every = " ".join(NAMES)
    lines = [f"# promote A, zerodim TENSOR: the result with each B, each 0-d tensor, of: {every}",
             "# scalar TENSOR, zeroscalar 0-D-TENSOR: the result with a Python " + " ".join(scalars)]

    def row(kind, a, results):
        lines.append(f"{kind} {a} " + " ".join(results))

    for a in NAMES:
        tensor, zero = torch.empty(2, dtype=TORCH[a]), torch.empty((), dtype=TORCH[a])
        row("promote", a, (attempt(lambda: torch.promote_types(TORCH[a], TORCH[b])) for b in NAMES))
        row("zerodim", a, (attempt(lambda: torch.result_type(tensor, torch.empty((), dtype=TORCH[b]))) for b in NAMES))
        row("scalar", a, (attempt(lambda: torch.result_type(tensor, v)) for v in scalars.values()))
        row("zeroscalar", a, (attempt(lambda: torch.result_type(zero, v)) for v in scalars.values()))
    lines.append("# sum DTYPE RESULT")
    for a in "f64 f32 i8 i16 i32 i64 u8 u16 u32 u64 bool c64 c128".split():
        lines.append(f"sum {a} {OURS[torch.zeros(2, dtype=TORCH[a]).sum().dtype]}")
    write("promotion.txt", lines)


def make_casts():
    kinds = [n for n in NAMES if n not in ("f4e2m1", "i2", "i4", "u2", "u4")]
    reals = [0.0, -0.75, 1.5, -2.5, 3.0, 100.25, -127.9, 250.0, 30000.0, 65519.0, 3e9, -5e18, 1e-6, float("inf")]
    ints = [0, 1, -1, 7, 127, -128, 200, 255, 300, -32768, 65535, 2**31 - 1, -2**31, 2**32 + 5, 2**53 + 1,
            2**63 - 1, -2**63]
    span = {n: (-2**(int(n[1:]) - 1), 2**(int(n[1:]) - 1) - 1) if n[0] == "i" else (0, 2**int(n[1:]) - 1)
            for n in kinds if n[0] in "iu"}
    lines = ["# FROM TO, then the bytes of an element before:after. Left out: what C++ leaves undefined, and what "
             "torch rounds twice."]

    def raw(t):
        return t.reshape(1).view(torch.uint8).numpy().tobytes().hex()

    for src in kinds:
        if src == "bool":
            values = [torch.tensor(v) for v in (False, True)]
        elif src in span:
            lo, hi = span[src]
            values = [torch.tensor(v, dtype=TORCH[src]) for v in ints if lo <= v <= hi]
            if src == "u64":
                values.append(torch.tensor(2**64 - 3, dtype=torch.uint64))
        elif src[0] == "c":
            values = [torch.tensor(complex(v, w), dtype=TORCH[src]) for v, w in zip(reals, reversed(reals))]
        else:
            values = [torch.tensor(v, dtype=torch.float64).to(TORCH[src]) for v in reals]
        values = {raw(v): v for v in values}.values()
        for dst in kinds:
            cases = []
            for v in values:
                number = v.item() if src in span or src == "bool" else v.to(torch.complex128).item()
                real = number.real
                if dst in span and src not in span and src != "bool":
                    lo, hi = span[dst]
                    if not np.isfinite(real) or not lo <= int(real) <= hi:
                        continue
                if np.isnan(real) and src.startswith("f8") and dst in ("f64", "f32", "c64", "c128"):
                    continue  # torch's NaN there is a signalling one
                if dst in ML and np.isfinite(real) and Fraction(real) != Fraction(float(np.float32(real))):
                    continue
                cases.append(f"{raw(v)}:{raw(v.to(TORCH[dst]))}")
            lines.append(f"{src} {dst} " + " ".join(cases))
    # torch has no casts for these: a byte of raw bits in, the sign-extended value out.
    for t, bits in (("i2", 2), ("i4", 4), ("u2", 2), ("u4", 4)):
        for code in range(1 << bits):
            value = code - (1 << bits) if t[0] == "i" and code >> (bits - 1) else code
            lines.append(f"{t} i8 {code:02x}:{value & 255:02x}")
    write("casts.txt", lines)


if __name__ == "__main__":
    make_decode()
    make_encode()
    make_promotion()
    make_casts()
