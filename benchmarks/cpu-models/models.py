# SPDX-License-Identifier: Apache-2.0
"""The models of this benchmark: built with seeded weights, exported to ONNX with their inputs and PyTorch's own outputs beside them.

    python models.py OUT_DIR [NAME...]

Writes OUT_DIR/NAME/model.onnx, in.npz and out.npz, and leaves what is there already. NAME-bf16 is the same model with all of its weights and
values in bf16; its inputs and outputs stay as they are.
"""
import os
import sys
import warnings

import numpy as np
import torch
from torch import nn

warnings.filterwarnings("ignore")


class Text(nn.Module):
    """The first output of a transformers model, from tokens and maybe a mask."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask=None):
        extra = {} if attention_mask is None else {"attention_mask": attention_mask}
        return self.model(input_ids=input_ids, use_cache=False, return_dict=False, **extra)[0]


class Sentence(nn.Module):
    """The mean over the tokens that the mask keeps, of length one."""

    def __init__(self, model):
        super().__init__()
        self.model = Text(model)

    def forward(self, input_ids, attention_mask):
        y = self.model(input_ids, attention_mask)
        kept = attention_mask.unsqueeze(-1).to(y.dtype)
        return nn.functional.normalize((y * kept).sum(1) / kept.sum(1), dim=1)


class Half(nn.Module):
    """A model in bf16 whose inputs and output are f32."""

    def __init__(self, model):
        super().__init__()
        self.model = model.to(torch.bfloat16)

    def forward(self, *args, **named):
        def cast(x):
            return x.to(torch.bfloat16) if x.is_floating_point() else x

        return self.model(*map(cast, args), **{k: cast(x) for k, x in named.items()}).float()


def image(n, size=224):
    return {"x": torch.randn(n, 3, size, size)}


def tokens(n, length, vocabulary, mask=True):
    ids = {"input_ids": torch.randint(0, vocabulary, (n, length))}
    return {**ids, "attention_mask": torch.ones(n, length, dtype=torch.int64)} if mask else ids


def gpt2():
    import transformers as tf

    return Text(tf.GPT2LMHeadModel(tf.GPT2Config()))


def bert():
    import transformers as tf

    return Text(tf.BertModel(tf.BertConfig(), add_pooling_layer=False))


def encoder():
    import transformers as tf

    config = tf.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    return Sentence(tf.BertModel(config, add_pooling_layer=False))


def vision(name):
    def build():
        import torchvision.models

        return getattr(torchvision.models, name)(weights=None)

    return build


MODELS = {
    "gpt2-1x128": (gpt2, lambda: tokens(1, 128, 50257, mask=False)),
    "bert-1x128": (bert, lambda: tokens(1, 128, 30522)),
    "bert-8x128": (bert, lambda: tokens(8, 128, 30522)),
    "resnet50-1": (vision("resnet50"), lambda: image(1)),
    "resnet50-8": (vision("resnet50"), lambda: image(8)),
    "mobilenetv3-1": (vision("mobilenet_v3_large"), lambda: image(1)),
    "vit-b16-1": (vision("vit_b_16"), lambda: image(1)),
    "vit-b16-8": (vision("vit_b_16"), lambda: image(8)),
    "encoder-8x64": (encoder, lambda: tokens(8, 64, 30522)),
}


def build(name):
    """The model in eval mode and its inputs by name; the same numbers every time."""
    make, inputs = MODELS[name.removesuffix("-bf16")]
    torch.manual_seed(0)
    model = make()
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):  # running statistics that are not 0 and 1
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
        if isinstance(m, nn.Linear) and not m.weight.any():  # ViT's head, whose outputs would all be 0
            nn.init.normal_(m.weight, std=0.02)
    model, values = model.eval(), inputs()
    return Half(model) if name.endswith("-bf16") else model, values


def export(name, folder):
    done = os.path.join(folder, "out.npz")
    if os.path.exists(done):
        return
    os.makedirs(folder, exist_ok=True)
    model, inputs = build(name)
    with torch.no_grad():
        y = model(**inputs)
        torch.onnx.export(model, tuple(inputs.values()), os.path.join(folder, "model.onnx"), input_names=list(inputs), output_names=["y"], dynamo=True, external_data=False, verbose=False)
    np.savez(os.path.join(folder, "in.npz"), **{k: v.numpy() for k, v in inputs.items()})
    np.savez(done, y=y.numpy())
    print("exported", name, file=sys.stderr, flush=True)


if __name__ == "__main__":
    for each in sys.argv[2:] or MODELS:
        export(each, os.path.join(sys.argv[1], each))
