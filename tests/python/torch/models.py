# SPDX-License-Identifier: Apache-2.0
"""Models of Transformers, torchvision and timm with seeded weights, small in width, through torch.compile(backend="tessera").

    models.py [--training] [--device cpu|cuda] [NAME...]

Every model runs on four sizes, one graph serving all from the second size on. What compiled code gives is compared with eager
by the distance of both to the model in f64 (torch._dynamo.utils.same). With --training the gradients of all parameters are
compared too; dropout is off, so that all three compute the same (a model with random numbers in its results fails), and the biases
of batch norms are such that no value of f64's lies next to a kink (kinks.py). One line per model, a summary last.
"""

import argparse
import contextlib
import copy
import os
import sys
import time
import traceback
import warnings
from unittest import mock

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kinks import separate
from tessera import pytorch
from tessera.pytorch import backend
from tessera.pytorch.emit import Emitter

SYMPY = os.path.dirname(sympy.__file__)
NARROW = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=500)
SIZES = ((2, 16), (3, 24), (4, 12), (5, 33))  # batch, length
# What modules call the share of values that they drop.
DROPOUTS = ("p", "dropout", "drop_rate", "drop_prob", "dropout_prob", "attention_dropout", "resid_dropout", "activation_dropout")


def transformer(model, config, **sizes):
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**sizes))


def vision(name, **options):
    import torchvision

    return getattr(torchvision.models, name)(weights=None, **options)


def timm_model(name, **options):
    import timm

    return timm.create_model(name, pretrained=False, **options)


def tokens(batch, length):
    return (torch.randint(3, 500, (batch, length)),)


def images(side):
    return lambda batch, length: (torch.randn(batch, 3, side, side),)


