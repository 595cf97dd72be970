# SPDX-License-Identifier: Apache-2.0
"""Training steps under memory budgets: what a plan promises against what a run takes.

    budgets.py TESSERA [--only NAME,...] [--budgets N] [--timed N] [--threads N] [--folder DIR]

TESSERA: the command. Six models are written as text. Of each, the front of plans is asked for, then plans at N budgets (101)
evenly over it, whose recompute time must not rise with the budget; then the step is measured at a few of them (5) and compared
with the predicted time, and the device's own count of blocks with the planned peak. A machine with other tenants changes its
speed by half within a second, and that only ever adds to a time. So kernels are measured in ten turns and steps in ten, each
turn through all models, so that those of one are minutes apart, and the fastest run of either counts; the median of a step is
printed beside it. A model that is outside then may have met no quiet moment: its kernels and its steps are measured for ten
turns more, twice at most. Every answer of the command is kept in the folder, so that a run that was cut off goes on where it
was. Without --folder it is removed at the end. Exit status 1: a promise was not kept.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

NEAR = 0.10  # of the predicted time
OVER = 4096  # bytes that rounding of blocks may add
CLOSE = 0.02  # of the peak, to the planned one
TURNS = 10  # of measuring kernels, and of measuring steps
ROUNDS = 3  # of as many turns: the second and third for models that are outside
STEPS = 51  # of one process; a quiet moment lasts for a few of them


class Program:
    """Text of a training step. Weights are scaled first, so that random ones do not overflow."""

    def __init__(self, name, x):
        self.name, self.head, self.lines, self.parameters = name, [f"%x: {x}", f"%t: {x}"], [], []
        self.lines.append("%c = constant {value = dense<f32[]: 0.05>}")
        self.count = 0

    def op(self, text):
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def parameter(self, *sizes):
        name = f"w{len(self.parameters)}"
        self.parameters.append(name)
        self.head.append(f"%{name}: f32{list(sizes)} param")
        return f"%{name}"

    def weight(self, *sizes):
        return self.op(f"mul {self.parameter(*sizes)}, %c")

    def norm(self, x, width):
        return self.op(f"layer_norm {x}, {self.parameter(width)}, {self.parameter(width)}")

    def text(self, y, rank):
        e = self.op(f"sub {y}, %t")
        square = self.op(f"mul {e}, {e}")
        self.lines.append(f"%loss = reduce_sum {square} {{axes = {list(range(rank))}}}")
        results = ", ".join(f"%d{p}" for p in self.parameters)
        self.lines.append(f"{results} = grad %loss, {', '.join('%' + p for p in self.parameters)}")
        self.lines.append(f"return %loss, {results}")
        return f"graph @{self.name}({', '.join(self.head)})\n{{\n  " + "\n  ".join(self.lines) + "\n}\n"


def mlp(layers=8, rows=512, width=256):
    p = Program("mlp", f"f32[{rows}, {width}]")
    y = p.op("mul %x, %c")
    for _ in range(layers):
        linear = p.op(f"linear {y}, {p.weight(width, width)}")
        y = p.op(f"gelu {linear}")
    return p.text(y, 2)


def transformer(blocks=4, batch=4, length=128, width=128, heads=4):
    p = Program("transformer", f"f32[{batch}, {length}, {width}]")
    split, join = [batch, length, heads, width // heads], [batch, length, width]
    y = p.op("mul %x, %c")
    for _ in range(blocks):
        n = p.norm(y, width)
        heads_of = []
        for _ in range(3):
            linear = p.op(f"linear {n}, {p.weight(width, width)}")
            parts = p.op(f"reshape {linear} {{shape = {split}}}")
            heads_of.append(p.op(f"transpose {parts} {{perm = [0, 2, 1, 3]}}"))
        a = p.op(f"attention {', '.join(heads_of)} {{causal = true}}")
        turned = p.op(f"transpose {a} {{perm = [0, 2, 1, 3]}}")
        joined = p.op(f"reshape {turned} {{shape = {join}}}")
        out = p.op(f"linear {joined}, {p.weight(width, width)}")
        y = p.op(f"add {y}, {out}")
        up = p.op(f"linear {p.norm(y, width)}, {p.weight(4 * width, width)}")
        g = p.op(f"gelu {up}")
        down = p.op(f"linear {g}, {p.weight(width, 4 * width)}")
        y = p.op(f"add {y}, {down}")
    return p.text(y, 3)


def cnn(blocks=4, batch=4, channels=16, size=48):
    p = Program("cnn", f"f32[{batch}, {channels}, {size}, {size}]")
    window = "{strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}"
    y = p.op("mul %x, %c")
    for _ in range(blocks):
        h = p.op(f"conv {y}, {p.weight(2 * channels, channels, 3, 3)}, _ {window}")
        s = p.op(f"silu {h}")
        d = p.op(f"conv {s}, {p.weight(channels, 2 * channels, 3, 3)}, _ {window}")
        y = p.op(f"add {y}, {d}")
    return p.text(y, 4)


def skips(depth=4, rows=512, width=256):
    p = Program("skips", f"f32[{rows}, {width}]")
    y, kept = p.op("mul %x, %c"), []
    for _ in range(depth):
        kept.append(y)
        linear = p.op(f"linear {y}, {p.weight(width, width)}")
        y = p.op(f"silu {linear}")
    for other in reversed(kept):
        linear = p.op(f"linear {y}, {p.weight(width, width)}")
        g = p.op(f"gelu {linear}")
        y = p.op(f"add {g}, {other}")
    return p.text(y, 2)


def gated(blocks=4, rows=512, width=192):
    p = Program("gated", f"f32[{rows}, {width}]")
    y = p.op("mul %x, %c")
    for _ in range(blocks):
        n = p.norm(y, width)
        a, b = (p.op(f"linear {n}, {p.weight(2 * width, width)}") for _ in range(2))
        s = p.op(f"silu {a}")
        m = p.op(f"mul {s}, {b}")
        d = p.op(f"linear {m}, {p.weight(width, 2 * width)}")
        y = p.op(f"add {y}, {d}")
    return p.text(y, 2)


def recurrent(turns=12, rows=256, width=256):
    p = Program("recurrent", f"f32[{rows}, {width}]")
    u, v = p.weight(width, width), p.weight(width, width)
    y = p.op("mul %x, %c")
    for _ in range(turns):
        a, b = p.op(f"linear %x, {u}"), p.op(f"linear {y}, {v}")
        s = p.op(f"add {a}, {b}")
        y = p.op(f"tanh {s}")
    return p.text(y, 2)


MODELS = {f.__name__: f for f in (mlp, transformer, cnn, skips, gated, recurrent)}


class Answers:
    """What the command has answered, by its arguments; kept in a file."""

    def __init__(self, tessera, folder):
        self.tessera, self.path, self.known = tessera, os.path.join(folder, "answers.jsonl"), {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as f:
                for line in f:
                    if line.endswith("\n"):  # else it was cut off
                        key, answer = json.loads(line)
                        self.known[key] = answer

    def __call__(self, command, file, *arguments, turn=0):
        key = " ".join((command, os.path.basename(file), *arguments)) + (f" turn {turn}" if turn else "")
        if key not in self.known:
            done = subprocess.run(
                [self.tessera, command, file, "--json", *arguments], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise RuntimeError(f"{key}: {done.stderr.strip() or done.returncode}")
            self.known[key] = json.loads(done.stdout)
            with open(self.path, "a", encoding="utf-8") as f:
                f.write(json.dumps([key, self.known[key]]) + "\n")
        return self.known[key]


def to_budget(peak):
    return "--set", "partitioner.name=budget", "--set", f"partitioner.budget_bytes={peak}"


def spread(front, count):
    """Peaks of the front's plans, and between them, evenly."""
    least, most = min(p["peak_bytes"] for p in front), max(p["peak_bytes"] for p in front)
    return [least + (most - least) * k // max(1, count - 1) for k in range(count)]


class Model:
    """One of the six, with what the command promised about it."""

    def __init__(self, ask, name, file, threads):
        self.ask, self.name, self.file, self.faults, self.steps = ask, name, file, [], {}
        self.same = "--set", f"runtime.threads={threads}"  # costs are measured for a number of threads
        self.first = ask("memory", file, *self.same)

    def measure_kernels(self, timed, turn):
        for peak in spread(self.first, timed):
            self.ask("memory", self.file, *self.same, *to_budget(peak), "--set", "partitioner.costs=remeasured", turn=turn)

    def plan(self, budgets, turn):
        """Plans by the costs of that turn; they must keep to the budget, and a larger one must not compute more again."""
        self.faults = []
        front = self.ask("memory", self.file, *self.same, turn=turn)
        self.peaks = spread(front, budgets)
        self.plans = [self.ask("memory", self.file, *self.same, *to_budget(p), turn=turn)[0] for p in self.peaks]
        for small, large, a, b in zip(self.peaks, self.peaks[1:], self.plans, self.plans[1:]):
            if b["recompute_ms"] > a["recompute_ms"] + 1e-9:
                self.fault(f"recompute time rises from {a['recompute_ms']} to {b['recompute_ms']} ms at {small}, {large} bytes")
        for peak, plan in zip(self.peaks, self.plans):
            if not plan["feasible"] or plan["peak_bytes"] > peak:
                self.fault(f"planned {plan['peak_bytes']} bytes for a budget of {peak}")
        gap = max(p["gap"] for p in self.plans)
        print(
            f"{self.name}: {len(front)} plans, {self.peaks[0]} to {self.peaks[-1]} bytes; "
            f"largest gap {100 * gap:.2f} % of a step",
            flush=True,
        )

    def steps_of(self, at):
        """What was measured of the plan that a budget has now."""
        return self.steps.setdefault((self.plans[at]["peak_bytes"], *self.plans[at]["recomputed"]), [])

    def run_step(self, at, turn):
        steps = self.ask("bench", self.file, *self.same, *to_budget(self.peaks[at]), "--iters", str(STEPS), turn=turn)
        self.steps_of(at).append(steps)

    def time(self, at):
        return min(s["min_ms"] for s in self.steps_of(at))

    def off(self, at):
        return self.time(at) / self.plans[at]["predicted_ms"] - 1

    def compare(self, at):
        budget, plan, steps, off = self.peaks[at], self.plans[at], self.steps_of(at), self.off(at)
        predicted, planned = plan["predicted_ms"], plan["peak_bytes"]
        peak = max(s["peak_bytes"] - s["input_bytes"] for s in steps)  # those are the caller's
        usual = sorted(s["median_ms"] for s in steps)[len(steps) // 2]
        print(
            f"  {self.name}, {budget} bytes: planned {planned}, taken {peak}; predicted {predicted:.3f} ms, "
            f"measured {self.time(at):.3f} ({100 * off:+.1f} %; usually {usual:.3f})",
            flush=True,
        )
        if peak > budget + OVER:
            self.fault(f"{peak} bytes at the peak, above the budget of {budget}")
        if abs(peak - planned) > CLOSE * peak + OVER:
            self.fault(f"{peak} bytes at the peak, planned {planned}")
        if abs(off) > NEAR:
            self.fault(f"a step takes {self.time(at):.3f} ms, predicted {predicted:.3f}")

    def fault(self, text):
        self.faults.append(f"{self.name}: {text}")


def measure(models, budgets, timed, chosen, turns):
    for turn in turns:
        print(f"kernels, turn {turn}", flush=True)
        for model in models:
            model.measure_kernels(timed, turn)
    for model in models:
        model.plan(budgets, turns[-1] if turns else 0)
    for turn in turns:
        print(f"steps, turn {turn}", flush=True)
        for model in models:
            for at in chosen:
                model.run_step(at, turn)


def check_all(args, folder):
    os.environ.update(TESSERA_CACHE_DIR=os.path.join(folder, "cache"), OMP_NUM_THREADS=str(args.threads))
    ask, models = Answers(args.tessera, folder), []
    for name in args.only.split(",") if args.only else MODELS:
        file = os.path.join(folder, f"{name}.tsr")
        with open(file, "w", encoding="utf-8") as f:
            f.write(MODELS[name]())
        models.append(Model(ask, name, file, args.threads))
    chosen = [(args.budgets - 1) * k // max(1, args.timed - 1) for k in range(args.timed)]
    outside = models
    for done in range(ROUNDS if args.timed else 1):
        measure(outside, args.budgets, args.timed, chosen, range(done * TURNS + 1, (done + 1) * TURNS + 1) if args.timed else ())
        for model in outside:
            for at in chosen:
                model.compare(at)
        outside = [m for m in outside if any(abs(m.off(at)) > NEAR for at in chosen)]
        if not outside:
            break
    return [fault for model in models for fault in model.faults]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--only")
    parser.add_argument("--budgets", type=int, default=101)
    parser.add_argument("--timed", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder")
    args = parser.parse_args()
    if args.folder:
        os.makedirs(args.folder, exist_ok=True)
        faults = check_all(args, args.folder)
    else:
        with tempfile.TemporaryDirectory() as folder:
            faults = check_all(args, folder)
    print("\n".join(faults) or "every promise was kept")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
