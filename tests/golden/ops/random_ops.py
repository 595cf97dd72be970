# SPDX-License-Identifier: Apache-2.0
"""Random ops: docs/random.md over a Philox generator that is itself checked against Random123's published vectors."""

import math

import numpy as np

from golden import Family, Rng

MASK = 0xFFFFFFFF


def philox(key, counter):
    """Philox 4x32-10 of two key words and four counter words."""
    k, c = list(key), list(counter)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


# Random123 1.14, tests/kat_vectors, "philox4x32 10".
KNOWN = [
    ([0] * 2, [0] * 4, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([MASK] * 2, [MASK] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ([0xA4093822, 0x299F31D0], [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
]
for key, counter, words in KNOWN:
    assert philox(key, counter) == words


def stream(state, words):
    key, counter = (int(s) & (2**64 - 1) for s in state)
    out = []
    for block in range((words + 3) // 4):
        c = (counter + block) & (2**64 - 1)
        out += philox([key & MASK, key >> 32], [c & MASK, c >> 32, 0, 0])
    return out[:words], np.array([key, (counter + (words + 3) // 4) & (2**64 - 1)], dtype=np.uint64).view(np.int64)


def truncated(values, dtype):
    """Toward zero; f64 and f32 hold the uniforms exactly."""
    bits = {"f16": 11, "bf16": 8}.get(dtype)
    if bits is None:
        return values
    mantissa, exponent = np.frexp(values)
    if dtype == "f16":  # below 2^-14 the spacing stays 2^-24, which the uniforms are multiples of
        return np.where(values < 2.0**-14, values, np.ldexp(np.floor(np.ldexp(mantissa, bits)), exponent - bits))
    return np.ldexp(np.floor(np.ldexp(mantissa, bits)), exponent - bits)


def uniforms(state, n, dtype):
    if dtype != "f64":
        w, following = stream(state, n)
        return np.array([(x >> 8) * 2.0**-24 for x in w]), following
    w, following = stream(state, 2 * n)
    return np.array([((w[2 * i] << 32 | w[2 * i + 1]) >> 11) * 2.0**-53 for i in range(n)]), following


def normals(state, n, dtype):
    u, following = uniforms(state, n + n % 2, dtype)
    step = 2.0**-53 if dtype == "f64" else 2.0**-24
    out = []
    for j in range(0, len(u), 2):
        r, angle = math.sqrt(-2 * math.log(u[j] + step)), 2 * math.pi * u[j + 1]
        out += [r * math.cos(angle), r * math.sin(angle)]
    return np.array(out[:n]), following


def families():
    f = Family("random")
    states = [(0, 0), (-1, -1), (0x299F31D0A4093822, 0x7FFFFFFFFFFFFFFF), (42, 2**32 - 2)]
    states = [np.array(s, dtype=np.int64) for s in states]
    for s in states:
        for shape in ((4,), (3, 3), (0,), ()):
            n, dims = math.prod(shape), list(shape)
            reshape = lambda pair: (np.array(pair[0]).reshape(shape), pair[1])
            state = [("u64", s)]
            f.add("random_bits", state, lambda _: reshape(stream(s, n)), attrs=f"shape = {dims}", out=["u32", "u64"], tag="u32")
            for d in ("f32", "f64", "f16", "bf16"):
                def uniform(_):
                    u, following = uniforms(s, n, d)
                    return truncated(u, d).reshape(shape), following
                f.add("random_uniform", state, uniform, attrs=f"shape = {dims}, dtype = {d}", out=[d, "u64"], tag=d)
                f.add("random_normal", state, lambda _: reshape(normals(s, n, d)), attrs=f"shape = {dims}, dtype = {d}", out=[d, "u64"], tag=d)
            for d, low, high in (("i64", -5, 17), ("i32", 0, 2), ("u8", 0, 256), ("i64", -(2**63) + 2**32, 2**63 - 1)):
                def integers(_):
                    w, following = stream(s, 2 * n)
                    v = [low + ((w[2 * i] << 32 | w[2 * i + 1]) * (high - low) >> 64) for i in range(n)]
                    return np.array(v, dtype=np.int64).reshape(shape), following
                f.add("random_int", state, integers, attrs=f"shape = {dims}, low = {low}, high = {high}, dtype = {d}", out=[d, "u64"], tag=d)
    for d in ("f32", "f64", "f16", "bf16"):
        for p in (0.0, 0.3, 0.75, 1.0):
            s, x = states[3], Rng(d).values(d, (5, 5))

            def drop(v, _):
                u, following = uniforms(s, 25, "f32")
                factor = 0.0 if p == 1 else 1 / (1 - p)
                factor = factor if d == "f64" else float(np.float32(factor))
                keep = (u >= p).reshape(5, 5) & (p < 1)
                return np.where(keep, v.numpy() * factor, 0.0), following
            f.add("dropout", [(d, x), ("u64", s)], drop, attrs=f"p = {p}", out=[d, "u64"])
    return [f]
