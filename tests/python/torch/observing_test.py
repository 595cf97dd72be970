# SPDX-License-Identifier: Apache-2.0
"""What a user of torch.compile sees of the backend: kernels in torch.profiler, and a compile that Ctrl-C ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import torch

from tessera import _core, pytorch
from tessera.pytorch import backend, compiler


class Observing(unittest.TestCase):
    def setUp(self):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, before)
        torch._dynamo.reset()
        pytorch.reset()

    def test_regions_and_kernels_have_names_in_the_profiler(self):
        f = torch.compile(lambda x, w: torch.linalg.svdvals(torch.relu(x @ w)).exp(), backend=backend)
        args = torch.randn(16, 16), torch.randn(16, 16)
        f(*args)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            f(*args)
        names = [e.key for e in profile.key_averages()]
        mine = [name for name in names if name.startswith("tessera ")]
        self.assertEqual(len(mine), 1, names)
        self.assertRegex(mine[0], "^tessera graph[0-9]+$")
        kernels = [name for name in names if name.startswith("tessera::")]
        self.assertTrue(any("matmul" in name for name in kernels), names)
        self.assertTrue(any("exp" in name for name in kernels), names)
        self.assertIn("aten::_linalg_svd", names)

    def test_kernels_say_which_line_they_come_from(self):
        def f(x, w):
            y = x @ w  # the product
            return y.sin()

        told = []
        g = torch.compile(f, backend=backend)
        args = torch.randn(8, 8), torch.randn(8, 8)
        g(*args)

        class Ranges:
            def __call__(self, *given):
                told.append(given)

        with (
            unittest.mock.patch.object(compiler, "KernelRanges", Ranges),
            torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        ):
            torch.testing.assert_close(g(*args), f(*args))
        begun, ended = told[::2], told[1::2]
        self.assertEqual(set(ended), {(None, None, 0)})
        first = f.__code__.co_firstlineno
        product = next(line for name, file, line in begun if "matmul" in name and file == __file__)
        self.assertEqual(product, first + 1)
        self.assertIn((__file__, first + 2), [(file, line) for _, file, line in begun])

    def test_breaks_and_recompiles_of_dynamo_stand_in_the_trace(self):
        source = """if True:
            import torch
            from tessera.pytorch import backend

            def broken(x):
                y = x + 1
                torch._dynamo.graph_break()
                return y * 2

            f = torch.compile(broken, backend=backend, dynamic=False)
            for n in (3, 4):
                f(torch.ones(n))
            """
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "program.py")
            with open(script, "w") as file:
                file.write(source)
            traces = os.path.join(folder, "traces")
            subprocess.run([sys.executable, script], check=True, env={**os.environ, "TESSERA_TRACE": traces})
            events = []
            for name in os.listdir(traces):
                if name.startswith("dynamo-"):
                    with open(os.path.join(traces, name)) as file:
                        events += [json.loads(line) for line in file]
            self.assertEqual((events[0]["event"], events[0]["schema"]), ("process", "tessera.trace/1"))
            breaks = [e for e in events if e["event"] == "graph_break"]
            self.assertTrue(breaks)
            self.assertEqual({(e["name"], e["place"]) for e in breaks}, {("broken", f"{script}:7")})
            self.assertIn("graph_break", breaks[0]["what"])
            again = [e for e in events if e["event"] == "recompile"]
            self.assertIn("broken", {e["name"] for e in again})
            self.assertIn("size", again[0]["reasons"][0]["guards"][0])

    def test_control_c_ends_a_compile(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)

        def f(x):
            for k in range(60):
                x = torch.tanh(x @ x + k)
            return x

        enabled = _core.log_enabled

        def arm(artifact):
            if artifact == "graph":  # asked right before the core compiles
                signal.setitimer(signal.ITIMER_REAL, 0.001)
            return enabled(artifact)

        x = torch.randn(8, 8) / 8
        with unittest.mock.patch.object(_core, "log_enabled", arm), self.assertRaises(KeyboardInterrupt):
            torch.compile(f, backend=backend)(x)
            time.sleep(10)  # a compile that is done by then: the interrupt comes here
        _core.wait_for_compiles()
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(f, backend=backend)(x), f(x), rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
