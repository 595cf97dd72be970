# SPDX-License-Identifier: Apache-2.0
"""Special functions as formulas of ours, against mpmath's in 40 digits."""

import math
import unittest

import mpmath as mp
import torch

from tessera import pytorch

# Away from zeros, where a distance is compared with the value; both sides of every place where a formula ends.
POINTS = [-11.3, -8.25, -6.5, -4.75, -2.25, -0.75, -0.25, 1e-8, 1e-3, 0.45, 0.55, 1.3, 2.2, 4.75, 5.25, 7.9, 8.1, 19.3, 41.7]
POSITIVE = [x for x in POINTS if x > 0]
FUNCTIONS = {
    "i0e": (lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), POINTS),
    "i1e": (lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), POINTS),
    "modified_bessel_i0": (lambda x: mp.besseli(0, x), POINTS),
    "modified_bessel_i1": (lambda x: mp.besseli(1, x), POINTS),
    "modified_bessel_k0": (lambda x: mp.besselk(0, x), POSITIVE),
    "modified_bessel_k1": (lambda x: mp.besselk(1, x), POSITIVE),
    "scaled_modified_bessel_k0": (lambda x: mp.besselk(0, x) * mp.exp(x), POSITIVE),
    "scaled_modified_bessel_k1": (lambda x: mp.besselk(1, x) * mp.exp(x), POSITIVE),
    "bessel_j0": (lambda x: mp.besselj(0, x), POINTS),
    "bessel_j1": (lambda x: mp.besselj(1, x), POINTS),
    "bessel_y0": (lambda x: mp.bessely(0, x), POSITIVE),
    "bessel_y1": (lambda x: mp.bessely(1, x), POSITIVE),
    "airy_ai": (mp.airyai, [x for x in POINTS if x < 8]),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), [x for x in POINTS if x > -9]),
    "spherical_bessel_j0": (lambda x: mp.sin(x) / x, POINTS),
}
EAGER_DIFFERS = ("bessel_j0", "bessel_y1", "airy_ai")
TOLERANCE = {torch.float64: 2e-13, torch.float32: 3e-5}


class Special(unittest.TestCase):
    def compiled(self, f, x):
        torch._dynamo.reset()
        pytorch.reset()
        with torch.no_grad():
            y = torch.compile(f, backend=pytorch.backend)(x)
        return y, [r for g in pytorch.REPORT.graphs for r in g.refusals]

    def judge(self, name, f, exact, points, dtype):
        x = torch.tensor(points, dtype=dtype)
        y, refusals = self.compiled(f, x)
        self.assertEqual(refusals, [], name)
        for at, found in zip(x.tolist(), y.tolist()):
            with mp.workdps(40):
                expected = exact(mp.mpf(at))
                if abs(expected) > torch.finfo(dtype).max:
                    self.assertTrue(math.isinf(found), f"{name} of {at} in {dtype}")
                    continue
                self.assertLess(abs(found - expected), TOLERANCE[dtype] * abs(expected), f"{name} of {at} in {dtype}")

    def test_values(self):
        for name, (exact, points) in FUNCTIONS.items():
            for dtype in (torch.float32,) if name in EAGER_DIFFERS else (torch.float64, torch.float32):
                self.judge(name, getattr(torch.special, name), exact, points, dtype)

    def test_polygamma(self):
        for n in range(2, 8):
            for dtype in (torch.float64, torch.float32):
                self.judge(f"polygamma {n}", lambda x: torch.polygamma(n, x), lambda x: mp.psi(n, x), POINTS, dtype)

    def test_normal_quantile(self):
        def exact(p):
            return -mp.sqrt(2) * mp.erfinv(1 - 2 * p)

        points = [1e-10, 1e-5, 0.01, 0.13, 0.14, 0.4, 0.6, 0.9, 0.99]
        self.judge("ndtri", torch.special.ndtri, exact, points, torch.float64)

    def test_where_atens_f64_is_inexact_it_stays(self):
        for name in EAGER_DIFFERS:
            f = getattr(torch.special, name)
            y, refusals = self.compiled(f, torch.tensor([5.5, 0.5], dtype=torch.float64))
            self.assertEqual([r.op for r in refusals], [f"aten.special_{name}.default"])
            self.assertTrue(torch.equal(y, f(torch.tensor([5.5, 0.5], dtype=torch.float64))))

    def test_edges_are_pytorchs(self):
        x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 1e-30, 1.0, 2.0, 5.0, 8.0, 720.0, -3.0])
        for name in [*FUNCTIONS, "ndtri"]:
            f = getattr(torch.special, name)
            y, _ = self.compiled(f, x)
            self.assertTrue(torch.allclose(y, f(x), rtol=1e-4, atol=1e-6, equal_nan=True), (name, y, f(x)))
        for kind in "tuvw":
            for name in (f"chebyshev_polynomial_{kind}", f"shifted_chebyshev_polynomial_{kind}"):
                f = getattr(torch.special, name)
                a = torch.tensor([-2.5, -1.0, -0.7, -1e-3, 0.0, 0.3, 0.5, 0.999, 1.0, 1.001, 3.0], dtype=torch.float64)[:, None]
                n = torch.arange(-2, 12, dtype=torch.float64)[None]
                y, refusals = self.compiled(lambda v: f(v, n), a)
                self.assertEqual(refusals, [])
                self.assertTrue(torch.allclose(y, f(a, n), rtol=1e-9, atol=1e-9), name)


if __name__ == "__main__":
    unittest.main()
