# SPDX-License-Identifier: Apache-2.0
"""The same step in JAX: loss and gradients of a Llama-shaped model in bf16, jitted as one function; prints one JSON object.

    python jax_row.py [--layers 16 --hidden 2048 ..]     the sizes of run.py

Attention is cuDNN's where there is a GPU. Rotary embeddings have Llama-3's base and not its scaling, which costs nothing. What is
kept between the halves is XLA's own affair and cannot be asked for; the peak is its allocator's.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp


def rms_norm(x, weight):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype) * weight


def rotated(x, cosine, sine):
    a, b = jnp.split(x, 2, -1)
    return x * cosine + jnp.concatenate((-b, a), -1) * sine


def loss_of(o):
    size = o.hidden // o.heads
    rate = 500000.0 ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    angle = jnp.tile(jnp.arange(o.length, dtype=jnp.float32)[:, None] * rate, (1, 2))[None, :, None]
    kernels = "cudnn" if jax.default_backend() == "gpu" else None

    def loss(p, ids, targets):
        cosine, sine = jnp.cos(angle).astype(jnp.bfloat16), jnp.sin(angle).astype(jnp.bfloat16)
        x = p["words"][ids]
        for b in p["blocks"]:
            h = rms_norm(x, b["first"])
            q, k, v = ((h @ b[n]).reshape(*ids.shape, -1, size) for n in ("q", "k", "v"))
            q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
            y = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=kernels)
            x = x + y.reshape(x.shape) @ b["out"]
            h = rms_norm(x, b["second"])
            x = x + (jax.nn.silu(h @ b["gate"]) * (h @ b["up"])) @ b["down"]
        logits = (rms_norm(x, p["norm"]) @ p["words"].T).astype(jnp.float32)
        of_target = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - of_target)

    return loss


def parameters(o):
    keys = iter(jax.random.split(jax.random.key(1), 7 * o.layers + 1))
    few = o.key_heads * (o.hidden // o.heads)
    sizes = {"q": (o.hidden, o.hidden), "k": (o.hidden, few), "v": (o.hidden, few), "out": (o.hidden, o.hidden),
             "gate": (o.hidden, 4 * o.hidden), "up": (o.hidden, 4 * o.hidden), "down": (4 * o.hidden, o.hidden)}

    def normal(shape):
        return jax.random.normal(next(keys), shape, jnp.bfloat16) * 0.02

    def block():
        ones = {n: jnp.ones(o.hidden, jnp.bfloat16) for n in ("first", "second")}
        return {n: normal(s) for n, s in sizes.items()} | ones

    return {"words": normal((o.vocabulary, o.hidden)), "norm": jnp.ones(o.hidden, jnp.bfloat16),
            "blocks": [block() for _ in range(o.layers)]}


def main():
    p = argparse.ArgumentParser()
    for k, v in {"layers": 16, "hidden": 2048, "heads": 32, "key-heads": 8, "vocabulary": 128256, "batch": 4, "length": 1024,
                 "passes": 16}.items():
        p.add_argument(f"--{k}", type=int, default=v)
    o = p.parse_args()
    params = parameters(o)
    tokens = jax.random.randint(jax.random.key(2), (o.batch, o.length + 1), 0, o.vocabulary)
    ids, targets = tokens[:, :-1], tokens[:, 1:]
    jax.block_until_ready((params, ids, targets))
    stats = jax.devices()[0].memory_stats() or {}
    resident = stats.get("bytes_in_use", 0)
    step = jax.jit(jax.value_and_grad(loss_of(o)))
    start = time.perf_counter()
    loss = jax.block_until_ready(step(params, ids, targets))[0]
    out = {"name": "jax", "first_step_s": time.perf_counter() - start, "loss": float(loss), "resident_bytes": resident}
    for _ in range(3):
        jax.block_until_ready(step(params, ids, targets))
    stats = jax.devices()[0].memory_stats() or {}
    out["peak_bytes"] = stats.get("peak_bytes_in_use", 0) - resident
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(o.passes):
            result = step(params, ids, targets)
        jax.block_until_ready(result)
        times.append(time.perf_counter() - start)
    out["passes_s"] = statistics.median(times)
    out["spread"] = max(times) / min(times) - 1
    print(json.dumps(out), flush=True)


main()
