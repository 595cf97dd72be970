# SPDX-License-Identifier: Apache-2.0
"""Random numbers from keys: the same key gives the same bits, on every backend and in every run (docs/random.md).

    key = tessera.random.key(7)
    key, k = tessera.random.split(key)
    x = tessera.random.normal(k, (3, 4))

A key is a tensor u64[2]: the seed, and how far its stream has been used. A `Generator` holds one and moves it on.
"""

from . import _core
from .tracing.array import _sizes, asarray, concatenate, reshape, stack, zeros
from .tracing.trace import apply
from .tracing.tree import pytree


def key(seed):
    return _core.from_numbers(_core.dtypes["u64"], (2,), [int(seed), 0])


def _draw(op, state, attrs):
    return apply(op, [asarray(state)], attrs)


def split(key, count=2):
    """Keys whose streams have nothing in common with each other or with the stream of `key`."""
    words, _ = _draw("random_bits", key, {"shape": [count, 2]})
    words = words.astype("u64")
    seeds = words[:, 0] * (1 << 32) + words[:, 1]
    made = stack([seeds, zeros((count,), "u64")], axis=1)
    return [made[i] for i in range(count)]


def fold_in(key, number):
    """The key of a stream that `number` names."""
    number = reshape(asarray(number).astype("u64"), (1,))
    moved = concatenate([asarray(key)[:1] + number * 0x9E3779B97F4A7C15, asarray(key)[1:]])
    return split(moved, 1)[0]


def bits(key, shape=()):
    return _draw("random_bits", key, {"shape": _sizes(shape)})[0]


def uniform(key, shape=(), dtype="f32", minval=0.0, maxval=1.0):
    made = _draw("random_uniform", key, {"shape": _sizes(shape), "dtype": dtype})[0]
    return made if (minval, maxval) == (0.0, 1.0) else made * (maxval - minval) + minval


def normal(key, shape=(), dtype="f32"):
    return _draw("random_normal", key, {"shape": _sizes(shape), "dtype": dtype})[0]


def randint(key, shape, minval, maxval, dtype="i64"):
    return _draw("random_int", key, {"shape": _sizes(shape), "low": minval, "high": maxval, "dtype": dtype})[0]


def bernoulli(key, p=0.5, shape=()):
    return uniform(key, shape) < p


@pytree
class Generator:
    """A key that moves on with every draw. As an argument of a compiled function it is written back."""

    def __init__(self, seed=0):
        self.state = key(seed)

    def _take(self, op, shape, **attrs):
        made, self.state = _draw(op, self.state, {"shape": _sizes(shape), **attrs})
        return made

    def uniform(self, shape=(), dtype="f32"):
        return self._take("random_uniform", shape, dtype=dtype)

    def normal(self, shape=(), dtype="f32"):
        return self._take("random_normal", shape, dtype=dtype)

    def randint(self, low, high, shape=(), dtype="i64"):
        return self._take("random_int", shape, low=low, high=high, dtype=dtype)
