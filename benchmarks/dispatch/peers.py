# SPDX-License-Identifier: Apache-2.0
"""The calls of bench-dispatch and bench-recompile through torch.compile (backend "eager": its own overhead) and jax.jit.

usage: peers.py OURS [--json] [--recompile]    OURS: what the benchmark printed with --json

Everything is in microseconds per call. A call is one tensor of ones from the concatenation of n arguments; "plain" is the same function
without torch.compile, which the compiled call runs as well. Figures are the lowest decile of batches, as bench-dispatch takes them. Entries are called round robin: 8 arguments, of which the first has another size
in each. A recompile is a call of x + 1 with a size that was not seen before.
"""
import json
import statistics
import sys
import time

TENSORS = (1, 8, 64)
ENTRIES = (1, 8, 64, 256)


def measure(call, batches=31):
    n = 10
    while True:
        start = time.perf_counter()
        for _ in range(n):
            call()
        if time.perf_counter() - start > 0.005:
            break
        n *= 2
    times = []
    for _ in range(batches):
        start = time.perf_counter()
        for _ in range(n):
            call()
        times.append((time.perf_counter() - start) / n * 1e6)
    return sorted(times)[len(times) // 10]


def round_robin(call, items):
    at = 0

    def one():
        nonlocal at
        call(*items[at])
        at = (at + 1) % len(items)

    return one


def recompile(f, ones):
    times = []
    for i in range(40):
        x = ones(i + 1)
        start = time.perf_counter()
        f(x)
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times[10:])


def dispatch(gather, compiled, ones):
    out = {"tensors": {}, "entries": {}}
    for n in TENSORS:
        f, xs = compiled(gather), [ones(16) for _ in range(n)]
        f(*xs)
        out["tensors"][str(n)] = measure(lambda: f(*xs))
    for n in ENTRIES:
        f, shared = compiled(gather), [ones(16) for _ in range(7)]
        calls = [(ones(i + 1), *shared) for i in range(n)]
        for call in calls:
            f(*call)
        out["entries"][str(n)] = measure(round_robin(f, calls))
    return out


def torch_figures(what):
    import torch
    import torch._dynamo

    torch.set_num_threads(1)
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, limit, 2000)
    setattr(config, "accumulated_" + limit, 4000)

    def compiled(fn):
        torch._dynamo.reset()
        return torch.compile(fn, backend="eager", dynamic=False)

    def gather(*xs):
        return torch.cat(xs).sum(0, keepdim=True)

    if what == "recompile":
        return torch.__version__, {"recompile": recompile(compiled(lambda x: x + 1), torch.ones)}
    out = dispatch(gather, compiled, torch.ones)
    out["plain"] = {}
    for n in TENSORS:
        xs = [torch.ones(16) for _ in range(n)]
        out["plain"][str(n)] = measure(lambda: gather(*xs))
    return torch.__version__, out


def jax_figures(what):
    import jax
    import jax.numpy as jnp

    if what == "recompile":
        return jax.__version__, {"recompile": recompile(jax.jit(lambda x: x + 1), jnp.ones)}
    return jax.__version__, dispatch(lambda *xs: jnp.concatenate(xs).sum(0, keepdims=True), lambda fn: jax.jit(lambda *xs: fn(*xs)),
                                     jnp.ones)


def table(figures, what):
    names = list(figures)
    rows = [("recompile", None)] if what == "recompile" else [(k, n) for k in ("tensors", "plain", "entries") for n in
                                                              sorted({m for f in figures.values() for m in f.get(k, {})}, key=int)]
    print(f"{'us per call':18}" + "".join(f"{name + ' ' + figures[name].get('version', ''):>22}" for name in names))
    for kind, n in rows:
        cells = [figures[name].get(kind) if n is None else figures[name].get(kind, {}).get(n) for name in names]
        print(f"{kind + (' ' + n if n else ''):18}" + "".join(f"{'-' if c is None else f'{c:.3f}':>22}" for c in cells))


def main():
    what = "recompile" if "--recompile" in sys.argv else "dispatch"
    with open(sys.argv[1], encoding="utf-8") as f:
        ours = json.load(f)
    if what == "recompile":
        figures = {"tessera": {"recompile": ours["recompile"]}}
    else:
        figures = {"tessera": {k: {n: ns / 1e3 for n, ns in ours[k].items()} for k in ("tensors", "entries")}}
    for name, run in (("torch", torch_figures), ("jax", jax_figures)):
        version, figures[name] = run(what)
        figures[name]["version"] = version
    if "--json" in sys.argv:
        print(json.dumps({"schema": f"tessera.bench.{what}.peers/1", "unit": "us", **figures}))
    else:
        table(figures, what)


main()
