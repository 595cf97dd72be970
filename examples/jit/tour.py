# SPDX-License-Identifier: Apache-2.0
"""Plain Python functions over arrays, compiled: recompiles, dynamic sizes, graph breaks, gradients, a training loop.

    PYTHONPATH=build/release/python python3 examples/jit/tour.py

TESSERA_LOGS=recompiles,graph_breaks says why something is compiled again, and where a graph ends.
"""

import tessera

tn = tessera.numpy


def compiles(function):
    return len(function.describe()["entries"])


# A function is captured on its first call. Another size compiles once more, and from then on that size may vary.
@tessera.jit
def normalise(x, eps):
    return (x - x.mean(axis=-1, keepdims=True)) / tn.sqrt(x.var(axis=-1, keepdims=True) + eps)


for rows in range(2, 10):
    y = normalise(tessera.random.normal(tessera.random.key(rows), (rows, 16)), 1e-5)
print(f"normalise: eight sizes, {compiles(normalise)} compiles; the last result is {y.dtype}{list(y.shape)}")


# Reading a value ends a segment; what host code does with it is remembered as a path.
@tessera.jit
def clip_to_norm(x, limit):
    norm = tn.sqrt((x * x).sum())
    return x * (limit / norm) if norm > limit else x


clip_to_norm(tn.ones(4), 1.0), clip_to_norm(tn.ones(4) * 0.1, 1.0)
print(tessera.explain(clip_to_norm), end="")


# A training step as one program: gradients of a tree, an optimiser whose state is written back, a rate that changes.
def loss(params, x, y):
    hidden = tn.tanh(x @ params["inner"]["w"] + params["inner"]["b"])
    return ((hidden @ params["outer"]["w"] + params["outer"]["b"] - y) ** 2).mean()


@tessera.jit
def step(params, opt, x, y):
    value, gradients = tessera.value_and_grad(loss)(params, x, y)
    return value, opt.step(params, gradients)


keys = tessera.random.split(tessera.random.key(0), 3)
params = {
    "inner": {"w": tessera.random.normal(keys[0], (2, 32)), "b": tn.zeros(32)},
    "outer": {"w": tessera.random.normal(keys[1], (32, 1)) * 0.1, "b": tn.zeros(1)},
}
x = tessera.random.uniform(keys[2], (256, 2), minval=-1.0, maxval=1.0)
y = (x[:, 0] * x[:, 1]).reshape(-1, 1)
opt = tessera.optim.Adam(params, lr=0.02)
for i in range(200):
    value, params = step(params, opt, x, y)
    opt.param_groups[0]["lr"] *= 0.99
    if i == 0:
        first = value.item()
print(
    f"training: the loss falls by a factor of {first / value.item():.0f}" if value.item() < first / 20 else "no training",
    end="",
)
print(f", {compiles(step)} compile, {opt.steps.item():.0f} steps")
