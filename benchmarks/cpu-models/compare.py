# SPDX-License-Identifier: Apache-2.0
"""Every model through ours and the peers, one process for each, in turns: run time, spread, cold and warm compile, packing, peak memory.

NAME-bf16 is a model in bf16; see models.py.

    python compare.py PROGRAM MODELS_DIR [--json] [--only NAME,...] [--engines NAME,...] [--threads N] [--rounds N] [--plot FILE.svg]

Ours are configs: tessera:eager, tessera:cpu, tessera:default. The processes of a model live side by side; in every round each runs for a while and
the others wait, so that a busy moment of the machine does not hit one of them alone.
"""
import argparse
import json
import math
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = ["eager", "compile", "freezing", "xla", "onnxruntime", "openvino"]
OURS = ["tessera:eager", "tessera:cpu", "tessera:default"]
MODELS = ["gpt2-1x128", "bert-1x128", "bert-8x128", "resnet50-1", "resnet50-8", "mobilenetv3-1", "vit-b16-1", "encoder-8x64"]


def say(*words):
    print(*words, file=sys.stderr, flush=True)


class Side:
    def __init__(self, engine, model, args, cache):
        self.engine, self.model, self.times, self.turns = engine, model, [], []
        folder = os.path.join(args.models, model)
        caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "JAX_COMPILATION_CACHE_DIR": "jax", "TESSERA_CACHE_DIR": "tessera"}
        env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), **{k: os.path.join(cache, v) for k, v in caches.items()})
        if engine.startswith("tessera:"):
            command = [args.program, "--serve", f"{folder}/model.onnx", f"{folder}/in.npz", engine.split(":")[1], "--threads", str(args.threads)]
        else:
            command = [sys.executable, os.path.join(HERE, "peer.py"), engine, model, folder, str(args.threads)]
        self.complaints = tempfile.TemporaryFile("w+")  # a pipe that nobody reads would stop what says much
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints, text=True, env=env)
        self.facts = self.read()

    def read(self):
        start = time.monotonic()
        while not select.select([self.process.stdout], [], [], 15)[0]:
            say(f"{self.model}: {self.engine}, no answer yet after {time.monotonic() - start:.0f} s")
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        status = self.process.wait()
        self.complaints.seek(0)
        said = [line for line in self.complaints.read().splitlines() if line and not line[0].isspace()]  # indented are hints and traces
        raise RuntimeError(said[-1] if said else f"it ended with status {status} and said nothing")

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: read() says why
        return self.read()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()
        self.complaints.close()


def compile_ms(facts):
    """From the model to the first result, packing apart."""
    return facts["compile_ms"] + (facts["first_call_ms"] if "pack_ms" not in facts else 0)


def error_of(path, folder):
    got, want = np.load(path)["out0"].astype(np.float64), np.load(os.path.join(folder, "out.npz"))["y"].astype(np.float64)
    if got.shape != want.shape:
        return math.inf
    return float(np.abs(got - want).max() / (np.abs(want).max() or 1.0))  # all zeros: the difference itself


