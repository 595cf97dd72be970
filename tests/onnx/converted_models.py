# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime's own tools make of a model: f16 conversion, dynamic, static and 4-bit quantisation, and the transformer
optimiser's fusions, of an encoder and a residual network with seeded weights and symbolic sizes. The command's outputs, by
name, against ONNX Runtime's on the same file.

    python converted_models.py TESSERA [--configs eager,cpu] [--only REGEX]

Needs onnxruntime, onnx and numpy (the transformer optimiser also sympy) from PyPI.
"""

import argparse
import logging
import os
import re
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from command import Command, Refused

F = np.float32
OPSET = 17


class Builder:
    def __init__(self, seed):
        self.r, self.nodes, self.init, self.count = np.random.default_rng(seed), [], [], 0

    def constant(self, array):
        name = f"w{len(self.init)}"
        self.init.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape, scale=None):
        return self.constant(
            (self.r.standard_normal(shape) * (scale or 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0]))).astype(
                F
            )
        )

    def op(self, kind, *inputs, **attributes):
        self.count += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [f"v{self.count}"], name=f"{kind}_{self.count}", **attributes))
        return f"v{self.count}"

    def model(self, inputs, output, shape):
        self.nodes.append(helper.make_node("Identity", [output], ["y"], name="last"))
        graph = helper.make_graph(
            self.nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], self.init
        )
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        )


def encoder():
    """Two layers of 64 with 4 heads, as PyTorch exports them."""
    b, hidden, heads = Builder(1), 64, 4

    def linear(x, n, m):
        return b.op("Add", b.op("MatMul", x, b.weight(n, m)), b.weight(m, scale=0.1))

    def norm(x):
        return b.op("LayerNormalization", x, b.constant(np.ones(hidden, F)), b.weight(hidden, scale=0.1), axis=-1)

    x = norm(
        b.op(
            "Add",
            b.op("Gather", b.weight(50, hidden, scale=1.0), "ids"),
            b.constant((b.r.standard_normal((1, 1, hidden))).astype(F)),
        )
    )
    split, merge = b.constant(np.array([0, 0, heads, hidden // heads], np.int64)), b.constant(
        np.array([0, 0, hidden], np.int64)
    )
    for _ in range(2):
        q, k, v = (b.op("Reshape", linear(x, hidden, hidden), split) for _ in range(3))
        q, v = (b.op("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
        k = b.op("Transpose", k, perm=[0, 2, 3, 1])
        scores = b.op("Div", b.op("MatMul", q, k), b.constant(np.array(4, F)))
        mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = norm(b.op("Add", x, linear(b.op("Reshape", mixed, merge), hidden, hidden)))
        h = linear(x, hidden, 128)
        half = b.op(
            "Mul", h, b.op("Add", b.op("Erf", b.op("Div", h, b.constant(np.array(np.sqrt(2), F)))), b.constant(np.array(1, F)))
        )
        x = norm(b.op("Add", x, linear(b.op("Mul", half, b.constant(np.array(0.5, F))), 128, hidden)))
    return b.model(
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])], x, ["batch", "length", hidden]
    )


def residual():
    """Three residual blocks of 16 channels and a classifier."""
    b = Builder(2)

    def conv(x, n, m, stride=1):
        x = b.op("Conv", x, b.weight(m, n, 3, 3), pads=[1, 1, 1, 1], strides=[stride, stride], kernel_shape=[3, 3])
        return b.op(
            "BatchNormalization",
            x,
            b.constant(b.r.uniform(0.5, 1.5, m).astype(F)),
            b.weight(m, scale=0.1),
            b.weight(m, scale=0.1),
            b.constant(b.r.uniform(0.5, 1.5, m).astype(F)),
        )

    x = b.op("Relu", conv("x", 3, 16, 2))
    for _ in range(3):
        x = b.op("Relu", b.op("Add", x, conv(b.op("Relu", conv(x, 16, 16)), 16, 16)))
    x = b.op("Flatten", b.op("GlobalAveragePool", x))
    return b.model(
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        b.op("Gemm", x, b.weight(16, 10), b.weight(10, scale=0.1)),
        ["batch", 10],
    )


def feeds(kind, k):
    r = np.random.default_rng([5, k])
    if kind == "encoder":
        return {"ids": r.integers(0, 50, [(2, 7), (1, 12)][k]).astype(np.int64)}
    return {"x": r.standard_normal([(1, 3, 16, 24), (2, 3, 24, 16)][k]).astype(F)}


class Reader:
    """Calibration data for static quantisation."""

    def __init__(self, kind):
        self.rest = [feeds(kind, k) for k in (0, 1)]

    def get_next(self):
        return self.rest.pop() if self.rest else None


def converted(kind, model, folder):
    """Files by what made them; a tool that fails on the model is reported by its error."""
    from onnxruntime import quantization as q

    plain = os.path.join(folder, f"{kind}.onnx")
    onnx.save(model, plain)
    files = {"plain": plain}

    def to(name, make):
        path = os.path.join(folder, f"{kind}_{name}.onnx")
        try:
            make(path)
            files[name] = path
        except Exception as e:  # noqa: BLE001: the tool's own failure, which is no failure of ours
            print(f"  {kind}, {name}: the tool fails: {type(e).__name__} {str(e)[:100]}")

    def f16(path):
        from onnxruntime.transformers.float16 import convert_float_to_float16

        onnx.save(convert_float_to_float16(onnx.load(plain), keep_io_types=True), path)

    def shuffled(path):  # as converters leave them: what was inserted last stands last
        m = onnx.load(plain)
        nodes = list(m.graph.node)
        del m.graph.node[:]
        m.graph.node.extend(nodes[1::2] + nodes[::2])
        onnx.save(m, path)

    def optimised(path):
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = path
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])

    def four_bits(path):
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        tool = MatMulNBitsQuantizer(onnx.load(plain), block_size=32, is_symmetric=False)
        tool.process()
        onnx.save(tool.model.model, path)

    def fused(path):
        from onnxruntime.transformers.optimizer import optimize_model

        optimize_model(plain, model_type="bert", num_heads=4, hidden_size=64, opt_level=0).save_model_to_file(path)

    to("f16", f16)
    to("shuffled", shuffled)
    to("optimised", optimised)
    to("dynamic", lambda path: q.quantize_dynamic(plain, path, weight_type=q.QuantType.QInt8))
    to("dynamic_u8", lambda path: q.quantize_dynamic(plain, path, weight_type=q.QuantType.QUInt8, per_channel=True))
    to("qdq", lambda path: q.quantize_static(plain, path, Reader(kind), quant_format=q.QuantFormat.QDQ))
    to("qoperator", lambda path: q.quantize_static(plain, path, Reader(kind), quant_format=q.QuantFormat.QOperator))
    to(
        "qoperator_i8",
        lambda path: q.quantize_static(
            plain,
            path,
            Reader(kind),
            quant_format=q.QuantFormat.QOperator,
            activation_type=q.QuantType.QInt8,
            weight_type=q.QuantType.QInt8,
            per_channel=True,
        ),
    )
    if kind == "encoder":
        to("4_bits", four_bits)
        to("fused", fused)
        if "fused" in files:
            to("fused_dynamic", lambda path: q.quantize_dynamic(files["fused"], path, weight_type=q.QuantType.QInt8))
    return files


# Of the greatest value. Integers may round an f32 that is summed in another order to their neighbour, f16 rounds where it is
# fused or not.
TOLERANCE = {"plain": 1e-4, "shuffled": 1e-4, "optimised": 1e-4, "4_bits": 1e-4, "fused": 1e-4, "f16": 1e-2}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--configs", default="eager,cpu")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    good = total = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind, make in (("encoder", encoder), ("residual", residual)):
            for name, path in converted(kind, make(), folder).items():
                if not re.search(args.only, f"{kind}_{name}"):
                    continue
                operators = sorted({n.op_type for n in onnx.load(path).graph.node if n.domain == "com.microsoft"})
                for k in (0, 1):
                    data = os.path.join(folder, "in.npz")
                    np.savez(data, **feeds(kind, k))
                    try:
                        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
                        want = session.run(["y"], feeds(kind, k))[0]
                    except Exception as e:  # noqa: BLE001
                        print(f"  {kind}, {name}, call {k}: ONNX Runtime refuses its own file: {str(e)[:100]}")
                        continue
                    for config in args.configs.split(","):
                        total += 1
                        try:
                            got = Command(args.tool, config, folder).run_files(path, [data]).get("y")
                            off = (
                                np.inf
                                if got is None or got.shape != want.shape
                                else float(np.abs(got - want).max() / np.abs(want).max())
                            )
                            wrong = None if off <= TOLERANCE.get(name, 3e-2) else f"differs by {off:.2g} of the greatest value"
                        except Refused as e:
                            wrong, off = str(e), np.nan
                        good += wrong is None
                        print(
                            f"{'FAIL' if wrong else 'ok'} {kind}, {name}, call {k}, {config}: {wrong or f'{off:.1e}'}"
                            + (f" ({', '.join(operators)})" if operators and k == 0 else ""),
                            flush=True,
                        )
    print(f"models that ONNX Runtime {onnxruntime.__version__}'s tools wrote: {good} of {total} calls agree")
    return int(good != total)


if __name__ == "__main__":
    sys.exit(main())
