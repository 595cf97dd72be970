# SPDX-License-Identifier: Apache-2.0
"""What a call of a compiled function costs beyond AOTAutograd: call_cost.py [--json]

Two functions: ten inputs and one output, and a hundred inputs of which ninety are parameters. The second is measured as a pair
too: a call under gradient recording and the gradients of the ninety parameters. Each is compiled three times: by AOTAutograd with
a compiler that returns tensors made beforehand, by the backend with the config `null`, which computes nothing but allocates the
results, and by the backend as it is. The numbers are the medians of the smallest of many short loops, taken in turn, in
microseconds.
"""

import json
import sys
import time

import torch
from torch._dynamo.backends.common import aot_autograd

from tessera.pytorch import backend


class Sum(torch.nn.Module):
    """The sum of its parameters and inputs, of eight elements each."""

    def __init__(self, parameters):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(8)) for _ in range(parameters)])

    def forward(self, *args):
        total = args[0]
        for x in args[1:] + tuple(self.weights.parameters()):
            total = total + x
        return total


def nothing(gm, _):
    results = gm.graph.find_nodes(op="output")[0].args[0]
    made = [r if r is None else torch.ones(r.meta["val"].shape) for r in results]

    def call(args):
        args.clear()
        return list(made)

    call._boxed_call = True
    return call


def best(f, args, loops=50, calls=200):
    found = []
    for _ in range(loops):
        started = time.perf_counter()
        for _ in range(calls):
            f(*args)
        found.append((time.perf_counter() - started) / calls)
    return min(found)


def measure(parameters, inputs, pair=False, rounds=7):
    m = Sum(parameters)
    args, weights, seed = [torch.ones(8) for _ in range(inputs)], list(m.parameters()), torch.ones(8)
    ways = {"aot": aot_autograd(fw_compiler=nothing), "null": backend, "tessera": backend}
    compiled = {}
    for name, way in ways.items():
        torch._dynamo.reset()
        options = {"config": "null"} if name == "null" else None
        f = torch.compile(m, backend=way, options=options) if options else torch.compile(m, backend=way)
        compiled[name] = (lambda *args, f=f: torch.autograd.grad(f(*args), weights, seed)) if pair else f
        with torch.set_grad_enabled(pair):
            compiled[name](*args)
    found = {name: [] for name in ways}
    for _ in range(rounds):
        for name, f in compiled.items():
            with torch.set_grad_enabled(pair):
                found[name].append(best(f, args) * 1e6)
    return {name: sorted(times)[len(times) // 2] for name, times in found.items()}


def main():
    torch.set_num_threads(1)
    results = {
        "10 inputs": measure(0, 10),
        "100 inputs, 90 parameters": measure(90, 10),
        "the same as a pair": measure(90, 10, pair=True),
    }
    if "--json" in sys.argv:
        print(json.dumps(results))
        return
    for name, r in results.items():
        print(
            f"{name}: AOTAutograd {r['aot']:.2f} us, config null {r['null']:.2f} us ({r['null'] - r['aot']:+.2f}), "
            f"default {r['tessera']:.2f} us ({r['tessera'] - r['aot']:+.2f})"
        )


if __name__ == "__main__":
    main()
