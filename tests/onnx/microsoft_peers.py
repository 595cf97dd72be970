# SPDX-License-Identifier: Apache-2.0
"""The operators of com.microsoft against ONNX Runtime's CPU provider, over random attributes, shapes and optional inputs.

    python microsoft_peers.py TESSERA [--config NAME] [--cases N] [--only REGEX] [--seed N]
    python microsoft_peers.py --fixtures DIR     writes one or two cases of each operator with ONNX Runtime's values, as generate_suite.py writes them

Needs onnxruntime, onnx and numpy from PyPI.
"""

import argparse
import json
import os
import re
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from command import Command, Refused

F, H, I8, U8, I32, I64 = np.float32, np.float16, np.int8, np.uint8, np.int32, np.int64


class Case:
    """One node: inputs in order (None: omitted), those of `constant` as initializers, tolerances."""

    def __init__(
        self,
        op,
        inputs,
        attributes=None,
        outputs=1,
        constant=(),
        rtol=1e-4,
        atol=1e-5,
        wanted=None,
        off=0,
        opset=17,
        domain="com.microsoft",
        valid=None,
        names=None,
    ):
        self.op, self.inputs, self.attributes = op, inputs, {k: v for k, v in (attributes or {}).items() if v is not None}
        self.outputs, self.constant, self.rtol, self.atol, self.opset, self.domain = (
            outputs,
            set(constant),
            rtol,
            atol,
            opset,
            domain,
        )
        self.wanted = wanted or [True] * outputs  # which outputs are asked for
        self.off = (
            off  # integers: the part of elements that may be one unit off (rounded from an f32 that is summed in another order)
        )
        self.valid = valid  # per output: which elements are documented; None: all
        self.names = names or {}  # by input: the names of its sizes, None where one stays a number
        self.symbolic = False

    def model(self):
        names = [f"x{i}" if x is not None else "" for i, x in enumerate(self.inputs)]
        while names and not names[-1]:
            names.pop()
        outs = [f"y{i}" if w else "" for i, w in enumerate(self.wanted)]
        while outs and not outs[-1]:
            outs.pop()
        node = helper.make_node(self.op, names, outs, domain=self.domain, **self.attributes)
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), self.sizes(i))
            for i, (n, x) in enumerate(zip(names, self.inputs))
            if n and i not in self.constant
        ]
        init = [numpy_helper.from_array(self.inputs[i], names[i]) for i in sorted(self.constant) if i < len(names) and names[i]]
        results = [helper.make_empty_tensor_value_info(o) for o in outs if o]
        graph = helper.make_graph([node], "g", infos, results, init)
        opsets = [helper.make_opsetid("", self.opset)] + ([helper.make_opsetid("com.microsoft", 1)] if self.domain else [])
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def sizes(self, i):
        shape = self.inputs[i].shape
        if not self.symbolic or i not in self.names:
            return shape
        return [name or size for name, size in zip(self.names[i], shape)]

    def feeds(self):
        return {f"x{i}": x for i, x in enumerate(self.inputs) if x is not None and i not in self.constant}


class Draw:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)

    def n(self, low, high):  # both ends
        return int(self.r.integers(low, high + 1))

    def one(self, *options):
        return options[self.n(0, len(options) - 1)]

    def maybe(self, x, odds=2):
        return x if self.n(1, odds) == 1 else None

    def f(self, *shape, scale=1.0, dtype=F):
        return (self.r.standard_normal(shape) * scale).astype(dtype)

    def positive(self, *shape, low=0.01, high=0.05):
        return self.r.uniform(low, high, shape).astype(F)

    def q(self, dtype, *shape):
        info = np.iinfo(dtype)
        return self.r.integers(info.min, info.max + 1, shape).astype(dtype)

    def ids(self, below, *shape, dtype=I32):
        return self.r.integers(0, below, shape).astype(dtype)


def gelu(d):
    kind = d.one("Gelu", "BiasGelu", "FastGelu", "QuickGelu")
    b, s, h = d.n(1, 3), d.n(1, 5), d.n(1, 9)
    x = d.f(b, s, h, scale=3)
    if kind == "BiasGelu":
        return Case(kind, [x, d.f(h)], names={0: ["b", "s", None]})
    if kind == "FastGelu":
        return Case(kind, [x, d.maybe(d.f(h))])
    return Case(kind, [x], {"alpha": d.maybe(float(d.n(1, 4)) / 2)} if kind == "QuickGelu" else {})


