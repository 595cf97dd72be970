#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of whole models beside PyTorch's, on the same parameters and inputs: per tensor max|a - b| <= 1e-4 max|b| in f32.

The models are a GPT, a BERT whose dropout masks are inputs, a ResNet, a U-Net and a mixture of experts; the loss of each is
traced to ATen's operators, lowered node by node as torch.compile(backend="tessera") does, and differentiated by one `grad` of
ours, not by PyTorch's formulas. The expectation is PyTorch's backward in float64.

    python3 tests/python/torch/model_gradients.py [--size small] [--only gpt,unet] [--backends eager,cpu]
"""

import argparse
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx
from torch._decomp import get_decompositions
from torch.func import functional_call, functionalize

import tessera
from tessera import pytorch
from tessera.pytorch.emit import Emitter, Records, Unsupported
from tessera.pytorch.partition import lower

LIMIT = 1e-4


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads, True)
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.down(F.gelu(self.up(self.behind(x)), approximate="tanh"))


class GPT(nn.Module):
    """Pre-norm blocks, causal attention, and an output layer that shares the table of tokens."""

    def __init__(self, large):
        super().__init__()
        self.vocabulary, self.length = (4096, 128) if large else (199, 24)
        width, heads, layers = (256, 8, 6) if large else (32, 4, 2)
        self.tokens, self.places = nn.Embedding(self.vocabulary, width), nn.Embedding(self.length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def inputs(self):
        draw = lambda: torch.randint(0, self.vocabulary, (2, self.length))
        return draw(), draw()

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class BERT(nn.Module):
    """Post-norm encoder; dropout multiplies by masks that are inputs, so that both sides drop the same elements."""

    def __init__(self, large):
        super().__init__()
        self.vocabulary, self.length = (3000, 96) if large else (150, 16)
        self.width, heads, self.layers = (256, 8, 4) if large else (32, 4, 2)
        self.tokens, self.places = nn.Embedding(self.vocabulary, self.width), nn.Embedding(self.length, self.width)
        self.norm = nn.LayerNorm(self.width)
        self.attention = nn.ModuleList(Attention(self.width, heads, False) for _ in range(self.layers))
        self.first = nn.ModuleList(nn.LayerNorm(self.width) for _ in range(self.layers))
        self.up = nn.ModuleList(nn.Linear(self.width, 4 * self.width) for _ in range(self.layers))
        self.down = nn.ModuleList(nn.Linear(4 * self.width, self.width) for _ in range(self.layers))
        self.second = nn.ModuleList(nn.LayerNorm(self.width) for _ in range(self.layers))
        self.classes = nn.Linear(self.width, 7)

    def inputs(self):
        keep = (torch.rand(2 * self.layers + 1, 2, self.length, self.width) < 0.9).float() / 0.9
        padding = torch.ones(2, 1, 1, self.length, dtype=torch.bool)
        padding[1, ..., self.length // 2 :] = False
        return torch.randint(0, self.vocabulary, (2, self.length)), padding, keep, torch.randint(0, 7, (2,))

    def forward(self, tokens, padding, keep, classes):
        x = self.norm(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))) * keep[0]
        for k in range(self.layers):
            x = self.first[k](x + self.attention[k](x, padding) * keep[2 * k + 1])
            x = self.second[k](x + self.down[k](F.gelu(self.up[k](x))) * keep[2 * k + 2])
        return F.cross_entropy(self.classes(x[:, 0].tanh()), classes)


def norm(channels):
    """By the statistics of the batch; running means are no gradient's business."""
    return nn.BatchNorm2d(channels, track_running_stats=False)


class Residual(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.one, self.two = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = norm(b), norm(b)
        self.side = nn.Identity()
        if stride > 1 or a != b:
            self.side = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), norm(b))

    def forward(self, x):
        return F.relu(self.side(x) + self.norm_two(self.two(F.relu(self.norm_one(self.one(x))))))


class ResNet(nn.Module):
    """Batch norms in training mode, max pooling with overlapping windows, strided residual blocks."""

    def __init__(self, large):
        super().__init__()
        width, self.size, per_stage = (32, 64, 2) if large else (8, 32, 1)
        first = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.stem = nn.Sequential(first, norm(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, a = [], width
        for stage in range(3):
            for k in range(per_stage):
                b = width << stage
                blocks.append(Residual(a, b, 2 if stage and k == 0 else 1))
                a = b
        self.blocks, self.classes = nn.Sequential(*blocks), nn.Linear(a, 10)

    def inputs(self):
        return torch.randn(4, 3, self.size, self.size), torch.randint(0, 10, (4,))

    def forward(self, x, classes):
        x = F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1)
        return F.cross_entropy(self.classes(x), classes)


class UNet(nn.Module):
    """Three levels down and up: group norms, dilated, grouped and transposed convolutions, skips by concatenation."""

    def __init__(self, large):
        super().__init__()
        w, self.size = (32, 64) if large else (8, 24)

        def pair(a, b, **o):
            one, two = nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(b, b, 3, **o)
            return nn.Sequential(one, nn.GroupNorm(4, b), nn.SiLU(), two, nn.SiLU())

        self.one, self.two = pair(3, w, padding=1), pair(w, 2 * w, padding=1, groups=4)
        self.three = pair(2 * w, 4 * w, padding=2, dilation=2)
        self.up_two = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2)
        self.up_one = nn.ConvTranspose2d(2 * w, w, 3, 2, 1, output_padding=1)
        self.back_two, self.back_one = pair(4 * w, 2 * w, padding=1), pair(2 * w, w, padding=1)
        self.out = nn.Conv2d(w, 2, 1)

    def inputs(self):
        return torch.randn(2, 3, self.size, self.size), torch.randn(2, 2, self.size, self.size)

    def forward(self, x, wanted):
        one = self.one(x)
        two = self.two(F.max_pool2d(one, 2))
        x = self.up_two(self.three(F.avg_pool2d(two, 3, 2, 1)))
        x = self.up_one(self.back_two(torch.cat([x, two], 1)))
        return F.mse_loss(self.out(self.back_one(torch.cat([x, one], 1))), wanted)


