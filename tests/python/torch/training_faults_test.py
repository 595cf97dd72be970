# SPDX-License-Identifier: Apache-2.0
"""Faults that users have met in training through backends for torch.compile: each a test."""

import copy
import gc
import unittest
import unittest.mock
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from tessera import pytorch
from tessera.pytorch import backend

PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)


class Halves:
    """Every graph that AOTAutograd hands over while it is entered, in order: forward, backward, ..."""

    def __enter__(self):
        self.graphs = []
        compile_graph = pytorch.compile_graph

        def seen(graph, *args, **kwargs):
            self.graphs.append(graph)
            return compile_graph(graph, *args, **kwargs)

        self._patch = unittest.mock.patch.object(pytorch, "compile_graph", seen)
        self._patch.start()
        return self

    def __exit__(self, *_):
        self._patch.stop()

    def count(self, number, targets):
        return sum(n.target in targets for n in self.graphs[number].graph.nodes)


class Faults(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        torch._dynamo.reset()
        pytorch.reset()

    def gradients(self, f, m, *args, seed=0):
        torch.manual_seed(seed)
        y = f(*args)
        y = y[0] if isinstance(y, tuple) else y
        return torch.autograd.grad(y.float().square().sum(), list(m.parameters()))

    def same(self, m, *args, **options):
        found = self.gradients(torch.compile(m, backend=backend, **options), m, *args)
        expected = self.gradients(m, m, *args)
        for (name, _), a, b in zip(m.named_parameters(), found, expected):
            torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")

    # ---- forward and backward as unrelated graphs; the whole forward computed again

    def test_forward_and_backward_are_a_pair(self):
        m = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
        with Halves() as halves:
            self.same(m, torch.randn(5, 8))
        self.assertEqual(len(halves.graphs), 2)
        # Three products forward. Backward: one per weight, and one per input that a gradient goes on through.
        self.assertEqual((halves.count(0, PRODUCTS), halves.count(1, PRODUCTS)), (3, 5))
        self.assertEqual(halves.count(1, (torch.ops.aten.tanh.default,)), 0)
        saved = halves.graphs[0].graph.output_node().args[0][1:]
        inputs = halves.graphs[1].graph.find_nodes(op="placeholder")
        self.assertEqual({n.name for n in saved}, {n.name for n in inputs if not n.name.startswith("tangents")})

    # ---- SDPA: a decomposition gave attention's weights where backward reads log-sum-exp

    def test_gradients_of_attention(self):
        for causal, heads, dtype in ((True, 2, torch.float32), (False, 4, torch.float32), (True, 2, torch.bfloat16)):
            with self.subTest(causal=causal, dtype=dtype):
                torch._dynamo.reset()
                q, k, v = (torch.randn(2, heads, 9, 8, dtype=dtype, requires_grad=True) for _ in range(3))
                f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                with Halves() as halves:
                    found = torch.autograd.grad(torch.compile(f, backend=backend)(q, k, v).float().square().sum(), (q, k, v))
                expected = torch.autograd.grad(f(q, k, v).float().square().sum(), (q, k, v))
                wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
                exact = torch.autograd.grad(f(*wide).square().sum(), wide)
                for a, b, c in zip(found, expected, exact):
                    self.assertTrue(torch._dynamo.utils.same(b, a, c, tol=1e-3))
                backward = [str(n.target) for n in halves.graphs[1].graph.nodes if n.op == "call_function"]
                self.assertTrue(any("attention" in name and "backward" in name for name in backward), backward)

    # ---- requires_grad=False results for differentiable inputs

    def test_results_require_gradients(self):
        def f(x, w):
            return x @ w, (x @ w).detach(), x + 1, (w * 2).argmax(), x.view(-1)

        x, w = torch.randn(3, 4), torch.randn(4, 2, requires_grad=True)
        for first in (x, x.clone().requires_grad_()):
            found, expected = torch.compile(f, backend=backend)(first, w), f(first, w)
            self.assertEqual([t.requires_grad for t in found], [t.requires_grad for t in expected])
        with torch.no_grad():
            self.assertFalse(torch.compile(f, backend=backend)(x, w)[0].requires_grad)

    # ---- reduced precision unasked

    def test_precision_of_gradients(self):
        m = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256))
        x = torch.randn(64, 256)
        found = self.gradients(torch.compile(m, backend=backend), m, x)
        exact = copy.deepcopy(m).double()
        for g, e in zip(found, self.gradients(exact, exact, x.double())):
            self.assertEqual(g.dtype, torch.float32)
            error = (g.double() - e).norm() / e.norm()
            self.assertLess(error, 1e-5)  # halves would be at 1e-3

    def test_halves_accumulate_as_eager_does(self):
        m = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).bfloat16()
        x = torch.randn(32, 64)
        exact = copy.deepcopy(m).double()
        found = self.gradients(torch.compile(m, backend=backend), m, x.bfloat16())
        for a, b, c in zip(found, self.gradients(m, m, x.bfloat16()), self.gradients(exact, exact, x.double())):
            self.assertEqual(a.dtype, torch.bfloat16)
            self.assertTrue(torch._dynamo.utils.same(b, a, c, tol=1e-2))

    # ---- fallbacks that gave wrong results, or were silent

    def test_fallbacks_in_both_halves(self):
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.randn(6, 6))

            def forward(self, x):
                y = torch.linalg.qr(x @ self.w).Q * 2
                return torch.tanh(torch.linalg.inv(y + 3 * torch.eye(6, dtype=x.dtype))) + torch.cumprod(y.abs() + 0.5, 0)

        m, x = M(), torch.randn(6, 6)
        exact = copy.deepcopy(m).double()
        found = self.gradients(torch.compile(m, backend=backend), m, x)
        for a, b, c in zip(found, self.gradients(m, m, x), self.gradients(exact, exact, x.double())):
            self.assertTrue(torch._dynamo.utils.same(b, a, c, tol=1e-4))
        refused = {r.op for g in pytorch.REPORT.graphs for r in g.refusals}
        self.assertTrue(refused)
        self.assertIn(sorted(refused)[0], pytorch.report())
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "refuses it; the first is"):
            self.gradients(torch.compile(m, backend=backend, options={"fallback": "error"}), m, x)

    # ---- zeros with device graphs and breaks

    def test_breaks_under_reduce_overhead(self):
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

            def forward(self, x):
                y = torch.relu(self.a(x))
                torch._dynamo.graph_break()
                return self.b(y).sin()

        m = M()
        f = torch.compile(m, backend=backend, mode="reduce-overhead")
        for k in range(3):
            x = torch.randn(4, 8)
            for a, b in zip(self.gradients(f, m, x), self.gradients(m, m, x)):
                torch.testing.assert_close(a, b)
                self.assertGreater(a.abs().sum(), 0)

    # ---- a mutated buffer that is returned

    def test_a_mutated_buffer_is_returned_in_training(self):
        class Counter(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(4))
                self.register_buffer("mean", torch.zeros(4))

            def forward(self, x):
                self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
                return (x - self.mean) * self.w, self.mean, self.mean * 2

        eager = Counter()
        ours = copy.deepcopy(eager)
        f = torch.compile(ours, backend=backend)
        for _ in range(3):
            x = torch.randn(5, 4)
            found, expected = f(x), eager(x)
            torch.testing.assert_close(found, expected)
            self.assertEqual(found[1].data_ptr(), ours.mean.data_ptr())
            torch.testing.assert_close(
                torch.autograd.grad(found[0].sum(), ours.w), torch.autograd.grad(expected[0].sum(), eager.w)
            )
            torch.testing.assert_close(ours.mean, eager.mean)

    # ---- a small graph that became many pieces

    def test_small_halves_stay_one_region_each(self):
        m = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 4), nn.Softmax(-1))
        self.same(m, torch.randn(3, 4))
        self.assertEqual([g.regions for g in pytorch.REPORT.graphs], [1, 1])

    # ---- strided inputs that are copied at every call

    def test_strided_inputs_and_cotangents(self):
        w = torch.randn(6, 5, requires_grad=True)
        f = lambda x, w: (x @ w).t()
        g = torch.compile(f, backend=backend)
        wide = torch.randn(8, 12)
        for x in (wide[:, ::2], wide.t()[:6].t(), wide[::2, 3:9]):
            cotangent = torch.randn(x.shape[0], 5).t()
            found, expected = g(x, w), f(x, w)
            self.assertEqual(found.stride(), expected.stride())
            torch.testing.assert_close(torch.autograd.grad(found, w, cotangent), torch.autograd.grad(expected, w, cotangent))

    # ---- storage: gradients and saved values of one memory

    def test_gradients_that_accumulate_share_no_memory(self):
        # Both inputs of an addition have one gradient: what one parameter does with its own must not reach the other.
        a, b = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
        torch.compile(lambda a, b: (a + b) * 2, backend=backend)(a, b).sum().backward()
        expected = a.grad.clone()
        b.grad.mul_(100)
        torch.testing.assert_close(a.grad, expected)

    def test_a_result_that_is_an_input_of_backward_may_be_read(self):
        f = torch.compile(lambda x: x.sigmoid(), backend=backend)
        x = torch.randn(4, requires_grad=True)
        y = f(x)
        kept = y.detach().clone()
        (g,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(y.detach(), kept)
        torch.testing.assert_close(g, kept * (1 - kept))

    # ---- batch norm's backward

    def test_batch_norm_in_both_modes(self):
        for track in (True, False):
            eager = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=track), nn.ReLU())
            ours = copy.deepcopy(eager)
            f = torch.compile(ours, backend=backend)
            for training in (True, True, False, True):
                eager.train(training), ours.train(training)
                x = torch.randn(2, 3, 6, 6)
                for a, b in zip(self.gradients(f, ours, x), self.gradients(eager, eager, x)):
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
                for a, b in zip(ours.buffers(), eager.buffers()):
                    torch.testing.assert_close(a, b)

    # ---- the boxed contract: activations that live too long

    def test_activations_are_freed_by_backward(self):
        class Keep(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, g):
                return g

        m = nn.Linear(64, 64)
        f = torch.compile(lambda x: m(x).tanh().sin().tanh(), backend=backend)
        x = torch.randn(512, 64, requires_grad=True)
        for _ in range(2):  # of the first call, which compiles, and of the next
            y = f(Keep.apply(x))
            references = [weakref.ref(t) for t in y.grad_fn.saved_tensors if t.shape == (512, 64) and t is not x]
            self.assertGreater(len(references), 1)
            y.sum().backward()
            gc.collect()
            self.assertEqual([r() for r in references], [None] * len(references))

    # ---- the learning rate and the optimiser

    def test_a_scheduled_rate_compiles_nothing_again(self):
        for make in (
            lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9),
            lambda p, lr: torch.optim.Adam(p, lr),
            lambda p, lr: torch.optim.AdamW(p, lr, amsgrad=True),
            lambda p, lr: torch.optim.Adagrad(p, lr),
            lambda p, lr: torch.optim.RMSprop(p, lr),
        ):
            torch._dynamo.reset()
            pytorch.reset()
            eager = nn.Linear(4, 4)
            ours = copy.deepcopy(eager)
            exact = copy.deepcopy(eager).double()
            pairs = []
            for m in (eager, ours, exact):
                optimiser = make(m.parameters(), torch.tensor(0.05))
                pairs.append((m, optimiser, torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9)))
            step = torch.compile(pairs[1][1].step, backend=backend)
            graphs = []
            for _ in range(6):
                x = torch.randn(3, 4)
                for (m, optimiser, schedule), run in zip(pairs, (pairs[0][1].step, step, pairs[2][1].step)):
                    optimiser.zero_grad()
                    m(x.to(m.weight.dtype)).square().mean().backward()
                    run()
                    schedule.step()
                graphs.append(len(pytorch.REPORT.graphs))
                for p, q, r in zip(eager.parameters(), ours.parameters(), exact.parameters()):
                    self.assertTrue(torch._dynamo.utils.same(p, q, r, tol=1e-4))
            self.assertEqual(graphs[-1], graphs[1], type(pairs[0][1]).__name__)  # the first step makes the state

    # ---- compiled autograd

    def test_compiled_autograd_with_hooks_and_accumulation(self):
        eager = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3))
        ours = copy.deepcopy(eager)
        f = torch.compile(ours, backend=backend)
        for m in (eager, ours):
            m[0].weight.register_hook(lambda g: g * 2)
        for k in range(2):
            x = torch.randn(5, 6)
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
                f(x).square().mean().backward()
            eager(x).square().mean().backward()
            for p, q in zip(eager.parameters(), ours.parameters()):
                torch.testing.assert_close(q.grad, p.grad)

    # ---- selective checkpoints

    def test_selective_policies_decide_what_is_saved(self):
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

            def block(self, x):
                for layer in self.layers:
                    x = torch.tanh(layer(x))
                return x.sin()

        def of(policy):
            def contexts():
                return create_selective_checkpoint_contexts(lambda ctx, op, *a, **k: policy(op))

            return {"use_reentrant": False, "context_fn": contexts}

        must, prefer = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE
        ways = {
            "all again": {"use_reentrant": False},
            "products saved": of(lambda op: must if op in PRODUCTS else prefer),
            "everything saved": of(lambda op: must),
        }
        m = M()
        x = torch.randn(7, 16)
        expected = self.gradients(lambda x: m.block(x), m, x)
        again = {}
        for name, how in ways.items():
            torch._dynamo.reset()
            with Halves() as halves:
                f = torch.compile(lambda x: checkpoint(m.block, x, **how), backend=backend)
                for a, b in zip(self.gradients(f, m, x), expected):
                    torch.testing.assert_close(a, b)
            again[name] = (halves.count(1, PRODUCTS), halves.count(1, (torch.ops.aten.tanh.default,)))
        # Two products per layer are backward's own, but for the input of the first.
        self.assertEqual(again["everything saved"][0], 5)
        self.assertEqual(again["products saved"][0], 5)
        self.assertGreater(again["products saved"][1], 0)
        self.assertGreater(again["all again"][0], 5)


