# SPDX-License-Identifier: Apache-2.0
"""The kernels of generate.cpp as PyTorch programs compiled by Inductor's default mode: GB/s, and the share of a copy in the
same run."""

import statistics
import sys

import torch


def seconds(f, repeats=21):
    """Of one call on the device: replays of a graph, so that the host's part is left out."""
    for _ in range(5):
        f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
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


def main():
    n = 4096
    shapes = [int(a) for a in sys.argv[1:]] or [16384, 65536]
    for rows in shapes:
        for dtype, tag in ((torch.bfloat16, "bf16"), (torch.float32, "f32")):

            def tensor(*shape):
                return torch.randn(*shape, device="cuda", dtype=dtype)

            x, y, b = tensor(rows, n), tensor(rows, n), tensor(n)
            flipped, w, rstd = tensor(n, rows), torch.randn(n, device="cuda"), torch.rand(rows, 1, device="cuda") + 0.5
            size = x.numel() * x.element_size()
            cases = {
                "gelu": (lambda x, b: torch.nn.functional.gelu(x + b), (x, b), 2 * size),
                "add": (lambda x, y: x + y, (x, y), 3 * size),
                "transpose": (lambda x, y: x.t() + y, (flipped, y), 3 * size),
                "row_sum": (lambda x: x.float().sum(1), (x,), size + rows * 4),
                "column_sum": (lambda x: x.float().sum(0), (x,), size + n * 4),
                "softmax": (lambda x: torch.softmax(x, 1), (x,), 2 * size),
                "rms_backward": (rms_backward, (x, y, w, rstd), 3 * size + rows * 4 + n * 8),
            }
            for name, (f, args, moved) in cases.items():
                torch._dynamo.reset()
                compiled = torch.compile(f, dynamic=False)
                s = seconds(lambda: compiled(*args))
                source, target = torch.empty(moved // 2, dtype=torch.uint8, device="cuda"), torch.empty(
                    moved // 2, dtype=torch.uint8, device="cuda"
                )
                c = seconds(lambda: target.copy_(source))
                del source, target
                print(
                    f"inductor {name}_{tag}_{rows}: {s * 1e6:.1f} us {moved / s * 1e-9:.0f} GB/s {c / s:.2f} of copy",
                    flush=True,
                )


main()
