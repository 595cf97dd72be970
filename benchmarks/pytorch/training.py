# SPDX-License-Identifier: Apache-2.0
"""A GPT's training step by torch.compile(backend="tessera") beside backend="inductor", on the CPU.

    training.py [--steps N] [--turn N] [--threads N] [--layers 6] [--width 384] [--heads 6] [--context 256] [--batch 4] [--json]

The model, weights and batches are those of benchmarks/training. Each engine is a process of its own; they take turns, some steps
each, with the same batches. Printed: seconds of the first step, tokens per second (the median over the later steps), and by how
much the losses of a step differ at most, relative to Inductor's.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINES = ("tessera", "inductor")


def peers():
    spec = importlib.util.spec_from_file_location("peers", os.path.join(HERE, "..", "training", "peers.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve(o):
    """Answers each line of standard input, a number of steps, with losses and seconds."""
    import torch

    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    known = peers()
    model = known.Gpt(o)
    batches = [torch.randint(0, 256, (o.batch, o.context + 1)) for _ in range(8)]
    side = known.Torch(o, model, batches, compiled=False)
    if o.serve == "tessera":
        from tessera.pytorch import backend
    side.loss = torch.compile(model, backend=backend if o.serve == "tessera" else o.serve)
    for line in sys.stdin:
        losses, seconds = side.run(int(line))
        print(json.dumps({"losses": losses, "seconds": seconds}), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--turn", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    for name, value in (("layers", 6), ("width", 384), ("heads", 6), ("context", 256), ("batch", 4)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--json", action="store_true")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.serve:
        return serve(o)
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--serve"]
    sides = {e: subprocess.Popen([*command, e], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for e in ENGINES}
    losses, seconds = ({e: [] for e in ENGINES} for _ in range(2))
    for turn in [1] + [o.turn] * (o.steps // o.turn):  # the first step compiles
        for engine, process in sides.items():
            process.stdin.write(f"{turn}\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                sys.exit(f"{engine} ended with status {process.wait()}")
            answer = json.loads(line)
            losses[engine] += answer["losses"]
            seconds[engine] += answer["seconds"]
        print(f"{len(losses[ENGINES[0]])} steps", file=sys.stderr, flush=True)
    tokens = {e: o.batch * o.context / statistics.median(seconds[e][1:]) for e in ENGINES}
    off = max(abs(a - b) / abs(b) for a, b in zip(losses["tessera"], losses["inductor"]))
    result = {
        "first_step_seconds": {e: seconds[e][0] for e in ENGINES},
        "tokens_per_second": tokens,
        "ratio": tokens["tessera"] / tokens["inductor"],
        "losses_off": off,
    }
    if o.json:
        print(json.dumps(result))
        return
    for e in ENGINES:
        print(f"{e:10} first step {seconds[e][0]:6.1f} s, {tokens[e]:8.0f} tokens/s")
    print(f"tessera / inductor: {result['ratio']:.2f}; losses differ by {off:.1e} at most")


if __name__ == "__main__":
    main()
