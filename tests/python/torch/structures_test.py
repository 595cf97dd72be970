# SPDX-License-Identifier: Apache-2.0
"""What PyTorch programs are made of beyond operators: higher-order operators, custom ones, subclasses, layouts, views that
leave. Each is compared with the eager result, and with what is known to run through ATen."""

import unittest
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

from tessera import pytorch
from tessera.pytorch import backend


@torch.library.custom_op("tessera_test::times", mutates_args=())
def times(x: torch.Tensor, k: int) -> torch.Tensor:
    return x * k


@times.register_fake
def _(x, k):
    return torch.empty_like(x)


@torch.library.custom_op("tessera_test::increase", mutates_args={"x"})
def increase(x: torch.Tensor) -> None:
    x.add_(1)


class Subclass(torch.Tensor):
    pass


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Structures(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, before)
        torch.manual_seed(1)

    def same(self, f, *args, aten=(), **options):
        """aten: operators that run through ATen, all of them."""
        torch._dynamo.reset()
        pytorch.reset()

        def copies():
            return [a.clone() if isinstance(a, torch.Tensor) else a for a in args]

        expected = f(*copies())
        found = torch.compile(f, backend=backend, **options)(*copies())
        torch.testing.assert_close(found, expected)
        for x, y in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected)):
            if isinstance(y, torch.Tensor) and y.layout == torch.strided:
                self.assertEqual(x.stride(), y.stride())
        self.assertEqual({r.op for g in pytorch.REPORT.graphs for r in g.refusals}, set(aten))

    def test_higher_order_operators(self):
        from torch._higher_order_ops import while_loop
        from torch._higher_order_ops.scan import scan
        from torch.nn.attention.flex_attention import flex_attention

        self.same(
            lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,)), torch.ones(3), aten=["cond"]
        )
        self.same(
            lambda x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x)),
            torch.ones(3),
            aten=["while_loop"],
        )
        self.same(
            lambda x: scan(lambda c, x: (c + x, (c * x).clone()), torch.zeros(3), x, dim=0), torch.randn(4, 3), aten=["scan"]
        )
        self.same(
            lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j)),
            torch.randn(1, 2, 16, 8),
            aten=["flex_attention"],
        )
        self.same(
            lambda x: torch.utils.checkpoint.checkpoint(lambda y: (y.sin() * 2).relu(), x, use_reentrant=False), torch.randn(3)
        )
        region = torch.compiler.nested_compile_region(lambda x: x.sin() + 1)
        self.same(lambda x: region(region(x)) + region(x), torch.randn(4), aten=["invoke_subgraph"])

    def test_custom_operators(self):
        self.same(lambda x: times(x.sin(), 3) + 1, torch.randn(3), aten=["tessera_test.times.default"])
        self.same(lambda x: (increase(x), x * 2)[1], torch.randn(3), aten=["auto_functionalized_v2"])
        self.same(lambda x: Function.apply(x) + 1, torch.randn(3))

    def test_transforms(self):
        self.same(torch.vmap(lambda x: x.sin().sum()), torch.randn(3, 4))
        self.same(torch.func.grad(lambda x: x.sin().sum()), torch.randn(3, 4))

    def test_tensors_of_other_kinds(self):
        self.same(lambda x: x + 1, torch.randn(3).as_subclass(Subclass))
        self.same(lambda x: x.to_sparse().to_dense() * 2, torch.eye(3))
        self.same(
            lambda x: torch.view_as_real(torch.fft.fft(x)).sum(-1) * 2,
            torch.randn(4),
        )
        self.same(
            lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255) + 1,
            torch.randn(4),
            aten=["aten.fake_quantize_per_tensor_affine_cachemask.default"],
        )

    def test_inputs_of_other_kinds(self):
        cases = {
            "sparse": (lambda x: (x * 2).to_dense() + 1, torch.eye(3).to_sparse()),
            "sparse rows": (lambda x: x @ torch.ones(3, 2), torch.eye(3).to_sparse_csr()),
            "nested": (
                lambda x: torch.nested.to_padded_tensor(x * 2, 0.0),
                torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged),
            ),
            "quantised": (lambda x: x.dequantize() * 2, torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)),
            "complex": (lambda x: x * x.conj() + 1j, torch.randn(4, dtype=torch.complex64)),
            "complex halves": (lambda x: x * 2, torch.randn(4, dtype=torch.complex64).to(torch.complex32)),
            "without data": (lambda x: x.sin() + 1, torch.empty(4, device="meta")),
            "eight bits": (lambda x: x.to(torch.float32) + 1, torch.randn(4).to(torch.float8_e4m3fn)),
        }
        for name, (f, x) in cases.items():
            with self.subTest(name):
                torch._dynamo.reset()
                expected, found = f(x), torch.compile(f, backend=backend)(x)
                self.assertEqual((found.shape, found.dtype, found.device), (expected.shape, expected.dtype, expected.device))
                if expected.device.type != "meta":
                    torch.testing.assert_close(found, expected)

    def test_values_that_are_read(self):
        self.same(lambda x: x * x.sum().item(), torch.randn(4))
        self.same(lambda x: x[x > 0].sum(), torch.randn(8))

    def test_results_that_are_views(self):
        self.same(lambda x: x.view(2, 2).t().add_(1), torch.randn(4))
        self.same(lambda x: (x + 1)[:, ::2], torch.randn(4, 6))
        self.same(lambda x: (x + 1).expand(3, 4), torch.randn(1, 4))
        self.same(lambda x: torch.chunk(x * 2, 2, 1), torch.randn(4, 6))
        self.same(lambda x: ((y := x + 1), y, x, x), torch.randn(4))
        for dynamic in (False, True):  # of an argument: where it lies in the argument's memory counts
            self.same(lambda x: torch.chunk(x, 2), torch.randn(5, 4), dynamic=dynamic)
            self.same(lambda x: x[2:].t(), torch.randn(5, 4), dynamic=dynamic)
            self.same(lambda x, y: x.expand_as(y), torch.randn(1, 4), torch.randn(3, 4), dynamic=dynamic)

    def test_numbers(self):
        self.same(lambda x, c: x * c, torch.randn(4), 2.5)
        self.same(lambda x, c: x * c + c, torch.randn(4), 2.5, dynamic=True)
        self.same(lambda x, k: x[k] + k, torch.randn(4), 2, dynamic=True)

    def test_sizes_that_are_all_there_is(self):
        for n in (0, 1, 5):
            self.same(lambda n: torch.zeros(n) + 1, n, dynamic=True)

    def test_dynamic_shapes(self):
        self.same(lambda x: torch.cat([x, x], 0).view(2, -1, x.shape[1]).mean(1), torch.randn(5, 3), dynamic=True)
        self.same(lambda x: F.pad(x, (1, 2)).unfold(1, 2, 1).sum(-1), torch.randn(5, 3), dynamic=True)
        self.same(nn.Conv2d(3, 4, 3, stride=2, padding=1), torch.randn(2, 3, 17, 15), dynamic=True)
        self.same(lambda x: x[1:-1] + x[:-2], torch.randn(9, 2), dynamic=True)


if __name__ == "__main__":
    unittest.main()
