# SPDX-License-Identifier: Apache-2.0
"""Contractions, convolution, pooling, and the composites of neural networks."""

import numpy as np
import torch
import torch.nn.functional as F

from golden import COMPLEX, Family, Rng

WIDE = ["f64", "f32", "f16", "bf16"]
NAN = float("nan")
INF = float("inf")


def contractions(f):
    for d in WIDE + ["i32", "i64", "u8", "i4"] + list(COMPLEX):
        r = Rng("dot" + d)
        v = lambda *shape: (d, r.values(d, shape, -3, 3))
        f.add("dot_general", [v(2, 3, 4), v(2, 4, 5)], torch.bmm, attrs="lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [1]")
        f.add("dot_general", [v(3, 4, 2), v(5, 2, 4)], lambda a, b: torch.einsum("ikl,jlk->ij", a, b),
              attrs="lhs_contract = [1, 2], rhs_contract = [2, 1]")
        f.add("dot_general", [v(4), v(3)], lambda a, b: a[:, None] * b, attrs="lhs_contract = [], rhs_contract = []")
        f.add("matmul", [v(3, 4), v(4, 5)], torch.matmul)
        f.add("matmul", [v(2, 1, 3, 4), v(5, 4, 2)], torch.matmul)
        f.add("matmul", [v(4), v(2, 4, 3)], torch.matmul)
        f.add("matmul", [v(2, 3, 4), v(4)], torch.matmul)
        f.add("matmul", [v(4), v(4)], torch.matmul)
        f.add("linear", [v(2, 3, 4), v(5, 4), v(5)], lambda x, w, b: x @ w.T + b)
        f.add("linear", [v(4), v(5, 4), None], lambda x, w, b: x @ w.T)
        f.add("linear", [v(2, 0), v(3, 0), v(3)], lambda x, w, b: x @ w.T + b)
    for a, out in (("i8", "i32"), ("u8", "i32"), ("bf16", "f32"), ("f16", "f32"), ("f8e4m3fn", "f32"), ("f8e5m2", "bf16"), ("i4", "i32")):
        r = Rng(a + out)
        f.add("dot_general", [(a, r.values(a, (3, 40), -7, 7)), (a, r.values(a, (40, 2), -7, 7))], torch.matmul,
              attrs=f"lhs_contract = [1], rhs_contract = [0], out_dtype = {out}", out=[out], tag=f"{a}_{out}")
    f.add("matmul", [("f32", np.zeros((2, 0))), ("f32", np.zeros((0, 3)))], torch.matmul, tag="empty")


