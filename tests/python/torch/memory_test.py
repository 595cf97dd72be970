# SPDX-License-Identifier: Apache-2.0
"""Compiles in a row, with torch._dynamo.reset() between them, keep no memory beyond what PyTorch itself keeps of each.

memory_test.py [COMPILES]      100 by default, by each backend
"""

import ctypes
import gc
import sys
import unittest

import torch

import tessera
from tessera import _core
from tessera.pytorch import backend
from tessera.pytorch.compiler import CompiledRegion

COMPILES = 100


def resident():
    """Bytes of this process that lie in memory and are its own."""
    with open("/proc/self/statm") as file:
        pages = file.read().split()
    return (int(pages[1]) - int(pages[2])) * 4096


def regions():
    """Regions that are still there: each holds its executable."""
    torch._dynamo.reset()
    gc.collect()
    return sum(isinstance(o, CompiledRegion) for o in gc.get_objects())


class _Malloc(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def allocated():
    """Bytes that malloc has given out."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _Malloc
    gc.collect()
    info = ask()
    return info.uordblks + info.hblkhd


def compile_without_torch(context, number):
    def build(builder):
        x = builder.input("x", _core.dtypes["f32"], [4, 64], 1)
        w = builder.input("w", _core.dtypes["f32"], [64, 64], 1)
        builder.outputs(builder.node("relu", builder.node("matmul", [x, w], []), []))

    executable = context.compile(context.build(f"graph{number}", build))
    runner = _core.Runner(executable, [(0, 0), (1, 0)], torch.Tensor)
    runner.run([torch.ones(4, 64), torch.ones(64, 64)])


def kept(by):
    """(bytes, objects of Python's) that each of many compiles leaves behind."""
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    for _ in range(COMPILES):
        torch._dynamo.reset()
        m = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
        torch.compile(m, backend=by)(torch.ones(4, 64))
    gc.collect()
    return (resident() - before) / COMPILES, (sys.getallocatedblocks() - blocks) / COMPILES


class Memory(unittest.TestCase):
    def test_compiles_keep_nothing(self):
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, True)
        for by in ("aot_eager", backend, "aot_eager", backend):  # what grows once
            kept(by)
        there, live = regions(), tessera.memory_in_use()
        (theirs, their_objects), (ours, our_objects) = kept("aot_eager"), kept(backend)
        # Sizes of a process vary by more than an executable takes: they are for the reader. Objects are counted exactly; what
        # PyTorch itself keeps of a compile, its own backend shows.
        print(f"{COMPILES} compiles: {ours:.0f} bytes each, {theirs:.0f} of PyTorch's own;", end=" ")
        print(f"{our_objects:.0f} objects each, {their_objects:.0f} of PyTorch's own")
        self.assertLess(our_objects, their_objects + 40)
        self.assertEqual(regions(), there)
        self.assertEqual(tessera.memory_in_use(), live)

    @unittest.skipUnless(hasattr(ctypes.CDLL(None), "mallinfo2"), "malloc does not say what it has given out")
    def test_graphs_and_executables_keep_nothing(self):
        context = _core.Context()
        for k in range(200):
            compile_without_torch(context, k)
        before = allocated()
        for k in range(1000):
            compile_without_torch(context, k)
        each = (allocated() - before) / 1000
        print(f"1000 graphs built, compiled and run: {each:.1f} bytes each")
        self.assertLess(each, 64)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        COMPILES = int(sys.argv.pop(1))
    unittest.main()
