# SPDX-License-Identifier: Apache-2.0
"""Training through torch.compile(backend="tessera"): gradients, buffers, random operators, what autograd promises."""

import copy
import unittest
import weakref
from unittest import mock

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import tessera
from tessera import pytorch
from tessera.pytorch import backend


class Block(nn.Module):
    """A transformer's block, with dropout."""

    def __init__(self, width=16, heads=2, dropout=0.1):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + F.dropout(self.out(y), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.behind(x)))), self.dropout, self.training)


class Language(nn.Module):
    def __init__(self, dropout=0.1, layers=2):
        super().__init__()
        self.table = nn.Embedding(23, 16)
        self.blocks = nn.ModuleList(Block(dropout=dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(16)

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.table.weight)


def language_loss(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, groups=2),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


class Training(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        torch._dynamo.reset()
        pytorch.reset()

    def refused(self):
        return {r.op for g in pytorch.REPORT.graphs for r in g.refusals}

    def close(self, found, expected, exact, what):
        """No further from the result in f64 than eager PyTorch is."""
        self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape), what)
        self.assertTrue(torch._dynamo.utils.same(expected, found, exact, tol=1e-4), what)

    def compare(self, make, draw, loss=None, steps=3, learning_rate=0.1, compiled=None, through_aten=()):
        """Trains three copies: eager, compiled, and eager in f64."""
        loss = loss or (lambda y, *_: y.square().mean())
        eager = make()
        ours, wide = copy.deepcopy(eager), copy.deepcopy(eager).double()
        call = (compiled or (lambda m: torch.compile(m, backend=backend)))(ours)
        runs = [(eager, eager), (ours, call), (wide, wide)]
        optimisers = [torch.optim.SGD(m.parameters(), learning_rate) for m, _ in runs]
        for step in range(steps):
            arguments = draw(step)
            losses = []
            for (m, f), optimiser in zip(runs, optimisers):
                torch.manual_seed(step)
                args = [a.double() if m is wide and a.is_floating_point() else a for a in arguments]
                optimiser.zero_grad()
                value = loss(f(*args), *args)
                value.backward()
                losses.append(value.detach())
            self.close(losses[1], losses[0], losses[2], f"loss of step {step}")
            for (name, p), q, r in zip(eager.named_parameters(), ours.parameters(), wide.parameters()):
                self.close(q.grad, p.grad, r.grad, f"gradient of {name} in step {step}")
            for (name, p), q, r in zip(eager.named_buffers(), ours.buffers(), wide.buffers()):
                self.close(q, p, r, f"buffer {name} in step {step}")
            for optimiser in optimisers:
                optimiser.step()
        self.assertLessEqual(self.refused(), set(through_aten))

    def test_mlp(self):
        self.compare(mlp, lambda step: (torch.randn(5, 8),))

    def test_sizes_that_change_share_one_pair(self):
        self.compare(mlp, lambda step: (torch.randn(3 + step, 8),), steps=8)
        self.assertLessEqual(len(pytorch.REPORT.graphs), 4)  # the first size alone, then all others

    def test_cnn_with_batch_norm(self):
        self.compare(cnn, lambda step: (torch.randn(4, 3, 12, 12),))

    def test_transformer_with_dropout(self):
        tokens = lambda step: (torch.randint(0, 23, (3, 7)),)
        self.compare(Language, tokens, language_loss, through_aten=["aten.native_dropout.default"])

    def test_transformer_of_several_lengths(self):
        tokens = lambda step: (torch.randint(0, 23, (2 + step, 5 + 2 * step)),)
        self.compare(lambda: Language(dropout=0.0), tokens, language_loss, steps=3)
        self.assertLessEqual(len(pytorch.REPORT.graphs), 4)

    def test_attention_with_masks(self):
        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

            def forward(self, x, mask):
                q, k, v = (f(x).unflatten(-1, (2, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

        def of_bools(step):
            return torch.randn(2, 6, 8), torch.rand(2, 1, 6, 6) < 0.6

        def of_floats(step):
            return torch.randn(2, 6, 8), torch.randn(2, 2, 6, 6)

        for draw in (of_bools, of_floats):
            torch._dynamo.reset()
            self.compare(Masked, draw)

    def test_attention_of_shared_heads(self):
        class Grouped(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v = nn.Linear(8, 16), nn.Linear(8, 8), nn.Linear(8, 8)

            def forward(self, x):
                q, k, v = (f(x).unflatten(-1, (-1, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        self.compare(Grouped, lambda step: (torch.randn(2, 5 + step, 8),))

    def test_antialiased_resampling(self):
        for mode, corners, size in (("bilinear", False, (5, 7)), ("bilinear", True, (13, 4)), ("bicubic", False, (20, 3))):
            torch._dynamo.reset()
            x = torch.randn(2, 3, 10, 12, dtype=torch.float64, requires_grad=True)
            f = lambda x: F.interpolate(x, size, mode=mode, align_corners=corners, antialias=True)
            found, expected = torch.compile(f, backend=backend)(x), f(x)
            torch.testing.assert_close(found, expected)
            weights = torch.randn_like(expected)
            torch.testing.assert_close(*(torch.autograd.grad(y, x, weights)[0] for y in (found, expected)))
        self.assertEqual(self.refused(), set())

    def test_pads_that_repeat_the_edge(self):
        cases = ((1, (2, 1), (2, 3, 5)), (2, (1, 2, -1, 3), (2, 3, 5, 6)), (3, (1, 0, 2, 2, 0, 1), (2, 3, 4, 2, 3)))
        for n, pad, shape in cases:
            torch._dynamo.reset()
            x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
            f = lambda x: F.pad(x, pad, mode="replicate") ** 2
            found, expected = torch.compile(f, backend=backend)(x), f(x)
            weights = torch.randn_like(expected)
            torch.testing.assert_close(*(torch.autograd.grad(y, x, weights)[0] for y in (found, expected)), msg=f"{n}d")
        self.assertEqual(self.refused(), set())

    def gradients(self, f, *inputs):
        """Values and gradients of f beside eager's, all of it captured."""
        found = []
        torch._dynamo.reset()  # it compiles one function eight times at most
        pytorch.reset()
        for g in (f, torch.compile(f, backend=backend, dynamic=False, options={"fallback": "error"})):
            xs = [x.detach().clone().requires_grad_() for x in inputs]
            y = g(*xs)
            found.append((y.detach(), *torch.autograd.grad((y * torch.linspace(-1, 2, y.numel()).view(y.shape)).sum(), xs)))
        self.assertEqual(len(pytorch.REPORT.graphs), 2)
        torch.testing.assert_close(*found, equal_nan=True)

    def test_reductions_of_segments(self):
        torch.manual_seed(3)
        x = torch.randn(7, 3)
        x[2], x[5, 1], x[6, 1] = x[1], 0, 0  # equals share a gradient above 0; products of zeros
        for reduce in ("sum", "mean", "max", "min", "prod"):
            for initial in (None, 2.0):
                kwargs = dict(axis=0, unsafe=True, initial=initial)
                for lengths in ([3, 0, 4], [7], [1, 2, 4]):
                    lengths = torch.tensor(lengths)
                    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
                    self.gradients(lambda x: torch.segment_reduce(x, reduce, lengths=lengths, **kwargs), x)
                    self.gradients(lambda x: torch.segment_reduce(x, reduce, offsets=offsets, **kwargs), x)

    def test_segments_that_do_not_fit(self):
        x = torch.arange(14.0).view(7, 2)
        of = lambda x, **bounds: torch.segment_reduce(x, "sum", axis=0, **bounds)
        f = torch.compile(of, backend=backend, options={"fallback": "error"})
        for offsets in ([2, 3, 5], [0, 0, 7], [1, 1, 6]):  # rows before the first and behind the last are left out
            offsets = torch.tensor(offsets)
            torch.testing.assert_close(f(x, offsets=offsets), of(x, offsets=offsets))
        torch.testing.assert_close(f(x, lengths=torch.tensor([4, 3])), of(x, lengths=torch.tensor([4, 3])))
        for lengths in ([4, 2], [5, 3], [8, -1]):
            for g in (of, f):
                with self.assertRaises((RuntimeError, tessera.UserError)):
                    g(x, lengths=torch.tensor(lengths))

    def test_distances_of_all_pairs(self):
        torch.manual_seed(4)
        x = torch.randn(5, 3)
        x[3] = x[1]  # their distance has no slope
        for p in (1.0, 2.0, 3.0, float("inf")):
            self.gradients(lambda x: torch.nn.functional.pdist(x, p), x)

    def test_parts_of_a_factorised_matrix(self):
        torch.manual_seed(5)
        for shape in ((4, 4), (2, 3, 5), (2, 5, 3)):
            lu, pivots = torch.linalg.lu_factor(torch.randn(shape))
            for k in range(3):
                f = lambda lu: torch.lu_unpack(lu, pivots)[k] + 0 * lu.sum()
                self.gradients(f, lu)

    def test_products_of_reflections(self):
        torch.manual_seed(6)
        for shape in ((5, 3), (2, 4, 4), (2, 5, 2)):
            x, tau = torch.geqrf(torch.randn(shape))
            self.gradients(lambda x, tau: torch.linalg.householder_product(x, tau), x, tau)
            for left in (True, False):
                y = torch.randn(*shape[:-2], *((shape[-2], 3) if left else (3, shape[-2])))
                for transpose in (False, True):
                    self.gradients(lambda x, tau, y: torch.ormqr(x, tau, y, left, transpose), x, tau, y)

    def test_halves_under_autocast(self):
        x = torch.randn(6, 8)
        eager = mlp()
        ours, wide = copy.deepcopy(eager), copy.deepcopy(eager).double()

        def gradients(m, f, x):
            with torch.autocast("cpu", torch.bfloat16, enabled=m is not wide):
                loss = f(x).float().square().mean()
            return torch.autograd.grad(loss, list(m.parameters()))

        found = gradients(ours, torch.compile(ours, backend=backend), x)
        for g, e, w in zip(found, gradients(eager, eager, x), gradients(wide, wide, x.double())):
            self.assertEqual(g.dtype, e.dtype)
            self.assertTrue(torch._dynamo.utils.same(e, g, w, tol=1e-2))
        self.assertEqual(self.refused(), set())

    def test_checkpointed_blocks(self):
        for use in ({}, {"context_fn": lambda: create_selective_checkpoint_contexts(self.policy)}):

            class Checkpointed(Language):
                def forward(self, tokens):
                    x = self.table(tokens)
                    for block in self.blocks:
                        x = checkpoint(block, x, use_reentrant=False, **use)
                    return F.linear(self.norm(x), self.table.weight)

            torch._dynamo.reset()
            tokens = lambda step: (torch.randint(0, 23, (3, 7)),)
            # Older versions of PyTorch count attention without dropout among the random operators: they keep the state.
            state = ("run_and_save_rng_state", "run_with_rng_state", "getitem")
            make = lambda: Checkpointed(dropout=0.0, layers=1)
            self.compare(make, tokens, language_loss, steps=2, through_aten=state)

    @staticmethod
    def policy(context, op, *args, **kwargs):
        kept = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    def test_dropout_in_a_checkpointed_block_is_drawn_once(self):
        class Dropped(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 8)

            def block(self, x):
                return self.b(F.dropout(torch.relu(self.a(x)), 0.5))

            def forward(self, x):
                return checkpoint(self.block, x, use_reentrant=False)

        m = Dropped()
        x = torch.randn(64, 8)
        found = []
        for f in (m, torch.compile(m, backend=backend)):
            torch.manual_seed(0)
            found.append(torch.autograd.grad(f(x).square().sum(), list(m.parameters())))
        torch.testing.assert_close(*found)

    def test_gradients_accumulate(self):
        eager = mlp()
        ours = copy.deepcopy(eager)
        f = torch.compile(ours, backend=backend)
        for _ in range(3):
            x = torch.randn(5, 8)
            eager(x).square().mean().backward()
            f(x).square().mean().backward()
        for p, q in zip(eager.parameters(), ours.parameters()):
            torch.testing.assert_close(q.grad, p.grad)

    def test_hooks_run(self):
        eager = mlp()
        ours = copy.deepcopy(eager)
        seen = []
        for m in (eager, ours):
            m[0].weight.register_hook(lambda g, m=m: seen.append(("weight", m is ours, g.clone())) or g * 2)
            m[2].bias.register_post_accumulate_grad_hook(lambda p, m=m: seen.append(("bias", m is ours, p.grad.clone())))
        x = torch.randn(5, 8)
        for m, f in ((eager, eager), (ours, torch.compile(ours, backend=backend))):
            y = f(x)
            y.register_hook(lambda g: g * 3)
            y.square().mean().backward()
        self.assertEqual(sorted(s[:2] for s in seen), [("bias", False), ("bias", True), ("weight", False), ("weight", True)])
        for p, q in zip(eager.parameters(), ours.parameters()):
            torch.testing.assert_close(q.grad, p.grad)

    def test_inputs_that_need_gradients_and_outputs_that_do_not(self):
        def f(x, y, n):
            z = x * y
            return z.sum(-1), (z > 0), z.detach() + n, x.argmax()

        for n in (1, 2, 3):
            args = [torch.randn(4, 3, requires_grad=True), torch.randn(4, 3), n]
            expected, found = f(*args), torch.compile(f, backend=backend)(*args)
            self.assertEqual([t.requires_grad for t in found], [t.requires_grad for t in expected])
            a, b = (torch.autograd.grad(t[0].square().sum(), args[0])[0] for t in (found, expected))
            torch.testing.assert_close(a, b)

    def test_views_and_writes_in_training(self):
        def f(x, w):
            y = (x @ w).view(-1)
            y[::2] *= 2
            return y.view(4, 3).t()

        x, w = torch.randn(4, 5), torch.randn(5, 3, requires_grad=True)
        found, expected = torch.compile(f, backend=backend)(x, w), f(x, w)
        self.assertEqual(found.stride(), expected.stride())
        torch.testing.assert_close(found, expected)
        a, b = (torch.autograd.grad(t.square().sum(), w)[0] for t in (found, expected))
        torch.testing.assert_close(a, b)

    def test_a_write_to_a_saved_tensor_is_an_error(self):
        x, w = torch.randn(4, 5), torch.randn(5, 3, requires_grad=True)
        y = torch.compile(lambda x, w: (x @ w).tanh(), backend=backend)(x, w)
        x.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_double_backward_is_refused(self):
        x = torch.randn(4, requires_grad=True)
        y = torch.compile(lambda x: x.sin().square(), backend=backend)(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "double backward"):
            g.sum().backward()

    def test_compiled_optimisers_whose_rate_changes(self):
        def adamw(parameters, rate):
            return torch.optim.AdamW(parameters, rate, weight_decay=0.1)

        def momentum(parameters, rate):
            return torch.optim.SGD(parameters, rate, momentum=0.9, nesterov=True)

        for make in (adamw, momentum):
            with self.subTest(make.__name__):
                torch._dynamo.reset()
                pytorch.reset()
                models = [mlp()]
                models += [copy.deepcopy(models[0]), copy.deepcopy(models[0]).double()]
                optimisers = [make(m.parameters(), torch.tensor(0.05)) for m in models]
                steps = [o.step for o in optimisers]
                steps[1] = torch.compile(steps[1], backend=backend)
                graphs = []
                for k in range(5):
                    x = torch.randn(5, 8)
                    for m, optimiser, step in zip(models, optimisers, steps):
                        optimiser.zero_grad()
                        m(x.to(m[0].weight.dtype)).square().mean().backward()
                        optimiser.param_groups[0]["lr"].fill_(0.05 / (k + 1))
                        step()
                    graphs.append(len(pytorch.REPORT.graphs))
                    for p, q, r in zip(*(m.parameters() for m in models)):
                        self.close(q, p, r, f"a parameter after step {k}")
                self.assertEqual(graphs[-1], graphs[1])  # the first step makes the state
                self.assertEqual(self.refused(), set())

    def test_compiled_autograd(self):
        eager = mlp()
        ours = copy.deepcopy(eager)
        x = torch.randn(5, 8)
        f = torch.compile(ours, backend=backend)
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
            f(x).square().mean().backward()
        eager(x).square().mean().backward()
        for p, q in zip(eager.parameters(), ours.parameters()):
            torch.testing.assert_close(q.grad, p.grad)

    def test_what_was_kept_goes_as_backward_goes_on(self):
        from tessera.pytorch import compiler

        m, x = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)]), torch.randn(32, 64)
        expected = torch.autograd.grad(m(x).square().sum(), list(m.parameters()))
        for large, goes in ((0, True), (1 << 40, False)):
            with self.subTest(large=large), mock.patch.object(compiler, "_LARGE", large):
                torch._dynamo.reset()
                pytorch.reset()
                f, kept, alive = torch.compile(m, backend=backend, fullgraph=True), [], []
                own = {p.data_ptr() for p in (*m.parameters(), x)}

                def pack(t):
                    if t.data_ptr() not in own:
                        kept.append(weakref.ref(t))
                    return t

                class Ranges:
                    def __call__(self, name, file, line):
                        if name:
                            alive.append(sum(w() is not None for w in kept))

                with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                    y = f(x)
                with mock.patch.object(compiler, "KernelRanges", Ranges), mock.patch.object(compiler, "_profiling", lambda: True):
                    y.square().sum().backward()
                for p, g in zip(m.parameters(), expected):
                    torch.testing.assert_close(p.grad, g)
                    p.grad = None
                self.assertGreaterEqual(len(kept), 4)
                self.assertEqual(alive[0], len(kept))
                self.assertEqual(alive[-1] <= 2, goes, alive)

    def test_one_pair_with_an_unused_output(self):
        def f(x):
            return x.sin(), x.cos()

        x = torch.randn(4, requires_grad=True)
        g = torch.compile(f, backend=backend)
        torch.testing.assert_close(torch.autograd.grad(g(x)[1].sum(), x)[0], -x.detach().sin())
        torch.testing.assert_close(torch.autograd.grad(g(x)[0].sum(), x)[0], x.detach().cos())


class Lists(unittest.TestCase):
    """Optimisers that work on lists of tensors, as they do on GPUs."""

    def test_optimisers(self):
        options = {
            "AdamW": {"lr": 1e-2},
            "Adam": {"lr": 1e-2, "amsgrad": True},
            "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
            "RMSprop": {"lr": 1e-2, "centered": True, "momentum": 0.5},
        }
        for name, given in options.items():
            with self.subTest(optimiser=name):
                torch._dynamo.reset()
                pytorch.reset()
                a, b = nn.Linear(32, 16), nn.Linear(32, 16)
                b.load_state_dict(a.state_dict())
                x = torch.randn(8, 32)
                first, second = (getattr(torch.optim, name)(m.parameters(), foreach=True, **given) for m in (a, b))
                step = torch.compile(second.step, backend=backend)
                for _ in range(4):
                    for m, update in ((a, first.step), (b, step)):
                        m.zero_grad(set_to_none=True)
                        m(x).square().mean().backward()
                        update()
                for p, q in zip(a.parameters(), b.parameters()):
                    torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6)
                self.assertNotIn(" x aten", pytorch.report())


if __name__ == "__main__":
    unittest.main()
