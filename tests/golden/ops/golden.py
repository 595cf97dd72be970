# SPDX-License-Identifier: Apache-2.0
"""What the case files share: dtypes, seeded inputs, the list of cases, and how a family is written.

A case is one op applied to inputs. Its expectation is computed by PyTorch in float64, complex128 or int64 from the inputs, which
are exactly representable in the case's dtype, and rounded once to the dtype of the result.
"""

import io
import zipfile
import zlib

import ml_dtypes
import numpy as np
import torch

FLOATS = {
    "f64": (torch.float64, "<f8"),
    "f32": (torch.float32, "<f4"),
    "f16": (torch.float16, "<f2"),
    "bf16": (torch.bfloat16, "V2"),
    "f8e4m3fn": (torch.float8_e4m3fn, "V1"),
    "f8e4m3fnuz": (torch.float8_e4m3fnuz, "V1"),
    "f8e5m2": (torch.float8_e5m2, "V1"),
    "f8e5m2fnuz": (torch.float8_e5m2fnuz, "V1"),
}
INTS = {  # bits, signed, numpy type
    "i2": (2, True, "V1"), "i4": (4, True, "V1"), "i8": (8, True, "<i1"), "i16": (16, True, "<i2"),
    "i32": (32, True, "<i4"), "i64": (64, True, "<i8"),
    "u2": (2, False, "V1"), "u4": (4, False, "V1"), "u8": (8, False, "<u1"), "u16": (16, False, "<u2"),
    "u32": (32, False, "<u4"), "u64": (64, False, "<u8"),
}
COMPLEX = {"c64": "<c8", "c128": "<c16"}
HAS_INF = {"f64", "f32", "f16", "bf16", "f8e5m2"}


def is_float(dtype):
    return dtype in FLOATS or dtype == "f4e2m1"


def rounded(dtype, wide):
    """The values of `wide` (float64, int64, complex128 or bool, numpy or torch) after a store in `dtype`."""
    a = wide.detach().numpy() if isinstance(wide, torch.Tensor) else np.asarray(wide)
    if dtype == "f4e2m1":
        return a.astype(np.float64).astype(ml_dtypes.float4_e2m1fn).astype(np.float64)
    if dtype in FLOATS:
        t = torch.from_numpy(np.ascontiguousarray(a.astype(np.float64))).reshape(a.shape)
        return t.to(FLOATS[dtype][0]).to(torch.float64).numpy()
    if dtype in COMPLEX:
        return a.astype(np.complex64 if dtype == "c64" else np.complex128).astype(np.complex128)
    if dtype == "bool":
        return a.astype(bool)
    bits, signed, _ = INTS[dtype]
    if bits == 64:
        return a.astype(np.uint64).view(np.int64) if a.dtype == np.uint64 else a.astype(np.int64)  # u64: as its bits
    a = a.astype(np.int64) & ((1 << bits) - 1)
    return a - ((a >> (bits - 1)) << bits) if signed else a


def stored(dtype, wide):
    """The array that the archive holds: numpy's own type, or raw bytes where it has none."""
    if dtype == "f4e2m1":
        return np.ascontiguousarray(wide.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)).view("V1")
    if dtype in FLOATS:
        kind, descr = FLOATS[dtype]
        t = torch.from_numpy(np.ascontiguousarray(wide)).reshape(wide.shape).to(kind)
        if not descr.startswith("V"):
            return t.numpy()
        return t.flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy().view(descr).reshape(wide.shape)
    if dtype in COMPLEX:
        return wide.astype(COMPLEX[dtype])
    if dtype == "bool":
        return wide.astype("|b1")
    descr = INTS[dtype][2]
    if descr == "V1":
        return wide.astype(np.int8).view("V1")
    if dtype == "u64":
        return wide.view(np.uint64)
    return wide.astype(descr)


