# SPDX-License-Identifier: Apache-2.0
"""PyTorch's embeddings of the first lines of a text, as raw f32: what the example compares with.

    python expected.py MODEL_DIR TEXT OUT [LINES]

Needs torch and transformers from PyPI. expected.f32 was made of the first 8 lines of sample.txt.
"""
import sys

import torch
import transformers


def ids_of(folder, lines):
    """As the sentence encoder does it: BERT's uncased tokenizer, at most 256 tokens."""
    tokenizer = transformers.BertTokenizerFast(folder + "/vocab.txt", do_lower_case=True)
    return [tokenizer(s, truncation=True, max_length=256)["input_ids"] for s in lines]


def embed(folder, lines):
    model = transformers.BertModel.from_pretrained(folder).eval()
    rows = []
    with torch.no_grad():
        for ids in ids_of(folder, lines):  # one at a time: no padding
            x = torch.tensor([ids])
            rows.append(torch.nn.functional.normalize(model(x)[0].mean(1), dim=1))
    return torch.cat(rows)


def main():
    folder, text, out = sys.argv[1:4]
    lines = [s for s in open(text, encoding="utf-8").read().splitlines() if s.strip()]
    embed(folder, lines[: int(sys.argv[4]) if len(sys.argv) > 4 else None]).numpy().tofile(out)


if __name__ == "__main__":
    main()
