# SPDX-License-Identifier: Apache-2.0
"""Faults that users have met in backends for torch.compile, inference on the CPU: each a test."""

import contextlib
import gc
import io
import unittest
import unittest.mock
import weakref

import torch
import torch._dynamo.testing
import torch.nn as nn
import torch.nn.functional as F

from tessera import _core, pytorch
from tessera.pytorch import backend
from tessera.pytorch.ops import TABLE


class Faults(unittest.TestCase):
    def setUp(self):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, before)
        torch.manual_seed(3)
        torch._dynamo.reset()
        pytorch.reset()

    def graphs(self):
        return pytorch.REPORT.graphs

    def refusals(self):
        return [r for g in self.graphs() for r in g.refusals]

    def test_a_fallback_gives_eagers_result(self):
        # Operators that stay with ATen between ones that do not, some of them writing, some of them random.
        def f(x, w):
            y = torch.relu(x @ w)
            q, r = torch.linalg.qr(y)
            z = (q * 2 + r).contiguous()
            z.view(-1)[::3].mul_(0.5)
            noise = torch.rand_like(z)
            return torch.linalg.svdvals(z + noise) * 3, z, noise

        x, w = torch.randn(6, 5), torch.randn(5, 6)
        torch.manual_seed(7)
        expected = f(x, w)
        torch.manual_seed(7)
        found = torch.compile(f, backend=backend)(x, w)
        self.assertTrue(self.refusals())
        for a, b in zip(found, expected):
            torch.testing.assert_close(a, b)

    def test_a_fallback_is_never_silent(self):
        g = torch.compile(lambda x: torch.linalg.svdvals(x), backend=backend, options={"fallback": "error"})
        with self.assertRaisesRegex(Exception, "_linalg_svd"):
            g(torch.randn(3, 3))

    def test_a_fallback_says_so_where_people_look(self):
        # It was a line of the debug log.
        with contextlib.redirect_stderr(io.StringIO()) as said:
            torch.compile(lambda x: torch.linalg.svdvals(x * 2), backend=backend)(torch.randn(3, 3))
        self.assertIn("through ATen: aten._linalg_svd.default", said.getvalue())
        self.assertIn("aten._linalg_svd.default", pytorch.report())

    def test_no_other_compiler_takes_what_is_left(self):
        import torch._inductor.compile_fx

        def refuse(*_, **__):
            raise AssertionError("Inductor was asked")

        with (
            unittest.mock.patch.object(torch._inductor.compile_fx, "compile_fx", refuse),
            unittest.mock.patch.object(torch._inductor.compile_fx, "compile_fx_inner", refuse),
        ):
            f = lambda x: torch.linalg.svdvals(x.exp()) + torch.rand(3)
            for mode in (None, "max-autotune", "reduce-overhead"):
                torch._dynamo.reset()
                torch.manual_seed(5)
                found = torch.compile(f, backend=backend, mode=mode)(torch.eye(3))
                torch.manual_seed(5)
                torch.testing.assert_close(found, f(torch.eye(3)))

    def test_results_need_gradients_where_eagers_do(self):
        # Differentiable inputs gave results that no gradient flowed through.
        def f(x, w):
            y = x @ w
            return y, y.detach() + 1, (y > 0).sum(), x.view(-1), w * 2

        with torch.enable_grad():
            for needs in ((True, False), (False, True), (True, True), (False, False)):
                torch._dynamo.reset()
                x, w = (torch.randn(3, 3, requires_grad=n) for n in needs)
                found, expected = torch.compile(f, backend=backend)(x, w), f(x, w)
                self.assertEqual([t.requires_grad for t in found], [t.requires_grad for t in expected])
        with torch.no_grad():
            self.assertFalse(torch.compile(f, backend=backend)(x.requires_grad_(), w)[0].requires_grad)

    def test_a_fallback_knows_no_autocast(self):
        # Casts are part of the captured graph. An operator that ATen ran under the caller's autocast was cast once more.
        def f(x, w):
            with torch.autocast("cpu", enabled=False):
                y = x @ w
            return y, x @ w

        x, w = torch.randn(5, 4), torch.randn(4, 3)
        with unittest.mock.patch.dict(TABLE):
            del TABLE["aten.mm.default"]
            with torch.autocast("cpu", torch.bfloat16):
                found, expected = torch.compile(f, backend=backend)(x, w), f(x, w)
        self.assertIn("aten.mm.default", {r.op for r in self.refusals()})
        self.assertEqual([y.dtype for y in found], [torch.float32, torch.bfloat16])
        for a, b in zip(found, expected):
            torch.testing.assert_close(a, b)

    def test_breaks_with_device_graphs_asked_for(self):
        # Zeros came out where a graph broke under a mode that records launches.
        def f(x):
            y = x * 2 + 1
            torch._dynamo.graph_break()
            z = y.sin()
            torch._dynamo.graph_break()
            return (y + z).sum(0)

        g = torch.compile(f, backend=backend, mode="reduce-overhead")
        first = None
        for _ in range(4):
            x = torch.randn(5, 3)
            y = g(x)
            torch.testing.assert_close(y, f(x))
            if first is not None:
                torch.testing.assert_close(first[0], f(first[1]))  # a later call left it alone
            first = first or (y, x)
        self.assertEqual(len(self.graphs()), 3)

    def test_a_mutated_buffer_is_returned(self):
        class Counter(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(3))

            def forward(self, x):
                self.seen.add_(x.sum(0))
                return self.seen, x + self.seen

        a, b = Counter(), Counter()
        g = torch.compile(b, backend=backend)
        for _ in range(3):
            x = torch.randn(4, 3)
            expected, found = a(x), g(x)
            for p, q in zip(found, expected):
                torch.testing.assert_close(p, q)
            self.assertEqual(found[0].data_ptr(), b.seen.data_ptr())

    def test_a_small_graph_stays_one_region(self):
        # A small graph took a hundred times as long as eager: it was cut to pieces, and every piece copied its inputs.
        m = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2), nn.Softmax(-1)).eval()
        torch.compile(m, backend=backend)(torch.randn(4, 8))
        self.assertEqual([(g.regions, len(g.refusals)) for g in self.graphs()], [(1, 0)])

    def test_strided_inputs_are_not_copied(self):
        # The graph has an input's dimensions in the order of memory, so that what lies dense in any order is read in place.
        big = torch.randn(4, 6, 5)
        seen = []

        def runner(executable, sources, tensor_type, steps=None, make=_core.Runner):
            seen.extend(sources)
            return make(executable, sources, tensor_type, steps)

        with unittest.mock.patch.object(_core, "Runner", runner):
            g = torch.compile(lambda x, y: (x * 2 + y).sum(0), backend=backend)
            x, y = big.permute(2, 0, 1), torch.randn(5, 4, 6)
            torch.testing.assert_close(g(x, y), (x * 2 + y).sum(0))
            torch.testing.assert_close(g(x.contiguous(), y), (x * 2 + y).sum(0))
        self.assertIn((0, 0, 1, 2, 0), seen)
        self.assertEqual(self.refusals(), [])

    def test_inputs_that_share_storage_keep_it(self):
        base = torch.randn(10)
        a, b = base[:6], base[4:]

        def f(x, y):
            x.mul_(2)
            return y + 1, x

        copy = base.clone()
        expected = f(copy[:6], copy[4:])
        found = torch.compile(f, backend=backend)(a, b)
        torch.testing.assert_close(found[0], expected[0])
        torch.testing.assert_close(base, copy)
        self.assertEqual(found[1].data_ptr(), a.data_ptr())

    def test_outputs_never_share_storage_with_each_other(self):
        x = torch.randn(4)
        y, z = torch.compile(lambda x: (x + 1, x + 1), backend=backend)(x)
        y.zero_()
        torch.testing.assert_close(z, x + 1)

    def test_a_boxed_call_lets_go_of_its_arguments(self):
        # Activations lived until the end of the call, for the caller's list kept them.
        watched, dead = [], []

        @torch.library.custom_op("faults_test::look", mutates_args=())
        def look(x: torch.Tensor) -> torch.Tensor:
            gc.collect()
            dead.extend(w() is None for w in watched)
            return x.clone()

        look.register_fake(lambda x: torch.empty_like(x))

        from torch._dynamo.backends.common import aot_autograd
        from tessera.pytorch import _context, compile_graph
        from tessera.pytorch.options import parsed

        chosen, overrides = parsed(None, None)
        context, records = _context(chosen["config"], overrides)
        made = {}

        def compiler(gm, _):
            made["call"] = compile_graph(gm, context, records, chosen, pytorch.REPORT)
            return made["call"]

        def f(x):
            return look(x * 2) + 1

        g = torch.compile(f, backend=aot_autograd(fw_compiler=compiler, inference_compiler=compiler))
        g(torch.randn(4))
        x = torch.randn(4)
        watched.append(weakref.ref(x))
        args = [x]
        del x
        self.assertTrue(made["call"]._boxed_call)
        made["call"](args)
        self.assertEqual((args, dead), ([], [True]))

    def test_statistics_of_batch_norm(self):
        # In training mode without gradients: running statistics move as eager PyTorch moves them.
        a, b = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        g = torch.compile(b, backend=backend)
        for _ in range(3):
            x = torch.randn(4, 3, 5, 5)
            torch.testing.assert_close(g(x), a(x))
        torch.testing.assert_close(b.running_var, a.running_var)
        torch.testing.assert_close(b.running_mean, a.running_mean)
        self.assertEqual(int(b.num_batches_tracked), 3)

    def test_more_sizes_than_the_recompile_limit(self):
        m = nn.Linear(4, 4).eval()
        g = torch.compile(m, backend=backend)
        for n in range(2, 40):
            x = torch.randn(n, 4)
            torch.testing.assert_close(g(x), m(x))
        self.assertLessEqual(len(self.graphs()), 2)

    def test_eight_sizes_compile_twice(self):
        # Inductor makes numbers of the sizes that adaptive pooling reads, and compiles this for each of them:
        # benchmarks/pytorch/recompiles.py counts both.
        conv = torch.nn.Conv2d(3, 4, 3)

        def f(x):
            return F.adaptive_avg_pool2d(conv(x).relu(), 5)

        counter = torch._dynamo.testing.CompileCounterWithBackend(pytorch.backend)
        compiled = torch.compile(f, backend=counter)
        with torch.no_grad():
            for k in range(8):
                x = torch.randn(2, 3, 13 + 2 * k, 14 + 3 * k)
                torch.testing.assert_close(compiled(x), f(x))
        self.assertLessEqual(counter.frame_count, 2)

    def test_assertions_of_a_graph_hold(self):
        def doubled(x):
            torch.ops.aten._assert_async.msg((x < 5).all(), "a class is not smaller than num_classes")
            return x * 2

        f = torch.compile(doubled, backend=backend)
        x = torch.tensor([0, 4, 2])
        self.assertTrue(torch.equal(f(x), x * 2))
        self.assertEqual({r.op for r in self.refusals()}, {"aten._assert_async.msg"})
        with self.assertRaisesRegex(RuntimeError, "smaller than num_classes"):
            f(torch.tensor([0, 5, 2]))

    def test_precision_is_as_asked(self):
        x, w = torch.randn(64, 256), torch.randn(256, 64)
        g = torch.compile(lambda x, w: F.linear(x, w.t()), backend=backend)
        exact = x.double() @ w.double()
        off = (g(x, w).double() - exact).abs().max()
        self.assertLess(off, 2 * (x @ w - exact).abs().max() + 1e-6)

    def test_flags_of_dynamo_stay_as_they_are(self):
        import subprocess
        import sys

        source = (
            "import torch, torch._dynamo as d, torch._functorch.config as f, torch._inductor.config as i\n"
            "before = [str(c.get_config_copy()) for c in (d.config, f, i)]\n"
            "import tessera.pytorch\n"
            "torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
            "assert before == [str(c.get_config_copy()) for c in (d.config, f, i)]\n"
        )
        subprocess.run([sys.executable, "-c", source], check=True)


if __name__ == "__main__":
    unittest.main()
