# SPDX-License-Identifier: Apache-2.0
"""examples/pytorch runs as it stands; the backend's name is registered here, as installing the package does."""

import contextlib
import io
import os
import runpy
import unittest

import torch

from tessera import pytorch


class Examples(unittest.TestCase):
    def test_tour(self):
        if "tessera" not in torch._dynamo.list_backends():
            torch._dynamo.register_backend(pytorch.backend, name="tessera")
        pytorch.reset()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            runpy.run_path(os.path.join(os.path.dirname(__file__), "../../../examples/pytorch/tour.py"))
        lines = out.getvalue().splitlines()
        self.assertEqual([line[:2] for line in lines if line[1:2] == "."], [f"{k}." for k in range(1, 7)])
        self.assertTrue(any("_linalg_svd" in line for line in lines if line.startswith("3.")), out.getvalue())


if __name__ == "__main__":
    unittest.main()
