# SPDX-License-Identifier: Apache-2.0
"""The eight models of benchmarks/cpu-models through torch.compile: backend="tessera" against backend="inductor".

    models.py [--json] [--only NAME,...] [--threads N] [--rounds N]

Four engines: both backends as they are, and both with weights that are frozen into the code (`freezing`). Each runs in a
process of its own; the processes of a model live side by side and run in turns, so that a busy moment of the machine does not
hit one of them alone. A time is the median over the rounds of the best call of a round.

Then the time that a backend adds to the first call: what its compiler takes within AOTAutograd, measured there, in a process
with an empty cache (cold) and in a second one with the cache that the first left (warm). To ours comes by how much the first
run takes longer than a later one; Inductor's is left out.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINES = ("tessera", "inductor", "tessera-frozen", "inductor-frozen")
SECONDS = 1.0  # that an engine runs in a round


def known_models():
    spec = importlib.util.spec_from_file_location("cpu_models", os.path.join(HERE, "..", "cpu-models", "models.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- in the process of an engine


class Timed:
    """What a backend's compiler takes, and the first run of what it makes."""

    def __init__(self):
        self.compiling, self.running = 0.0, []

    def compiler(self, compile_graph):
        def timed(*args, **kwargs):
            started = time.perf_counter()
            made = compile_graph(*args, **kwargs)
            self.compiling += time.perf_counter() - started
            return made

        return timed

    def first_run(self, made):
        def call(args):
            started = time.perf_counter()
            results = made(args)
            self.running.append(time.perf_counter() - started)
            return results

        call._boxed_call = True
        return call

    def added(self):
        first, *later = self.running or (0, 0)
        return self.compiling + max(0, first - min(later))


def compiled(engine, model, timed):
    import torch

    name, _, variant = engine.partition("-")
    if name == "inductor":
        from torch._inductor import compile_fx

        torch._inductor.config.freezing = variant == "frozen"
        inner = timed.compiler(compile_fx.compile_fx_inner)
        return torch.compile(model, backend=lambda gm, inputs: compile_fx.compile_fx(gm, inputs, inner_compile=inner))
    from tessera import pytorch

    compile_graph = timed.compiler(pytorch.compile_graph)
    pytorch.compile_graph = lambda *args, **kwargs: timed.first_run(compile_graph(*args, **kwargs))
    return torch.compile(model, backend=pytorch.backend, options={"freezing": True} if variant == "frozen" else None)


def serve(engine, name, threads):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    import torch

    torch.set_num_threads(threads)
    model, inputs = known_models().build(name)
    with torch.no_grad():
        expected = model(**inputs)
        timed = Timed()
        f = compiled(engine, model, timed)
        y = f(**inputs)
        for _ in range(3):
            f(**inputs)
        answer({"added": timed.added(), "off": float((y - expected).abs().max() / expected.abs().max())})
        for line in sys.stdin:
            until, best = time.perf_counter() + float(line), math.inf
            while time.perf_counter() < until:
                started = time.perf_counter()
                f(**inputs)
                best = min(best, time.perf_counter() - started)
            answer({"best": best})


# ---- in the process that asks


class Engine:
    def __init__(self, engine, model, threads, cache):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        env["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(cache, engine, "inductor")
        env["TESSERA_CACHE_DIR"] = os.path.join(cache, engine, "tessera")
        self.name, self.times = engine, []
        self.complaints = tempfile.TemporaryFile("w+")
        command = [sys.executable, os.path.abspath(__file__), "--serve", engine, model, str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints, text=True, env=env
        )
        self.facts = self.read()

    def read(self):
        while not select.select([self.process.stdout], [], [], 30)[0]:
            print(f"{self.name}: no answer yet", file=sys.stderr)
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.complaints.seek(0)
        raise RuntimeError(f"{self.name} ended with status {self.process.wait()}: {self.complaints.read()[-500:]}")

    def run(self):
        self.process.stdin.write(f"{SECONDS}\n")
        self.process.stdin.flush()
        self.times.append(self.read()["best"])

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.complaints.close()


def added_to_first_call(engine, model, threads, cache):
    e = Engine(engine, model, threads, cache)
    e.close()
    return e.facts["added"]


def measure(model, threads, rounds):
    with tempfile.TemporaryDirectory() as cache:
        engines = []
        try:
            for name in ENGINES:
                engines.append(Engine(name, model, threads, cache))
            for k in range(rounds):
                for e in engines if k % 2 == 0 else reversed(engines):
                    e.run()
        finally:
            for e in engines:
                e.close()
        result = {}
        for e in engines:
            result[e.name] = {
                "ms": statistics.median(e.times) * 1e3,
                "cold_s": e.facts["added"],
                "warm_s": added_to_first_call(e.name, model, threads, cache),
                "off": e.facts["off"],
            }
        return result


def report(results):
    for variant in ("", "-frozen"):
        ours, theirs = "tessera" + variant, "inductor" + variant
        print(f"\n{ours} against {theirs}")
        print(f"{'model':16}{'ms':>9}{'theirs':>9}{'speed':>7}{'cold s':>9}{'theirs':>9}{'warm s':>9}{'theirs':>9}{'off':>10}")
        for name, r in results.items():
            a, b = r[ours], r[theirs]
            print(
                f"{name:16}{a['ms']:9.2f}{b['ms']:9.2f}{b['ms'] / a['ms']:7.2f}{a['cold_s']:9.2f}{b['cold_s']:9.2f}"
                f"{a['warm_s']:9.2f}{b['warm_s']:9.2f}{a['off']:10.1e}"
            )
        speeds = [r[theirs]["ms"] / r[ours]["ms"] for r in results.values()]
        print(f"geometric mean {math.exp(statistics.mean(map(math.log, speeds))):.2f}, least {min(speeds):.2f}")


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    p = argparse.ArgumentParser()
    p.add_argument("--json", action="store_true")
    p.add_argument("--only")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=7)
    a = p.parse_args()
    names = a.only.split(",") if a.only else list(known_models().MODELS)
    results = {}
    for name in names:
        started = time.perf_counter()
        results[name] = measure(name, a.threads, a.rounds)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    print(json.dumps(results, indent=1)) if a.json else report(results)


if __name__ == "__main__":
    main()
