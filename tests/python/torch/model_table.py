# SPDX-License-Identifier: Apache-2.0
"""The table of docs/pytorch_models.md: 60 configurations of models through torch.compile(backend="tessera").

    model_table.py [--out FILE] [--only NAME,...] [--ways static-inference,...] [--part I/N] [--device cpu|cuda] [--seconds N]
    model_table.py --report FILE...

Every configuration runs in four ways: inference and training (the gradients of all parameters), with sizes as numbers
(dynamic=False, one size) and as symbols (dynamic=True, or the batch alone for those in BATCH_ALONE; three sizes, no compile
after the second). Results and gradients are compared with eager's by the distance of both to the model in f64
(torch._dynamo.utils.same). Weights are random and seeded; dropout is off, so that all three compute the same.

Each run is a process of its own, which may take --seconds. One line of JSON per run goes to FILE; what stands there is not run
again, so that a run which was stopped goes on. --part takes every N-th run from the I-th on, for processes side by side, each
with a file of its own. --report prints the table.
"""

import argparse
import collections
import json
import os
import signal
import sys
import time
import traceback
import warnings

import torch

import models
from models import MODELS, NARROW, images, timm_model, tokens, transformer, vision

WAYS = ("static-inference", "static-training", "dynamic-inference", "dynamic-training")
STATIC, DYNAMIC = ((2, 16),), ((3, 24), (2, 16), (4, 33))  # batch, length


def narrow(model, config=None, **more):
    """A model of Transformers, 64 wide and of two layers."""
    return lambda: transformer(model, config or model.removesuffix("Model").removesuffix("ForCausalLM") + "Config", **more)


