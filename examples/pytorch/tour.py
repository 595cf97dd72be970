# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend="tessera") in one sitting: python tour.py

Each part stands by itself, as a cell of a notebook would: a model, sizes that change, what runs through ATen and why, options,
checking numbers, training. docs/pytorch.md says more about each.
"""

import torch
import torch.nn as nn

from tessera import pytorch

torch.manual_seed(0)

# 1. A model, compiled: no import of tessera is needed for this. One executable serves all sizes from the second on.
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8)).eval()
fast = torch.compile(model, backend="tessera")
with torch.no_grad():
    for batch in (4, 7, 32):
        x = torch.randn(batch, 64)
        torch.testing.assert_close(fast(x), model(x))
print("1.", pytorch.report())


# 2. What there is no lowering for runs through ATen, as a step of the same plan, and is named.
pytorch.reset()


def spectrum(x):
    return torch.linalg.svdvals(torch.relu(x) + 1).log().sum()


with torch.no_grad():
    print("2.", f"{torch.compile(spectrum, backend='tessera')(torch.randn(16, 16)):.3f}")
print(pytorch.report())

# 3. The same, refused: for those who want to know before they deploy.
torch._dynamo.reset()
try:
    with torch.no_grad():
        torch.compile(spectrum, backend="tessera", options={"fallback": "error"})(torch.randn(16, 16))
except Exception as e:
    print("3.", next(line for line in str(e).splitlines() if "ATen" in line))

# 4. Parameters are inputs of every call: whatever changes them is seen. With freezing they are constants, packed for the CPU.
with torch.no_grad():
    model[0].weight.mul_(2)
    x = torch.randn(4, 64)
    torch.testing.assert_close(fast(x), model(x))
    frozen = torch.compile(model, backend="tessera", options={"freezing": True})
    torch.testing.assert_close(frozen(x), model(x))
print("4. parameters may change, or be frozen")

# 5. Each result beside ATen's, at every call; the first that differs would be an error that names its line.
with torch.no_grad():
    torch.compile(model, backend="tessera", mode="verify")(torch.randn(4, 64))
print("5. verified")

# 6. Training goes through the same plans: forward and backward.
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step = torch.compile(model, backend="tessera")
data, target = torch.randn(32, 64), torch.randint(0, 8, (32,))
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(step(data), target)
    loss.backward()
    optimizer.step()
    losses.append(float(loss.detach()))
assert losses[-1] < losses[0]
print(f"6. loss {losses[0]:.3f} -> {losses[-1]:.3f}")