class BadInput(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        torch._dynamo.reset()
        pytorch.reset()

    def test_writes_to_what_forward_has_saved(self):
        w = torch.randn(5, 3, requires_grad=True)
        f = torch.compile(lambda x, w: (x @ w).tanh(), backend=backend)
        for write in (lambda x: x.mul_(2), lambda x: x.zero_(), lambda x: x[0].fill_(1.0)):
            x = torch.randn(4, 5)
            y = f(x, w)
            write(x)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                y.sum().backward()
        x = torch.randn(4, 5, requires_grad=True)
        y = f(x, w)
        with torch.no_grad():
            w.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_a_result_that_backward_reads_is_written(self):
        x = torch.randn(4, requires_grad=True)
        y = torch.compile(lambda x: x.exp(), backend=backend)(x)
        y.detach().mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_backward_twice(self):
        x = torch.randn(4, requires_grad=True)
        y = torch.compile(lambda x: x.sin().exp(), backend=backend)(x)
        y.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "backward through the graph a second time|already been freed"):
            y.sum().backward()

    def test_double_backward_through_first_order_operators(self):
        f = torch.compile(lambda x: x.sin().square(), backend=backend)
        x = torch.randn(4, requires_grad=True)
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "double backward"):
            torch.autograd.grad(g.sum(), x)
        expected = torch.autograd.grad(x.sin().square().sum(), x)[0]
        torch.testing.assert_close(g.detach(), expected)

    def test_cotangents_of_another_type(self):
        x = torch.randn(4, 3, requires_grad=True)
        y = torch.compile(lambda x: x.sin(), backend=backend)(x)
        with self.assertRaisesRegex(RuntimeError, "(?i)mismatch in shape"):
            torch.autograd.grad(y, x, torch.ones(3, 4), retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(y, x, torch.ones(3, 4).t())[0], x.detach().cos())

    def test_an_exception_in_a_hook_leaves_everything_usable(self):
        f = torch.compile(lambda x: x.sin() * 2, backend=backend)
        x = torch.randn(4, requires_grad=True)
        y = f(x)

        def broken(g):
            raise ValueError("mine")

        handle = x.register_hook(broken)
        with self.assertRaisesRegex(ValueError, "mine"):
            y.sum().backward()
        handle.remove()
        torch.testing.assert_close(torch.autograd.grad(f(x).sum(), x)[0], 2 * x.detach().cos())


if __name__ == "__main__":
    unittest.main()
