# SPDX-License-Identifier: Apache-2.0
"""Models of 8-bit integers beside the same models in f32, ours and ONNX Runtime's, in turns.

    python integers.py PROGRAM MODELS_DIR [--json] [--only NAME,...] [--threads N] [--rounds N] [--seconds S] [--config NAME]

The models are those of models.py, quantised by ONNX Runtime's tools: NAME-dynamic has weights of 8 bits and inputs quantised at
each call, NAME-qdq quantised tensors between floats, NAME-qlinear operators on them. Calibration inputs are seeded. No model of
integers may be slower than in f32.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import compare

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = ["encoder-8x64-dynamic", "bert-1x128-dynamic", "resnet50-1-qdq", "resnet50-1-qlinear", "mobilenetv3-1-qdq"]


def plain(name):
    return name.rsplit("-", 1)[0]


def quantise(name, folder, source):
    """Writes folder/model.onnx and in.npz from the f32 model in `source`."""
    done = os.path.join(folder, "in.npz")
    if os.path.exists(done):
        return
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    os.makedirs(folder, exist_ok=True)
    model, out = os.path.join(source, "model.onnx"), os.path.join(folder, "model.onnx")
    inputs = dict(np.load(os.path.join(source, "in.npz")))
    if name.endswith("-dynamic"):
        q.quantize_dynamic(model, out)
    else:

        class Calibration(q.CalibrationDataReader):
            def __init__(self):
                random = np.random.default_rng(0)
                self.batches = iter(
                    [{k: random.standard_normal(v.shape).astype(v.dtype) for k, v in inputs.items()} for _ in range(2)]
                )

            def get_next(self):
                return next(self.batches, None)

        prepared = os.path.join(folder, "prepared.onnx")
        quant_pre_process(model, prepared, skip_symbolic_shape=True)
        # The operators of QLinear* take unsigned activations where ONNX Runtime is fastest.
        form = (
            dict(quant_format=q.QuantFormat.QDQ)
            if name.endswith("-qdq")
            else dict(quant_format=q.QuantFormat.QOperator, activation_type=q.QuantType.QUInt8)
        )
        q.quantize_static(prepared, out, Calibration(), per_channel=True, **form)
        os.remove(prepared)
    np.savez(done, **inputs)
    compare.say("quantised", name)


def difference(a, b):
    """The greatest difference by the greatest value."""
    a, b = (np.load(p)["out0"].astype(np.float64) for p in (a, b))
    return float(np.abs(a - b).max() / (np.abs(b).max() or 1.0))


def measure(name, args):
    cache = tempfile.mkdtemp(prefix="bench-integers-")
    sides = {}
    try:
        for what, engine, model in [("ours", f"tessera:{args.config}", name), ("ours f32", f"tessera:{args.config}", plain(name)),
                                    ("onnxruntime", "onnxruntime", name), ("onnxruntime f32", "onnxruntime", plain(name))]:  # fmt: skip
            compare.say(f"{name}: {what}")
            sides[what] = compare.Side(engine, model, args, cache)
        order = list(sides.values())
        for side in order:
            side.ask("run 0.3")
        for i in range(args.rounds):
            time.sleep(0.05)
            for side in order[:: 1 if i % 2 == 0 else -1]:
                side.turns.append(min(side.ask(f"run {args.seconds}")["ms"]))  # others use the machine too
        files = {}
        for what, side in sides.items():
            files[what] = os.path.join(cache, what.replace(" ", "-") + ".npz")
            side.ask(f"save {files[what]}")
        return {
            "model": name,
            "ms": {what: statistics.median(side.turns) for what, side in sides.items()},
            "least_ms": {what: min(side.turns) for what, side in sides.items()},
            "of_f32": statistics.median(a / b for a, b in zip(sides["ours"].turns, sides["ours f32"].turns)),
            "difference_from_onnxruntime": difference(files["ours"], files["onnxruntime"]),
            "difference_from_f32": difference(files["ours"], files["ours f32"]),
        }
    finally:
        for side in sides.values():
            side.close()
        shutil.rmtree(cache, ignore_errors=True)


def table(results, args):
    sides = ["ours", "ours f32", "onnxruntime", "onnxruntime f32"]
    lines = [
        "| ms per call | " + " | ".join(sides) + " | ours by ours f32, by rounds | from ONNX Runtime | from f32 |",
        "|---" * (len(sides) + 4) + "|",
    ]
    for r in results:
        cells = [f"{r['ms'][s]:.3g} ({r['least_ms'][s]:.3g})" for s in sides]
        lines.append(
            "| "
            + " | ".join(
                [
                    r["model"],
                    *cells,
                    f"{r['of_f32']:.2f}",
                    f"{r['difference_from_onnxruntime']:.1e}",
                    f"{r['difference_from_f32']:.1e}",
                ]
            )
            + " |"
        )
    mean = math.exp(statistics.fmean(math.log(r["of_f32"]) for r in results))
    lines.append(
        f"\n{args.threads} threads; medians of the fastest call of each round (the fastest of all). Geometric mean of ours by ours f32: {mean:.2f}. "
        "The last columns are the greatest difference by the greatest value."
    )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("models")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--config", default="default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.4)
    args = parser.parse_args()
    names = args.only.split(",")
    subprocess.run(
        [sys.executable, os.path.join(HERE, "models.py"), args.models, *sorted({plain(n) for n in names})],
        check=True,
        stdout=sys.stderr,
    )
    results = []
    for name in names:
        quantise(name, os.path.join(args.models, name), os.path.join(args.models, plain(name)))
        results.append(measure(name, args))
    if args.json:
        print(
            json.dumps({"schema": "tessera.bench.cpu-models.integers/1", "threads": args.threads, "models": results}, indent=1)
        )
    else:
        print(table(results, args))


if __name__ == "__main__":
    main()
