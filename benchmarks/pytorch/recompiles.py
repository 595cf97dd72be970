# SPDX-License-Identifier: Apache-2.0
"""How often a program is compiled for eight sizes: recompiles.py [--peers] [--json]

Each program runs on eight sizes, as torch.compile does it by default: the second size makes symbols of what changed. A backend
whose lowering then asks for a number has the program compiled again, and for every further size. With --peers the same counts
for Inductor, which needs a C++ compiler and some minutes.
"""

import json
import sys
import warnings

import torch
import torch._dynamo.testing
import torch.nn.functional as F


def pool(x):
    return F.adaptive_avg_pool2d(x, 5).relu()


def pool_max(x):
    return F.adaptive_max_pool2d(x, 5)


def resize(x):
    return F.interpolate(x, size=(17, 19), mode="bilinear")


def pad(x):
    return F.pad(x, (1, 2, 1, 2), mode="reflect") * 2


def patches(x):
    return F.unfold(x, 3).sum(1)


PROGRAMS = (pool, pool_max, resize, pad, patches)


def count(program, backend):
    """Compiles after each size; the results are eager's."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled, counts = torch.compile(program, backend=counter), []
    for k in range(8):
        x = torch.randn(2, 3, 13 + 2 * k, 14 + 3 * k)
        torch.testing.assert_close(compiled(x), program(x), rtol=1e-4, atol=1e-5)
        counts.append(counter.frame_count)
    return counts[-1]


def main():
    warnings.simplefilter("ignore")
    from tessera.pytorch import backend

    peers = "--peers" in sys.argv
    found = []
    for program in PROGRAMS:
        row = {"program": program.__name__, "tessera": count(program, backend)}
        if peers:
            row["inductor"] = count(program, "inductor")
        found.append(row)
        if "--json" not in sys.argv:
            print(", ".join(f"{k}: {v}" for k, v in row.items()), flush=True)
    if "--json" in sys.argv:
        print(json.dumps(found))
    sys.exit(1 if any(r["tessera"] > 2 for r in found) else 0)


if __name__ == "__main__":
    main()
