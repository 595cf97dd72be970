# SPDX-License-Identifier: Apache-2.0
"""The calls of bench-dispatch through torch.compile (eager backend: nothing but its own overhead is measured) and jax.jit.

Prints microseconds per call of a function that is cached: by the number of its arguments, and by the number of cached entries.
"""
import json
import statistics
import sys
import time


def measure(call):
    n = 50
    while True:
        start = time.perf_counter()
        for _ in range(n):
            call()
        if time.perf_counter() - start > 0.005:
            break
        n *= 2
    times = []
    for _ in range(31):
        start = time.perf_counter()
        for _ in range(n):
            call()
        times.append((time.perf_counter() - start) / n * 1e6)
    return statistics.median(times)


def round_robin(call, items):
    at = 0

    def one():
        nonlocal at
        call(items[at])
        at = (at + 1) % len(items)

    return one


def torch_figures():
    import torch
    import torch._dynamo

    torch.set_num_threads(1)
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, limit, 2000)
    setattr(config, "accumulated_" + limit, 4000)
    out = {"tensors": {}, "entries": {}}
    for n in (1, 8, 64):
        torch._dynamo.reset()
        f = torch.compile(lambda *xs: sum(xs[1:], xs[0]), backend="eager", dynamic=False)
        xs = [torch.ones(16) for _ in range(n)]
        f(*xs)
        out["tensors"][n] = measure(lambda: f(*xs))
    for n in (1, 8, 64, 256):
        torch._dynamo.reset()
        f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
        xs = [torch.ones(i + 1) for i in range(n)]
        for x in xs:
            f(x)
        out["entries"][n] = measure(round_robin(f, xs))
    torch._dynamo.reset()
    f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    times = []
    for i in range(20):
        x = torch.ones(i + 1)
        start = time.perf_counter()
        f(x)
        times.append((time.perf_counter() - start) * 1e6)
    out["recompile"] = statistics.median(times)
    return torch.__version__, out


def jax_figures():
    import jax
    import jax.numpy as jnp

    out = {"tensors": {}, "entries": {}}
    for n in (1, 8, 64):
        f = jax.jit(lambda *xs: sum(xs[1:], xs[0]))
        xs = [jnp.ones(16) for _ in range(n)]
        f(*xs).block_until_ready()
        out["tensors"][n] = measure(lambda: f(*xs))
    for n in (1, 8, 64, 256):
        f = jax.jit(lambda x: x + 1)
        xs = [jnp.ones(i + 1) for i in range(n)]
        for x in xs:
            f(x)
        out["entries"][n] = measure(round_robin(f, xs))
    return jax.__version__, out


def main():
    figures = {}
    for name, run in (("torch", torch_figures), ("jax", jax_figures)):
        version, figures[name] = run()
        figures[name]["version"] = version
    if "--json" in sys.argv:
        print(json.dumps({"schema": "tessera.bench.dispatch.peers/1", "unit": "us", **figures}))
        return
    for name, f in figures.items():
        print(f"{name} {f['version']}, us per call")
        for key in ("tensors", "entries"):
            print("  " + key + ": " + ", ".join(f"{n}: {t:.1f}" for n, t in f[key].items()))
        if "recompile" in f:
            print(f"  recompile: {f['recompile']:.0f}")


main()