def pairs(batch, length):
    """Of an encoder and a decoder."""
    return {"input_ids": tokens(batch, length)[0], "decoder_input_ids": tokens(batch, length // 2)[0]}


def waves(batch, length):
    return (torch.randn(batch, 400 + 80 * length),)


BART = dict(
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    vocab_size=500,
)
WIDE = {**NARROW, "head_dim": 16, "num_key_value_heads": 2}

SMALL = {
    **MODELS,
    "albert": (narrow("AlbertModel", embedding_size=32, **NARROW), tokens),
    "mpnet": (narrow("MPNetModel", **NARROW), tokens),
    "fnet": (narrow("FNetModel", **NARROW), tokens),
    "bart": (narrow("BartModel", **BART), pairs),
    "t5": (
        narrow("T5Model", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=500, decoder_start_token_id=0),
        pairs,
    ),
    "gemma2": (narrow("Gemma2Model", **WIDE), tokens),
    "qwen3": (narrow("Qwen3ForCausalLM", **WIDE), tokens),
    "olmo": (narrow("OlmoModel", **NARROW), tokens),
    "bloom": (narrow("BloomModel", hidden_size=64, n_layer=2, n_head=4, vocab_size=500), tokens),
    "gpt_neo": (
        narrow(
            "GPTNeoModel",
            hidden_size=64,
            num_layers=2,
            num_heads=4,
            vocab_size=500,
            attention_types=[[["global", "local"], 1]],
        ),
        tokens,
    ),
    "clip_vision": (
        narrow(
            "CLIPVisionModel",
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            image_size=32,
            patch_size=8,
        ),
        images(32),
    ),
    "wav2vec2": (
        narrow(
            "Wav2Vec2Model",
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            conv_dim=(32, 32, 32),
            conv_stride=(5, 4, 2),
            conv_kernel=(10, 4, 3),
            num_feat_extract_layers=3,
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
            mask_time_prob=0.0,
            layerdrop=0.0,
        ),
        waves,
    ),
    "alexnet": (lambda: vision("alexnet"), images(64)),
    "vgg11": (lambda: vision("vgg11"), images(32)),
    "regnet_y": (lambda: vision("regnet_y_400mf"), images(64)),
    "mobilenet_v3": (lambda: vision("mobilenet_v3_small"), images(64)),
    "timm_repvgg": (lambda: timm_model("repvgg_a0"), images(64)),
    "timm_resmlp": (lambda: timm_model("resmlp_12_224", img_size=64), images(64)),
    "timm_efficientvit": (lambda: timm_model("efficientvit_b0"), images(64)),
    "timm_starnet": (lambda: timm_model("starnet_s1"), images(64)),
}


# At the sizes that they are used at; one sequence or image is enough.
def long_tokens(batch, length):
    return tokens(batch - 1, 4 * length)


def large_images(batch, length):
    return images(224)(batch - 1, length)


REAL = {
    "bert-base": (narrow("BertModel"), long_tokens),
    "distilbert-base": (narrow("DistilBertModel"), long_tokens),
    "gpt2-small": (narrow("GPT2Model"), long_tokens),
    "t5-small": (narrow("T5EncoderModel", "T5Config"), long_tokens),
    "electra-small": (narrow("ElectraModel", "ElectraConfig"), long_tokens),
    "vit-base": (narrow("ViTModel"), large_images),
    "resnet18-224": (lambda: vision("resnet18"), large_images),
    "resnet50-224": (lambda: vision("resnet50"), large_images),
    "mobilenet_v2-224": (lambda: vision("mobilenet_v2"), large_images),
    "squeezenet1_1-224": (lambda: vision("squeezenet1_1"), large_images),
    "timm_deit_tiny-224": (lambda: timm_model("deit_tiny_patch16_224"), large_images),
    "timm_ghostnet-224": (lambda: timm_model("ghostnet_050"), large_images),
}
CONFIGURATIONS = {**SMALL, **REAL}

# With height and width as symbols too, PyTorch's arithmetic of sizes takes over 400 s for these, without a backend of ours as
# well (aot_eager). They have the batch as the one symbol.
BATCH_ALONE = {"densenet121", "swin_t", "timm_mobilevit"}


def run(name, way, device):
    """What is written of one run."""
    from tessera import pytorch

    static, training = way.startswith("static"), way.endswith("training")
    make, arguments = CONFIGURATIONS[name]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sizes, batch_alone = (STATIC, False) if static else (DYNAMIC, name in BATCH_ALONE)
    dynamic = None if batch_alone else not static
    why, _ = models.check(make, arguments, training, dynamic, sizes, device, batch_alone)
    graphs = pytorch.REPORT.graphs
    through_aten = sorted({r.op for g in graphs for r in g.refusals})
    return {"why": why, "graphs": len(graphs), "operators": sum(g.nodes for g in graphs), "aten": through_aten}


def run_apart(name, way, device, seconds):
    """As run(), in a child, which is killed when it takes too long."""
    started = time.time()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(seconds)
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        try:
            made = run(name, way, device)
        except Exception as e:
            text = " | ".join(str(e).strip().splitlines()[:2])[:300]
            made = {"why": f"{type(e).__name__}: {text}", "trace": traceback.format_exc()[-2000:]}
        with os.fdopen(write, "w") as pipe:
            json.dump(made, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    ended = signal.Signals(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None
    made = json.loads(text) if text else {"why": f"took over {seconds} s" if ended == signal.SIGALRM else f"ended by {ended}"}
    return {"configuration": name, "way": way, **made, "seconds": round(time.time() - started, 1)}


def read(paths):
    found = {}
    for path in paths:
        with open(path) as file:
            for line in file:
                r = json.loads(line)
                found[r["configuration"], r["way"]] = r
    return found


def report(found):
    """Prints the table; how many runs failed."""
    print("| Configuration | Size | Static inference | Static training | Dynamic inference | Dynamic training |")
    print("|---|---|---|---|---|---|")
    passed, ran, reasons = collections.Counter(), collections.Counter(), []
    for name in CONFIGURATIONS:
        cells = []
        for way in WAYS:
            r = found.get((name, way))
            if r is None:
                cells.append("not run")
                continue
            ran[way] += 1
            passed[way] += not r["why"]
            if r["why"]:
                reasons.append(f"* {name}, {way}: {r['why']}")
                cells.append("fails")
            else:
                cells.append(f"same, {len(r['aten'])} operators through ATen" if r["aten"] else "same")
        print(f"| {name} | {'real' if name in REAL else 'small'} | {' | '.join(cells)} |")
    print()
    for way in WAYS:
        print(f"{way}: {passed[way]} of {ran[way]} the same")
    print("\n".join(["", *reasons]) if reasons else "")
    return len(reasons)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out")
    p.add_argument("--only")
    p.add_argument("--ways", default=",".join(WAYS))
    p.add_argument("--part", default="0/1")
    p.add_argument("--device", default="cpu")
    p.add_argument("--seconds", type=int, default=900)
    p.add_argument("--report", nargs="+")
    a = p.parse_args()
    if a.report:
        sys.exit(1 if report(read(a.report)) else 0)
    torch.set_num_threads(1)  # a child of a process with threads would wait for them
    found = read([a.out]) if a.out and os.path.exists(a.out) else {}
    names = a.only.split(",") if a.only else list(CONFIGURATIONS)
    part, parts = map(int, a.part.split("/"))
    for name, way in [(name, way) for way in a.ways.split(",") for name in names][part::parts]:
        if (name, way) in found:
            continue
        made = found[name, way] = run_apart(name, way, a.device, a.seconds)
        print(name, way, made["why"] or "same", f"{made['seconds']} s", file=sys.stderr, flush=True)
        if a.out:
            with open(a.out, "a") as out:
                out.write(json.dumps(made) + "\n")
    if a.part != "0/1":  # the table is of all parts
        return
    sys.exit(1 if report(found) else 0)


if __name__ == "__main__":
    main()
