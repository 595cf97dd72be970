# SPDX-License-Identifier: Apache-2.0
"""Exports models with seeded weights to ONNX, with inputs and PyTorch's own outputs beside them.

    python export.py OUT_DIR [NAME...] [--exporter dynamo|script] [--encoder DIR]

Needs torch, torchvision, transformers, onnx and onnxscript from PyPI. For every model: OUT_DIR/NAME/static.onnx and dynamic.onnx, and for every
set of shapes SHAPES_in.npz and SHAPES_out.npz. `static` takes the first set of shapes only. bert_base has dynamic_external.onnx too, the weights in
a file beside it. --encoder: the folder of the sentence encoder's weights (examples/sentences/fetch.sh), exported as minilm. A model whose files
are there is left alone.
"""
import argparse
import os
import warnings

import numpy as np
import onnx
import torch
from torch import nn

warnings.filterwarnings("ignore")


class UNet(nn.Module):
    """Ronneberger et al. 2015, three levels."""

    def __init__(self, channels=(16, 32, 64)):
        super().__init__()

        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())

        self.down = nn.ModuleList(block(a, b) for a, b in zip((3,) + channels[:-1], channels))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(channels[:-1], channels[1:]))
        self.merge = nn.ModuleList(block(2 * a, a) for a in channels[:-1])
        self.head = nn.Conv2d(channels[0], 2, 1)

    def forward(self, x):
        skips = []
        for i, stage in enumerate(self.down):
            x = stage(x)
            if i + 1 < len(self.down):
                skips.append(x)
                x = nn.functional.max_pool2d(x, 2)
        for i in reversed(range(len(self.up))):
            x = self.merge[i](torch.cat([skips[i], self.up[i](x)], 1))
        return self.head(x)


class Logits(nn.Module):
    """The first output of a transformers model, from tokens (and a mask)."""

    def __init__(self, model, masked):
        super().__init__()
        self.model, self.masked = model, masked

    def forward(self, input_ids, attention_mask=None):
        extra = {"attention_mask": attention_mask} if self.masked else {}
        return self.model(input_ids=input_ids, use_cache=False, return_dict=False, **extra)[0]


class Sentence(nn.Module):
    """all-MiniLM-L6-v2: the mean over a sentence's tokens, of length 1."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, p=2, dim=1)


def image_model(build, size=224, more=()):
    def make():
        return build(), ["x"], {0: "batch"}, lambda n, _: (torch.randn(n, 3, size, size),), [(1, 0), (3, 0), *more]

    return make


def text_model(build, vocabulary, masked, more=(), wrap=Logits):
    def make():
        model = wrap(build(), masked) if wrap is Logits else wrap(build())

        def inputs(batch, length):
            ids = torch.randint(0, vocabulary, (batch, length))
            if not masked:
                return (ids,)
            mask = torch.ones(batch, length, dtype=torch.int64)
            if batch > 1:
                mask[1, length // 2:] = 0
            return (ids, mask)

        return model, ["input_ids", "attention_mask"][: 2 if masked else 1], {0: "batch", 1: "length"}, inputs, [(2, 16), (3, 33), *more]

    return make


def models(encoder):
    import torchvision.models as tv
    import transformers as tf

    def bert():
        return tf.BertModel(tf.BertConfig(), add_pooling_layer=False)

    def gpt2():
        return tf.GPT2LMHeadModel(tf.GPT2Config())

    def llama():
        return tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2))

    table = {
        "resnet50": image_model(lambda: tv.resnet50(weights=None), more=[(8, 0)]),
        "mobilenet_v3": image_model(lambda: tv.mobilenet_v3_large(weights=None)),
        "vit_b_16": image_model(lambda: tv.vit_b_16(weights=None)),
        "unet": image_model(UNet, 64),
        "bert_base": text_model(bert, 30522, True, [(1, 128), (8, 128)]),
        "gpt2": text_model(gpt2, 50257, False, [(1, 128)]),
        "llama": text_model(llama, 1000, False, [(1, 128)]),
    }
    if encoder:
        table["minilm"] = text_model(lambda: tf.BertModel.from_pretrained(encoder), 30522, True, [(8, 64)], Sentence)
    return table


def export(name, make, out, exporter):
    if os.path.exists(os.path.join(out, "done")):
        return
    torch.manual_seed(0)
    model, names, axes, inputs, shapes = make()
    # Running statistics that are not 0 and 1.
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
        if isinstance(m, nn.Linear) and not m.weight.any():  # a head that begins at zero would say nothing
            m.weight.data.normal_(0, 0.02)
    model.eval()
    os.makedirs(out, exist_ok=True)
    for shape in shapes:
        args = inputs(*shape)
        with torch.no_grad():
            y = model(*args)
        assert y.abs().max() > 0
        label = "x".join(str(n) for n in shape if n)
        np.savez(os.path.join(out, label + "_in.npz"), **{n: a.numpy() for n, a in zip(names, args)})
        np.savez(os.path.join(out, label + "_out.npz"), y=y.numpy())
    for kind in ("static", "dynamic"):
        path = os.path.join(out, kind + ".onnx")
        args = inputs(*shapes[kind == "dynamic"])  # a dynamic size whose example is 1 may be taken for the number 1
        kwargs = {}
        if kind == "dynamic" and exporter == "dynamo":
            kwargs["dynamic_shapes"] = tuple({i: torch.export.Dim.DYNAMIC for i in axes} for _ in names)
        elif kind == "dynamic":
            kwargs["dynamic_axes"] = {n: axes for n in names}
        with torch.no_grad():
            torch.onnx.export(model, args, path, input_names=names, output_names=["y"], dynamo=exporter == "dynamo", external_data=False, **kwargs)
        if kind == "dynamic" and name == "bert_base":
            weights = "dynamic_external.data"
            if os.path.exists(os.path.join(out, weights)):
                os.remove(os.path.join(out, weights))  # or the new ones would be appended
            onnx.save_model(onnx.load(path), os.path.join(out, "dynamic_external.onnx"), save_as_external_data=True, location=weights)
    with open(os.path.join(out, "done"), "w"):
        pass
    print(name, "exported", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--exporter", default="dynamo", choices=["dynamo", "script"])
    parser.add_argument("--encoder")
    args = parser.parse_args()
    table = models(args.encoder)
    for name in args.names or table:
        export(name, table[name], os.path.join(args.out, name), args.exporter)


if __name__ == "__main__":
    main()
