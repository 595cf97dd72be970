# SPDX-License-Identifier: Apache-2.0
"""Random models of many operators through the command, by name, against the ONNX project's reference evaluator.

    python random_models.py TESSERA [--configs eager,cpu] [--models N] [--seed N] [--only K] [--keep DIR] [--jobs N]

A model grows node by node: an operator is drawn, its operands among the values so far, its attributes at random; the
reference evaluates it, and what it refuses or what grows without bound is left out. In every second model the sizes of the
inputs are symbolic, equal ones under one name, and the model runs at three more sets of sizes too where the reference can,
small ones among them. A third of the files hold their nodes in any order. What jumps (Floor, comparisons, ArgMax) reads exact
values only: fractions that additions and products keep. Needs onnx and numpy from PyPI.
"""

import argparse
import concurrent.futures
import os
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from command import Command, Refused

F32, I64, BOOL = np.dtype("float32"), np.dtype("int64"), np.dtype("bool")
OPSET = 19


class Value:
    def __init__(self, name, data, exact):
        self.name, self.data, self.exact = name, data, exact


class Model:
    def __init__(self, seed, index):
        self.r = np.random.default_rng([seed, index])
        self.symbolic = index % 2 == 1
        self.inputs, self.values, self.nodes, self.constants = [], [], [], []
        self.used, self.count = set(), 0
        for _ in range(self.n(1, 3)):
            shape = [self.one(1, 2, 3, 4, 5, 6) for _ in range(self.one(1, 2, 2, 3, 3, 4, 4))]
            kind = self.one("f", "f", "f", "f", "i")
            data = self.fresh(kind, shape)
            value = Value(self.name("input"), data, True)
            self.inputs.append(value)
            self.values.append(value)

    # ---- drawing
    def n(self, low, high):
        return int(self.r.integers(low, high + 1))

    def one(self, *options):
        return options[self.n(0, len(options) - 1)]

    def fresh(self, kind, shape, r=None):
        r = r or self.r
        if kind == "i":
            return r.integers(-4, 5, shape).astype(I64)
        return (r.integers(-8, 9, shape) / 4).astype(F32)

    def name(self, what):
        self.count += 1
        return self.one(
            f"{what}_{self.count}",
            f"/layer.{self.count}/{what}",
            f"{what}:{self.count}",
            str(1000 + self.count),
            f"{what} {self.count}",
            f"größe{self.count}",
        )

    def constant(self, array):
        name = f"const_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def pick(self, test):
        found = [v for v in self.values if test(v)]
        if not found:
            raise LookupError
        # Later values more often, so that models grow deep.
        return found[max(self.n(0, len(found) - 1), self.n(0, len(found) - 1))]

    def float(self, exact=False, rank=None):
        return self.pick(
            lambda v: v.data.dtype == F32 and (v.exact or not exact) and (rank is None or v.data.ndim in rank) and v.data.size
        )

    def any(self, rank=None):
        return self.pick(lambda v: (rank is None or v.data.ndim in rank) and v.data.size)

    # ---- growing
    def add(self, op, operands, exact, outputs=1, **attributes):
        """A node whose operands are values or names of constants."""
        names = [o if isinstance(o, str) else o.name for o in operands]
        feeds = {o.name: o.data for o in operands if not isinstance(o, str)}
        outs = [self.name(op.lower()) for _ in range(outputs)]
        node = helper.make_node(op, names, outs, **attributes)
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()],
            [helper.make_empty_tensor_value_info(o) for o in outs],
            [c for c in self.constants if c.name in names],
        )
        results = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])).run(None, feeds)
        for x in results:
            x = np.asarray(x)
            if x.size == 0 and op in ("Conv", "MaxPool", "AveragePool"):
                raise ValueError("the kernel does not fit")
            if (
                x.size > 4000
                or x.ndim > 5
                or x.dtype not in (F32, I64, BOOL)
                or (x.dtype == F32 and not (np.isfinite(x).all() and (x.size == 0 or np.abs(x).max() < 1e4)))
            ):
                raise ValueError("too large")
        self.nodes.append(node)
        self.used.update(names)
        made = [Value(o, np.asarray(x), exact) for o, x in zip(outs, results)]
        self.values += made
        return made

    def grow(self):
        length, tries = self.n(3, 14), 0
        while len(self.nodes) < length and tries < 200:
            tries += 1
            before = len(self.constants)
            try:
                self.one(*MAKERS)(self)
            except Exception:  # noqa: BLE001: a combination that the reference refuses is another draw
                del self.constants[before:]
        return self

    # ---- the model and its data
    def finish(self):
        leaves = [v for v in self.values if v.name not in self.used and v not in self.inputs]
        more = [v for v in self.values if v not in leaves and v not in self.inputs and self.n(0, 4) == 0]
        self.outputs = leaves + more
        for v in list(self.outputs[:2]):  # one value under two names
            if self.n(0, 3) == 0:
                self.outputs += self.add("Identity", [v], v.exact)
        names = {}

        def size(s):
            return names.setdefault(s, f"s{s}") if self.symbolic and s > 1 else s

        infos = [
            helper.make_tensor_value_info(
                v.name, helper.np_dtype_to_tensor_dtype(v.data.dtype), [size(s) for s in v.data.shape]
            )
            for v in self.inputs
        ]
        outs = [
            helper.make_tensor_value_info(
                v.name, helper.np_dtype_to_tensor_dtype(v.data.dtype), None if self.symbolic else v.data.shape
            )
            for v in self.outputs
        ]
        graph = helper.make_graph(self.nodes, "random", infos, outs, self.constants)
        self.proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        # As some converters write it: the nodes in any order. The reference wants a topological one.
        self.shuffled = onnx.ModelProto()
        self.shuffled.CopyFrom(self.proto)
        if self.n(0, 2) == 0:
            order = self.r.permutation(len(self.nodes))
            del self.shuffled.graph.node[:]
            self.shuffled.graph.node.extend(self.nodes[i] for i in order)
        self.feeds = [{v.name: v.data for v in self.inputs}]
        if self.symbolic and names:
            # Other sizes; and twice sizes of which some are 1, where things broadcast and vanish.
            for low, high in ((2, 7), (1, 2), (1, 4)):
                other = {s: self.n(low, high) for s in names}
                self.feeds.append(
                    {
                        v.name: self.fresh("i" if v.data.dtype == I64 else "f", [other.get(s, s) for s in v.data.shape])
                        for v in self.inputs
                    }
                )
        return self