def convolutions(f):
    fns = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d), 3: (F.conv3d, F.conv_transpose3d)}
    # spatial, kernel, stride, pad low, pad high, dilation, groups, output pad
    shapes = [((7,), (3,), [1], [0], [0], [1], 1, [0]), ((9,), (3,), [2], [1], [2], [2], 2, [1]),
              ((5, 6), (3, 3), [1, 1], [1, 1], [1, 1], [1, 1], 1, [0, 0]), ((6, 5), (2, 3), [2, 1], [0, 2], [1, 0], [1, 2], 4, [1, 0]),
              ((3, 4, 3), (2, 2, 1), [1, 2, 1], [1, 0, 0], [0, 1, 0], [1, 1, 1], 2, [0, 0, 0])]
    for d in WIDE + ["i32", "c64"]:
        for k, (space, kernel, stride, low, high, dilation, groups, output_pad) in enumerate(shapes):
            r = Rng(f"conv{d}{k}")
            n = len(space)
            x, bias = (d, r.values(d, (2, 4, *space))), (d, r.values(d, (8,))) if k != 1 else None
            w, wt = (d, r.values(d, (8, 4 // groups, *kernel))), (d, r.values(d, (4, 8 // groups, *kernel)))
            padding = [p for pair in reversed(list(zip(low, high))) for p in pair]
            wide = lambda *t: [v if v is None or v.is_complex() else v.double() for v in t]

            def conv(v, weight, b):
                v, weight, b = wide(v, weight, b)
                return fns[n][0](F.pad(v, padding), weight, b, stride, 0, dilation, groups)

            def transposed(v, weight, b):
                # PyTorch has no asymmetric padding: crop what a transposed convolution without padding gives.
                v, weight, b = wide(v, weight, b)
                y = fns[n][1](v, weight, None, stride, 0, 0, groups, dilation)
                y = F.pad(y, [p for o in reversed(output_pad) for p in (0, o)])
                for a in range(n):
                    y = y.narrow(2 + a, low[a], y.shape[2 + a] - low[a] - high[a])
                return y if b is None else y + b.reshape(1, -1, *[1] * n)
            common = f"strides = {stride}, pad_low = {low}, pad_high = {high}, dilations = {dilation}, groups = {groups}"
            f.add("conv", [x, w, bias], conv, attrs=common)
            f.add("conv_transpose", [x, wt, bias], transposed, attrs=f"{common}, output_pad = {output_pad}")


def pools(f):
    maximum = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
    average = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
    adaptive_max = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
    adaptive_avg = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
    shapes = [((8,), [3], [2], [1], [1], False), ((7,), [2], [2], [0], [2], True), ((6, 5), [2, 3], [2, 1], [0, 1], [1, 1], False),
              ((6, 7), [3, 2], [2, 2], [1, 1], [1, 1], True), ((4, 3, 5), [2, 2, 2], [2, 1, 2], [0, 1, 0], [1, 1, 1], False)]
    for d in WIDE:
        for k, (space, kernel, stride, pad, dilation, ceil) in enumerate(shapes):
            r = Rng(f"pool{d}{k}")
            n, x = len(space), (d, r.values(d, (2, 3, *space)))
            attrs = (f"kernel = {kernel}, strides = {stride}, pad_low = {pad}, pad_high = {pad}, ceil_mode = {str(ceil).lower()}, dilations = ")
            f.add("max_pool", [x], lambda v: maximum[n](v, kernel, stride, pad, dilation, ceil, True), attrs=attrs + str(dilation), out=[d, "i64"])
            for include in (True, False):
                f.add("avg_pool", [x], lambda v: average[n](v, kernel, stride, pad, ceil, include),
                      attrs=f"{attrs}{[1] * n}, count_include_pad = {str(include).lower()}")
        r = Rng("adaptive" + d)
        f.add("avg_pool", [(d, r.values(d, (1, 2, 5, 5)))], lambda v: F.avg_pool2d(v, 2, 2, divisor_override=3),
              attrs="kernel = [2, 2], strides = [2, 2], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1], divisor = 3")
        for space, out in (((7,), (3,)), ((5, 8), (3, 3)), ((4, 5, 6), (2, 5, 4))):
            n, x = len(space), (d, r.values(d, (2, 2, *space)))
            f.add("adaptive_avg_pool", [x], lambda v: adaptive_avg[n](v, out), attrs=f"output = {list(out)}")
            f.add("adaptive_max_pool", [x], lambda v: adaptive_max[n](v, out, True), attrs=f"output = {list(out)}", out=[d, "i64"])


def activations(f):
    fns = {"relu": (F.relu, ""), "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), "slope = 0.2"), "elu": (lambda x: F.elu(x, 1.5), "alpha = 1.5"),
           "selu": (F.selu, ""), "celu": (lambda x: F.celu(x, 0.7), "alpha = 0.7"), "gelu": (F.gelu, ""), "silu": (F.silu, ""), "mish": (F.mish, ""),
           "softplus": (lambda x: F.softplus(x, 2.0, 10.0), "beta = 2.0, threshold = 10.0"), "hardsigmoid": (F.hardsigmoid, ""),
           "hardswish": (F.hardswish, "")}
    for d in WIDE:
        x = np.concatenate([Rng("activation" + d).values(d, (24,), -8, 8), [0.0, -0.0, NAN, INF, 30.0]])
        for op, (fn, attrs) in fns.items():
            f.add(op, [(d, x)], fn, attrs=attrs)
        f.add("gelu", [(d, x)], lambda v: F.gelu(v, approximate="tanh"), attrs='approximate = "tanh"', tag=d + "_tanh")
        f.add("hardsigmoid", [(d, x)], lambda v: (0.2 * v + 0.4).clamp(0, 1), attrs="alpha = 0.2, beta = 0.4", tag=d + "_onnx")
        s = np.concatenate([Rng("softmax" + d).values(d, (2, 3, 5), -9, 9), np.full((1, 3, 5), 3.0)])
        s[0, 0, 0] = -INF
        s[0, 1, 1] = NAN
        for axis in (-1, 1, 0):
            f.add("softmax", [(d, s)], lambda v: F.softmax(v, axis), attrs=f"axis = {axis}")
            f.add("log_softmax", [(d, s)], lambda v: F.log_softmax(v, axis), attrs=f"axis = {axis}")
    f.add("relu", [("i32", np.array([-3, 0, 4]))], F.relu)
    f.add("softmax", [("f32", np.zeros((2, 0)))], lambda v: v, tag="empty")
    f.add("softmax", [("f32", np.array([[INF, 1.0], [-INF, -INF]]))], lambda v: F.softmax(v, -1), tag="infinite")


def norms(f):
    for d in WIDE:
        r = Rng("norm" + d)
        v = lambda *shape: (d, r.values(d, shape))
        p = lambda *shape: (d, r.values(d, shape, 0.5, 2))
        f.add("layer_norm", [v(2, 3, 8), v(8), v(8)], lambda x, w, b: F.layer_norm(x, (8,), w, b))
        f.add("layer_norm", [v(2, 3, 8), v(3, 8), None], lambda x, w, b: F.layer_norm(x, (3, 8), w, b, 0.01), attrs="axis = 1, eps = 0.01")
        f.add("layer_norm", [v(2, 8), None, None], lambda x, w, b: F.layer_norm(x, (8,)))
        f.add("rms_norm", [v(2, 3, 8), v(8)], lambda x, w: F.rms_norm(x, (8,), w, 1e-6))
        f.add("rms_norm", [v(2, 3, 8), None], lambda x, w: F.rms_norm(x, (3, 8), None, 0.01), attrs="axis = -2, eps = 0.01")
        f.add("group_norm", [v(2, 6, 5), v(6), v(6)], lambda x, w, b: F.group_norm(x, 3, w, b), attrs="groups = 3")
        f.add("group_norm", [v(2, 4, 3, 2), None, None], lambda x, w, b: F.group_norm(x, 2), attrs="groups = 2")
        f.add("batch_norm", [v(3, 4, 5), v(4), v(4), v(4), p(4)], lambda x, w, b, m, s: F.batch_norm(x, m, s, w, b))
        f.add("batch_norm", [v(3, 4), None, None, v(4), p(4)], lambda x, w, b, m, s: F.batch_norm(x, m, s, eps=0.01), attrs="eps = 0.01")

        def training(x, w, b, m, s):
            m, s = m.clone(), s.clone()
            return F.batch_norm(x, m, s, w, b, training=True, momentum=0.3), m, s
        f.add("batch_norm_training", [v(3, 4, 5), v(4), v(4), v(4), p(4)], training, attrs="momentum = 0.3", out=[d] * 3)
        f.add("batch_norm_training", [v(3, 4), None, None, v(4), p(4)], training, attrs="momentum = 0.3", out=[d] * 3)


def networks(f):
    sdpa = F.scaled_dot_product_attention
    for d in WIDE:
        r = Rng("attention" + d)
        v = lambda *shape: (d, r.values(d, shape))
        f.add("attention", [v(2, 3, 4, 8), v(2, 3, 5, 8), v(2, 3, 5, 6), None], lambda q, k, w, m: sdpa(q, k, w))
        f.add("attention", [v(2, 5, 4), v(2, 5, 4), v(2, 5, 4), None], lambda q, k, w, m: sdpa(q, k, w, is_causal=True, scale=0.3),
              attrs="causal = true, scale = 0.3")
        mask = r.values("bool", (4, 5))
        mask[1] = False  # sees nothing: 0
        f.add("attention", [v(2, 4, 8), v(2, 5, 8), v(2, 5, 8), ("bool", mask)], lambda q, k, w, m: sdpa(q, k, w, attn_mask=m))
        f.add("attention", [v(2, 4, 8), v(2, 5, 8), v(2, 5, 8), v(2, 1, 5)], lambda q, k, w, m: sdpa(q, k, w, attn_mask=m))
        f.add("attention", [v(1, 4, 3, 8), v(1, 2, 3, 8), v(1, 2, 3, 8), None], lambda q, k, w, m: sdpa(q, k, w, enable_gqa=True))
        f.add("attention", [v(3, 4), v(3, 4), v(3, 4), None], lambda q, k, w, m: sdpa(q, k, w))
        r = Rng("loss" + d)
        weight = (d, r.values(d, (5,), 0.5, 2))
        target = ("i64", np.array([0, 4, -100, 2]))
        for reduction in ("mean", "sum", "none"):
            for w in (None, weight):
                for smoothing in (0.0, 0.2):
                    f.add("cross_entropy", [(d, r.values(d, (4, 5))), target, w],
                          lambda x, t, c: F.cross_entropy(x, t, c, reduction=reduction, label_smoothing=smoothing),
                          attrs=f'reduction = "{reduction}", label_smoothing = {smoothing}')
            f.add("mse_loss", [v(3, 4), v(3, 4)], lambda a, b: F.mse_loss(a, b, reduction=reduction), attrs=f'reduction = "{reduction}"')
        f.add("cross_entropy", [(d, r.values(d, (2, 3, 4))), ("i32", r.g.integers(0, 3, (2, 4))), None],
              lambda x, t, c: F.cross_entropy(x, t, ignore_index=1), attrs="ignore_index = 1", tag=d + "_spatial")
        f.add("cross_entropy", [(d, r.values(d, (2, 3))), ("i64", np.array([-100, -100])), None], lambda x, t, c: F.cross_entropy(x, t), tag=d + "_ignored")
        r = Rng("interpolate" + d)
        sizes = [((2, 2, 5), [8]), ((2, 2, 8), [3]), ((1, 2, 4, 5), [7, 3]), ((1, 2, 3, 4), [3, 8]), ((1, 1, 3, 4, 2), [5, 2, 4]), ((1, 2, 4, 5), [1, 1])]
        names = {1: "linear", 2: "bilinear", 3: "trilinear"}
        for shape, out in sizes:
            n, x = len(out), (d, r.values(d, shape))
            f.add("interpolate", [x], lambda v: F.interpolate(v, out, mode="nearest"), attrs=f"output = {out}")
            for align in (False, True):
                tail = f', align_corners = {str(align).lower()}'
                f.add("interpolate", [x], lambda v: F.interpolate(v, out, mode=names[n], align_corners=align), attrs=f'output = {out}, mode = "linear"{tail}')
                if n == 2:
                    f.add("interpolate", [x], lambda v: F.interpolate(v, out, mode="bicubic", align_corners=align), attrs=f'output = {out}, mode = "cubic"{tail}')


def families():
    linear, layers = Family("contraction"), Family("nn")
    contractions(linear)
    convolutions(linear)
    pools(layers)
    activations(layers)
    norms(layers)
    networks(layers)
    return [linear, layers]