def measure(model, args):
    folder = os.path.join(args.models, model)
    cache = tempfile.mkdtemp(prefix="bench-models-")
    sides, rows, handover = [], {}, []

    def failed(engine, error):
        rows[engine] = {"failed": str(error)[:300]}
        say(f"{model}: {engine} failed: {error}")

    def with_each(some, act):
        """One that fails is a gap in the tables from then on, and the others go on."""
        for side in some:
            try:
                act(side)
            except RuntimeError as e:
                failed(side.engine, e)
                sides.remove(side)
                side.close()

    def run(side):
        turn = side.ask(f"run {args.seconds}")["ms"]
        side.times += turn
        side.turns.append(statistics.median(turn))

    def finish(side):
        times = sorted(side.times)
        out = os.path.join(cache, "out.npz")
        side.ask(f"save {out}")
        rows[side.engine].update(
            median_ms=statistics.median(times), turns_ms=side.turns, p10_ms=times[len(times) // 10], p90_ms=times[len(times) * 9 // 10], calls=len(times),
            error=error_of(out, folder), peak_bytes=side.ask("memory")["peak_bytes"])  # fmt: skip

    try:
        for engine in args.engines:
            say(f"{model}: {engine}")
            try:
                cold = Side(engine, model, args, cache)
                row = rows[engine] = {"cold": cold.facts}
                if engine in ("eager", "onnxruntime", "openvino") or args.quick:
                    sides.append(cold)
                else:  # what a second process finds in the caches
                    cold.close()
                    warm = Side(engine, model, args, cache)
                    row["warm"] = warm.facts
                    sides.append(warm)
            except RuntimeError as e:
                failed(engine, e)
        with_each(sides[:], lambda side: side.ask("run 0.5"))
        for i in range(args.rounds):
            time.sleep(0.05)  # threads that wait for work spin for some milliseconds
            with_each([side for side in sides if side.engine in OURS][:1], lambda side: handover.append(side.ask("handover")["ns"]))
            with_each(sides[:: 1 if i % 2 == 0 else -1], run)
        with_each(sides[:], finish)
    finally:
        for side in sides:
            side.close()
        shutil.rmtree(cache, ignore_errors=True)
    return {"model": model, "load": os.getloadavg()[0], "handover_ns": handover, "engines": rows}


def best(rows, names):
    known = [(rows[n]["median_ms"], n) for n in names if "median_ms" in rows.get(n, {})]
    return min(known) if known else (math.nan, "")


def by_rounds(rows, ours, peers):
    """Our best engine against the best peer, each peer's speed-up the median over the rounds: what slows a whole round cancels out."""
    mine, theirs = best(rows, ours)[1], [rows[p]["turns_ms"] for p in peers if "turns_ms" in rows.get(p, {})]
    if not mine or not theirs:
        return math.nan
    return min(statistics.median(t / o for t, o in zip(turns, rows[mine]["turns_ms"])) for turns in theirs)


def mean_of(ratios, how):
    return f"{how} {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, least {min(ratios):.2f}"


def table(results, args):
    ours, peers = [e for e in args.engines if e in OURS], [e for e in args.engines if e in PEERS]
    lines = ["| ms per call | " + " | ".join(ours + peers) + " | against the best peer | by rounds |", "|---" * (len(ours) + len(peers) + 3) + "|"]
    ratios = []
    for r in results:
        rows = r["engines"]

        def cell(e):
            x = rows.get(e, {})
            return f"{x['median_ms']:.3g} ({x['p10_ms']:.3g}-{x['p90_ms']:.3g})" if "median_ms" in x else "-"

        both = best(rows, peers)[0] / best(rows, ours)[0], by_rounds(rows, ours, peers)
        ratios.append(both)
        lines.append("| " + " | ".join([r["model"], *map(cell, ours + peers), *(f"{x:.2f}" for x in both)]) + " |")
    known = [x for x in ratios if not any(map(math.isnan, x))]
    if known:
        medians, rounds = zip(*known)
        lines.append(f"\nSpeed-up over the best peer, geometric mean: {mean_of(medians, 'of medians')}; {mean_of(rounds, 'median of the rounds')}. "
                     f"{args.threads} threads, median (10th to 90th percentile).")
    handover = [ns for r in results for ns in r["handover_ns"]]
    if handover:
        lines.append(f"Before each round one core handed a line of memory to another in {statistics.median(handover):.0f} ns (median; {min(handover):.0f} to {max(handover):.0f}), "
                     f"{sum(ns > 150 for ns in handover)} of {len(handover)} times in more than 150: without a common cache, which costs threads what they share.")
    lines += ["", "| compile ms, cold / warm; pack ms, cold / warm; peak MiB | " + " | ".join(ours + peers) + " |", "|---" * (len(ours) + len(peers) + 1) + "|"]
    for r in results:

        def facts(e):
            x = r["engines"].get(e, {})
            if "cold" not in x:
                return "-"
            text = f"{compile_ms(x['cold']):.0f}" + (f" / {compile_ms(x['warm']):.0f}" if "warm" in x else "")
            if "pack_ms" in x["cold"]:
                text += f"; {x['cold']['pack_ms']:.0f}" + (f" / {x['warm']['pack_ms']:.0f}" if "warm" in x else "")
            return text + (f"; {x['peak_bytes'] / 2**20:.0f}" if "peak_bytes" in x else "")

        lines.append("| " + " | ".join([r["model"], *map(facts, ours + peers)]) + " |")
    lines += ["", "| greatest difference from PyTorch by greatest value | " + " | ".join(ours + peers) + " |", "|---" * (len(ours) + len(peers) + 1) + "|"]
    for r in results:
        lines.append("| " + " | ".join([r["model"]] + [f"{r['engines'][e]['error']:.1e}" if "error" in r["engines"].get(e, {}) else "-" for e in ours + peers]) + " |")
    gaps = [f"- {e} on {r['model']}: {x['failed']}" for r in results for e, x in r["engines"].items() if "failed" in x]
    return "\n".join(lines + (["", "Not measured:", *gaps] if gaps else []))


def without_infinity(rows):
    """As docs/json.md has numbers that JSON lacks."""
    return {e: {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in x.items()} for e, x in rows.items()}


def plot(results, args):
    """Speed against the best peer of each model: one group of bars per model."""
    colours = ["#bbbbbb", "#777777", "#d62728", "#aec7e8", "#1f77b4", "#17becf", "#ff7f0e", "#2ca02c", "#9467bd"]
    bar, gap, height, left = 14, 26, 260, 50
    group = bar * len(args.engines) + gap
    width = left + group * len(results) + 20
    top = max((best(r["engines"], PEERS)[0] / x["median_ms"] for r in results for x in r["engines"].values() if "median_ms" in x), default=1) * 1.1
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 90}" font-family="sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="white"/>', '<text x="10" y="16">speed, the best peer of each model = 1</text>']
    base = height + 20

    def y(v):
        return base - v / top * (height - 20)

    for tick in [i / 4 for i in range(0, int(top * 4) + 1)]:
        out.append(f'<line x1="{left}" x2="{width - 10}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="{"#333" if tick == 1 else "#ddd"}"/><text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for i, r in enumerate(results):
        x = left + gap / 2 + i * group
        reference = best(r["engines"], PEERS)[0]
        for k, engine in enumerate(args.engines):
            ms = r["engines"].get(engine, {}).get("median_ms")
            if ms and not math.isnan(reference):
                v = reference / ms
                out.append(f'<rect x="{x + k * bar:.1f}" y="{y(v):.1f}" width="{bar - 2}" height="{base - y(v):.1f}" fill="{colours[k % len(colours)]}"><title>{engine} {ms:.2f} ms</title></rect>')
        out.append(f'<text x="{x + bar * len(args.engines) / 2:.1f}" y="{base + 16}" text-anchor="middle">{r["model"]}</text>')
    for k, engine in enumerate(args.engines):
        at = left + k * (width - left) / len(args.engines)
        out.append(f'<rect x="{at:.1f}" y="{base + 34}" width="10" height="10" fill="{colours[k % len(colours)]}"/><text x="{at + 14:.1f}" y="{base + 43}">{engine}</text>')
    with open(args.plot, "w") as f:
        f.write("\n".join(out + ["</svg>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("models")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--engines", default=",".join(OURS + PEERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each side in a round; short turns, so that a busy phase of the machine meets all")
    parser.add_argument("--quick", action="store_true", help="no second process for warm compile times")
    parser.add_argument("--plot", default="cpu-models.svg")
    args = parser.parse_args()
    args.engines = args.engines.split(",")
    unknown = [e for e in args.engines if e not in OURS + PEERS]
    if unknown:
        parser.error(f"unknown engine '{unknown[0]}'; there are: {', '.join(OURS + PEERS)}")
    names = args.only.split(",")
    subprocess.run([sys.executable, os.path.join(HERE, "models.py"), args.models, *names], check=True, stdout=sys.stderr)
    results = []
    for name in names:
        say("measuring", name)
        results.append(measure(name, args))
    plot(results, args)
    if args.json:
        for r in results:
            r["engines"] = without_infinity(r["engines"])
        print(json.dumps({"schema": "tessera.bench.cpu-models.peers/1", "threads": args.threads, "models": results}, indent=1))
    else:
        print(table(results, args))


if __name__ == "__main__":
    main()
