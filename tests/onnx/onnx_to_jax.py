# SPDX-License-Identifier: Apache-2.0
"""The translation of ONNX to JAX (benchmarks/cpu-models/onnx_to_jax.py), op by op, on the cases of the ONNX backend test suite.

    python onnx_to_jax.py SUITE_DIR [--list]     --list: the cases that it refuses, too

Each case of one node whose op it has must pass, or be refused by name; each op must have a case that passes. Run by `./dev test --peers`. Needs jax, onnx and numpy from PyPI.
"""
import collections
import glob
import json
import os
import sys

os.environ.update(JAX_PLATFORMS="cpu", JAX_TRACEBACK_FILTERING="off")
here = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.join(here, "../../benchmarks/cpu-models")  # not this folder, whose file has the same name

import jax  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402

from onnx_to_jax import OPS, Unsupported, narrow, translate  # noqa: E402

OPSET = 20  # of the models


def read(path):
    with open(path, "rb") as f:
        return numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))


def same(got, want, tolerance):
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    return np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance["rtol"], atol=tolerance["atol"], equal_nan=True)


def passes(folder, model):
    """The first input is an argument, the others are initializers, as weights and shapes are in the models. Tolerances are the suite's own."""
    with open(os.path.join(folder, "data.json")) as f:
        tolerance = json.load(f)
    graph, data = model.graph, os.path.join(folder, "test_data_set_0")
    name, *others = [i.name for i in graph.input]
    graph.initializer.extend(numpy_helper.from_array(read(f"{data}/input_{i + 1}.pb"), k) for i, k in enumerate(others))
    got = jax.jit(translate(model))({name: narrow(read(f"{data}/input_0.pb"))})
    want = [narrow(read(f"{data}/output_{i}.pb")) for i in range(len(graph.output))]
    return all(same(np.asarray(g), w, tolerance) for g, w in zip(got, want, strict=True))


def main():
    passed, refused, wrong = collections.Counter(), [], []
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "node", "*", "model.onnx"))):
        model, folder = onnx.load(path), os.path.dirname(path)
        op, opset = model.graph.node[0].op_type, model.opset_import[0]
        if len(model.graph.node) != 1 or model.graph.node[0].domain not in ("", "ai.onnx") or op not in OPS:
            continue
        if opset.version < OPSET:  # a case names the oldest opset in which the op is as it is there
            if onnx.defs.get_schema(op, OPSET).since_version > opset.version:
                continue
            opset.version = OPSET
        try:
            if passes(folder, model):
                passed[op] += 1
            else:
                wrong.append(os.path.basename(folder))
        except Unsupported as e:
            refused.append(f"refused: {os.path.basename(folder)}: {e}")
        except Exception as e:  # noqa: BLE001: whatever is not refused by name is wrong
            wrong.append(f"{os.path.basename(folder)} ({type(e).__name__}: {e})")
    if "--list" in sys.argv:
        print(*refused, sep="\n")
    for case in wrong:
        print("wrong:", case)
    unseen = [op for op in OPS if not passed[op]]
    print(f"ONNX to JAX: {passed.total()} cases of {len(OPS)} ops pass, {len(refused)} are refused by name, {len(wrong)} are wrong; "
          f"ops without a case that passes: {', '.join(unseen) or 'none'}")
    return 1 if wrong or unseen else 0


if __name__ == "__main__":
    sys.exit(main())