def unary(m):
    op = m.one(
        "Relu",
        "Neg",
        "Abs",
        "Identity",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Sin",
        "Cos",
        "Softplus",
        "Softsign",
        "Elu",
        "Selu",
        "LeakyRelu",
        "HardSigmoid",
        "HardSwish",
        "Exp",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Mish",
        "Celu",
        "Atan",
    )
    jumps = op in ("Floor", "Ceil", "Round", "Sign")
    x = m.float(exact=jumps)
    m.add(op, [x], x.exact and (jumps or op in ("Relu", "Neg", "Abs", "Identity")))


def root(m):
    x = m.float()
    y = m.add("Abs", [x], x.exact)[0]
    z = m.add("Add", [y, m.constant(np.array(0.5, F32))], x.exact)[0]
    m.add(m.one("Sqrt", "Log", "Reciprocal"), [z], False)


def operand(m, x):
    """Something that broadcasts with x: another value, or a constant of a part of its shape."""
    if m.n(0, 2):
        return m.pick(lambda v: v.data.dtype == x.data.dtype and v.data.size)
    shape = [s if m.n(0, 1) else 1 for s in x.data.shape]
    if m.symbolic:
        shape = [1] * len(shape)
    return m.constant(m.fresh("i" if x.data.dtype == I64 else "f", shape[m.n(0, len(shape)) :]))


