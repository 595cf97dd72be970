# SPDX-License-Identifier: Apache-2.0
"""Makes tiny/, a model of the encoder's kind with seeded weights and a vocabulary of single letters and a few words, with what the tokenizers
package makes of text.txt (ids.txt) and PyTorch's embeddings (expected.f32).

    python make_tiny.py

Needs torch, transformers and safetensors from PyPI.
"""
import json
import os
import string
import sys

import torch
import transformers
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(here))
import expected  # noqa: E402

TEXT = [
    "the cat sat on the mat",
    "The CAT, sat; on the mat!",
    "unaffable and unwanted",
    "Zoë's naïve café — Ångström",
    "tabs\tand  spaces\u00a0and\u3000wide ones",
    "soft\u00adhyphen, zero\u200bwidth, \u0007bell, \ufffdreplacement",
    "中文 mixed在with latin漢字",
    "e\u0301 combining and é composed",
    "İstanbul STRASSE Straße ΣΊΣΥΦΟΣ",
    "don't stop: it's 3.14% of $5_000 {x} ~ ^ ` |",
    "한국어 텍스트 and ひらがな",
    "“curly” quotes … and • bullets · dots",
    "a" * 101 + " " + "b" * 100 + " c",
    "emoji 😀 and 𝒻 math",
    "numbers ½ ² ３ fullwidth ＡＢＣ",
    "the " * 20 + "end",
]


def main():
    out = os.path.join(here, "tiny")
    os.makedirs(out, exist_ok=True)
    words = ["the", "cat", "sat", "on", "mat", "un", "##aff", "##able", "##want", "##ed", "and", "cafe", "naive", "istanbul", "in", "##s", "numbers", "中", "文", "漢"]
    singles = list(string.ascii_lowercase + string.digits + string.punctuation + "σιυφο—“”…•·½²ß")
    jamo = ["ᄒ", "##ᅡ", "##ᆫ", "##ᄀ", "##ᅮ", "##ᆨ", "##ᄋ", "##ᅥ"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + singles + ["##" + c for c in string.ascii_lowercase + string.digits + "σιυφος"] + words + jamo
    vocabulary = list(dict.fromkeys(vocabulary))
    with open(os.path.join(out, "vocab.txt"), "w", encoding="utf-8") as f:
        f.write("".join(w + "\n" for w in vocabulary))
    with open(os.path.join(here, "text.txt"), "w", encoding="utf-8") as f:
        f.write("".join(s + "\n" for s in TEXT))
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(vocabulary), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
                                     max_position_embeddings=300, layer_norm_eps=1e-12)
    model = transformers.BertModel(config)
    for p in model.parameters():
        torch.nn.init.normal_(p, 0, 0.5)
    save_file({k: v.contiguous() for k, v in model.state_dict().items() if v.dtype == torch.float32}, os.path.join(out, "model.safetensors"), {"format": "pt"})
    kept = ["model_type", "hidden_act", "hidden_size", "intermediate_size", "layer_norm_eps", "max_position_embeddings", "num_attention_heads",
            "num_hidden_layers", "type_vocab_size", "vocab_size"]
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump({k: config.to_dict()[k] for k in kept}, f, indent=1)
        f.write("\n")
    with open(os.path.join(here, "ids.txt"), "w") as f:
        for ids in expected.ids_of(out, TEXT):
            f.write(" ".join(map(str, ids)) + "\n")
    expected.embed(out, TEXT).numpy().tofile(os.path.join(here, "expected.f32"))


if __name__ == "__main__":
    main()
