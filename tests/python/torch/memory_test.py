# SPDX-License-Identifier: Apache-2.0
"""Compiles in a row, with torch._dynamo.reset() between them, keep no memory beyond what PyTorch itself keeps of each.

memory_test.py [COMPILES]      100 by default, by each backend
"""

import gc
import sys
import unittest

import torch

import tessera
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


def kept(by):
    """Bytes that each of many compiles leaves behind."""
    gc.collect()
    before = resident()
    for _ in range(COMPILES):
        torch._dynamo.reset()
        m = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
        torch.compile(m, backend=by)(torch.ones(4, 64))
    gc.collect()
    return (resident() - before) / COMPILES


class Memory(unittest.TestCase):
    def test_compiles_keep_nothing(self):
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, True)
        for by in ("aot_eager", backend, "aot_eager", backend):  # what grows once
            kept(by)
        there, live = regions(), tessera.memory_in_use()
        theirs, ours = kept("aot_eager"), kept(backend)
        # Sizes of a process vary by more than an executable takes: they are for the reader.
        print(f"{COMPILES} compiles: {ours:.0f} bytes each, {theirs:.0f} of PyTorch's own")
        self.assertEqual(regions(), there)
        self.assertEqual(tessera.memory_in_use(), live)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        COMPILES = int(sys.argv.pop(1))
    unittest.main()