def binary(m):
    x = m.any() if m.n(0, 3) == 0 else m.float()
    if x.data.dtype == BOOL:
        raise LookupError
    y = operand(m, x)
    op = m.one("Add", "Sub", "Mul", "Add", "Mul", "Max", "Min")
    pair = [x, y] if m.n(0, 1) else [y, x]
    exact = x.exact and (isinstance(y, str) or y.exact) and np.abs(x.data).max() < 50
    m.add(op, pair, bool(exact))


def compare(m):
    x = m.float(exact=True)
    y = operand(m, x)
    if not isinstance(y, str) and not y.exact:
        raise LookupError
    m.add(m.one("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"), [x, y], True)


def logic(m):
    x = m.pick(lambda v: v.data.dtype == BOOL)
    if m.n(0, 1):
        return m.add("Not", [x], True)
    m.add(m.one("And", "Or", "Xor"), [x, m.pick(lambda v: v.data.dtype == BOOL)], True)


def where(m):
    c, x = m.pick(lambda v: v.data.dtype == BOOL), m.float()
    y = operand(m, x)
    m.add("Where", [c, x, y], x.exact and (isinstance(y, str) or y.exact))


def cast(m):
    x = m.pick(lambda v: v.data.dtype != F32 or v.exact)
    m.add("Cast", [x], True, to=m.one(onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL))


def matmul(m):
    x = m.float(rank=(2, 3, 4))
    if m.n(0, 1):
        return m.add("MatMul", [x, m.float(rank=(2, 3, 4))], False)
    if m.symbolic and x in m.inputs:
        raise LookupError
    m.add("MatMul", [x, m.constant(m.fresh("f", [x.data.shape[-1], m.n(1, 5)]))], False)


def gemm(m):
    x = m.float(rank=(2,))
    k, n, turned = x.data.shape[1], m.n(1, 5), m.n(0, 1)
    m.add(
        "Gemm",
        [x, m.constant(m.fresh("f", [n, k] if turned else [k, n])), m.constant(m.fresh("f", [n]))],
        False,
        transB=turned,
        alpha=m.one(1.0, 0.5),
    )


def conv(m):
    x = m.float(rank=(3, 4))
    spatial, c = x.data.ndim - 2, x.data.shape[1]
    k, stride, dilation = m.n(1, 3), m.n(1, 2), m.n(1, 2)
    attributes = {
        "strides": [stride] * spatial,
        "dilations": [dilation] * spatial,
        "pads": [m.n(0, 2) for _ in range(2 * spatial)],
    }
    if m.n(0, 3) == 0:
        return m.add(
            "ConvTranspose", [x, m.constant(m.fresh("f", [c, m.n(1, 3)] + [k] * spatial))], False, strides=[stride] * spatial
        )
    m.add(
        "Conv", [x, m.constant(m.fresh("f", [m.n(1, 4), c] + [k] * spatial))], False, kernel_shape=[k] * spatial, **attributes
    )


