# SPDX-License-Identifier: Apache-2.0
"""Writes the ONNX project's backend test suite as files: KIND/CASE/model.onnx, test_data_set_N/{input,output}_K.pb, data.json.

The PyPI package `onnx` carries the node cases as Python code; the others lie in it as files. Usage:

    python generate_suite.py OUT_DIR [--kinds node,simple,...] [--only REGEX]
"""
import argparse
import json
import os
import re
import shutil

import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

KINDS = "node,simple,pytorch-converted,pytorch-operator"


def to_proto(value, value_info):
    """One input or output as the protobuf message that the type of its place asks for."""
    kind = value_info.type.WhichOneof("value")
    name = value_info.name
    if isinstance(value, TensorProto):
        return value
    if kind == "sequence_type":
        return numpy_helper.from_list(value, name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, name)
    if kind == "map_type":
        return numpy_helper.from_dict(value, name)
    return numpy_helper.from_array(value, name)


def write(path, message):
    with open(path, "wb") as f:
        f.write(message.SerializeToString(deterministic=True))


def write_case(case, directory):
    os.makedirs(directory)
    with open(os.path.join(directory, "data.json"), "w", encoding="ascii") as f:
        json.dump({"rtol": case.rtol, "atol": case.atol}, f)
    if case.model is None:
        shutil.copytree(case.model_dir, directory, dirs_exist_ok=True)
        return
    write(os.path.join(directory, "model.onnx"), case.model)
    for i, (inputs, outputs) in enumerate(case.data_sets):
        data = os.path.join(directory, f"test_data_set_{i}")
        os.makedirs(data)
        for stem, values, infos in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
            for j, value in enumerate(values):
                write(os.path.join(data, f"{stem}_{j}.pb"), to_proto(value, infos[j]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    counts = {}
    for kind in args.kinds.split(","):
        cases = [c for c in load_model_tests(kind=kind) if re.search(args.only, c.name)]
        # Cases that would have to be downloaded are no part of the package.
        cases = [c for c in cases if c.model is not None or c.model_dir is not None]
        shutil.rmtree(os.path.join(args.out, kind), ignore_errors=True)
        for case in cases:
            write_case(case, os.path.join(args.out, kind, case.name))
        counts[kind] = len(cases)
    with open(os.path.join(args.out, "suite.json"), "w", encoding="ascii") as f:
        json.dump({"onnx": onnx.__version__, "cases": counts}, f)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
