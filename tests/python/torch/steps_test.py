# SPDX-License-Identifier: Apache-2.0
"""ATen's operators as steps of a plan: a graph with one in the middle stays one region, and computes what eager does."""

import gc
import unittest
import weakref

import torch
import torch.nn.functional as F

from tessera import pytorch
from tessera.pytorch import backend

kept = []


@torch.library.custom_op("steps_test::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor:
    kept.append(x)
    return x * 2


keep.register_fake(lambda x: torch.empty_like(x))


@torch.library.custom_op("steps_test::fail", mutates_args=())
def fail(x: torch.Tensor) -> torch.Tensor:
    if float(x.sum()) > 100:
        raise ZeroDivisionError("mine")
    return x + 1


fail.register_fake(lambda x: torch.empty_like(x))


@torch.library.custom_op("steps_test::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    n = int((x > 0).sum())
    return x[:n].clone(), x[:n].clone().unsqueeze(1).expand(n, 2).contiguous()


@halves.register_fake
def _(x):
    n = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(n), x.new_empty(n, 2)


class Steps(unittest.TestCase):
    def setUp(self):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, before)
        torch.manual_seed(5)
        torch._dynamo.reset()
        pytorch.reset()
        kept.clear()

    def same(self, f, *args, regions=1, steps=None, **options):
        g = torch.compile(f, backend=backend, fullgraph=True, **options)
        for turn in range(2):
            torch.manual_seed(turn)
            expected = f(*args)
            torch.manual_seed(turn)
            found = g(*args)
            torch.testing.assert_close(found, expected)
            for a, b in zip(*(torch.utils._pytree.tree_leaves(t) for t in (found, expected))):
                self.assertEqual(a.stride(), b.stride())
        graph = pytorch.REPORT.graphs[-1]
        self.assertEqual(graph.regions, regions)
        if steps is not None:
            self.assertEqual((graph.steps, len(graph.refusals)), (steps, steps))
        return g

    def test_one_plan(self):
        def f(x, w):
            y = torch.relu(x @ w)
            q, r = torch.linalg.qr(y)
            return torch.linalg.svdvals(q * 2 + r).sum() + y, q

        self.same(f, torch.randn(5, 5), torch.randn(5, 5), steps=2)

    def test_what_runs_before_and_behind_is_no_step(self):
        self.same(lambda x: (torch.linalg.svdvals(x) * 2, torch.linalg.svdvals(x * 2)), torch.randn(4, 4), steps=None)
        self.assertEqual(pytorch.REPORT.graphs[-1].steps, 0)

    def test_random_numbers_keep_their_order(self):
        def f(x):
            a = torch.rand_like(x * 2)
            b = torch.randn_like(a + x)
            return (a + b).exp(), torch.rand(3), F.dropout(b * 3, 0.5) + 1

        self.same(f, torch.randn(4, 3))

    def test_between_steps_anything_passes(self):
        def f(x):
            spectrum = torch.fft.rfft(x * 2)  # complex
            return torch.fft.irfft(spectrum * 3, n=8) + 1

        self.same(f, torch.randn(4, 8))

    def test_views_of_what_a_plan_computes(self):
        def f(x):
            y = x * 2
            z = torch.view_as_complex(y)
            return torch.view_as_real(z.conj().resolve_conj()) + y

        self.same(f, torch.randn(4, 2))

    def test_strides(self):
        def f(x):
            y = (x * 2).to(memory_format=torch.channels_last)
            z = torch.ops.aten.rand_like(y) + y
            return z * 2, torch.linalg.svdvals(z.transpose(2, 3)) + 1

        self.same(f, torch.randn(2, 3, 4, 5))

    def test_sizes_that_change(self):
        def f(x):
            return torch.linalg.svdvals(x * 2) + x.shape[0], x.cumsum(0) + torch.linalg.svdvals(x + 1).sum()

        g = torch.compile(f, backend=backend, dynamic=True)
        for n in (3, 5, 7):
            x = torch.randn(n, n)
            torch.testing.assert_close(g(x), f(x))
        self.assertEqual([g.regions for g in pytorch.REPORT.graphs], [1])

    def test_sizes_that_a_step_tells(self):
        def f(x):
            a, b = halves(x + 1)
            return (a * 2).sum(), b * 3 + 1

        g = torch.compile(f, backend=backend, fullgraph=True)
        for x in (torch.tensor([3.0, 1, -5]), torch.tensor([-3.0, -4, -5]), torch.tensor([1.0, 1, 2])):
            torch.testing.assert_close(g(x), f(x))

    def test_what_an_operator_keeps_stays_as_it_was(self):
        g = self.same(lambda x: keep(x * 2) + keep(x.exp()), torch.randn(64))
        kept.clear()
        xs = [torch.randn(64) for _ in range(3)]
        for x in xs:
            g(x)
        for k, x in enumerate(xs):
            torch.testing.assert_close(kept[2 * k], x * 2)
            torch.testing.assert_close(kept[2 * k + 1], x.exp())

    def test_an_exception_is_the_operators_own(self):
        g = self.same(lambda x: fail(x * 2) * 3, torch.randn(8))
        for _ in range(2):
            with self.assertRaisesRegex(ZeroDivisionError, "mine"):
                g(torch.full((8,), 100.0))
            x = torch.randn(8)
            torch.testing.assert_close(g(x), (x * 2 + 1) * 3)

    def test_inputs_go_when_nothing_reads_them_any_more(self):
        dead, watched = [], []

        @torch.library.custom_op("steps_test::look", mutates_args=())
        def look(x: torch.Tensor) -> torch.Tensor:
            gc.collect()
            dead.append([w() is None for w in watched])
            return x.clone()

        look.register_fake(lambda x: torch.empty_like(x))
        from torch._dynamo.backends.common import aot_autograd
        from tessera.pytorch import _context, compile_graph
        from tessera.pytorch.options import parsed

        chosen, overrides = parsed(None, None)
        made = {}

        def compiler(gm, _):
            made["call"] = compile_graph(gm, *_context(chosen["config"], overrides), chosen, pytorch.REPORT)
            return made["call"]

        f = torch.compile(
            lambda x, y: look(look(x * 2) + y) * y, backend=aot_autograd(fw_compiler=compiler, inference_compiler=compiler)
        )
        args = [torch.randn(4), torch.randn(4)]
        expected = args[0] * 2 + args[1]
        f(*args)
        dead.clear()
        watched.extend(weakref.ref(a) for a in args)
        found = made["call"](args)
        torch.testing.assert_close(found[0] / found[0] * expected, expected)
        self.assertEqual(dead, [[True, False], [True, False]])
        self.assertTrue(all(w() is None for w in watched))

    def test_verify_runs_no_step_twice(self):
        def f(x):
            y = torch.rand_like(x * 2) + x
            return torch.linalg.svdvals(y.exp()) * 2

        self.same(f, torch.randn(4, 4), mode="verify")

    def test_verify_finds_a_fault_behind_a_step(self):
        from tessera.pytorch.ops import TABLE

        before = TABLE["aten.sin.default"]
        self.addCleanup(TABLE.__setitem__, "aten.sin.default", before)
        TABLE["aten.sin.default"] = lambda e, out, x: e("cos", x)

        def f(x):
            return (torch.rand_like(x * 2) + 1).sin() * 2

        with self.assertRaisesRegex(Exception, "TSR-F062.*'sin'"):
            torch.compile(f, backend=backend, mode="verify")(torch.randn(4))

    def test_training(self):
        class Network(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.norm, self.out = torch.nn.Conv2d(3, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.Linear(4, 2)

            def forward(self, x):
                y = F.max_pool2d(F.gelu(self.norm(self.conv(x))), 2)
                return self.out(y.mean((2, 3)))

        torch.set_grad_enabled(True)
        m, x = Network(), torch.randn(2, 3, 8, 8)
        torch.compile(m, backend=backend)(x).square().sum().backward()
        found = [p.grad.clone() for p in m.parameters()]
        m.zero_grad()
        m(x).square().sum().backward()
        for g, p in zip(found, m.parameters()):
            torch.testing.assert_close(g, p.grad, rtol=1e-4, atol=1e-5)
        self.assertEqual([g.regions for g in pytorch.REPORT.graphs], [1, 1])


if __name__ == "__main__":
    unittest.main()
