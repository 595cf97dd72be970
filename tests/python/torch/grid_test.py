# SPDX-License-Identifier: Apache-2.0
"""Sampling by a grid, and its gradients, against ATen's: every mode, padding and rule of corners, borders met exactly."""

import itertools
import unittest

import torch
import torch.nn.functional as F

from tessera import pytorch

WAYS = {
    2: list(itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True))),
    3: list(itertools.product(("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True))),
}


class Grids(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        torch._dynamo.reset()
        pytorch.reset()

    def arguments(self, n, sizes, places):
        x = torch.randn(2, 3, *sizes, dtype=torch.float64)
        grid = 2.6 * torch.rand(2, *places, n, dtype=torch.float64) - 1.3  # also outside
        at = grid.view(2, -1, n)
        at[0, 0], at[0, 1], at[1, 0] = -1.0, 1.0, 4.7  # the corners, and further out than one reflection
        return x.requires_grad_(), grid.requires_grad_()

    def check(self, ways, sizes, places, dynamic=False):
        def f(x, grid):
            return [F.grid_sample(x, grid, m, p, align_corners=c) for m, p, c in ways]

        compiled = torch.compile(f, backend=pytorch.backend, dynamic=dynamic)
        for grow in (0, 2) if dynamic else (0,):
            x, grid = self.arguments(len(sizes), [s + grow for s in sizes], [p + grow for p in places])
            expected, results = f(x, grid), compiled(x, grid)
            for way, y, z in zip(ways, expected, results):
                torch.testing.assert_close(z, y, rtol=1e-10, atol=1e-10, msg=lambda m, way=way: f"{way}: {m}")
            weights = [torch.randn_like(y) for y in expected]  # so that no two ways' gradients make up for each other
            for a, b in zip(*(torch.autograd.grad(made, (x, grid), weights) for made in (expected, results))):
                torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9)
        self.assertEqual({r.op for g in pytorch.REPORT.graphs for r in g.refusals}, set())

    def test_images(self):
        self.check(WAYS[2], (5, 4), (3, 6))

    def test_volumes(self):
        self.check(WAYS[3], (4, 5, 3), (2, 3, 2))

    def test_symbolic_sizes(self):
        self.check(WAYS[2][1:18:6], (5, 4), (3, 6), True)

    def test_one_element(self):
        # There is nothing to reflect in, and every coordinate is on the border.
        self.check(WAYS[2][4:6], (1, 4), (3, 2))


if __name__ == "__main__":
    unittest.main()