MODELS = {
    "bert": (lambda: transformer("BertModel", "BertConfig", **NARROW), tokens),
    "roberta": (lambda: transformer("RobertaModel", "RobertaConfig", **NARROW), tokens),
    "electra": (lambda: transformer("ElectraModel", "ElectraConfig", embedding_size=64, **NARROW), tokens),
    "distilbert": (
        lambda: transformer(
            "DistilBertModel", "DistilBertConfig", dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=500
        ),
        tokens,
    ),
    "gpt2": (
        lambda: transformer(
            "GPT2LMHeadModel", "GPT2Config", n_embd=64, n_layer=2, n_head=4, vocab_size=500, bos_token_id=1, eos_token_id=2
        ),
        tokens,
    ),
    "opt": (
        lambda: transformer(
            "OPTForCausalLM",
            "OPTConfig",
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=128,
            vocab_size=500,
            word_embed_proj_dim=64,
        ),
        tokens,
    ),
    "gpt_neox": (lambda: transformer("GPTNeoXForCausalLM", "GPTNeoXConfig", **NARROW), tokens),
    "phi": (lambda: transformer("PhiForCausalLM", "PhiConfig", **NARROW), tokens),
    "llama": (lambda: transformer("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, **NARROW), tokens),
    "mistral": (lambda: transformer("MistralForCausalLM", "MistralConfig", num_key_value_heads=2, **NARROW), tokens),
    "qwen2": (lambda: transformer("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2, **NARROW), tokens),
    "t5_encoder": (
        lambda: transformer(
            "T5EncoderModel", "T5Config", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=500
        ),
        tokens,
    ),
    "vit": (
        lambda: transformer(
            "ViTModel",
            "ViTConfig",
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            image_size=32,
            patch_size=8,
        ),
        images(32),
    ),
    "resnet18": (lambda: vision("resnet18"), images(64)),
    "mobilenet_v2": (lambda: vision("mobilenet_v2"), images(64)),
    "efficientnet_b0": (lambda: vision("efficientnet_b0"), images(64)),
    "squeezenet1_1": (lambda: vision("squeezenet1_1"), images(64)),
    "densenet121": (lambda: vision("densenet121"), images(64)),
    "shufflenet_v2": (lambda: vision("shufflenet_v2_x0_5"), images(64)),
    "googlenet": (lambda: vision("googlenet", init_weights=False, aux_logits=False), images(64)),
    "convnext_tiny": (lambda: vision("convnext_tiny"), images(64)),
    "swin_t": (lambda: vision("swin_t"), images(64)),
    "timm_deit": (lambda: timm_model("deit_tiny_patch16_224", img_size=64, depth=2), images(64)),
    "timm_mixer": (lambda: timm_model("mixer_s32_224", img_size=64), images(64)),
    "timm_ghostnet": (lambda: timm_model("ghostnet_050"), images(64)),
    "timm_mobilevit": (lambda: timm_model("mobilevitv2_050"), images(64)),
    "timm_nfnet": (lambda: timm_model("nf_regnet_b0"), images(64)),
    "timm_poolformer": (lambda: timm_model("poolformer_s12"), images(64)),
}


def tensors(result):
    return [
        t
        for t in torch.utils._pytree.tree_leaves(dict(result) if hasattr(result, "items") else result)
        if isinstance(t, torch.Tensor)
    ]


def without_dropout(model):
    for m in model.modules():
        for name in DROPOUTS:
            if isinstance(getattr(m, name, None), float):
                setattr(m, name, 0.0)
    return model


def differs(expected, found, exact, what):
    if len(expected) != len(found):
        return f"{len(found)} {what}, expected {len(expected)}"
    for k, (x, y, z) in enumerate(zip(expected, found, exact)):
        if not torch._dynamo.utils.same(x, y, z, tol=1e-4):
            return f"{what} {k} is off by {(x - y).abs().max()}"
    return ""


def outputs_and_gradients(model, call, args, training):
    outputs = tensors(call(**args) if isinstance(args, dict) else call(*args))
    if not training:
        return outputs, []
    loss = sum(y.square().mean() for y in outputs if y.requires_grad)
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [y.detach() for y in outputs], [g for g in torch.autograd.grad(loss, parameters, allow_unused=True) if g is not None]


def is_random(model, args):
    """Whether random numbers are in the results: two runs differ. Where none are drawn, there is no second run."""

    def run():
        return tensors(model(**args) if isinstance(args, dict) else model(*args))

    before = torch.get_rng_state()
    with torch.no_grad():
        first = run()
        drawn = not torch.equal(before, torch.get_rng_state())
        return drawn and any(not torch.equal(x, y) for x, y in zip(first, run()))


def each_tensor(args, f):
    def of(a):
        return f(a) if isinstance(a, torch.Tensor) else a

    return {k: of(a) for k, a in args.items()} if isinstance(args, dict) else [of(a) for a in args]


def in_f64(args):
    return each_tensor(args, lambda t: t.double() if t.is_floating_point() else t)


@contextlib.contextmanager
def guards_of_ours():
    """Where tessera.pytorch compares sizes so that the answer becomes a guard, but for lowerings that choose by it and say so
    (Emitter.decided). What PyTorch asks while it is called from there, as AOTAutograd is from its __init__, is PyTorch's."""
    found, ours, torchs = set(), os.path.dirname(pytorch.__file__), os.path.dirname(torch.__file__)
    log_guard = ShapeEnv._log_guard

    def noted(self, prefix, guard, forcing_spec):
        frames = (f for f, _ in traceback.walk_stack(sys._getframe(1)))
        asks = next((f for f in frames if not f.f_code.co_filename.startswith((torchs, SYMPY))), None)
        where = asks and os.path.relpath(asks.f_code.co_filename, ours)
        meant = asks and asks.f_code is Emitter.decided.__code__
        if where and not where.startswith("..") and where != "__init__.py" and not meant:
            found.add(f"{where}:{asks.f_lineno}: {guard}")
        return log_guard(self, prefix, guard, forcing_spec)

    with mock.patch.object(ShapeEnv, "_log_guard", noted):
        yield found


def check(make, arguments, training=False, dynamic=None, sizes=SIZES, device="cpu", batch_alone=False):
    """(why it failed or "", a line about it). batch_alone: the first size of tensors is the one that is a symbol."""
    with guards_of_ours() as guards:
        why, line = compare(make, arguments, training, dynamic, sizes, device, batch_alone)
    return why or ", ".join(sorted(guards)), line


def compare(make, arguments, training, dynamic, sizes, device, batch_alone):
    torch.manual_seed(0)
    eager = make()
    eager = without_dropout(eager).train() if training else eager.eval()
    if training and is_random(copy.deepcopy(eager), arguments(*sizes[0])):
        return "two runs of eager differ: random numbers are in the results, and nothing can be compared", ""
    eager = eager.to(device)
    ours, wide = copy.deepcopy(eager), copy.deepcopy(eager).double()
    torch._dynamo.reset()
    pytorch.reset()
    compiled = torch.compile(ours, backend=backend, dynamic=dynamic)
    started, graphs = time.perf_counter(), []
    for batch, length in sizes:
        torch.manual_seed(batch)
        args = each_tensor(arguments(batch, length), lambda t: t.to(device))
        if training:
            separate(wide, in_f64(args), (eager, ours))
        if batch_alone:
            each_tensor(args, lambda t: torch._dynamo.mark_dynamic(t, 0))
        with torch.set_grad_enabled(training):
            x, y = outputs_and_gradients(eager, eager, args, training), outputs_and_gradients(ours, compiled, args, training)
            z = outputs_and_gradients(wide, wide, in_f64(args), training)
        for k, what in enumerate(("result", "gradient")):
            if why := differs(x[k], y[k], z[k], what):
                return f"at {batch} x {length} {why}", ""
        graphs.append(len(pytorch.REPORT.graphs))
    if len(graphs) > 1 and graphs[-1] != graphs[1]:
        return f"after sizes one by one there were {graphs} graphs", ""
    graphs = pytorch.REPORT.graphs
    return "", (
        f"{len(graphs)} graphs, {sum(g.nodes for g in graphs)} operators, {sum(len(g.refusals) for g in graphs)} through ATen, "
        f"compiled in {sum(g.seconds for g in graphs):.1f} s of {time.perf_counter() - started:.1f} s"
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--training", action="store_true")
    p.add_argument("--device", default="cpu")
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    names = a.names or list(MODELS)
    failed = 0
    for name in names:
        try:
            why, text = check(*MODELS[name], a.training, device=a.device)
        except Exception as e:
            why, text = f"{type(e).__name__}: {e}", ""
        failed += bool(why)
        print(f"FAIL {name}: {why}" if why else f"ok {name}: {text}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
