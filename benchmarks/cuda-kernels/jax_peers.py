# SPDX-License-Identifier: Apache-2.0
"""The kernels of peers.py in JAX, each jitted as one function: us of a call, and the share of a copy in the same run.

    python jax_peers.py [ROWS..]

Calls are queued one behind another and waited for together, so what is timed is the device wherever a call takes it longer than
the host takes to queue one; that time is printed first.
"""

import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

CALLS = 20


def seconds(f, args, repeats=21):
    """Of one call, the median of runs of CALLS."""
    for _ in range(3):
        jax.block_until_ready(f(*args))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(CALLS):
            result = f(*args)
        jax.block_until_ready(result)
        times.append((time.perf_counter() - start) / CALLS)
    return statistics.median(times)


def wide(x):
    return x.astype(jnp.float32)


def layer_norm(x, w, b):
    h = wide(x)
    h = h - h.mean(-1, keepdims=True)
    return ((h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-5)) * w + b).astype(x.dtype)


def rms_norm(x, w):
    h = wide(x)
    return (h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * w


def rms_backward(x, dy, w, rstd):
    h, g = wide(x) * rstd, wide(dy)
    gw = g * w
    return ((gw - h * (gw * h).mean(1, keepdims=True)) * rstd).astype(x.dtype), (g * h).sum(0)


def residual_rms_norm(x, y, w):
    s = x + y
    return rms_norm(s, w), s


def rotary(x, cosine, sine):
    a, b = jnp.split(x, 2, -1)
    return x * cosine + jnp.concatenate((b, a), -1) * sine


def table(rows, n, dtype, tag):
    keys = iter(jax.random.split(jax.random.key(0), 16))

    def tensor(*shape):
        return jax.random.normal(next(keys), shape, dtype)

    x, y, b, w = tensor(rows, n), tensor(rows, n), tensor(n), tensor(n)
    flipped, scale = tensor(n, rows), wide(tensor(n))
    rstd = jax.random.uniform(next(keys), (rows, 1)) + 0.5
    heads, angles = tensor(rows, n // 64, 64), tensor(rows, 1, 64)
    size = x.size * x.dtype.itemsize
    cases = {
        "copy": (lambda x: -x, (x,), 2 * size),
        "gelu": (lambda x, b: jax.nn.gelu(x + b, approximate=False), (x, b), 2 * size),
        "add": (lambda x, y: x + y, (x, y), 3 * size),
        "transpose": (lambda x, y: x.T + y, (flipped, y), 3 * size),
        "row_sum": (lambda x: wide(x).sum(1), (x,), size + rows * 4),
        "column_sum": (lambda x: wide(x).sum(0), (x,), size + n * 4),
        "full_sum": (lambda x: wide(x).sum(), (x,), size),
        "softmax": (lambda x: jax.nn.softmax(wide(x), 1).astype(x.dtype), (x,), 2 * size),
        "layer_norm": (layer_norm, (x, w, b), 2 * size),
        "residual_rms_norm": (residual_rms_norm, (x, y, w), 4 * size),
        "rms_backward": (rms_backward, (x, y, scale, rstd), 3 * size + rows * 4 + n * 8),
        "rotary": (rotary, (heads, angles, angles), 2 * size + rows * 256),
    }
    rate = None  # that of one tensor read and one written, which XLA has no copy for that it would not leave out
    for name, (f, args, moved) in cases.items():
        jax.block_until_ready(args)
        s = seconds(jax.jit(f), args)
        rate = rate or moved / s
        print(f"jax {name}_{tag}_{rows}: {s * 1e6:.1f} us {moved / s * 1e-9:.0f} GB/s {moved / s / rate:.2f} of copy", flush=True)


def main():
    small = jnp.ones(8)
    print(f"jax host: {seconds(jax.jit(lambda x: x + 1), (small,)) * 1e6:.1f} us of a call", flush=True)
    for rows in [int(a) for a in sys.argv[1:]] or [16384]:
        for dtype, tag in ((jnp.bfloat16, "bf16"), (jnp.float32, "f32")):
            table(rows, 4096, dtype, tag)


main()