class Rng:
    """Inputs of one case, reproducible from its name alone."""

    def __init__(self, name):
        self.g = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))

    def values(self, dtype, shape, lo=None, hi=None):
        if is_float(dtype):
            return rounded(dtype, self.g.uniform(-2 if lo is None else lo, 2 if hi is None else hi, shape))
        if dtype in COMPLEX:
            lo, hi = (-2 if lo is None else lo), (2 if hi is None else hi)
            return rounded(dtype, self.g.uniform(lo, hi, shape) + 1j * self.g.uniform(lo, hi, shape))
        if dtype == "bool":
            return self.g.integers(0, 2, shape).astype(bool)
        bits, signed, _ = INTS[dtype]
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << min(bits, 63)) - 1)
        lo = max(least, -50 if lo is None else lo)
        hi = min(most, 50 if hi is None else hi)
        return self.g.integers(lo, hi, shape, endpoint=True).astype(np.int64)


def special_values(dtype):
    """Zeros, NaN and infinities that the dtype has."""
    out = [0.0, -0.0, float("nan")] + ([float("inf"), float("-inf")] if dtype in HAS_INF else [])
    return rounded(dtype, np.array(out))


class Case:
    def __init__(self, name, op, inputs, outputs, attrs):
        self.name, self.op, self.inputs, self.outputs, self.attrs = name, op, inputs, outputs, attrs

    def text(self):
        args = [f"%x{i}: {d}[{', '.join(map(str, a.shape))}]" for i, (d, a) in self.present()]
        operands = ", ".join("_" if x is None else f"%x{i}" for i, x in enumerate(self.inputs))
        results = ", ".join(f"%r{i}" for i in range(len(self.outputs)))
        attrs = f" {{{self.attrs}}}" if self.attrs else ""
        return (f"graph @{self.name}({', '.join(args)}) {{\n  {results} = {self.op}{' ' + operands if operands else ''}{attrs}\n"
                f"  return {results}\n}}\n")

    def present(self):
        return [(i, x) for i, x in enumerate(self.inputs) if x is not None]


class Family:
    """The cases of one file. `add` computes the expectation at once."""

    def __init__(self, name):
        self.name, self.cases, self.names = name, [], set()

    def add(self, op, inputs, expect, attrs="", out=None, tag=""):
        """inputs: (dtype, values) or None for an omitted operand. expect: a function of the wide torch tensors (None where
        omitted) that returns one result or a tuple. out: dtypes of the results; default: that of the first input."""
        given = [None if x is None else (x[0], rounded(x[0], x[1])) for x in inputs]
        first = next((x[0] for x in given if x is not None), None)
        base = f"{op}_{tag or first}"
        name, k = base, 1
        while name in self.names:
            name, k = f"{base}_{k}", k + 1
        self.names.add(name)
        tensors = [None if x is None else torch.from_numpy(np.ascontiguousarray(x[1])).reshape(x[1].shape) for x in given]
        results = expect(*tensors)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        out = [first] * len(results) if out is None else out
        outputs = [(d, rounded(d, r)) for d, r in zip(out, results, strict=True)]
        self.cases.append(Case(name, op, given, outputs, attrs))

    def write(self, directory):
        text = ["// SPDX-License-Identifier: Apache-2.0\n// Written by make_ops.py; the inputs and expected results are in the "
                f"archive {self.name}.npz.\n"]
        text += [c.text() for c in self.cases]
        (directory / f"{self.name}.tsr").write_text("\n".join(text))
        with zipfile.ZipFile(directory / f"{self.name}.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
            for c in self.cases:
                arrays = [(f"in{i}", x) for i, x in c.present()] + [(f"out{i}", x) for i, x in enumerate(c.outputs)]
                for label, (dtype, wide) in arrays:
                    data = io.BytesIO()
                    np.lib.format.write_array(data, np.asarray(stored(dtype, wide)), allow_pickle=False)
                    # A fixed date: the archive is a function of this script.
                    z.writestr(zipfile.ZipInfo(f"{c.name}/{label}.npy", (1980, 1, 1, 0, 0, 0)), data.getvalue(),
                               compress_type=zipfile.ZIP_DEFLATED, compresslevel=9)
