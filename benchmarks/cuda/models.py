# SPDX-License-Identifier: Apache-2.0
"""Models for bench-cuda-models, and PyTorch's times of the same ones.

    python models.py strip FULL OUT NAME...    models of cpu-models/models.py without their weights: a megabyte each, for a machine far away
    python models.py fill STRIPPED OUT NAME... those with seeded weights of the same mean, spread and bounds, and seeded inputs
    python models.py peers NAME...             eager, torch.compile's default and reduce-overhead: ms of a call on the device, s to compile
"""
import json
import os
import statistics
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 7


def strip(full, out, name):
    import onnx
    from onnx import TensorProto, numpy_helper

    model = onnx.load(os.path.join(full, name, "model.onnx"))
    rows = []
    half = name.endswith("-bf16")
    taps = {x for n in model.graph.node if n.op_type == "Conv" for x in n.input[1:]}
    for i, t in enumerate(model.graph.initializer):
        if half and t.name in taps and t.data_type == TensorProto.FLOAT:  # folding a norm into a convolution has made them f32
            x = numpy_helper.to_array(t)
            t.data_type, t.raw_data = TensorProto.BFLOAT16, (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        if np.prod(t.dims) < 512 or t.data_type not in (TensorProto.FLOAT, TensorProto.BFLOAT16):
            continue
        a = numpy_helper.to_array(t).astype(np.float32)
        rows.append([i, *(float(f(a)) for f in (np.mean, np.std, np.min, np.max))])
        t.ClearField("raw_data")
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    inputs = np.load(os.path.join(full, name, "in.npz"))
    described = {}
    for k, v in inputs.items():
        whole = v.dtype == np.int64
        described[k] = [list(v.shape), str(v.dtype), int(v.max()) if whole else 0, int(v.min()) if whole else 0]
    with open(os.path.join(folder, "weights.json"), "w") as f:
        json.dump({"weights": rows, "inputs": described}, f)


def fill(stripped, out, name):
    import onnx
    from onnx import TensorProto

    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(stripped, name, "weights.json")) as f:
        described = json.load(f)
    model = onnx.load(os.path.join(stripped, name, "model.onnx"))
    random = np.random.default_rng(SEED)
    for i, mean, spread, low, high in described["weights"]:
        t = model.graph.initializer[i]
        x = random.standard_normal(int(np.prod(t.dims)), dtype=np.float32) * np.float32(spread) + np.float32(mean)
        x = np.clip(x, low, high)
        t.raw_data = (x.view(np.uint32) >> 16).astype(np.uint16).tobytes() if t.data_type == TensorProto.BFLOAT16 else x.tobytes()
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString())
    inputs = {}
    for k, (shape, dtype, most, least) in described["inputs"].items():
        inputs[k] = random.standard_normal(shape, dtype=np.float32) if dtype == "float32" else random.integers(least, most + 1, shape)
    np.savez(os.path.join(folder, "in.npz"), **inputs)


def peers(names):
    import torch

    sys.path.insert(0, os.path.join(HERE, "..", "cpu-models"))
    import models

    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True

    def times(f):
        for _ in range(5):
            f()
        out = []
        for _ in range(30):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(4):
                f()
            end.record()
            torch.cuda.synchronize()
            out.append(begin.elapsed_time(end) / 4)
        return statistics.median(out)

    for name in names:
        model, inputs = models.build(name)
        model = model.cuda()
        inputs = {k: v.cuda() for k, v in inputs.items()}
        line = f"pytorch {name}:"
        for mode in os.environ.get("PEER_MODES", "eager,reduce-overhead").split(","):
            torch.compiler.reset()
            start = time.monotonic()
            f = model if mode == "eager" else torch.compile(model, mode=None if mode == "default" else mode)
            f(**inputs)
            torch.cuda.synchronize()
            first = time.monotonic() - start
            line += f" {mode} {times(lambda: f(**inputs)):.3f} ms ({first:.1f} s)"
        print(line, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "peers":
        peers(sys.argv[2:])
    else:
        for each in sys.argv[4:]:
            (strip if sys.argv[1] == "strip" else fill)(sys.argv[2], sys.argv[3], each)
