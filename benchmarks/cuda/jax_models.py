# SPDX-License-Identifier: Apache-2.0
"""The models of models.py in JAX, in bf16 with random weights, each jitted as one function: ms of a call, s of the first one.

    python jax_models.py [NAME..]     gpt2-1x128, bert-8x128, vit-b16-8, resnet50-8

Norms have scale and shift, which of a batch norm's statistics are folded. Attention is XLA's own: its way to cuDNN's wants heads
and masks that these models do not have. Calls are queued one behind another and waited for together.
"""

import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

CALLS = 30
HALF = jnp.bfloat16


class Weights:
    """Hands out a model's parameters in the order in which it asks for them; without any, it notes their shapes."""

    def __init__(self, given=None):
        self.shapes, self.given = [], None if given is None else iter(given)

    def __call__(self, *shape):
        if self.given is not None:
            return next(self.given)
        self.shapes.append(shape)
        return jnp.zeros(shape, HALF)


def linear(w, x, features):
    return x @ w(x.shape[-1], features) + w(features)


def layer_norm(w, x, epsilon=1e-5):
    h = x.astype(jnp.float32)
    h = h - h.mean(-1, keepdims=True)
    h = (h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + epsilon)).astype(HALF)
    return h * (1 + w(x.shape[-1])) + w(x.shape[-1])


def attention(w, x, heads, mask=None, causal=False):
    shape = (*x.shape[:2], heads, x.shape[-1] // heads)
    q, k, v = (linear(w, x, x.shape[-1]).reshape(shape) for _ in range(3))
    y = jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=causal)
    return linear(w, y.reshape(x.shape), x.shape[-1])


def gelu_block(w, x, exact):
    return linear(w, jax.nn.gelu(linear(w, x, 4 * x.shape[-1]), approximate=not exact), x.shape[-1])


def gpt2(w, ids):
    words = w(50257, 768)
    x = words[ids] + w(1024, 768)[: ids.shape[1]]
    for _ in range(12):
        x = x + attention(w, layer_norm(w, x), 12, causal=True)
        x = x + gelu_block(w, layer_norm(w, x), exact=False)
    return layer_norm(w, x) @ words.T


def bert(w, ids, mask):
    x = layer_norm(w, w(30522, 768)[ids] + w(512, 768)[: ids.shape[1]] + w(2, 768)[0], 1e-12)
    kept = mask[:, None, None, :].astype(bool)
    for _ in range(12):
        x = layer_norm(w, x + attention(w, x, 12, mask=kept), 1e-12)
        x = layer_norm(w, x + gelu_block(w, x, exact=True), 1e-12)
    return x


def vit(w, image):
    n = image.shape[0]
    tiles = image.astype(HALF).reshape(n, 3, 14, 16, 14, 16).transpose(0, 2, 4, 1, 3, 5).reshape(n, 196, 768)
    x = linear(w, tiles, 768)
    x = jnp.concatenate((jnp.broadcast_to(w(1, 1, 768), (n, 1, 768)), x), 1) + w(197, 768)
    for _ in range(12):
        x = x + attention(w, layer_norm(w, x, 1e-6), 12)
        x = x + gelu_block(w, layer_norm(w, x, 1e-6), exact=True)
    return linear(w, layer_norm(w, x, 1e-6)[:, 0], 1000)


def resnet50(w, image):
    def conv(x, features, taps, stride=1, relu=True, residual=None):
        pad = (taps // 2, taps // 2)
        y = jax.lax.conv_general_dilated(x, w(taps, taps, x.shape[-1], features), (stride, stride), (pad, pad),
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = y + w(features)
        y = y if residual is None else y + residual
        return jax.nn.relu(y) if relu else y

    x = conv(image.astype(HALF).transpose(0, 2, 3, 1), 64, 7, 2)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            features, stride = 64 << stage, 2 if stage and not block else 1
            skip = x if block else conv(x, 4 * features, 1, stride, relu=False)
            y = conv(conv(x, features, 1), features, 3, stride)
            x = conv(y, 4 * features, 1, residual=skip)
    return linear(w, x.mean((1, 2)), 1000)


def main():
    ids = {n: jax.random.randint(jax.random.key(1), (n, 128), 0, 30000) for n in (1, 8)}
    image = jax.random.normal(jax.random.key(2), (8, 3, 224, 224), HALF)
    lengths = jnp.arange(128)[None] < jnp.array([128, 120, 100, 128, 64, 90, 128, 32])[:, None]
    models = {"gpt2-1x128": (gpt2, (ids[1],)), "bert-8x128": (bert, (ids[8], lengths)), "vit-b16-8": (vit, (image,)),
              "resnet50-8": (resnet50, (image,))}
    for name in sys.argv[1:] or models:
        model, inputs = models[name.removesuffix("-bf16")]
        wanted = Weights()
        jax.eval_shape(lambda *x: model(wanted, *x), *inputs)
        keys = jax.random.split(jax.random.key(3), len(wanted.shapes))
        values = [(jax.random.normal(k, s) * 0.02).astype(HALF) for k, s in zip(keys, wanted.shapes)]
        run = jax.jit(lambda values, *x: model(Weights(values), *x))
        jax.block_until_ready(values)
        start = time.perf_counter()
        result = jax.block_until_ready(run(values, *inputs))
        first = time.perf_counter() - start
        if not bool(jnp.isfinite(result.astype(jnp.float32)).all()):
            raise ValueError(f"{name}: a result that is not finite")
        times = []
        for _ in range(12):
            start = time.perf_counter()
            for _ in range(CALLS):
                result = run(values, *inputs)
            jax.block_until_ready(result)
            times.append((time.perf_counter() - start) / CALLS)
        print(f"jax {name}: {statistics.median(times[2:]) * 1e3:.3f} ms ({first:.1f} s)", flush=True)


main()