def pool(m):
    x = m.float(rank=(3, 4))
    spatial = x.data.ndim - 2
    if m.n(0, 3) == 0:
        # The reference reduces other dimensions than the spatial ones of a GlobalMaxPool of rank 3.
        return m.add(m.one("GlobalAveragePool", "GlobalMaxPool") if x.data.ndim == 4 else "GlobalAveragePool", [x], False)
    k = m.n(1, 3)
    op = m.one("MaxPool", "AveragePool")
    m.add(
        op,
        [x],
        x.exact and op == "MaxPool",
        kernel_shape=[k] * spatial,
        strides=[m.n(1, 2)] * spatial,
        pads=[k // 2] * (2 * spatial),
    )


def norm(m):
    kind = m.one(
        "Softmax", "LogSoftmax", "LayerNormalization", "BatchNormalization", "InstanceNormalization", "LpNormalization"
    )
    if kind in ("Softmax", "LogSoftmax", "LpNormalization"):
        x = m.float(rank=(1, 2, 3, 4, 5))
        if kind == "LpNormalization" and not np.abs(x.data).sum(axis=-1).all():
            raise ValueError
        return m.add(kind, [x], False, axis=m.n(-x.data.ndim, x.data.ndim - 1) if kind != "LpNormalization" else -1)
    if kind == "LayerNormalization":
        x = m.float()
        n = x.data.shape[-1]
        return m.add(kind, [x, m.constant(m.fresh("f", [n])), m.constant(m.fresh("f", [n]))], False, axis=-1, epsilon=1e-2)
    x = m.float(rank=(3, 4))
    c = x.data.shape[1]
    w = [m.constant(m.fresh("f", [c])) for _ in range(2)]
    if kind == "InstanceNormalization":
        return m.add(kind, [x, *w], False, epsilon=1e-2)
    m.add(kind, [x, *w, m.constant(m.fresh("f", [c])), m.constant(np.abs(m.fresh("f", [c])) + F32.type(0.5))], False)


def reduce(m):
    x = m.float()
    op = m.one(
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"
    )
    axes = sorted({m.n(0, x.data.ndim - 1) for _ in range(m.n(1, 2))})
    exact = x.exact and op in ("ReduceMax", "ReduceMin", "ReduceSum")
    m.add(op, [x, m.constant(np.array([a - m.one(0, x.data.ndim) for a in axes], I64))], exact, keepdims=m.n(0, 1))


def index_of(m):
    x = m.float(exact=True)
    axis = m.n(-x.data.ndim, x.data.ndim - 1)
    if m.n(0, 1):
        return m.add(m.one("ArgMax", "ArgMin"), [x], True, axis=axis, keepdims=m.n(0, 1), select_last_index=m.n(0, 1))
    m.add("TopK", [x, m.constant(np.array([m.n(1, x.data.shape[axis])], I64))], True, outputs=2, axis=axis, largest=m.n(0, 1))


def transpose(m):
    x = m.any()
    m.add("Transpose", [x], x.exact, perm=[int(i) for i in m.r.permutation(x.data.ndim)])


def reshape(m):
    x = m.any()
    kind = m.n(0, 4)
    if kind == 0:
        return m.add("Flatten", [x], x.exact, axis=m.n(-x.data.ndim, x.data.ndim))
    if kind == 1:
        axes = sorted({m.n(0, x.data.ndim) for _ in range(m.n(1, 2))})
        return m.add("Unsqueeze", [x, m.constant(np.array(axes, I64))], x.exact)
    if kind == 2:
        axes = [i for i, s in enumerate(x.data.shape) if s == 1]
        if not axes:
            raise LookupError
        return m.add("Squeeze", [x, m.constant(np.array([m.one(*axes)], I64))], x.exact)
    if kind == 3 or not m.symbolic:
        shape = [0] * x.data.ndim  # copies, and two of them joined
        if x.data.ndim > 1:
            at = m.n(0, x.data.ndim - 2)
            shape = shape[:at] + [-1] + list(x.data.shape[at + 2 :]) if not m.symbolic else shape[:at] + [-1]
        return m.add("Reshape", [x, m.constant(np.array(shape, I64))], x.exact)
    # To the shape of the sizes, turned: as exporters compute it.
    s = m.add("Shape", [x], True)[0]
    turned = m.add("Gather", [s, m.constant(np.array(m.r.permutation(x.data.ndim), I64))], True)[0]
    m.add("Reshape", [x, turned], x.exact)


def join(m):
    x = m.any()
    if m.n(0, 1):
        y = m.pick(lambda v: v.data.dtype == x.data.dtype and v.data.ndim == x.data.ndim)
        return m.add("Concat", [x, y], x.exact and y.exact, axis=m.n(-x.data.ndim, x.data.ndim - 1))
    axis = m.n(0, x.data.ndim - 1)
    parts = m.n(2, 3)
    if x.data.shape[axis] % parts:
        raise ValueError
    m.add("Split", [x], x.exact, outputs=parts, axis=axis, num_outputs=parts)


def slice_(m):
    x = m.any()
    count = m.n(1, x.data.ndim)
    axes = [int(a) for a in m.r.permutation(x.data.ndim)[:count]]
    start = [m.one(0, 1, -2, -100, 2) for _ in axes]
    end = [m.one(2**63 - 1, -1, 3, 100, 2**31 - 1) for _ in axes]
    steps = [m.one(1, 1, 2, 3) for _ in axes]
    for i in range(count):
        if m.n(0, 3) == 0:
            start[i], end[i], steps[i] = m.one(-1, 100, 2), m.one(-(2**63) + 1, 0, -100), m.one(-1, -2)
    m.add(
        "Slice",
        [
            x,
            m.constant(np.array(start, I64)),
            m.constant(np.array(end, I64)),
            m.constant(np.array(axes, I64)),
            m.constant(np.array(steps, I64)),
        ],
        x.exact,
    )


def pad(m):
    x = m.float()
    mode = m.one("constant", "reflect", "edge")
    # Reflection reads as far as the pad reaches, which the reference goes beyond.
    most = [min(2, s - 1) if mode == "reflect" else 2 for s in x.data.shape]
    if m.symbolic and mode == "reflect":
        most = [min(1, s) for s in most]
    m.add("Pad", [x, m.constant(np.array([m.n(0, k) for _ in range(2) for k in most], I64))], x.exact, mode=mode)


def repeat(m):
    x = m.any()
    if m.n(0, 1):
        return m.add("Tile", [x, m.constant(np.array([m.n(1, 2) for _ in x.data.shape], I64))], x.exact)
    shape = [m.n(1, 3) if s == 1 else 1 if m.symbolic else s for s in x.data.shape]
    m.add("Expand", [x, m.constant(np.array([m.n(1, 2)] * m.n(0, 1) + shape, I64))], x.exact)


def gather(m):
    x = m.any()
    axis = m.n(0, x.data.ndim - 1)
    n = x.data.shape[axis]
    index = m.r.integers(-1 if m.symbolic else -n, min(n, 2) if m.symbolic else n, [m.n(1, 3)] * m.n(0, 2)).astype(I64)
    m.add("Gather", [x, m.constant(index)], x.exact, axis=axis)


def scan_sum(m):
    x = m.float()
    m.add(
        "CumSum",
        [x, m.constant(np.array(m.n(-x.data.ndim, x.data.ndim - 1), I64))],
        x.exact,
        exclusive=m.n(0, 1),
        reverse=m.n(0, 1),
    )


def clip(m):
    x = m.float()
    m.add("Clip", [x, m.constant(np.array(-0.75, F32)), m.constant(np.array(1.25, F32))], x.exact)


def triangle(m):
    x = m.pick(lambda v: v.data.dtype == F32 and v.data.ndim >= 2)
    m.add("Trilu", [x], x.exact, upper=m.n(0, 1))


def resize(m):
    x = m.float(rank=(3, 4))
    scales = np.array([1, 1] + [m.one(0.5, 2, 1.5, 3)] * (x.data.ndim - 2), F32)
    if m.symbolic:
        scales[2:] = m.one(2, 0.5)
    mode = m.one("nearest", "linear")
    m.add(
        "Resize",
        [x, "", m.constant(scales)],
        x.exact and mode == "nearest",
        mode=mode,
        coordinate_transformation_mode=m.one("half_pixel", "asymmetric"),
        nearest_mode=m.one("floor", "round_prefer_floor"),
    )


def einsum(m):
    x = m.float(rank=(2, 3))
    y = m.float(rank=(2,))
    equation = m.one("...ij,jk->...ik", "...ij,kj", "...ij->...ji", "...ij->...", "...ij,ij->...i")
    m.add("Einsum", [x] + ([y] if "," in equation else []), False, equation=equation)


def shapes(m):
    x = m.any()
    s = m.add("Shape", [x], True)[0]
    m.add("ConstantOfShape", [s], True, value=numpy_helper.from_array(np.array([m.n(-3, 3) / 2], F32)))


def hot(m):
    x = m.pick(lambda v: v.data.dtype == I64 and v.data.ndim in (1, 2))
    m.add("OneHot", [x, m.constant(np.array(4, I64)), m.constant(np.array([0, 1], F32))], True, axis=m.n(-1, 1))


MAKERS = (
    unary,
    unary,
    unary,
    root,
    binary,
    binary,
    binary,
    compare,
    logic,
    where,
    cast,
    matmul,
    matmul,
    gemm,
    conv,
    conv,
    pool,
    norm,
    norm,
    reduce,
    reduce,
    index_of,
    transpose,
    reshape,
    reshape,
    join,
    join,
    slice_,
    slice_,
    pad,
    repeat,
    gather,
    scan_sum,
    clip,
    triangle,
    resize,
    einsum,
    shapes,
    hot,
)


def difference(got, want):
    for name, x in want.items():
        if name not in got:
            return f"there is no output '{name}'; the archive holds " + ", ".join(f"'{k}'" for k in got)
        y = got[name]
        if y.dtype != x.dtype or y.shape != x.shape:
            return f"output '{name}' is {y.dtype}{list(y.shape)}, expected {x.dtype}{list(x.shape)}"
        if x.size == 0:
            continue
        if x.dtype == F32:
            most = max(1.0, float(np.abs(x).max()))
            if not np.abs(y - x).max() <= 1e-4 * most:
                return f"output '{name}' differs by up to {np.abs(y - x).max():.3g} of {most:.3g}"
        elif not np.array_equal(x, y):
            return f"output '{name}': {int(np.sum(x != y))} of {x.size} elements differ"
    return None


def with_sizes(proto, feeds):
    """The model with the sizes of these inputs as numbers."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(proto)
    for i in fixed.graph.input:
        for dim, size in zip(i.type.tensor_type.shape.dim, feeds[i.name].shape):
            dim.dim_value = size
    return fixed


def check(model, tool, config, keep, index):
    command = Command(tool, config)
    names = [v.name for v in model.outputs]
    calls = 0
    for k, feeds in enumerate(model.feeds):
        try:
            want = dict(zip(names, (np.asarray(x) for x in ReferenceEvaluator(model.proto).run(names, feeds))))
        except Exception:  # noqa: BLE001: constants of the model do not fit the second sizes
            continue
        if any(x.dtype == F32 and not np.isfinite(x).all() for x in want.values()):
            continue
        calls += 1
        try:
            wrong = difference(command.run(model.shuffled, feeds), want)
        except Refused as e:
            wrong = str(e)
            if k > 1:  # the reference is lax where sizes are 1 (a reflection, channels): is it the sizes being symbols?
                try:
                    command.run(with_sizes(model.proto, feeds), feeds)
                except Refused:
                    wrong = None
                    calls -= 1
        if wrong:
            if keep:
                os.makedirs(keep, exist_ok=True)
                onnx.save(model.shuffled, os.path.join(keep, f"{index}.onnx"))
                np.savez(os.path.join(keep, f"{index}_{k}.npz"), **feeds)
            return calls, f"{', '.join(n.op_type for n in model.nodes)}; call {k}: {wrong}"
    return calls, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--configs", default="eager,cpu")
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--only", type=int, help="this model alone")
    parser.add_argument("--keep", help="a folder for the models that fail, with their inputs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    indices = [args.only] if args.only is not None else range(args.models)
    models = [Model(args.seed, i).grow().finish() for i in indices]
    kinds = {n.op_type for m in models for n in m.nodes}
    failed = 0
    for config in args.configs.split(","):
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as threads:
            results = list(
                threads.map(lambda pair: check(pair[1], args.tool, config, args.keep, pair[0]), zip(indices, models))
            )
        for i, m, (_, wrong) in zip(indices, models, results):
            if wrong:
                failed += 1
                print(f"FAIL {config}: model {i}{' (symbolic)' if m.symbolic else ''}: {wrong}")
        good = sum(w is None for _, w in results)
        print(
            f"{config}: {good} of {len(models)} random models agree by name, {sum(c for c, _ in results)} calls, {sum(len(m.nodes) for m in models)} nodes of {len(kinds)} operators",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
