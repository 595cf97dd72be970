# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own joint graphs, divided by our partitioner and by PyTorch's, both plans priced by one judge.

    joint_graphs.py [--only NAME,...] [--budgets N] [--costs measured|predicted] [--run] [--json FILE] [--table FILE] [--plot FILE]

AOTAutograd hands out the joint graph of a model. PyTorch's partitioner divides a copy of it at each of its budgets
(torch._functorch.config.activation_memory_budget); what its backward half computes again is read off that half. Ours gets the
bytes that PyTorch's plan takes at its peak. The judge is the same for both: the joint graph in our ops, with exactly those nodes
computed again just before their first reader, is lowered, fused and laid out by the core, and its kernels are timed. Recompute
time is the time of such a step, less that of the step that keeps everything.

A plan of ours, which never takes more memory, counts as dominated where PyTorch's takes less time. Prints, for each model and
budget, both peaks and both times, and the geometric mean of ours over theirs at their peaks. Exit status 1: some plan of ours is dominated.

--run: of each model, the two plans of one budget are run too, as torch.compile(backend="tessera") steps that compute these nodes
again, in turn with the step that keeps everything. Their gradients must have the same bits.
"""

import argparse
import copy
import json
import math
import os
import statistics
import sys
import time
from unittest import mock

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

import tessera.pytorch
from tessera import _core
from tessera.pytorch import backend, decompositions
from tessera.pytorch.emit import Records
from tessera.pytorch.joint import JointGraph, plan
from tessera.pytorch.partition import is_view
from tessera.pytorch.recompute import Problem

WITHIN = 1e-3  # of a step: what two measurements of the same kernels may differ by


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, width, heads, gated):
        super().__init__()
        self.before, self.behind, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gate = nn.Linear(width, 4 * width) if gated else None

    def forward(self, x):
        x = x + self.attention(self.before(x))
        y = self.behind(x)
        h = F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(h)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )

    def forward(self, x):
        return F.relu(x + self.body(x))


class Skips(nn.Module):
    """Layers that read what their counterparts at the other end have made."""

    def __init__(self, width, depth):
        super().__init__()
        self.down, self.up = (nn.ModuleList(nn.Linear(width, width) for _ in range(depth)) for _ in range(2))

    def forward(self, x):
        kept = []
        for layer in self.down:
            x = F.gelu(layer(x))
            kept.append(x)
        for layer in self.up:
            x = torch.tanh(layer(x)) + kept.pop()
        return x


MODELS = {
    "gpt": lambda: (nn.Sequential(*[Block(128, 4, False) for _ in range(4)]), torch.randn(4, 64, 128)),
    "llama": lambda: (nn.Sequential(*[Block(128, 4, True) for _ in range(4)]), torch.randn(4, 64, 128)),
    "mlp": lambda: (nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(256, 256), nn.GELU())]), torch.randn(256, 256)),
    "resnet": lambda: (nn.Sequential(*[Residual(16) for _ in range(4)]), torch.randn(4, 16, 32, 32)),
    "skips": lambda: (Skips(256, 4), torch.randn(256, 256)),
}


def joint_graph(module, x):
    """(the joint graph, inputs, number of outputs of its forward half)"""
    found = []

    def capture(joint, inputs, *, num_fwd_outputs, **kwargs):
        found.append((copy.deepcopy(joint), inputs, num_fwd_outputs, kwargs))
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)

    def same(gm, _):
        return gm

    backend = aot_autograd(fw_compiler=same, bw_compiler=same, partition_fn=capture, decompositions=decompositions())
    torch._dynamo.reset()
    torch.compile(module, backend=backend)(x).square().sum().backward()
    return found[0]


class Judge:
    """Prices plans of one joint graph. A plan is the set of names of the nodes that run again."""

    def __init__(self, joint, num_fwd_outputs, costs):
        self.joint, self.costs = joint, costs
        self.problem = Problem(joint, num_fwd_outputs)
        self.forward = Problem._forward_nodes(joint.graph)
        self.free = {n for n in self.problem.nodes if not is_view(n) and n not in self.problem.once}

    def _context(self, *texts):
        passes = ['pipeline.passes=["fuse"]', "pipeline.joint=[]", f'partitioner.costs="{self.costs}"']
        return _core.Context(overrides=[*passes, *texts])

    def price(self, names):
        again = {n for n in self.free if n.name in names}
        context = self._context('partitioner.name="policy"')
        graph = JointGraph(
            self.joint, self.forward, (self.free - again) | self.problem.once, again, context, Records(context)
        )
        return json.loads(context.memory_plans(graph.graph))[0]

    def ours(self, peak):
        """(the plan, the names of the nodes that run again)"""
        context = self._context('partitioner.name="budget"', f"partitioner.budget_bytes={peak}")
        again, kept, found = plan(self.joint, self.forward, self.problem.once, set(), context, Records(context))
        return found, frozenset(n.name for n in self.free if n in again or n not in kept)


def of_pytorch(joint, inputs, num_fwd_outputs, kwargs, budget):
    """The names of what PyTorch's partitioner computes again at a budget."""
    forward = {n.name for n in Problem._forward_nodes(joint.graph) if n.op == "call_function"}
    with functorch.patch(activation_memory_budget=budget):
        _, backward = min_cut_rematerialization_partition(
            copy.deepcopy(joint), inputs, num_fwd_outputs=num_fwd_outputs, **kwargs
        )
    return {n.name for n in backward.graph.nodes if n.op == "call_function" and n.name in forward}


