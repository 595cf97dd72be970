# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend="tessera") for inference: values, strides, sizes, mutation, aliases, what runs through ATen."""

import unittest
import unittest.mock

import torch
import torch.nn as nn
import torch.nn.functional as F

import tessera
from tessera import pytorch
from tessera.pytorch import backend, list_mode_options, list_options
from tessera.pytorch.ops import TABLE
from tessera.pytorch.options import MODES
from tessera.pytorch.packing import PackedWeights


def compiled(f, **kwargs):
    torch._dynamo.reset()
    return torch.compile(f, backend=backend, fullgraph=True, **kwargs)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.b(F.gelu(self.norm(self.a(x)))).softmax(-1)


class Inference(unittest.TestCase):
    def setUp(self):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, before)
        torch.manual_seed(1)
        torch._dynamo.reset()
        pytorch.reset()

    def same(self, f, *args, **options):
        g = compiled(f, **options)
        expected = f(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
        found = g(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
        torch.testing.assert_close(found, expected)
        return found, expected

    def test_network(self):
        m = Network().eval()
        for dynamic in (None, False, True):
            f = compiled(m, dynamic=dynamic)
            for n in (5, 7, 9, 33, 1, 2):
                x = torch.randn(n, 8)
                torch.testing.assert_close(f(x), m(x))
        self.assertNotIn(" x aten", pytorch.report())

    def test_one_executable_for_all_sizes(self):
        m = Network().eval()
        f = compiled(m)
        for n in range(2, 20):
            f(torch.randn(n, 8))
        self.assertEqual(len(pytorch.REPORT.graphs), 2)

    def test_strides_of_outputs(self):
        def f(x):
            y = x * 2
            return y.t(), y, y.view(2, 2, 3).permute(2, 0, 1) + 1, y.t() + 1

        found, expected = self.same(f, torch.randn(4, 3))
        for a, b in zip(found, expected):
            self.assertEqual(a.stride(), b.stride())

    def test_strides_with_gaps_between_symbolic_sizes(self):
        def f(x):
            n = x.shape[0]
            return x.new_empty_strided((n, 2, 2), (1, n, 3)), x + 1

        g = compiled(f, dynamic=True)
        for n in (2, 5):
            found = g(torch.ones(n, 3))[0]
            self.assertEqual((found.shape, found.stride()), ((n, 2, 2), (1, n, 3)))
        self.assertEqual([len(g.refusals) for g in pytorch.REPORT.graphs], [0])

    def test_numbers_that_python_computes(self):
        def f(x, start, scale):
            n = x.shape[0]
            return x[start:] * (n * 0.3), torch.roll(x, n // 2, 0), x.new_ones(int(n * 1.7)) + scale

        g = compiled(f, dynamic=True)
        for n, start, scale in ((4, 1, 0.5), (9, 2, 1.5), (6, -2, 2.5), (7, -3, 0.25)):
            x = torch.randn(n, 5)
            for a, b in zip(g(x, start, scale), f(x, start, scale)):
                torch.testing.assert_close(a, b)
        self.assertEqual([r.op for g in pytorch.REPORT.graphs for r in g.refusals], [])
        self.assertLessEqual(len(pytorch.REPORT.graphs), 2)  # one for either sign of the start
        self.assertEqual(pytorch.REPORT.calls, {})

    def test_channels_last(self):
        conv = nn.Conv2d(3, 8, 3, padding=1).to(memory_format=torch.channels_last)
        found, expected = self.same(lambda x: F.relu(conv(x)), torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last))
        self.assertEqual(found.stride(), expected.stride())

    def test_mutation_and_aliases(self):
        def f(x, y):
            x.add_(y)
            z = x[1:]
            z.mul_(2)
            return z, x.view(-1), y

        for dynamic in (False, True):
            x, y = torch.randn(4, 3), torch.randn(3)
            mine, theirs = x.clone(), x.clone()
            g = compiled(f, dynamic=dynamic)
            found, expected = g(mine, y), f(theirs, y)
            torch.testing.assert_close(mine, theirs)
            torch.testing.assert_close(found, expected)
            self.assertEqual(found[0].data_ptr(), mine[1:].data_ptr())
            self.assertIs(found[2], y)

    def test_a_mutated_buffer_that_is_returned(self):
        class Counter(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("n", torch.zeros(2))

            def forward(self, x):
                self.n.add_(1)
                return self.n, x + self.n

        a, b = Counter(), Counter()
        f = compiled(a)
        for _ in range(3):
            x = torch.randn(2)
            torch.testing.assert_close(f(x), b(x))
        torch.testing.assert_close(a.n, b.n)

    def test_sizes_as_values(self):
        self.same(lambda x: (x * x.shape[0] + x.shape[1], x.shape[0] * 2), torch.randn(5, 3), dynamic=True)
        self.same(lambda x: x.view(x.shape[0] * x.shape[1]), torch.randn(5, 4), dynamic=True)
        self.same(lambda x: torch.zeros(x.shape[0] + 1) + 3, torch.randn(6), dynamic=True)
        self.same(lambda x: torch.arange(x.shape[0]), torch.randn(6), dynamic=True)

    def test_norms_of_vectors(self):
        x, y = torch.randn(3, 7, 5), torch.randn(3, 7, 5)
        self.same(lambda a, b: (F.normalize(a, dim=1), F.cosine_similarity(a, b, dim=-1)), x, y)
        self.same(lambda a: F.normalize(a.bfloat16(), dim=-1), x)
        for p in (0, 1, 2, 3, 0.5, -1.5, float("inf"), float("-inf")):
            self.same(lambda a, p=p: (torch.linalg.vector_norm(a, p, (0, 2), True), torch.linalg.vector_norm(a, p)), x)
        self.assertNotIn(" x aten", pytorch.report())

    def test_a_value_chooses_an_element(self):
        # A decomposition of PyTorch's asks for the index, which is known at run time alone.
        def f(x, i):
            return x.take(i) + 1, x.diagonal()[i[0].item()]

        with unittest.mock.patch.object(torch._dynamo.config, "capture_scalar_outputs", True):
            for i in ([1, -2], [0, 8]):
                self.same(f, torch.randn(9, 9), torch.tensor(i), dynamic=True)
            of_one = torch.tensor(3.0), torch.tensor(0)
            self.same(torch.take, *of_one, dynamic=True)
            self.addCleanup(pytorch.decompositions.cache_clear)
            with unittest.mock.patch.dict(TABLE):
                del TABLE["aten.take.default"]
                pytorch.decompositions.cache_clear()
                self.same(torch.take, *of_one, dynamic=True)
                self.assertRegex(pytorch.report(), r"aten\.(take|select)")  # PyTorch 2.15 takes it apart

    def test_what_is_not_taken_runs_through_aten(self):
        def f(x):
            return torch.linalg.svdvals(x * 2) + 1

        self.same(f, torch.randn(3, 3))
        self.assertIn("_linalg_svd", pytorch.report())
        with self.assertRaises(Exception) as caught:
            compiled(f, options={"fallback": "error"})(torch.randn(3, 3))
        self.assertIn("_linalg_svd", str(caught.exception))
        compiled(lambda x: x + 1, options={"fallback": "error"})(torch.randn(3))

    def test_random_numbers_are_pytorchs(self):
        def f(x):
            return torch.rand(3) + x, torch.randn(3) * x, F.dropout(x, 0.5)

        torch.manual_seed(3)
        expected = f(torch.ones(3))
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(f)(torch.ones(3)), expected, rtol=0, atol=0)

    def test_data_dependent_sizes(self):
        torch._dynamo.config.capture_dynamic_output_shape_ops = True
        try:
            self.same(lambda x: x.nonzero().float().sum(0) + x.sum(), torch.tensor([0.0, 1, 2, 0]))
        finally:
            torch._dynamo.config.capture_dynamic_output_shape_ops = False

    def test_parameters_that_change(self):
        m = nn.Linear(3, 2)
        f, x = compiled(m), torch.randn(4, 3)
        f(x)
        m.weight.data = torch.randn(2, 3)
        torch.testing.assert_close(f(x), m(x))
        m.load_state_dict({"weight": torch.randn(2, 3), "bias": torch.randn(2)}, assign=True)
        torch.testing.assert_close(f(x), m(x))
        m.weight.mul_(3)
        torch.testing.assert_close(f(x), m(x))

    def test_parameters_whose_memory_comes_and_goes(self):
        # As sharding does it: parameters are views of one flat tensor, whose storage is given up and filled again.
        m, x = nn.Linear(3, 2), torch.randn(4, 3)
        flat = torch.randn(8)
        m.weight.data, m.bias.data = flat[:6].view(2, 3), flat[6:]
        f = compiled(m)
        torch.testing.assert_close(f(x), m(x))
        storage = flat.untyped_storage()
        size = storage.size()
        for k in range(3):
            storage.resize_(0)
            with self.assertRaises(tessera.UserError):  # nothing lies behind the parameters
                f(x)
            storage.resize_(size)
            flat.copy_(torch.full((8,), float(k)))
            torch.testing.assert_close(f(x), m(x))
        m.weight.data = torch.randn(3, 2).t()  # the same shape, in other strides
        torch.testing.assert_close(f(x), m(x))

    def test_frozen_parameters(self):
        m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
        x = torch.randn(2, 3, 8, 8)
        expected = m(x)
        for verify in (False, True):
            f = compiled(m, options={"freezing": True, "verify": verify})
            torch.testing.assert_close(f(x), expected)
            self.assertEqual([len(g.refusals) for g in pytorch.REPORT.graphs], [0])

        with torch.enable_grad():  # a training step changes its parameters
            trained, eager = nn.Linear(4, 2), nn.Linear(4, 2)
            eager.load_state_dict(trained.state_dict())
            f, x = compiled(trained, options={"freezing": True}), torch.randn(3, 4)
            for _ in range(3):
                for g, net in ((f, trained), (eager, eager)):
                    g(x).square().sum().backward()
                    with torch.no_grad():
                        net.weight -= 0.1 * net.weight.grad
                torch.testing.assert_close(f(x), eager(x))

        counter = nn.BatchNorm1d(3)  # a buffer that the graph writes is no constant
        g = compiled(counter, options={"freezing": True})
        for n in (1, 2):
            g(torch.randn(4, 3))
            self.assertEqual(int(counter.num_batches_tracked), n)

    def test_writes_to_frozen_parameters(self):
        """A constant shares the parameter's memory, and kernels have packed others: no call computes with a mixture."""
        m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
        x = torch.randn(2, 3, 8, 8)
        f = compiled(m, options={"freezing": True})
        torch.testing.assert_close(f(x), m(x))
        twice = lambda: {k: v * 2 for k, v in m.state_dict().items()}
        for changed, write in (
            ("1 of 8", lambda: m[4].bias.add_(1)),
            ("1 of 8", lambda: setattr(m[0].weight, "data", torch.randn(4, 3, 3, 3))),
            ("8 of 8", lambda: m.load_state_dict(twice())),
            ("8 of 8", lambda: m.load_state_dict(twice(), assign=True)),
            ("1 of 8", lambda: m[4].weight.untyped_storage().resize_(0)),
        ):
            write()
            with self.assertRaisesRegex(tessera.UserError, f"TSR-F065. {changed} frozen .* the first is l_fn_modules_"):
                f(x)
            if m[4].weight.untyped_storage().size():
                torch.compiler.reset()
                torch.testing.assert_close(f(x), m(x))

        with torch.inference_mode():  # whose tensors have no versions
            m = nn.Linear(3, 4)
            for options in ({"freezing": True}, {"pack_weights": True}):
                torch.compiler.reset()
                f = compiled(m, options=options)
                for n in range(5):
                    x = torch.full((2, 3), float(n))
                    torch.testing.assert_close(f(x), m(x))

    def test_weights_are_packed_on_the_third_call(self):
        m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 16), nn.Linear(16, 5)).eval()
        made = []

        def packed(self, args, make=PackedWeights._packed):
            made.append(make(self, args))
            return made[-1]

        with unittest.mock.patch.object(PackedWeights, "_packed", packed):
            for dynamic in (False, True):
                made.clear()
                f = compiled(m, dynamic=dynamic, options={"pack_weights": True})
                for n in (3, 3, 3, 4, 4) if dynamic else (3,) * 5:
                    x = torch.randn(n, 3, 8, 8)
                    torch.testing.assert_close(f(x), m(x))
                self.assertEqual([run is not None for run in made], [True])
                with torch.no_grad():  # writes of every kind that has a version or another address
                    for write in (
                        lambda: m[3].weight.mul_(2),
                        lambda: setattr(m[0].weight, "data", torch.randn(8, 3, 3, 3)),
                        lambda: m.load_state_dict({k: v * 1.5 for k, v in m.state_dict().items()}),
                        lambda: m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items()}, assign=True),
                        lambda: m[4].bias.add_(1),
                    ):
                        write()
                        for _ in range(4):
                            x = torch.randn(3, 3, 8, 8)
                            torch.testing.assert_close(f(x), m(x))
                self.assertGreaterEqual(len(made), 5)
        with torch.enable_grad():  # never in training
            m(x).sum().backward()
            f = compiled(m, options={"pack_weights": True})
            with unittest.mock.patch.object(PackedWeights, "__call__", side_effect=AssertionError):
                f(x).sum().backward()

    def test_odd_inputs(self):
        f = lambda x: x.exp() + 1
        self.same(f, torch.randn(4, 6)[:, ::2])
        self.same(f, torch.randn(3, 1).expand(3, 4))
        self.same(f, torch.randn(0, 4))
        self.same(f, torch.tensor(2.0))
        self.same(f, torch.randn(5)[1:])  # not aligned
        self.same(f, torch.randn(3, dtype=torch.complex64))
        self.same(f, torch.randn(3, dtype=torch.bfloat16))

    def test_inputs_whose_conjugate_or_negative_is_taken_by_who_reads_them(self):
        z = torch.randn(3, 4, dtype=torch.complex64)
        negative = torch.imag(z.conj())
        self.assertTrue(z.conj().is_conj() and negative.is_neg())
        f = lambda a, b, n: (a * b + 1, torch.view_as_real(a + n), n * 2)
        self.same(f, z.conj(), z, negative)
        self.same(f, z, z.t().conj().t(), negative)
        self.same(lambda a: a.svd().S.sum() * a.exp(), z.conj(), options={"fallback": "aten"})  # beside one that ATen runs
        compiled(f, options={"fallback": "error"})(z.conj(), z, negative)

    def test_masked_scatter_from_what_may_be_empty(self):
        f = lambda x, mask, source, keep: x.masked_scatter(mask, source[keep])
        g = compiled(f, options={"fallback": "error"})
        x, source = torch.arange(6.0), torch.arange(10.0, 16.0)
        mask = torch.tensor([True, False, True, True, False, False])
        for keep in ([1, 1, 1, 1, 0, 0], [0, 1, 0, 1, 0, 1]):
            keep = torch.tensor(keep, dtype=torch.bool)
            torch.testing.assert_close(g(x, mask, source, keep), f(x, mask, source, keep))
        nothing = torch.zeros(6, dtype=torch.bool)
        torch.testing.assert_close(g(x, nothing, source, nothing), x)
        for keep in ([0, 1, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0]):  # fewer than the mask takes
            with self.assertRaises((tessera.UserError, RuntimeError)):
                g(x, mask, source, torch.tensor(keep, dtype=torch.bool))

    def test_autocast(self):
        m = Network().eval()
        x = torch.randn(5, 8)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(compiled(m)(x), m(x), rtol=2e-2, atol=2e-2)

    def test_modes_and_options(self):
        for mode in (*list_mode_options(), None):
            self.same_mode(mode)
        for bad, says in (
            ({"options": {"fallbak": "error"}}, "did you mean 'fallback'?"),
            ({"options": {"fallback": "never"}}, "expected 'aten' or 'error'"),
            ({"options": {"verify": "yes"}}, "expected True or False"),
            ({"options": {"config": "no_such_config"}}, "no_such_config"),
            ({"mode": "max-autotun"}, "did you mean 'max-autotune'?"),
            ({"options": {"mode": "none"}}, "it has: default"),
        ):
            with self.assertRaises(Exception) as caught:
                compiled(lambda x: x + 1, **bad)(torch.ones(2))
            self.assertIn("TSR-", str(caught.exception))
            self.assertIn(says, str(caught.exception))

    def test_what_modes_and_options_there_are(self):
        self.assertEqual(set(list_mode_options()), set(MODES))
        self.assertEqual(list_mode_options("verify")["sets"], {"verify": True})
        with self.assertRaises(tessera.UserError):
            list_mode_options("verif")
        self.assertLessEqual({"fallback", "verify", "mode", "config", "set", "max_autotune"}, set(list_options()))

    def test_verify_passes_what_is_right(self):
        m = Network().eval()
        for dynamic in (False, True):
            f = compiled(m, mode="verify", dynamic=dynamic)
            for n in (5, 7):
                x = torch.randn(n, 8)
                torch.testing.assert_close(f(x), m(x))

    def test_verify_names_the_first_node_that_differs(self):
        kept = TABLE["aten.sin.default"]
        self.addCleanup(TABLE.__setitem__, "aten.sin.default", kept)
        TABLE["aten.sin.default"] = lambda e, out, x: e("cos", x)

        def f(x):
            y = x.exp()
            return (y.sin() + 1) * 2

        for options in ({"mode": "verify"}, {"options": {"verify": True, "mode": "eager"}}):
            with self.assertRaises(tessera.InternalError) as caught:
                compiled(f, **options)(torch.ones(3))
            self.assertEqual(caught.exception.code, "TSR-F062")
            self.assertRegex(str(caught.exception), "'sin' of region graph[0-9]+, aten.sin.default, differs from ATen's result")
            self.assertIn("inference_test.py", str(caught.exception))
        torch.testing.assert_close(compiled(f)(torch.ones(3)), (torch.ones(3).exp().cos() + 1) * 2)

    def same_mode(self, mode):
        torch.testing.assert_close(compiled(lambda x: x.sin() + 1, mode=mode)(torch.ones(4)), torch.ones(4).sin() + 1)


class Training(unittest.TestCase):
    def test_gradients_of_a_network(self):
        torch.manual_seed(2)
        m, x = Network(), torch.randn(6, 8)
        compiled(m)(x).square().sum().backward()
        found = [p.grad.clone() for p in m.parameters()]
        m.zero_grad()
        m(x).square().sum().backward()
        for g, p in zip(found, m.parameters()):
            torch.testing.assert_close(g, p.grad)


if __name__ == "__main__":
    unittest.main()
