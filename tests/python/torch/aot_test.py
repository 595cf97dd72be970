# SPDX-License-Identifier: Apache-2.0
"""torch.compile(...).aot_compile(): what it saves runs in a process that has not captured it."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch

from tessera.pytorch import backend

LOAD = """
import sys, torch
torch.set_grad_enabled(False)
with open(sys.argv[1], "rb") as file:
    f = torch.compiler.load_compiled_function(file)
for x, y in torch.load(sys.argv[2]):
    torch.testing.assert_close(f(x), y)
"""


def function(x):
    return (x.sin() + x.shape[0]).softmax(-1)


if hasattr(torch._dynamo.config, "enable_aot_compile"):
    torch._dynamo.config.enable_aot_compile = True


class AheadOfTime(unittest.TestCase):
    def test_saved_and_loaded(self):
        for dynamic in (False, True):
            torch._dynamo.reset()
            x = torch.randn(5, 3)
            with torch.no_grad():
                compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic).aot_compile(((x,), {}))
                torch.testing.assert_close(compiled(x), function(x))
                calls = [x] + ([torch.randn(7, 3), torch.randn(9, 4)] if dynamic else [])
                with tempfile.TemporaryDirectory() as folder:
                    saved, expected = os.path.join(folder, "f.pt"), os.path.join(folder, "calls.pt")
                    compiled.save_compiled_function(saved)
                    torch.save([(x, function(x)) for x in calls], expected)
                    subprocess.run([sys.executable, "-c", LOAD, saved, expected], check=True)


if __name__ == "__main__":
    unittest.main()
