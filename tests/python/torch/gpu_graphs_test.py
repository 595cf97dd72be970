# SPDX-License-Identifier: Apache-2.0
"""What the backend makes of graphs of a GPU, on machines without one: PyTorch's fake tensors, and the driver that tests/cuda
makes of the CPU. Graphs are compiled and nothing runs; cuda_test.py does that on a GPU."""

import pathlib
import unittest

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import tessera
from tessera import pytorch
from tessera.pytorch.compiler import compile_graph
from tessera.pytorch.options import parsed

FAKE = pathlib.Path(tessera.__file__).parents[2] / "tests" / "cuda" / "libfake_cuda.so"


@unittest.skipUnless(FAKE.exists(), f"there is no {FAKE}")
class GraphsOfAGpu(unittest.TestCase):
    def refused(self, f, *inputs):
        """The operators of f that ATen would run. It gives a tuple, and brings its inputs from the host to the GPU itself."""
        pytorch.reset()
        chosen, overrides = parsed(None, {"config": "cuda"})
        libraries = tuple(f'cuda.{name}="{FAKE}"' for name in ("driver", "nvrtc")) + ('cuda.cublaslt="off"', 'cuda.cudnn="off"')
        context, records = pytorch._context(chosen["config"], (*overrides, *libraries))
        graph = make_fx(f, decomposition_table=pytorch.decompositions(True), tracing_mode="symbolic")(*inputs)
        compile_graph(graph, context, records, chosen, pytorch.REPORT)
        return sorted(r.op for g in pytorch.REPORT.graphs for r in g.refusals)

    def test_numbers_of_the_host_that_fill_tensors(self):
        def masked(x, number):
            x = x.to("cuda")
            rows = torch.fill(torch.zeros(2, 6, device="cuda"), number)
            m = torch.slice_scatter(torch.zeros(6, 6, device="cuda"), rows, 0, 1, 3)
            return (x.masked_fill(m == 1, -100.0) + m,)

        self.assertEqual(self.refused(masked, torch.randn(4, 6, 6), torch.tensor(1.0)), [])

    def test_numbers_of_sizes_that_get_dimensions(self):
        def scaled(x):
            x = x.to("cuda")
            largest = torch.full((), x.shape[0] * 1e-3, device="cuda")
            rows = torch.arange(1, 2, device="cuda")
            return x > torch.maximum(x.sum(), largest.unsqueeze(-1)), x.index_fill(0, rows, x.shape[1])

        self.assertEqual(self.refused(scaled, torch.randn(5, 7)), [])

    def test_numbers_on_the_host_stay_in_regions(self):
        def scaled(x, leaves):
            x = x.to("cuda")
            rows = torch.scalar_tensor(x.shape[0], dtype=torch.int64)
            y = x / rows.to(torch.float32).sqrt()
            return (y, rows) if leaves else (y,)

        self.assertEqual(self.refused(lambda x: scaled(x, False), torch.randn(5, 7)), [])
        self.assertEqual(self.refused(lambda x: scaled(x, True), torch.randn(5, 7)), ["aten.scalar_tensor.default"])


if __name__ == "__main__":
    unittest.main()
