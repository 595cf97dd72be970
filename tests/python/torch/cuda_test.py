# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend="tessera") of tensors on a GPU: values, streams, memory, what ATen runs in between, training.

Skipped where PyTorch sees no GPU. On one, scripts/gpu_check.sh runs it as the part `pytorch`.
"""

import threading
import unittest

import torch
import torch.nn as nn
import torch.nn.functional as F

import tessera
from tessera import pytorch
from tessera.pytorch import backend

GPU = torch.cuda.is_available()


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask=None):
        b, n, w = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, w))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Text(nn.Module):
    def __init__(self, words=500, width=64, heads=4, blocks=2):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


def compiled(f, **kwargs):
    torch._dynamo.reset()
    return torch.compile(f, backend=backend, fullgraph=True, **kwargs)


@unittest.skipUnless(GPU, "PyTorch sees no GPU")
class OnGpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        torch._dynamo.reset()
        pytorch.reset()
        torch.backends.cuda.matmul.allow_tf32 = False

    def all_ours(self):
        self.assertNotIn(" x aten", pytorch.report())

    def same(self, f, *args, ours=True, close=None, **options):
        with torch.no_grad():
            expected, found = f(*args), compiled(f, **options)(*args)
        torch.testing.assert_close(found, expected, **(close or {}))
        if ours:
            self.all_ours()
        return found

    def test_pointwise(self):
        x, y = torch.randn(64, 33, device="cuda"), torch.randn(33, device="cuda")
        self.same(lambda x, y: torch.tanh(x * 2 + y).softmax(-1), x, y)
        self.same(lambda x, y: (x.t() + 1, y.sum()), x, y)

    def test_every_dtype(self):
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool):
            x = torch.randint(0, 2, (40, 7), device="cuda").to(dtype)
            with self.subTest(dtype=dtype):
                self.same(lambda x: (x.clone() if x.dtype == torch.bool else x * 3 + 1, x[3:, ::2]), x)

    def test_numbers_of_the_host_come_along(self):
        x = torch.randn(9, device="cuda")
        self.same(lambda x, s: x * s + 1, x, torch.tensor(0.25))
        half = torch.tensor(0.5)
        self.same(lambda x: x + half, x)

    def test_numbers_of_the_host_that_fill_tensors(self):
        def masked(x):
            m = x.new_zeros(6, 6)
            m[1:3, 2:] = 1
            m[3:, :2] = 2
            return x.masked_fill(m == 1, -100.0) + m

        self.same(masked, torch.randn(4, 6, 6, device="cuda"))

    def test_numbers_that_are_computed_on_the_host(self):
        def scaled(x):
            rows = torch.scalar_tensor(x.shape[0], dtype=torch.int64)
            return x / rows.to(torch.float32).sqrt(), rows

        for n in (3, 5):
            self.same(lambda x: scaled(x)[0], torch.randn(n, 7, device="cuda"), dynamic=True)
        # What leaves the graph is ATen's: a result of the plan's would wait for the GPU.
        self.same(scaled, torch.randn(4, 7, device="cuda"), ours=False, dynamic=True)

    def test_made_of_numbers_alone(self):
        x = torch.randn(3, 5, device="cuda")
        found = self.same(
            lambda x: (torch.zeros_like(x), torch.arange(x.shape[0], device=x.device), x + torch.ones(5, device="cuda")), x
        )
        for t in found:
            self.assertEqual(t.device, x.device)

    def test_from_the_host_and_to_it(self):
        x = torch.randn(4, 6)
        self.same(lambda x: x.to("cuda").exp(), x)
        found = self.same(lambda x: (x * 2).cpu(), x.cuda(), ours=False)
        self.assertEqual(found.device.type, "cpu")

    def test_sizes_that_change(self):
        m = Block(32, 4).cuda().eval()
        f = torch.compile(m, backend=backend, fullgraph=True, dynamic=True)
        with torch.no_grad():
            for b, n in ((2, 16), (3, 9), (1, 33), (5, 64)):
                x = torch.randn(b, n, 32, device="cuda")
                torch.testing.assert_close(f(x), m(x), rtol=1e-4, atol=1e-5)
        self.all_ours()

    def test_attention(self):
        for dtype, close in ((torch.bfloat16, {"rtol": 3e-2, "atol": 3e-2}), (torch.float32, {"rtol": 1e-4, "atol": 1e-5})):
            m, x = Block(128, 2).to("cuda", dtype).eval(), torch.randn(2, 40, 128, device="cuda", dtype=dtype)
            with self.subTest(dtype=dtype):
                self.same(m, x, close=close)
                self.same(m, x, torch.randn(2, 1, 40, 40, device="cuda", dtype=dtype), close=close)
                self.same(m, x, torch.rand(40, 40, device="cuda") > 0.3, close=close)

    def test_what_aten_runs_stands_in_the_plan(self):
        def f(x):
            y = x @ x.t() + torch.eye(8, device="cuda")
            return torch.linalg.svdvals(y) * 2

        x = torch.randn(8, 8, device="cuda")
        self.same(f, x, ours=False, close={"rtol": 1e-4, "atol": 1e-4})
        self.assertIn("svd", pytorch.report())

        def g(x):
            return torch.rand(1000, device="cuda") + x

        x = torch.zeros(1000, device="cuda")
        torch.manual_seed(3)
        expected = g(x)
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(g)(x), expected)

    def test_work_of_another_stream_is_waited_for(self):
        f = compiled(lambda x: x.sin() + 1)
        x = torch.zeros(1 << 20, device="cuda")
        f(x)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            x.fill_(0.5)
            y = f(x)
            x.fill_(9.0)  # behind the run, on the same stream
        side.synchronize()
        torch.testing.assert_close(y, torch.full_like(y, 0.5).sin() + 1)

    def test_two_threads_on_streams_of_their_own(self):
        m = Block(64, 4).cuda().eval()
        with torch.no_grad():
            f = torch.compile(m, backend=backend, fullgraph=True)
            x = torch.randn(2, 32, 64, device="cuda")
            f(x)
            wrong = []

            def work(seed):
                with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                    for k in range(50):
                        x = torch.full((2, 32, 64), float(seed + k), device="cuda").cumsum(-1) / 64
                        if not torch.allclose(f(x), m(x), rtol=1e-4, atol=1e-4):
                            wrong.append((seed, k))

            torch.cuda.synchronize()
            threads = [threading.Thread(target=work, args=(s,)) for s in (0, 100)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(wrong, [])

    def test_memory_stays_flat(self):
        m = Text().cuda().eval()
        f = torch.compile(m, backend=backend, fullgraph=True)
        ids = torch.randint(500, (4, 64), device="cuda")
        with torch.no_grad():
            for _ in range(10):
                f(ids)
            before = torch.cuda.memory_allocated(), tessera.memory_in_use("cuda:0")
            for _ in range(100):
                f(ids)
            self.assertEqual((torch.cuda.memory_allocated(), tessera.memory_in_use("cuda:0")), before)

    def test_parameters_that_are_replaced(self):
        m = nn.Linear(8, 4).cuda()
        f = torch.compile(m, backend=backend, fullgraph=True)
        x = torch.randn(5, 8, device="cuda")
        with torch.no_grad():
            f(x)
            m.weight.data = torch.randn(4, 8, device="cuda")
            torch.testing.assert_close(f(x), m(x))
            m.load_state_dict({k: torch.randn_like(v) for k, v in m.state_dict().items()}, assign=True)
            torch.testing.assert_close(f(x), m(x))

    def test_every_call_of_graphs_gives_its_own_values(self):
        m = Text().cuda().eval()
        f = compiled(m, mode="reduce-overhead")
        with torch.no_grad():
            kept = []
            for _ in range(6):
                ids = torch.randint(500, (4, 64), device="cuda")
                kept.append((f(ids), m(ids)))
            for found, expected in kept:
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        self.all_ours()

    def test_frozen(self):
        m = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()).cuda().eval()
        x = torch.randn(2, 3, 16, 16, device="cuda")
        close = {"rtol": 1e-3, "atol": 1e-3}  # PyTorch's convolutions round to tf32
        self.same(m, x, close=close)
        self.same(m, x, close=close, options={"freezing": True})

    def test_verify(self):
        self.same(lambda x: torch.tanh(x @ x.t()), torch.randn(16, 16, device="cuda"), mode="verify")

    def gradients(self, m, call, close, **options):
        expected = call(m)
        expected.backward()
        wanted = {k: p.grad.clone() for k, p in m.named_parameters()}
        m.zero_grad(set_to_none=True)
        torch._dynamo.reset()
        found = call(torch.compile(m, backend=backend, fullgraph=True, **options))
        found.backward()
        torch.testing.assert_close(found, expected, **close)
        for k, p in m.named_parameters():
            scale = float(wanted[k].abs().max()) or 1.0
            torch.testing.assert_close(p.grad / scale, wanted[k] / scale, msg=lambda text, k=k: f"{k}: {text}", **close)
            self.assertEqual(p.grad.device.type, "cuda")

    def test_training(self):
        ids = torch.randint(500, (2, 48), device="cuda")

        def loss(m):
            return F.cross_entropy(m(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())

        for dtype, close in ((torch.float32, {"rtol": 1e-3, "atol": 1e-4}), (torch.bfloat16, {"rtol": 5e-2, "atol": 5e-2})):
            with self.subTest(dtype=dtype):
                self.gradients(Text().to("cuda", dtype), loss, close)
                self.all_ours()

    def test_training_on_sizes_that_change(self):
        m, graphs = Text().cuda(), []
        f = torch.compile(m, backend=backend, fullgraph=True, dynamic=True)
        for b, n in ((3, 24), (2, 16), (4, 33)):
            ids = torch.randint(500, (b, n), device="cuda")
            found, expected = (torch.autograd.grad(g(ids).square().mean(), list(m.parameters())) for g in (f, m))
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
            graphs.append(len(pytorch.REPORT.graphs))
        self.assertEqual(graphs[1], graphs[2])
        self.all_ours()

    def test_training_of_convolutions(self):
        norm = nn.BatchNorm2d(8)
        m = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
        x = torch.randn(4, 3, 20, 20, device="cuda")
        self.gradients(m.cuda(), lambda m: m(x).square().mean(), {"rtol": 1e-2, "atol": 1e-2})

    def test_a_budget_changes_no_bit(self):
        ids = torch.randint(500, (2, 48), device="cuda")
        m = Text().cuda()
        grads = []
        for budget in (1.0, 0.5, 0.0):
            torch._dynamo.reset()
            m.zero_grad(set_to_none=True)
            f = torch.compile(m, backend=backend, fullgraph=True, options={"activation_memory_budget": budget})
            f(ids).square().mean().backward()
            grads.append([p.grad.clone() for p in m.parameters()])
        for other in grads[1:]:
            for a, b in zip(grads[0], other):
                self.assertTrue(torch.equal(a, b))

    def test_dropout_and_autocast(self):
        m = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 8)).cuda()
        x = torch.randn(32, 64, device="cuda")

        def call(f):
            torch.manual_seed(5)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return f(x)

        expected = call(m)
        torch.testing.assert_close(call(torch.compile(m, backend=backend, fullgraph=True)), expected, rtol=2e-2, atol=2e-2)

    def test_compiled_optimiser(self):
        a, b = (nn.Linear(32, 32).cuda() for _ in range(2))
        b.load_state_dict(a.state_dict())
        x = torch.randn(8, 32, device="cuda")
        first, second = (torch.optim.AdamW(m.parameters(), lr=1e-2, capturable=True) for m in (a, b))
        step = torch.compile(second.step, backend=backend)
        for _ in range(5):
            for m, update in ((a, first.step), (b, step)):
                m.zero_grad(set_to_none=True)
                m(x).square().mean().backward()
                update()
        for p, q in zip(a.parameters(), b.parameters()):
            torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6)
        self.all_ours()


if __name__ == "__main__":
    unittest.main()
