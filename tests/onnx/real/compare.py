# SPDX-License-Identifier: Apache-2.0
"""Runs exported models (export.py) and compares with PyTorch's outputs: max|a - b| <= LIMIT * max|b| for every output tensor.

    python compare.py TESSERA MODELS_DIR [NAME...] [--configs eager,default] [--limit 1e-4]

One line per model, file, set of shapes and config; the exit status is 1 unless all hold. Needs numpy alone.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

import numpy as np


def error(ours, theirs):
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    if not theirs.any():
        return float("inf")  # nothing to compare with
    if not np.isfinite(ours).all() or not np.isfinite(theirs).all():
        return float("inf")
    return float(np.abs(ours.astype(np.float64) - theirs).max() / np.abs(theirs).max())


def run(tessera, model, config, inputs, scratch):
    out = os.path.join(scratch, "out.npz")
    start = time.monotonic()
    done = subprocess.run([tessera, "run", model, "--config", config, "--inputs", inputs, "--outputs", out], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip(), 0
    with np.load(out) as f:
        return dict(f), "", time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tessera")
    parser.add_argument("models")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--configs", default="eager,default")
    parser.add_argument("--limit", type=float, default=1e-4)
    args = parser.parse_args()
    worst, runs, failed = {}, 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.names or sorted(os.listdir(args.models)):
            folder = os.path.join(args.models, name)
            # In the order they were made: static.onnx takes the first.
            sets = sorted((f[: -len("_in.npz")] for f in os.listdir(folder) if f.endswith("_in.npz")), key=lambda s: os.stat(os.path.join(folder, s + "_in.npz")).st_mtime_ns)
            for file in sorted(f for f in os.listdir(folder) if f.endswith(".onnx")):
                for shape in sets[:1] if file == "static.onnx" else sets:
                    with np.load(os.path.join(folder, shape + "_out.npz")) as f:
                        expected = dict(f)
                    for config in args.configs.split(","):
                        runs += 1
                        got, message, seconds = run(args.tessera, os.path.join(folder, file), config, os.path.join(folder, shape + "_in.npz"), scratch)
                        label = f"{name:13} {file:22} {shape:6} {config:9}"
                        if got is None:
                            failed += 1
                            print(f"{label} FAILED {message}", flush=True)
                            continue
                        e = max(error(got[k], expected[k]) for k in expected) if got.keys() == expected.keys() else float("inf")
                        worst[name] = max(worst.get(name, 0), e)
                        failed += not e <= args.limit
                        print(f"{label} {e:8.1e} {'ok' if e <= args.limit else 'TOO LARGE'} ({seconds:.1f} s)", flush=True)
    print("worst: " + ", ".join(f"{n} {e:.1e}" for n, e in worst.items()))
    print(f"{runs - failed} of {runs} within {args.limit:g}")
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
