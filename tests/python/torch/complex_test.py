# SPDX-License-Identifier: Apache-2.0
"""Complex numbers and Fourier transforms through torch.compile(backend="tessera")."""

import itertools
import unittest

import torch

from tessera import pytorch
from tessera.pytorch import backend


class Complex(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        torch._dynamo.reset()
        pytorch.reset()

    def refused(self):
        return {r.op for g in pytorch.REPORT.graphs for r in g.refusals}

    def same(self, f, *args, through_aten=()):
        torch._dynamo.reset()
        pytorch.reset()
        found, expected = torch.compile(f, backend=backend, fullgraph=True, dynamic=False)(*args), f(*args)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
        self.assertEqual(self.refused(), set(through_aten))

    def test_lengths(self):
        # One product, several factors, powers of two, odd ones.
        for n in (1, 2, 7, 64, 65, 96, 243, 1024, 1021 * 2):
            through_aten = {"aten._fft_r2c.default", "aten._fft_c2r.default"} if n > 2000 else ()  # a large prime factor
            self.same(lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]), torch.randn(3, n), through_aten=through_aten)

    def test_lengths_that_vary(self):
        functions = {
            "there and back": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=x.shape[-1]),
            "an even length back": lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), norm="ortho"),
            "two dimensions": lambda x: torch.view_as_real(torch.fft.ifft2(torch.fft.fft2(x, norm="forward") + x)),
            "hermitian": lambda x: torch.fft.hfft(torch.fft.ihfft(x)),
            "a shorter spectrum": lambda x: torch.fft.hfft(torch.complex(x, x), n=x.shape[-1]),
        }
        for name, f in functions.items():
            with self.subTest(name):
                torch._dynamo.reset()
                pytorch.reset()
                g = torch.compile(f, backend=backend, dynamic=True)
                for n in (6, 9, 5, 64, 33):
                    x = torch.randn(7, n)
                    torch.testing.assert_close(g(x), f(x), rtol=1e-4, atol=1e-4)
                self.assertEqual(self.refused(), set())
                self.assertEqual(len(pytorch.REPORT.graphs), 1)
                x = torch.randn(7, 100)  # ATen's algorithm is the better one
                torch.testing.assert_close(g(x), f(x), rtol=1e-4, atol=1e-4)
                self.assertTrue(self.refused())

    def test_gradients(self):
        def filled(a, b):
            z = torch.complex(a, b) * 2
            z[0].fill_(3 - 2j)
            return z

        functions = {
            "polar": lambda a, b: torch.polar(a.abs() + 0.1, b),
            "sgn": lambda a, b: torch.sgn(torch.complex(a, b)),
            "fill": filled,
            "masked fill": lambda a, b: torch.complex(a, b).masked_fill(a > 0, 1 - 4j),
            "diagonal": lambda a, b: torch.diagonal_scatter(torch.complex(a, b)[:4, :4], torch.complex(b, a)[0, :4]),
        }
        for name, f in functions.items():
            with self.subTest(name):
                torch._dynamo.reset()
                pytorch.reset()
                a, b = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
                weights = torch.randn(4, 5, dtype=torch.complex64)
                found = []
                for g in (f, torch.compile(f, backend=backend)):
                    y = g(a, b)
                    found.append([y.detach(), *torch.autograd.grad(y, (a, b), weights[: y.shape[0], : y.shape[1]])])
                for expected, ours in zip(*found):
                    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
                self.assertEqual(self.refused(), set())

    def test_transforms_are_exact(self):
        x = torch.randn(2, 1024, dtype=torch.float64)
        y = torch.compile(torch.fft.fft, backend=backend)(x)
        torch.testing.assert_close(y, torch.fft.fft(x), rtol=1e-12, atol=1e-11)

    def test_dimensions_and_normalisations(self):
        x = torch.randn(3, 6, 10)
        for norm, dims in itertools.product(("backward", "ortho", "forward"), ((0,), (1, 2), (2, 0), (0, 1, 2))):
            self.same(lambda x: torch.fft.irfftn(torch.fft.rfftn(x, dim=dims, norm=norm) * 2, dim=dims, norm=norm), x)
        for f in (torch.fft.hfft, torch.fft.ihfft, torch.fft.fftshift):
            self.same(f, x)

    def test_spectral_convolution(self):
        x, kernel = torch.randn(2, 48), torch.randn(48)
        self.same(lambda x, k: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(k), n=48), x, kernel)

    def test_rotary_embedding(self):
        q = torch.randn(2, 5, 3, 8)
        turn = torch.polar(torch.ones(5, 4), torch.randn(5, 4))

        def rotated(q, turn):
            pairs = torch.view_as_complex(q.unflatten(-1, (-1, 2)))
            return torch.view_as_real(pairs * turn[:, None]).flatten(-2)

        self.same(rotated, q, turn)

    def test_arithmetic(self):
        a, b, r = torch.randn(3, 4, dtype=torch.complex64), torch.randn(4, dtype=torch.complex64), torch.randn(3, 1)
        for f in (
            lambda a, b, r: a + b * r - 2,
            lambda a, b, r: a / b + r / a,
            lambda a, b, r: torch.add(a, b, alpha=2j) * (1 - 3j),
            lambda a, b, r: (a.abs(), a.angle(), (-a).real, a.conj().imag),
            lambda a, b, r: a @ b[:, None].conj().resolve_conj(),
            lambda a, b, r: a.sum(0) + a.exp().mean(),
            lambda a, b, r: torch.where(r > 0, a, b),
            lambda a, b, r: torch.cat([a, r.expand(3, 2)], 1),
        ):
            self.same(f, a, b, r)

    def test_values_that_are_not_finite(self):
        x = torch.tensor([float("inf"), float("nan"), 1.0])
        self.same(lambda x: torch.view_as_real(x.to(torch.complex64)), x)

    def test_conjugates_that_nobody_has_taken_yet(self):
        x = torch.randn(4, dtype=torch.complex64)
        f = torch.compile(lambda x: (x * 2, x.real + 1), backend=backend)
        for given in (x, x.conj(), x.conj().imag.to(torch.complex64)):
            torch.testing.assert_close(f(given), (given * 2, given.real + 1))
        g = torch.compile(lambda x: ((x * 2).conj(), x.conj()), backend=backend)
        for given in (x, x.conj()):
            torch.testing.assert_close(
                tuple(y.resolve_conj() for y in g(given)), ((given * 2).conj().resolve_conj(), given.conj().resolve_conj())
            )


if __name__ == "__main__":
    unittest.main()
