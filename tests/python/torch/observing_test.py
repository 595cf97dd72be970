# SPDX-License-Identifier: Apache-2.0
"""What a user of torch.compile sees of the backend: kernels in torch.profiler, and a compile that Ctrl-C ends."""

import signal
import time
import unittest
import unittest.mock

import torch

from tessera import _core, pytorch
from tessera.pytorch import backend


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
        self.assertRegex(mine[0], "^tessera graph[0-9]+: .*matmul")
        self.assertIn("aten::_linalg_svd", names)

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
