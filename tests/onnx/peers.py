# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's CPU provider on the tensor cases of the ONNX backend test suite, counted by the reasons that ours are counted by.

    python peers.py SUITE_DIR RESULTS.json     RESULTS.json: of onnx_suite --json, which says what the tensor cases are

Needs onnxruntime, onnx and numpy from PyPI. Tolerances are the suite's own.
"""
import collections
import glob
import json
import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper


def read(path):
    t = onnx.TensorProto()
    with open(path, "rb") as f:
        t.ParseFromString(f.read())
    return numpy_helper.to_array(t)


def files(folder, stem):
    return [os.path.join(folder, f"{stem}_{i}.pb") for i in range(len(glob.glob(os.path.join(folder, stem + "_*.pb"))))]


def reason(error):
    text = str(error)
    if "is under development and support for this is limited" in text or "Unsupported model IR version" in text or "not supported by this version" in text:
        return "model too new"
    if "NOT_IMPLEMENTED" in text or "Could not find an implementation" in text or "is not a registered function/op" in text or "Unrecognized attribute" in text:
        return "not implemented"
    if "unsupported data type" in text.lower() or "Unable to handle object of type" in text or "Type not supported" in text or "is unsupported" in text:
        return "type that numpy cannot hand over"
    if "INVALID_GRAPH" in text or "Type Error" in text:
        return "type or graph refused"
    return "other error"


def same(got, want, rtol, atol):
    got = np.asarray(got)
    if got.shape != want.shape:
        return False
    if got.dtype != want.dtype:
        return False
    if got.dtype.kind in "biu":
        return bool(np.array_equal(got, want))
    return bool(np.allclose(got.astype(np.complex128 if got.dtype.kind == "c" else np.float64), want.astype(np.complex128 if got.dtype.kind == "c" else np.float64), rtol=rtol, atol=atol, equal_nan=True))


def run(folder):
    if not os.path.exists(os.path.join(folder, "model.onnx")):
        sys.exit(f"{folder} holds no model.onnx: is that the suite that the results are of?")
    tolerance = {"rtol": 1e-3, "atol": 1e-7}
    if os.path.exists(os.path.join(folder, "data.json")):
        with open(os.path.join(folder, "data.json")) as f:
            tolerance.update(json.load(f))
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"])
    except Exception as e:  # noqa: BLE001: every kind of refusal counts
        return reason(e)
    for data in sorted(glob.glob(os.path.join(folder, "test_data_set*"))):
        inputs = [read(f) for f in files(data, "input")]
        # Types that numpy has through ml_dtypes only are handed over as its own; the runtime refuses them.
        names = [i.name for i in session.get_inputs()]
        try:
            outputs = session.run(None, dict(zip(names, inputs)))
        except Exception as e:  # noqa: BLE001
            if any(i.dtype.kind == "V" or i.dtype.name not in np.sctypeDict for i in inputs):
                return "type that numpy cannot hand over"
            return reason(e)
        expected = [read(f) for f in files(data, "output")]
        if len(outputs) != len(expected) or not all(same(a, b, tolerance["rtol"], tolerance["atol"]) for a, b in zip(outputs, expected)):
            if any(e.dtype.name not in np.sctypeDict for e in expected):
                return "type that numpy cannot hand over"
            return "wrong result"
    return "pass"


def main():
    suite, results = sys.argv[1:3]
    with open(results) as f:
        cases = [c for c in json.load(f)["cases"] if c["status"] != "no-tensor"]
    counts = collections.defaultdict(collections.Counter)
    for c in cases:
        counts[c["kind"]][run(os.path.join(suite, c["kind"], c["name"]))] += 1
    for kind, n in counts.items():
        total = sum(n.values())
        rest = ", ".join(f"{v} {k}" for k, v in n.most_common() if k != "pass")
        print(f"ONNX Runtime {onnxruntime.__version__} {kind}: {n['pass']} of {total} tensor cases pass ({100 * n['pass'] / total:.0f} %)" + (f"; {rest}" if rest else ""))


if __name__ == "__main__":
    main()
