# SPDX-License-Identifier: Apache-2.0
"""The kernels of generate.cpp and bench-cuda as PyTorch programs compiled by Inductor: GB/s, and the share of a copy in the same
run.

    python peers.py [ROWS..] [complaints] [max-autotune]     max-autotune: measured choices in the place of the default ones
"""

import statistics
import sys

import torch


# Without its own graphs, for every call is timed in one of ours.
MODE = "max-autotune-no-cudagraphs" if "max-autotune" in sys.argv[1:] else None
SIDE = "inductor max-autotune" if MODE else "inductor"
STREAM = torch.cuda.Stream()  # gradients run on the stream of what they are gradients of, which is the one that is captured


def seconds(f, repeats=21):
    """Of one call on the device: replays of a graph, so that the host's part is left out."""
    with torch.cuda.stream(STREAM):
        for _ in range(5):
            f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=STREAM):
        f()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def rms_backward(x, dy, w, rstd):
    xf, g = x.float(), dy.float()
    h = xf * rstd
    gw = g * w
    dx = (gw - h * (gw * h).mean(1, keepdim=True)) * rstd
    return dx.to(x.dtype), (g * h).sum(0)


def norm_backward(norm, dy, *leaves):
    """The backward program that Inductor makes of a norm: its operands are those of the norm and the gradient of its result."""
    torch._functorch.config.donated_buffer = False  # it runs more than once
    leaves = [t.detach().requires_grad_() for t in leaves]
    torch._dynamo.reset()
    torch.cuda.synchronize()
    with torch.cuda.stream(STREAM):
        y = torch.compile(norm, dynamic=False, mode=MODE)(*leaves)
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


def rms_norm(x, w):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], w)


def rotary(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat((b, a), -1) * sine


def entropy(x):
    return -(torch.softmax(x, 1) * torch.log_softmax(x, 1)).sum(1)


def measure(name, f, args, moved):
    torch._dynamo.reset()
    compiled = torch.compile(f, dynamic=False, mode=MODE)
    report(name, lambda: compiled(*args), moved)


def report(name, call, moved):
    s = seconds(call)
    size = max(2, moved) // 2
    source, target = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    c = seconds(lambda: target.copy_(source))
    print(f"{SIDE} {name}: {s * 1e6:.1f} us {moved / s * 1e-9:.0f} GB/s {c / s:.2f} of copy", flush=True)


def table(rows, n, dtype, tag):
    def tensor(*shape):
        return torch.randn(*shape, device="cuda", dtype=dtype)

    x, y, b, w = tensor(rows, n), tensor(rows, n), tensor(n), tensor(n)
    flipped, wide, rstd = tensor(n, rows), torch.randn(n, device="cuda"), torch.rand(rows, 1, device="cuda") + 0.5
    heads, angles = tensor(rows, n // 64, 64), tensor(rows, 1, 64)
    functional = torch.nn.functional
    size = x.numel() * x.element_size()
    cases = {
        "gelu": (lambda x, b: functional.gelu(x + b), (x, b), 2 * size),
        "add": (lambda x, y: x + y, (x, y), 3 * size),
        "transpose": (lambda x, y: x.t() + y, (flipped, y), 3 * size),
        "row_sum": (lambda x: x.float().sum(1), (x,), size + rows * 4),
        "column_sum": (lambda x: x.float().sum(0), (x,), size + n * 4),
        "full_sum": (lambda x: x.float().sum(), (x,), size),
        "softmax": (lambda x: torch.softmax(x, 1), (x,), 2 * size),
        "layer_norm": (lambda x, w, b: functional.layer_norm(x, (n,), w, b), (x, w, b), 2 * size),
        "residual_rms_norm": (lambda x, y, w: (functional.rms_norm(x + y, (n,), w), x + y), (x, y, w), 4 * size),
        "rms_backward": (rms_backward, (x, y, wide, rstd), 3 * size + rows * 4 + n * 8),
        "rotary": (rotary, (heads, angles, angles), 2 * size + rows * 256),
    }
    for name, case in cases.items():
        measure(f"{name}_{tag}_{rows}", *case)
    report(f"rms_autograd_{tag}_{rows}", norm_backward(rms_norm, y, x, w), 3 * size)


def complaints():
    def tensor(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    for rows, n in ((4096, 32768), (2048, 65536), (2048, 128256)):
        measure(f"softmax_{n}", lambda x: torch.softmax(x, 1), (tensor(rows, n),), 4 * rows * n)
    x, dy, w = tensor(4096, 2048), tensor(4096, 2048), tensor(2048)
    report("rms_autograd_few_rows", norm_backward(rms_norm, dy, x, w), 6 * 2**23)
    measure("max_transposed", lambda x: x.t().amax(1), (tensor(4096, 8192),), 2 * 2**25)
    measure("entropy_of_one_row", entropy, (tensor(1, 32768),), 65536)
    measure("sum_of_expanded", lambda x: x.expand(10**8, 2, 2).sum(), (tensor(10**8, 1, 1),), 2 * 10**8)
    hot = torch.randint(32000, (32768,), device="cuda")
    hot[::10] = 7
    args = (tensor(32000, 4096), hot, tensor(32768, 4096))
    measure("embedding_backward", lambda z, i, u: z.index_add(0, i, u), args, 2 * 4096 * (2 * 32000 + 32768))
    x, dy, w = tensor(131072, 16384), tensor(131072, 16384), tensor(16384)
    report("rms_autograd_131072", norm_backward(rms_norm, dy, x, w), 6 * 2**31)


def main():
    for rows in [int(a) for a in sys.argv[1:] if a.isdigit()] or ([] if "complaints" in sys.argv[1:] else [16384, 65536]):
        for dtype, tag in ((torch.bfloat16, "bf16"), (torch.float32, "f32")):
            table(rows, 4096, dtype, tag)
    if "complaints" in sys.argv[1:]:
        complaints()


main()
