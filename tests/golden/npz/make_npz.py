#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files beside this one and the fuzzer's seeds with numpy: python3 make_npz.py."""
import io
import pathlib
import struct
import zipfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = HERE.parent.parent / "fuzz" / "npz_corpus"


def arrays():
    cube = np.arange(24, dtype="<i8").reshape(2, 3, 4)
    return {
        "x": np.arange(6, dtype="<f4").reshape(2, 3) / 4,
        "layer/0/weight": np.array([1.5, -2.0, np.inf], dtype="<f8"),
        "scalar": np.array(42.5),
        "fortran": np.asfortranarray(cube),
        "big": np.array([1, -2, 70000], dtype=">i4"),
        "big_complex": np.array([1 + 2j, -3.5j], dtype=">c16"),
        "flags": np.array([True, False, True]),
        "empty": np.zeros((0, 3), dtype="<f2"),
        "raw1": np.array([1, 2, 255], dtype="u1").view("V1"),
        "raw2": np.array([0x3F80, 0xC000], dtype="<u2").view("V2"),
        "größe": np.array([7], dtype="u1"),
    }


class Unseekable(io.RawIOBase):
    """A pipe, as far as zipfile can tell: it then writes data descriptors."""

    def __init__(self, raw):
        super().__init__()
        self.raw = raw

    def writable(self):
        return True

    def write(self, data):
        return self.raw.write(data)


def npy(array, version=(1, 0)):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def with_zip64_directory(data):
    """The same archive, its sizes and offsets moved to zip64 records as if it had been huge."""
    end = data.rindex(b"PK\5\6")
    count, size, start = struct.unpack("<HLL", data[end + 10:end + 20])
    old, new = data[start:start + size], b""
    while old:
        head = bytearray(old[:46])
        crc, packed, plain = struct.unpack("<LLL", head[16:28])
        names, extras, comments = struct.unpack("<HHH", head[28:34])
        offset, = struct.unpack("<L", head[42:46])
        struct.pack_into("<LL", head, 20, 0xFFFFFFFF, 0xFFFFFFFF)
        struct.pack_into("<H", head, 30, extras + 28)
        struct.pack_into("<L", head, 42, 0xFFFFFFFF)
        rest = 46 + names + extras + comments
        extra = struct.pack("<HHQQQ", 1, 24, plain, packed, offset)
        new += bytes(head) + old[46:46 + names] + extra + old[46 + names:rest]
        old = old[rest:]
    record = start + len(new)
    return (data[:start] + new
            + struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(new), start)
            + struct.pack("<4sLQL", b"PK\6\7", 0, record, 1)
            + struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))


def main():
    stored, deflated, piped, plain = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez(stored, **arrays())
    np.savez_compressed(deflated, **arrays())
    with zipfile.ZipFile(Unseekable(piped), "w") as z:
        for name, a in arrays().items():
            z.writestr(name + ".npy", npy(a))
    few = {k: arrays()[k] for k in ("x", "layer/0/weight", "scalar", "flags", "empty", "raw2", "größe")}
    np.savez(plain, **few)  # what the writer here must reproduce byte for byte
    files = {
        "stored.npz": stored.getvalue(), "deflated.npz": deflated.getvalue(), "piped.npz": piped.getvalue(),
        "zip64.npz": with_zip64_directory(deflated.getvalue()), "plain.npz": plain.getvalue(),
        "v1.npy": npy(np.arange(5, dtype="<i2")), "v2.npy": npy(np.arange(5, dtype="<i2"), (2, 0)),
        "v3.npy": npy(np.arange(5, dtype="<i2"), (3, 0)),
        "object.npy": b"", "structured.npy": npy(np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")])),
        "text.npy": npy(np.array(["ab", "c"])),
    }
    out = io.BytesIO()
    np.save(out, np.array([None, 1], dtype=object), allow_pickle=True)
    files["object.npy"] = out.getvalue()
    assert np.load(io.BytesIO(files["zip64.npz"]))["x"].shape == (2, 3)
    for name, data in files.items():
        (HERE / name).write_bytes(data)
    SEEDS.mkdir(exist_ok=True)
    small = io.BytesIO()
    np.savez_compressed(small, a=np.zeros((2, 2), "<f4"), b=np.asfortranarray(np.zeros((2, 3), ">i2")))
    tiny = io.BytesIO()
    np.savez(tiny, a=np.array(True))
    seeds = {"deflated": small.getvalue(), "stored": tiny.getvalue(), "zip64": with_zip64_directory(small.getvalue()),
             "npy1": files["v1.npy"], "npy2": files["v2.npy"], "structured": files["structured.npy"]}
    for name, data in seeds.items():
        (SEEDS / name).write_bytes(data)


if __name__ == "__main__":
    main()