def compared(name, budgets, costs):
    """One row for each budget."""
    torch.manual_seed(0)
    joint, inputs, num_fwd_outputs, kwargs = joint_graph(*MODELS[name]())
    judge = Judge(joint, num_fwd_outputs, costs)
    everything = judge.price(set())["predicted_ms"]
    rows, priced = [], {}
    for k in range(budgets):
        budget = k / budgets
        names = frozenset(of_pytorch(joint, inputs, num_fwd_outputs, kwargs, budget))
        if names not in priced:
            theirs = judge.price(names)
            priced[names] = theirs, *judge.ours(theirs["peak_bytes"])
        theirs, ours, names_ours = priced[names]
        rows.append(
            {
                "model": name,
                "budget": budget,
                "peak": theirs["peak_bytes"],
                "peak_ours": ours["peak_bytes"],
                "ms": theirs["predicted_ms"] - everything,
                "ms_ours": ours["predicted_ms"] - everything,
                "step_ms": everything,
                "again": sorted(names),
                "again_ours": sorted(names_ours),
            }
        )
    return rows


def step_of(name, names):
    """(a training step that computes the nodes of these names again, its module)"""

    def marked(joint, joint_inputs, *, num_fwd_outputs, **kwargs):
        for n in Problem._forward_nodes(joint.graph):
            if n.name in names:
                n.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
        return default_partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)

    def of_plan(gm, inputs):  # a function of its own: Dynamo gives what one backend has compiled to no other
        with mock.patch.object(tessera.pytorch, "_partition_fn", lambda *_: marked):
            return backend(gm, inputs, options={"activation_memory_budget": 1.0})

    torch.manual_seed(0)
    module, x = MODELS[name]()
    compiled = torch.compile(module, backend=of_plan, dynamic=False)

    def step():
        module.zero_grad()
        compiled(x).square().sum().backward()

    step()
    return step, module