class Experts(nn.Module):
    """A mixture of experts: the two best of each token, weighted by the softmax of their scores; a loss balances the load."""

    def __init__(self, large):
        super().__init__()
        self.width, self.experts = (128, 8) if large else (16, 4)
        self.scores = nn.Linear(self.width, self.experts, bias=False)
        self.up = nn.Parameter(torch.randn(self.experts, self.width, 4 * self.width) * self.width**-0.5)
        self.down = nn.Parameter(torch.randn(self.experts, 4 * self.width, self.width) * (4 * self.width) ** -0.5)
        self.gain = nn.Parameter(torch.ones(self.width))

    def inputs(self):
        return torch.randn(64, self.width), torch.randn(64, self.width)

    def forward(self, x, wanted):
        h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain
        p = self.scores(h).softmax(-1)
        best, which = p.topk(2, -1)
        weights = torch.zeros_like(p).scatter(1, which, best / best.sum(-1, keepdim=True))
        y = torch.einsum("td,edf->etf", h, self.up)
        y = torch.einsum("etf,efd,te->td", F.silu(y), self.down, weights)
        balance = (p.mean(0) * (weights > 0).to(p.dtype).mean(0)).sum() * self.experts
        return F.mse_loss(x + y, wanted) + 0.01 * balance


MODELS = {"gpt": GPT, "bert": BERT, "resnet": ResNet, "unet": UNet, "experts": Experts}


def lowered(name, context, loss, parameters, buffers, inputs):
    """The graph of the loss and its gradients with respect to the parameters."""
    fake = make_fx(functionalize(loss), decomposition_table=decompositions(), tracing_mode="fake")(parameters, buffers, inputs)
    fake.graph.eliminate_dead_code()
    records = Records(context)

    def build(builder):
        e, env, results = Emitter(builder, records, None), {}, {}
        wanted = []
        for node in fake.graph.nodes:
            if node.op == "placeholder":
                env[node] = e.input(node.name, node.meta["val"])
                if len(wanted) < len(parameters):
                    wanted.append(env[node].id)
            elif node.op == "get_attr":
                env[node] = e.tensor(getattr(fake, node.target))
            elif node.op == "output":
                result = node.args[0]
                value = env[result[0] if isinstance(result, (list, tuple)) else result].id
                kinds = records.attributes["grad"]
                attributes = [("outputs", kinds["outputs"], 1), ("seeded", kinds["seeded"], 0)]
                made = builder.node("grad", [value, *wanted], attributes)
                builder.outputs([value, *made])
            elif node.target.__name__ == "getitem":
                env[node] = results[node.args[0]][node.args[1]]
            else:
                try:
                    result = lower(e, node, env)
                except Unsupported as why:
                    raise Unsupported(f"{node.target}: {why}") from None
                (results if isinstance(result, list) else env)[node] = result

    return context.build(name, build)


def decompositions():
    """torch.compile hands over some operators that decompose further where autograd does not see them."""
    return {**get_decompositions([torch.ops.aten.native_batch_norm]), **pytorch.decompositions()}


def compare(name, large, backends):
    torch.manual_seed(3)
    model = MODELS[name](large)
    names = [n for n, _ in model.named_parameters()]
    parameters = [p.detach() for _, p in model.named_parameters()]
    buffers = {n: b.detach().clone() for n, b in model.named_buffers()}
    inputs = model.inputs()

    def loss(values, kept, given):
        state = {**dict(zip(names, values)), **{n: b.clone() for n, b in zip(buffers, kept)}}
        return functional_call(model, state, tuple(given))

    wide = [p.double().requires_grad_() for p in parameters]
    doubled = lambda all: [x.double() if x.is_floating_point() else x for x in all]
    value = loss(wide, doubled(buffers.values()), doubled(inputs))
    expected = [value, *torch.autograd.grad(value, wide)]
    kept = list(buffers.values())
    failed = 0
    for backend in backends:
        order = f'"{backend}"' + ("" if backend == "eager" else ', "eager"')
        context = tessera.Context(overrides=[f"backends.order=[{order}]"])
        graph = lowered(name, context, loss, parameters, kept, inputs)
        found = [torch.from_dlpack(t) for t in context.compile(graph).run(*parameters, *kept, *inputs)]
        worst, of = 0.0, "loss"
        for n, f, e in zip(["loss", *names], found, expected):
            gap, scale = (f.double() - e).abs().max().item(), e.abs().max().item()
            ratio = gap / scale if scale else (0.0 if gap == 0 else float("inf"))
            if not ratio <= worst:
                worst, of = ratio, n
            if not ratio <= LIMIT:
                failed += 1
                print(f"FAILED {name} on {backend}: {n}: max|a-b| {gap:.3g}, max|b| {scale:.3g}")
        print(f"{name} on {backend}: {len(names)} parameters, greatest max|a-b| / max|b| {worst:.2g} ({of})", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=["small", "large"], default="large")
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--backends", default="eager,cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = sum(compare(n, options.size == "large", options.backends.split(",")) for n in options.only.split(","))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
