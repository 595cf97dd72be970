# SPDX-License-Identifier: Apache-2.0
"""A GPT's training step on the CPU beside PyTorch's, from the same weights and on the same batches.

usage: peers.py BENCH_TRAINING [--steps 50] [--text FILE] [--layers 6] [--width 384] [--threads N] [--json]

Both sides take turns in one run: a few steps of one, the same steps of the other. Printed: seconds of the first step, tokens
per second over the others, and the largest relative difference of the losses of a step. The exit status is 1 where that is more
than 1e-4 in the first 50 steps.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The model of examples/train_gpt, by the same names."""

    def __init__(self, o):
        super().__init__()
        self.wte = nn.Embedding(256, o.width)
        self.wpe = nn.Embedding(o.context, o.width)
        self.h = nn.ModuleList(Block(o.width, o.heads) for _ in range(o.layers))
        self.ln_f = nn.LayerNorm(o.width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 / (2 * o.layers) ** 0.5 if name.endswith("c_proj.weight") else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def save_safetensors(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        bytes_ = t.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Torch:
    def __init__(self, o, model, batches, compiled):
        self.model, self.batches, self.o, self.next = model, batches, o, 0
        # At a rate at which training is stable from the first step on: at ten times this, rounding alone moves losses by a
        # percent.
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
        self.loss = torch.compile(model) if compiled else model

    def run(self, steps):
        losses, seconds = [], []
        for _ in range(steps):
            tokens = self.batches[self.next % len(self.batches)]
            self.next += 1
            start = time.perf_counter()
            loss = self.loss(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            losses.append(loss.item())
            seconds.append(time.perf_counter() - start)
        return losses, seconds


class Ours:
    def __init__(self, o, weights, batches):
        sizes = [f"--{k}={getattr(o, k)}" for k in ("layers", "heads", "width", "context", "batch")]
        config = ["--config", o.config] if o.config else []
        self.process = subprocess.Popen([o.program, "--serve", "--weights", weights, "--batches", batches, *sizes, *config],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"bench-training ended with status {self.process.wait()}")
        answer = json.loads(line)
        return answer["losses"], answer["seconds"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--turn", type=int, default=5, help="steps of one side before it is the other's turn")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    p.add_argument("--text", help="training text; the pages under docs/ by default")
    p.add_argument("--config")
    p.add_argument("--eager", action="store_true", help="PyTorch without torch.compile, too")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(o.threads)
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)

    text = pathlib.Path(o.text).read_bytes() if o.text else b"".join(f.read_bytes() for f in sorted((ROOT / "docs").glob("*.md")))
    starts = torch.randint(len(text) - o.context - 1, (o.steps, o.batch))
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    batches = torch.stack([torch.stack([data[s : s + o.context + 1] for s in row]) for row in starts])
    model = Gpt(o)
    state = {k: v.clone() for k, v in model.state_dict().items()}

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save_safetensors(folder / "weights.safetensors", state)
        np.savez(folder / "batches.npz", tokens=batches.numpy())
        sides = {"tessera": Ours(o, folder / "weights.safetensors", folder / "batches.npz")}
        for name in ["torch.compile"] + ["PyTorch eager"] * o.eager:
            copy = Gpt(o)
            copy.load_state_dict(state)
            sides[name] = Torch(o, copy, batches, name == "torch.compile")
        losses, seconds = {k: [] for k in sides}, {k: [] for k in sides}
        done = 0
        while done < o.steps:
            turn = 1 if done == 0 else min(o.turn, o.steps - done)  # the first step compiles: it is timed alone
            for name, side in sides.items():
                l, s = side.run(turn)
                losses[name] += l
                seconds[name] += s
            done += turn

    tokens = o.batch * o.context
    rows = {}
    for name in sides:
        difference = max(abs(a - b) / abs(b) for a, b in zip(losses["tessera"], losses[name]))
        step = statistics.median(seconds[name][1:]) if o.steps > 1 else seconds[name][0]
        rows[name] = {"first_step_s": seconds[name][0], "step_s": step, "tokens_per_s": tokens / step,
                      "last_loss": losses[name][-1], "loss_difference": difference}
    first = [abs(a - b) / abs(b) for name in sides for a, b in zip(losses["tessera"][:50], losses[name])]
    status = 0 if all(d <= 1e-4 for d in first) else 1  # a loss that is no number differs, too
    ratio = rows["tessera"]["tokens_per_s"] / rows["torch.compile"]["tokens_per_s"]
    if o.json:
        print(json.dumps({"schema": "tessera.bench.training.peers/1", "steps": o.steps, "threads": o.threads, "tokens_per_step": tokens,
                          "ratio": ratio, "sides": rows}, indent=2))
        return status
    print(f"GPT of {o.layers} layers, {o.width} wide, batch {o.batch} of {o.context}, f32, {o.threads} threads, {o.steps} steps\n")
    print(f"{'':16}{'first step':>12}{'step':>12}{'tokens/s':>10}{'last loss':>11}{'difference of losses':>22}")
    for name, r in rows.items():
        print(f"{name:16}{r['first_step_s']:>10.2f} s{r['step_s'] * 1e3:>9.1f} ms{r['tokens_per_s']:>10.0f}{r['last_loss']:>11.4f}"
              f"{r['loss_difference']:>22.1e}")
    print(f"\ntokens/s against torch.compile: {ratio:.2f}. difference of losses: the largest |a - b| / |b| of a step.")
    return status


if __name__ == "__main__":
    sys.exit(main())
