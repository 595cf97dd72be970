# SPDX-License-Identifier: Apache-2.0
"""The ONNX backend test suite through the command, as a user runs it: `tessera run model.onnx --inputs NAME=input_0.pb ...`,
outputs read by name, no input fixed. Prints per config and group how many of the tensor cases pass, then every case that does
not with its reason.

    python command_suite.py TESSERA SUITE_DIR [--configs eager,cpu,reference] [--only REGEX] [--every N] [--jobs N] [--json OUT]

Needs onnx and numpy from PyPI. The exit status is 1 when a case fails that unsupported.txt does not list.
"""

import argparse
import collections
import concurrent.futures
import glob
import json
import os
import re
import sys
import threading

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from command import Command, Refused


def no_tensors(model):
    """Why the case is no tensor program, or nothing."""
    for v in [*model.graph.input, *model.graph.output]:
        kind = v.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"'{v.name}' is {kind}"
        name = TensorProto.DataType.Name(v.type.tensor_type.elem_type)
        if name in ("STRING", "UNDEFINED") or name.startswith("FLOAT6"):
            return f"'{v.name}' is a tensor of {name}"
    return None


def read(path):
    t = TensorProto()
    with open(path, "rb") as f:
        t.ParseFromString(f.read())
    return numpy_helper.to_array(t)


def files(folder, stem):
    return [os.path.join(folder, f"{stem}_{i}.pb") for i in range(len(glob.glob(os.path.join(folder, stem + "_*.pb"))))]


def as_expected(got, want):
    """Types that numpy lacks are written as bytes: of 4 and 2 bits one value each."""
    if got.dtype.kind != "V" or got.dtype.itemsize != want.dtype.itemsize:
        return got
    name = want.dtype.name
    if name.startswith(("int", "uint")):
        return got.view(np.int8 if name.startswith("int") else np.uint8).astype(want.dtype)
    return got.view(want.dtype)


def difference(name, got, want, rtol, atol):
    got = as_expected(got, want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"output '{name}' is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    if want.dtype.name == "bfloat16":
        rtol = max(rtol, 2.0**-6)
    a, b = got.astype(wide), want.astype(wide)
    same = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True) if want.dtype.kind not in "biu" else got == want
    if same.all():
        return None
    return f"output '{name}': {int(np.sum(~same))} of {same.size} elements differ, by at most {np.max(np.abs(a - b)):.3g}"


def run_case(command, folder):
    """Nothing when the case passes, else the reason."""
    path = os.path.join(folder, "model.onnx")
    model = onnx.load(path, load_external_data=False)
    tolerance = {"rtol": 1e-3, "atol": 1e-7}
    if os.path.exists(os.path.join(folder, "data.json")):
        with open(os.path.join(folder, "data.json"), encoding="ascii") as f:
            tolerance.update(json.load(f))
    for data in sorted(glob.glob(os.path.join(folder, "test_data_set*"))):
        inputs = [f"{v.name}={f}" for v, f in zip(model.graph.input, files(data, "input"))]
        try:
            got = command.run_files(path, inputs)
        except Refused as e:
            return str(e)
        for v, f in zip(model.graph.output, files(data, "output")):
            if v.name not in got:
                return f"there is no output '{v.name}'; the archive holds " + ", ".join(f"'{k}'" for k in got)
            wrong = difference(v.name, got[v.name], read(f), tolerance["rtol"], tolerance["atol"])
            if wrong:
                return wrong
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("suite")
    parser.add_argument("--configs", default="eager,cpu,reference")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1, help="every N-th case alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json")
    args = parser.parse_args()
    listed = {}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "unsupported.txt"), encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                key, _, reason = line.strip().partition(" ")
                listed[key] = reason
    cases, others = collections.defaultdict(list), collections.Counter()
    found = [
        c
        for c in sorted(glob.glob(os.path.join(args.suite, "*", "*")))
        if os.path.exists(os.path.join(c, "model.onnx")) and re.search(args.only, os.path.basename(c))
    ]
    for case in found[:: args.every]:
        kind = os.path.basename(os.path.dirname(case))
        if no_tensors(onnx.load(os.path.join(case, "model.onnx"), load_external_data=False)):
            others[kind] += 1
        else:
            cases[kind].append(case)
    status, results, own = 0, [], threading.local()
    for config in args.configs.split(","):

        def one(case):
            if getattr(own, "config", None) != config:
                own.config, own.command = config, Command(args.tool, config)
            return run_case(own.command, case)

        failures = []
        for kind, folders in cases.items():
            with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
                reasons = list(pool.map(one, folders))
            failed = [(f"{kind}/{os.path.basename(c)}", r) for c, r in zip(folders, reasons) if r]
            failures += failed
            passed = len(folders) - len(failed)
            print(
                f"{config}, {kind}: {passed} of {len(folders)} tensor cases pass ({100 * passed / len(folders):.1f} %); {others[kind]} are no tensor programs",
                flush=True,
            )
            results.append(
                {
                    "config": config,
                    "kind": kind,
                    "passed": passed,
                    "cases": len(folders),
                    "failed": [{"name": n, "reason": r} for n, r in failed],
                }
            )
        for name, reason in failures:
            why = f" [{listed[name]}]" if name in listed else ""
            print(f"  {config}: {name}: {reason}{why}")
            status = status or (name not in listed)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "tessera.onnx_command_suite/1", "results": results}, f, indent=1)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
