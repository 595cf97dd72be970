# SPDX-License-Identifier: Apache-2.0
"""Compares every optimiser with torch.optim, step by step, on the same parameters, gradients and rates in f32.

usage: optim_peers.py OPTIM_STEPS
OPTIM_STEPS is the program that prints what the C++ optimisers do (optim_steps.cpp).
"""
import json
import subprocess
import sys

import torch
from torch.optim import _muon

SHAPES = [(5, 7), (7,), (8, 3)]
STEPS = 10
TOLERANCE = 2e-6  # of the largest parameter: f32 rounds at 6e-8, and ten steps add up


def values(shape, seed):
    n = 1
    for s in shape:
        n *= s
    v = [((i * 7919 + seed * 104729) % 2003 - 1001) / 1024 for i in range(n)]
    return torch.tensor(v, dtype=torch.float32).reshape(shape)


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al. 2023; torch.optim has none."""

    def __init__(self, parameters, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(parameters, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                update = (m * group["betas"][0] + p.grad * (1 - group["betas"][0])).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                m.mul_(group["betas"][1]).add_(p.grad, alpha=1 - group["betas"][1])
                p.add_(update, alpha=-group["lr"])


def single_precision(gradient, coefficients, steps, eps):
    """PyTorch's Newton-Schulz iteration without its cast to bf16, which would hide everything beyond three digits."""
    a, b, c = coefficients
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if gradient.size(0) > gradient.size(1) else x


_muon._zeropower_via_newtonschulz = single_precision


def by_group(parameters):
    return [
        {"params": [parameters[0], parameters[2]]},
        {"params": [parameters[1]], "lr": 0.001, "weight_decay": 0},
    ]


CASES = {  # name: optimiser of the parameters, matrices alone, norm to clip to
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), False, None),
    "sgd_momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01), False, None),
    "sgd_nesterov": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True), False, None),
    "adam": (lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1), False, None),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.95), weight_decay=0.1), False, None),
    "adamw_groups": (lambda p: torch.optim.AdamW(by_group(p), lr=0.01, weight_decay=0.1), False, None),
    "adamw_clipped": (lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0), False, 0.5),
    "lion": (lambda p: Lion(p, lr=0.01, weight_decay=0.1), False, None),
    "muon": (lambda p: torch.optim.Muon(p, lr=0.02), True, None),
    "muon_plain": (lambda p: torch.optim.Muon(p, lr=0.02, nesterov=False, adjust_lr_fn="match_rms_adamw"), True, None),
}


def main():
    torch.set_num_threads(1)
    found = json.loads(subprocess.run([sys.argv[1]], check=True, stdout=subprocess.PIPE).stdout)
    failed = set(found) ^ set(CASES)
    for name, (make, matrices, clip) in CASES.items():
        if name in failed:
            continue
        shapes = [s for s in SHAPES if not matrices or len(s) == 2]
        parameters = [torch.nn.Parameter(values(s, i)) for i, s in enumerate(SHAPES) if s in shapes]
        optimizer = make(parameters)
        base = [g["lr"] for g in optimizer.param_groups]
        worst = 0.0
        for step in range(STEPS):
            for i, p in enumerate(parameters):
                p.grad = values(p.shape, 100 + 10 * step + i)
            for group, lr in zip(optimizer.param_groups, base):
                group["lr"] = lr / (1 + step // 4)
            if clip:
                torch.nn.utils.clip_grad_norm_(parameters, clip)
            optimizer.step()
            for i, p in enumerate(parameters):
                ours = torch.tensor(found[name]["steps"][step][i], dtype=torch.float64).reshape(p.shape)
                theirs = p.detach().double()
                worst = max(worst, ((ours - theirs).abs().max() / theirs.abs().max()).item())
        good = worst <= TOLERANCE and found[name]["entries"] == 1
        print(f"{'ok  ' if good else 'FAIL'} {name}: largest difference {worst:.1e} of {STEPS} steps, {found[name]['entries']} compile")
        if not good:
            failed.add(name)
    print(f"{len(CASES) - len(failed)} of {len(CASES)} optimisers agree with PyTorch")
    return 1 if failed else 0


sys.exit(main())