def skip_norm(d):
    kind = d.one("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    b, s, h = d.n(1, 3), d.n(1, 4), d.n(2, 9)
    skip = d.one(d.f(b, s, h), d.f(1, s, h), d.f(s, h))
    attributes = {"epsilon": d.maybe(1e-3)}
    wanted = [True, False, False, d.n(0, 1) == 1]
    gamma, beta, bias = d.f(h), d.maybe(d.f(h)), d.maybe(d.f(h))
    inputs = [d.f(b, s, h), skip, gamma] + ([bias] if kind.startswith("SkipSimpl") else [beta, bias])
    return Case(
        kind,
        inputs,
        attributes,
        4,
        wanted=wanted,
        names={
            0: ["b", "s", None],
            1: ["b", "s", None] if skip.shape == (b, s, h) else ["s", None] if skip.ndim == 2 else [None, "s", None],
        },
    )


def simplified_norm(d):
    b, s, h = d.n(1, 3), d.n(1, 4), d.n(2, 9)
    return Case(
        "SimplifiedLayerNormalization",
        [d.f(b, s, h), d.f(h)],
        {"epsilon": d.maybe(1e-3), "axis": -1, "stash_type": 1},
        domain="",
        names={0: ["b", "s", None]},
    )


def embed_norm(d):
    b, s, h = d.n(1, 3), d.n(1, 5), d.n(2, 8)
    segments = d.n(0, 1) == 1
    mask = None
    if d.n(0, 1):
        mask = (np.arange(s)[None] < d.r.integers(0, s + 1, (b, 1))).astype(I32)
    positions = d.maybe(d.one(d.ids(s, b, s), d.ids(s, 1, s)))
    return Case(
        "EmbedLayerNormalization",
        [
            d.ids(7, b, s),
            d.ids(2, b, s) if segments else None,
            d.f(7, h),
            d.f(s + 2, h),
            d.f(2, h) if segments else None,
            d.f(h),
            d.f(h),
            mask,
            positions,
        ],
        {"epsilon": d.maybe(1e-3)},
        3,
        wanted=[True, True, d.n(0, 1) == 1],
        names={
            0: ["b", "s"],
            1: ["b", "s"],
            7: ["b", "s"],
            8: ["b" if positions is not None and len(positions) == b > 1 else None, "s"],
        },
    )


def fused_product(d):
    kind = d.one("FusedMatMul", "FusedGemm", "FusedConv")
    if kind == "FusedMatMul":
        m, k, n = d.n(1, 4), d.n(1, 4), d.n(1, 4)
        batch = [d.n(1, 3) for _ in range(d.n(0, 2))]
        attributes = {}
        operands = []
        for letter, rows, columns in (("A", m, k), ("B", k, n)):
            turn = d.n(0, 1)
            last = [columns, rows] if turn else [rows, columns]
            swap = d.n(0, 1) if batch else 0
            attributes["trans" + letter], attributes["transBatch" + letter] = turn, swap
            operands.append(d.f(*([last[0], *batch, last[1]] if swap else [*batch, *last])))
        attributes["alpha"] = d.one(1.0, 0.5)
        return Case(kind, operands, attributes)
    activation, numbers = d.one(
        ("Relu", []), ("LeakyRelu", [0.2]), ("Tanh", []), ("Sigmoid", []), ("Clip", [-0.5, 0.75]), ("HardSigmoid", [0.3, 0.4])
    )
    if kind == "FusedGemm":
        if activation == "Clip":
            activation, numbers = "Relu", []
        m, k, n, ta, tb = d.n(1, 4), d.n(1, 4), d.n(1, 4), d.n(0, 1), d.n(0, 1)
        attributes = {"activation": activation, "transA": ta, "transB": tb, "alpha": d.one(1.0, 0.5), "beta": d.one(1.0, 0.25)}
        for name, value in zip(("activation_alpha", "activation_beta"), numbers):
            attributes[name] = value
        return Case(
            kind,
            [d.f(*((k, m) if ta else (m, k))), d.f(*((n, k) if tb else (k, n))), d.maybe(d.one(d.f(n), d.f(m, n)))],
            attributes,
        )
    c, o, k, stride = d.n(1, 3), d.n(1, 3), d.n(1, 3), d.n(1, 2)
    x, w = d.f(d.n(1, 2), c, d.n(3, 6), d.n(3, 6)), d.f(o, c, k, k)
    out = [x.shape[0], o] + [(s + 2 - k) // stride + 1 for s in x.shape[2:]]
    return Case(
        kind,
        [x, w, d.f(o), d.maybe(d.f(*out))],
        {
            "activation": activation,
            "activation_params": numbers or None,
            "pads": [1, 1, 1, 1],
            "strides": [stride, stride],
            "kernel_shape": [k, k],
        },
        rtol=1e-3,
    )


def mask_of(d, batch, queries, keys, kinds):
    """Masks that hide some keys, sometimes all of a sample's."""
    kind = d.one(*kinds)
    if kind == 0:
        return None
    if kind == 1:
        return d.r.integers(0, keys + 1, batch).astype(I32)
    if kind == 12:
        end = d.r.integers(1, keys + 1, batch)
        return np.concatenate([end, d.r.integers(0, end)]).astype(I32)
    m = d.r.integers(0, 2, (batch, keys) if kind == 2 else (batch, queries, keys)).astype(I32)
    if d.n(0, 2) == 0:
        m[0] = 0
    return m


def mask_names(mask, keys):
    if mask is None or mask.ndim == 1:
        return [None]
    return ["b", keys] if mask.ndim == 2 else ["b", None, keys]


def attention(d):
    heads, size, b, s, hidden, past = d.n(1, 3), 2 * d.n(1, 3), d.n(1, 3), d.n(1, 4), d.n(2, 6), d.one(0, 0, 2)
    n, v = heads * size, heads * size
    sizes = None
    if past == 0 and d.n(0, 2) == 0:
        v = heads * d.n(1, 4)
        sizes = [n, n, v]
    mask = mask_of(d, b, s, past + s, (0, 1, 2, 3) if past else (0, 1, 12, 2, 3))
    attributes = {
        "num_heads": heads,
        "unidirectional": d.n(0, 1),
        "scale": d.maybe(0.7),
        "mask_filter_value": d.maybe(-3.0),
        "qkv_hidden_sizes": sizes,
    }
    state = d.f(2, b, heads, past, size) if past else None
    bias = d.maybe(d.f(d.one(1, b), d.one(1, heads), s, s)) if not past else None
    wanted = [True, past > 0]
    # Where all keys are hidden, -10000 leaves scores of 1e-3: the tolerance is that of weights made of them.
    return Case(
        "Attention",
        [d.f(b, s, hidden), d.f(hidden, 2 * n + v), d.f(2 * n + v), mask, state, bias],
        attributes,
        2,
        wanted=wanted,
        names={
            0: ["b", "s", None],
            3: mask_names(mask, "s" if not past else None),
            4: [None, "b", None, "p", None],
            5: [None, None, "s", "s"],
        },
        rtol=2e-3,
        atol=2e-3,
    )


def qattention(d):
    heads, size, b, s, hidden, past = d.n(1, 3), 2 * d.n(1, 3), d.n(1, 2), d.n(1, 4), d.n(2, 6), d.one(0, 0, 2)
    n = 3 * heads * size
    wt = d.one(U8, I8)
    columns = d.n(0, 1) == 1
    w_scale = d.positive(n) if columns else d.positive()
    w_zero = (d.q(wt, n) if columns else d.q(wt)) if d.n(0, 1) else None
    mask = mask_of(d, b, s, past + s, (0, 1, 2, 3))
    state = d.f(2, b, heads, past, size) if past else None
    return Case(
        "QAttention",
        [
            d.q(U8, b, s, hidden),
            d.q(wt, hidden, n),
            d.f(n),
            d.positive(high=0.02),
            w_scale,
            mask,
            d.maybe(d.q(U8)),
            w_zero,
            state,
        ],
        {"num_heads": heads, "unidirectional": d.n(0, 1)},
        2,
        wanted=[True, past > 0],
        names={0: ["b", "s", None], 5: mask_names(mask, "s" if not past else None), 8: [None, "b", None, "p", None]},
        constant=[1, 2, 3, 4, 6, 7],
        rtol=2e-3,
        atol=2e-3,
    )


def multi_head_attention(d):
    heads, size, b, s, t = d.n(1, 3), 2 * d.n(1, 3), d.n(1, 3), d.n(1, 4), d.n(1, 5)
    form = d.one("apart", "apart", "heads", "past")  # its CPU provider does not take packed ones
    past = 2 if form == "past" else 0
    if form == "past":
        t = s
    v_size = d.n(1, 4) if form == "apart" else size
    n, v = heads * size, heads * v_size
    q, key, value = d.f(b, s, n), d.f(b, t, n), d.f(b, t, v)
    bias = d.maybe(d.f(2 * n + v))
    if form == "heads":
        key, value, bias = d.f(b, heads, t, size), d.f(b, heads, t, size), None
    mask = mask_of(d, b, s, past + t, (0, 1, 2, 3) if not past else (0, 2, 3))
    attention_bias = d.maybe(d.f(d.one(1, b), d.one(1, heads), s, past + t))
    states = [d.f(b, heads, past, size) for _ in range(2)] if past else []
    kv = ["b", None, "t", None] if form == "heads" else ["b", "s" if past else "t", None]
    return Case(
        "MultiHeadAttention",
        [q, key, value, bias, mask, attention_bias, *states],
        {
            "num_heads": heads,
            "unidirectional": d.n(0, 1) if s == t else 0,
            "scale": d.maybe(0.7),
            "mask_filter_value": d.maybe(-3.0),
        },
        3,
        wanted=[True, past > 0, past > 0],
        names={
            0: ["b", "s", None],
            1: kv,
            2: kv,
            4: mask_names(mask, None if past else "t"),
            6: ["b", None, "p", None],
            7: ["b", None, "p", None],
        },
        rtol=2e-3,
        atol=2e-3,
    )


def group_query_attention(d):
    shared, group, size, b = d.n(1, 2), d.n(1, 3), 16 * d.n(1, 2), d.n(1, 3)
    heads = shared * group
    prompt = d.n(0, 1) == 1
    s = d.n(1, 5) if prompt else 1
    if prompt:
        tokens = d.r.integers(1, s + 1, b)
        tokens[d.n(0, b - 1)] = s
        total = s
        buffer = d.one(0, s + 3)
    else:
        had = d.r.integers(1, 6, b)
        tokens = had + s
        total = int(tokens.max())
        buffer = d.one(int(had.max()), total + 2)
    q, k, v = d.f(b, s, heads * size), d.f(b, s, shared * size), d.f(b, s, shared * size)
    if d.n(0, 2) == 0:
        q, k, v = np.concatenate([q, k, v], 2), None, None
    past = [d.f(b, shared, buffer, size) for _ in range(2)] if buffer else [None, None]
    rotary = d.n(0, 1)
    rotated = d.one(size, 16) if rotary else 0
    angle = d.r.uniform(-3, 3, (total + 4, max(rotated // 2, 1)))
    caches = [np.cos(angle).astype(F), np.sin(angle).astype(F)] if rotary else [None, None]
    bias = d.maybe(d.f(d.one(1, b), d.one(1, heads), s, total), 3)
    sink = d.maybe(d.f(heads), 4)
    attributes = {
        "num_heads": heads,
        "kv_num_heads": shared,
        "do_rotary": rotary,
        "rotary_interleaved": d.n(0, 1) if rotary else None,
        "scale": d.maybe(0.4),
        "local_window_size": d.maybe(d.n(1, 4), 3),
        "softcap": d.maybe(2.5, 3),
        "smooth_softmax": 1 if sink is None and d.n(0, 5) == 0 else None,
    }
    # Rows of padded queries, and of a cache beyond its tokens, may be anything.
    length = max(buffer, total)
    rows = np.ones((b, s, heads * size), bool)
    cells = np.zeros((b, shared, length, size), bool)
    for i in range(b):
        if prompt:
            rows[i, tokens[i] :] = False
        cells[i, :, : tokens[i]] = True
    return Case(
        "GroupQueryAttention",
        [q, k, v, *past, (tokens - 1).astype(I32), np.array(total, I32), *caches, None, bias, sink],
        attributes,
        3,
        constant=[6],
        rtol=2e-3,
        atol=2e-3,
        valid=[rows, cells, cells],
        names={
            0: ["b", None, None],
            1: ["b", None, None],
            2: ["b", None, None],
            3: ["b", None, "c", None],
            4: ["b", None, "c", None],
            5: ["b"],
        },
    )


def rotary_embedding(d):
    heads, size, b, s, most = d.n(1, 3), 2 * d.n(2, 6), d.n(1, 3), d.n(1, 4), 9
    part = d.one(0, 0, 2 * d.n(1, size // 2))
    angle = d.r.uniform(-3, 3, (most, (part or size) // 2))
    ids = d.one(np.array([d.n(0, most - s)], I64), d.ids(most, b, s, dtype=I64))
    x = d.one(d.f(b, s, heads * size), d.f(b, heads, s, size)) if part == 0 else d.f(b, s, heads * size)
    return Case(
        "RotaryEmbedding",
        [x, ids, np.cos(angle).astype(F), np.sin(angle).astype(F)],
        {"interleaved": d.n(0, 1), "num_heads": heads if part else None, "rotary_embedding_dim": part or None},
        names={0: ["b", "s", None] if x.ndim == 3 else ["b", None, "s", None], 1: ["b", "s"] if ids.ndim == 2 else [None]},
    )


def matmul_n_bits(d):
    bits = d.one(2, 4, 4, 8)
    block = d.one(16, 32)
    n, k = d.n(1, 9), d.n(1, 3) * block - d.one(0, 0, 3)
    blocks = -(-k // block)
    zero = d.one(None, d.q(U8, n, -(-blocks * bits // 8)), d.f(n, blocks, scale=4))
    if bits == 2 and zero is not None and zero.dtype == F:
        zero = None
    group = None
    if bits == 4 and d.n(0, 4) == 0 and k % block == 0:
        group, zero = d.ids(blocks, k), None  # together with zero points ONNX Runtime reads others than the documented ones
    x = d.f(*d.one([3], [2, 3], []), d.n(1, 3), k)
    return Case(
        "MatMulNBits",
        [x, d.q(U8, n, blocks, block * bits // 8), d.f(n, blocks), zero, group, d.maybe(d.f(n)) if group is None else None],
        {"bits": bits, "block_size": block, "N": n, "K": k, "accuracy_level": d.one(None, 1)},
        names={0: [*"abc"[: x.ndim - 1], None]},
        constant=[1, 2, 3, 4, 5],
        rtol=1e-3,
        atol=1e-3,
    )


def integer_product(d):
    kind = d.one("MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm")
    m, k, n = d.n(1, 5), d.n(1, 9), d.n(1, 6)
    bt = d.one(U8, I8)
    columns = d.n(0, 1) == 1
    b_scale = d.positive(n) if columns else d.positive()
    b_zero = d.q(bt, n) if columns else d.q(bt)
    if kind == "QGemm":
        at = d.one(U8, I8) if bt == I8 else U8
        ta, tb = d.n(0, 1), d.n(0, 1)
        out = d.n(0, 1) == 1
        c = d.maybe(d.r.integers(-2000, 2000, d.one((n,), (m, n))).astype(I32))
        return Case(
            kind,
            [
                d.q(at, *((k, m) if ta else (m, k))),
                d.positive(),
                d.q(at),
                d.q(bt, *((n, k) if tb else (k, n))),
                b_scale,
                b_zero,
                c,
                d.positive(low=1, high=4) if out else None,
                d.q(at) if out else None,
            ],
            {"transA": ta, "transB": tb, "alpha": d.one(1.0, 0.5)},
            off=0.02,
        )
    batch = d.one([], [2], [2, 3])
    if kind == "DynamicQuantizeMatMul":
        return Case(
            kind,
            [d.f(*batch, m, k), d.q(bt, k, n), b_scale, d.maybe(b_zero), d.maybe(d.f(n))],
            names={0: [*"abc"[: len(batch) + 1], None]},
            constant=[1, 2, 3, 4],
        )
    at = d.one(U8, I8) if bt == I8 else U8
    return Case(
        kind, [d.q(at, *batch, m, k), d.q(bt, k, n), d.positive(), b_scale, d.maybe(d.q(at)), d.maybe(b_zero), d.maybe(d.f(n))]
    )


def qlinear(d):
    t = d.one(U8, I8)
    kind = d.one(
        "QLinearAdd",
        "QLinearMul",
        "QLinearLeakyRelu",
        "QLinearSigmoid",
        "QLinearSoftmax",
        "QLinearReduceMean",
        "QLinearConcat",
        "QLinearWhere",
        "QLinearAveragePool",
        "QLinearGlobalAveragePool",
        "QLinearConv",
    )
    shape = [d.n(1, 4) for _ in range(d.n(1, 4))]
    part = lambda x, low=0.02, high=0.1: [x, d.positive(low=low, high=high), d.q(t)]  # noqa: E731
    scale = lambda low, high: [d.positive(low=low, high=high), d.q(t)]  # noqa: E731
    if kind in ("QLinearAdd", "QLinearMul"):
        other = [s if d.n(0, 1) else 1 for s in shape]
        high = 0.2 if kind == "QLinearAdd" else 2.0
        return Case(kind, part(d.q(t, *shape)) + part(d.q(t, *other)) + scale(high / 2, high), off=0.05)
    if kind == "QLinearLeakyRelu":
        return Case(kind, part(d.q(t, *shape)) + scale(0.02, 0.1), {"alpha": d.maybe(0.2)}, constant=[1, 2, 3, 4], off=0.05)
    if kind == "QLinearSigmoid":
        return Case(
            kind,
            part(d.q(t, *shape)) + [np.array(1 / 256, F), np.array(0 if t == U8 else -128, t)],
            constant=[1, 2, 3, 4],
            off=0.05,
        )
    if kind == "QLinearSoftmax":
        opset = d.one(11, 13)
        return Case(
            kind,
            part(d.q(t, *shape)) + [np.array(1 / 256, F), np.array(0 if t == U8 else -128, t)],
            {"axis": d.n(-len(shape), len(shape) - 1), "opset": opset},
            constant=[1, 2, 3, 4],
            off=0.3,
            opset=17,
        )
    if kind == "QLinearReduceMean":
        axes = sorted(set(d.n(0, len(shape) - 1) for _ in range(2)))
        return Case(
            kind, part(d.q(t, *shape)) + scale(0.02, 0.1), {"axes": axes, "keepdims": d.n(0, 1)}, constant=[1, 2, 3, 4], off=0.1
        )
    if kind == "QLinearConcat":
        axis = d.n(0, len(shape) - 1)
        inputs = scale(0.05, 0.1)
        for _ in range(d.n(1, 3)):
            own = list(shape)
            own[axis] = d.n(1, 3)
            inputs += part(d.q(t, *own))
        return Case(kind, inputs, {"axis": axis}, constant=[i for i in range(len(inputs)) if i < 2 or i % 3 != 2], off=0.05)
    if kind == "QLinearWhere":
        return Case(
            kind,
            [d.ids(2, *shape, dtype=bool)] + part(d.q(t, *shape)) + part(d.q(t, *shape)) + scale(0.05, 0.1),
            constant=[2, 3, 5, 6, 7, 8],
            off=0.05,
        )
    last = d.n(0, 1)
    b, c, h, w = d.n(1, 2), d.n(1, 3), d.n(3, 6), d.n(3, 6)
    image = [b, h, w, c] if last else [b, c, h, w]
    if kind == "QLinearAveragePool":
        k = d.n(1, 3)
        return Case(
            kind,
            part(d.q(t, *image)) + scale(0.05, 0.1),
            {
                "kernel_shape": [k, k],
                "strides": [d.n(1, 2)] * 2,
                "pads": [k // 2] * 4,
                "count_include_pad": d.n(0, 1),
                "channels_last": last,
                "ceil_mode": 0,
            },
            constant=[1, 2, 3, 4],
            off=0.1,
        )
    if kind == "QLinearGlobalAveragePool":
        return Case(kind, part(d.q(t, *image)) + scale(0.05, 0.1), {"channels_last": last}, constant=[1, 2, 3, 4], off=0.2)
    o, k = d.n(1, 3), d.n(1, 3)
    columns = d.n(0, 1) == 1
    return Case(
        kind,
        part(d.q(t, *image))
        + [d.q(I8, o, c, k, k), d.positive(o) if columns else d.positive(), np.zeros(o, I8) if columns else np.array(0, I8)]
        + scale(0.5, 1.0)
        + [d.r.integers(-900, 900, o).astype(I32)],
        {"kernel_shape": [k, k], "pads": [1, 1, 1, 1], "strides": [d.n(1, 2)] * 2, "channels_last": last},
        constant=[1, 2, 3, 4, 5, 6, 7, 8],
        off=0.05,
    )


def dynamic_quantize_lstm(d):
    direction = d.one("forward", "reverse", "bidirectional")
    n = 2 if direction == "bidirectional" else 1
    s, b, x, h = d.n(1, 4), 1, d.n(1, 5), d.n(1, 5)
    t = d.one(U8, I8)
    columns = d.n(0, 1) == 1
    scale = (n, 4 * h) if columns else (n,)
    zero = lambda: np.zeros(scale, t) if t == I8 else np.full(scale, d.n(100, 140), t)  # noqa: E731
    return Case(
        "DynamicQuantizeLSTM",
        [
            d.f(s, b, x),
            d.q(t, n, x, 4 * h),
            d.q(t, n, h, 4 * h),
            d.maybe(d.f(n, 8 * h)),
            None,
            d.maybe(d.f(n, b, h)),
            d.maybe(d.f(n, b, h)),
            d.maybe(d.f(n, 3 * h)),
            d.positive(*scale, high=0.02),
            zero(),
            d.positive(*scale, high=0.02),
            zero(),
        ],
        {"hidden_size": h, "direction": direction, "clip": d.maybe(2.0), "input_forget": None},
        3,
        names={0: ["s", None, None]},
        constant=[1, 2, 3, 7, 8, 9, 10, 11],
        rtol=2e-3,
        atol=2e-3,
    )


FAMILIES = {
    "gelu": gelu,
    "skip_norm": skip_norm,
    "simplified_norm": simplified_norm,
    "embed_norm": embed_norm,
    "fused_product": fused_product,
    "attention": attention,
    "qattention": qattention,
    "multi_head_attention": multi_head_attention,
    "group_query_attention": group_query_attention,
    "rotary_embedding": rotary_embedding,
    "matmul_n_bits": matmul_n_bits,
    "integer_product": integer_product,
    "qlinear": qlinear,
    "dynamic_quantize_lstm": dynamic_quantize_lstm,
}


def expected(case, model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, case.feeds())))


def difference(case, name, got, want):
    """What differs, or nothing."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{name} is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    valid = case.valid[int(name[1:])] if case.valid else None
    if valid is not None:
        got, want = got[valid], want[valid]
    if want.size == 0:
        return None
    off = np.abs(got.astype(np.float64) - want.astype(np.float64))
    if want.dtype.kind in "iu":
        if off.max() > 1 or np.mean(off > 0) > max(case.off, 1.5 / want.size if case.off else 0):
            return f"{name}: {int(np.sum(off > 0))} of {off.size} differ, by up to {off.max():.0f}"
        return None
    if not np.allclose(got, want, rtol=case.rtol, atol=case.atol * max(1.0, float(np.abs(want).max()))):
        return (
            f"{name}: {int(np.sum(off > case.atol))} of {off.size} differ, by up to {off.max():.3g} of {np.abs(want).max():.3g}"
        )
    return None


def hides_all(case):
    """Does the mask hide every key of a sample?"""
    mask = case.inputs[{"Attention": 3, "QAttention": 5, "MultiHeadAttention": 4}[case.op]]
    return mask is not None and mask.ndim > 1 and bool((mask[0] == 0).all()) and not case.attributes["unidirectional"]


# Of these two cases are kept; the first of a masked attention hides every key of a sample.
MANY_FORMS = (
    "Attention",
    "QAttention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "MatMulNBits",
    "DynamicQuantizeLSTM",
    "RotaryEmbedding",
)


def write_fixtures(folder, seed):
    done = {}
    for family, make in FAMILIES.items():
        for k in range(200):
            case = make(Draw([seed, k]))
            count = done.get(case.op, 0)
            if count == (2 if case.op in MANY_FORMS else 1) or case.valid and not all(v.all() for v in case.valid):
                continue
            if count == 0 and case.op in ("Attention", "QAttention", "MultiHeadAttention") and not hides_all(case):
                continue
            model = case.model()
            try:
                want = expected(case, model)
            except Exception:  # noqa: BLE001: a combination that it refuses
                continue
            done[case.op] = count + 1
            for o in model.graph.output:
                o.CopyFrom(
                    helper.make_tensor_value_info(
                        o.name, helper.np_dtype_to_tensor_dtype(want[o.name].dtype), want[o.name].shape
                    )
                )
            name = os.path.join(folder, f"test_{re.sub('(?<!^)(?<![A-Z])(?=[A-Z])', '_', case.op).lower()}_{count}")
            shutil.rmtree(name, ignore_errors=True)
            data = os.path.join(name, "test_data_set_0")
            os.makedirs(data)
            onnx.save(model, os.path.join(name, "model.onnx"))
            with open(os.path.join(name, "data.json"), "w", encoding="ascii") as f:
                json.dump({"rtol": case.rtol, "atol": case.atol if not case.off else 1}, f)
            for stem, values in (("input", case.feeds()), ("output", want)):
                for i, (n, v) in enumerate(values.items()):
                    with open(os.path.join(data, f"{stem}_{i}.pb"), "wb") as f:
                        f.write(numpy_helper.from_array(np.asarray(v), n).SerializeToString(deterministic=True))
    print(f"{sum(done.values())} cases of {len(done)} operators")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", nargs="?")
    parser.add_argument("--config", default="eager")
    parser.add_argument("--cases", type=int, default=40, help="per family")
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--fixtures")
    args = parser.parse_args()
    if args.fixtures:
        return write_fixtures(args.fixtures, args.seed)
    command = Command(args.tool, args.config)
    counts, failed = {}, 0
    for family, make in FAMILIES.items():
        if not re.search(args.only, family):
            continue
        for k in range(args.cases * (4 if family == "qlinear" else 1)):
            case = make(Draw([args.seed, k]))
            case.symbolic = k % 2 == 1
            passed, refused, total = counts.get(case.op, (0, 0, 0))
            model = case.model()
            try:
                want = expected(case, model)
            except Exception as e:  # noqa: BLE001: a combination that it refuses
                counts[case.op] = (passed, refused + 1, total + 1)
                if os.environ.get("VERBOSE"):
                    print(f"{family} {k}: ONNX Runtime: {str(e)[:200]}")
                continue
            wrong = None
            try:
                got = command.run(model, case.feeds())
                for name, value in want.items():
                    wrong = wrong or (f"no output {name}" if name not in got else difference(case, name, got[name], value))
            except Refused as e:
                wrong = str(e)
            counts[case.op] = (passed + (wrong is None), refused, total + 1)
            if wrong:
                failed += 1
                shapes = ", ".join(f"{x.dtype}{list(x.shape)}" if x is not None else "-" for x in case.inputs)
                print(
                    f"FAIL {family} {k}: {case.op}({shapes}) {case.attributes}{', symbolic' if case.symbolic else ''}: {wrong}"
                )
    for op, (passed, refused, total) in sorted(counts.items()):
        print(
            f"{op}: {passed} of {total - refused}" + (f" ({refused} combinations that ONNX Runtime refuses)" if refused else "")
        )
    print(
        f"com.microsoft against ONNX Runtime {onnxruntime.__version__} on {args.config}: {sum(c[0] for c in counts.values())} of {sum(c[2] - c[1] for c in counts.values())} random cases of {len(counts)} operators agree"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