def run(row, rounds=30):
    """Prints what the steps of both plans take beyond the one that keeps everything. Whether all gradients have the same bits."""
    torch._dynamo.reset()
    steps = {what: step_of(row["model"], row[what] if what else ()) for what in ("", "again", "again_ours")}
    times = {what: [] for what in steps}
    for _ in range(rounds):
        for what, (step, _) in steps.items():
            started = time.perf_counter()
            step()
            times[what].append(1e3 * (time.perf_counter() - started))
    ms = {what: statistics.median(t) for what, t in times.items()}
    gradients = [[p.grad for p in module.parameters()] for _, module in steps.values()]
    same = all(torch.equal(a, b) for other in gradients[1:] for a, b in zip(gradients[0], other))
    print(
        f"{row['model']} at budget {row['budget']:.2f}: a step takes {ms['']:.3f} ms; PyTorch's plan {ms['again'] - ms['']:+.3f} "
        f"(priced {row['ms']:+.3f}), ours {ms['again_ours'] - ms['']:+.3f} (priced {row['ms_ours']:+.3f}); gradients have "
        f"{'the same bits' if same else 'OTHER BITS'}",
        flush=True,
    )
    return same


def is_dominated(row):
    return row["ms_ours"] > row["ms"] + WITHIN * row["step_ms"]


def ratio_of(rows):
    """The geometric mean of our recompute time over PyTorch's, where PyTorch's plan computes something again."""
    least = [WITHIN * r["step_ms"] for r in rows]
    logs = [math.log(max(r["ms_ours"], x) / r["ms"]) for r, x in zip(rows, least) if r["ms"] > x]
    return math.exp(sum(logs) / len(logs)) if logs else float("nan")


def table(rows):
    lines = ["| Model | Budget | Peak, MiB | Ours, MiB | Recomputed, ms | Ours, ms |", "|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(
            f"| {r['model']} | {r['budget']:.2f} | {r['peak'] / 2**20:.2f} | {r['peak_ours'] / 2**20:.2f} "
            f"| {r['ms']:.3f} | {r['ms_ours']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def plot(rows):
    """One panel for each model: time computed again over the peak, PyTorch's plans and ours."""
    names = list(dict.fromkeys(r["model"] for r in rows))
    width, height, left, top = 300, 220, 50, 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * len(names)}" height="{height + 40}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    for k, name in enumerate(names):
        mine = [r for r in rows if r["model"] == name]
        most_x = max(r["peak"] for r in mine) or 1
        most_y = max(max(r["ms"], r["ms_ours"], 1e-6) for r in mine)

        def place(peak, ms):
            x = k * width + left + peak / most_x * (width - left - 20)
            return x, top + (1 - max(ms, 0) / most_y) * (height - top - 30)

        out.append(f'<text x="{k * width + width / 2}" y="18" text-anchor="middle">{name}: up to {most_y:.2f} ms again</text>')
        for colour, peak, ms in (("#b2182b", "peak", "ms"), ("#2166ac", "peak_ours", "ms_ours")):
            for r in mine:
                x, y = place(r[peak], r[ms])
                out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.7"/>')
        out.append(
            f'<text x="{k * width + width / 2}" y="{height}" text-anchor="middle">peak, up to {most_x / 2**20:.1f} MiB</text>'
        )
    out.append(f'<text x="{left}" y="{height + 25}">red: PyTorch\'s partitioner; blue: ours, at the same peaks</text></svg>')
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("--budgets", type=int, default=18)
    parser.add_argument("--costs", default="measured", choices=("measured", "predicted"))
    parser.add_argument("--run", action="store_true")
    for name in ("json", "table", "plot"):
        parser.add_argument(f"--{name}")
    args = parser.parse_args()
    rows = []
    for name in args.only.split(",") if args.only else MODELS:
        found = compared(name, args.budgets, args.costs)
        rows += found
        print(f"{name}: {sum(map(is_dominated, found))} of {len(found)} dominated, recompute time {ratio_of(found):.3f}", flush=True)
    print(f"all: {sum(map(is_dominated, rows))} of {len(rows)} dominated, recompute time {ratio_of(rows):.3f}")
    for path, text in ((args.json, json.dumps(rows, indent=1)), (args.table, table(rows)), (args.plot, plot(rows))):
        if path:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
    ran = [run(r) for r in rows if round(r["budget"] * args.budgets) == args.budgets // 3] if args.run else []
    sys.exit(1 if any(map(is_dominated, rows)) or not all(ran) else 0)


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    main()
