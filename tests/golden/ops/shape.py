# SPDX-License-Identifier: Apache-2.0
"""Constants, data movement, indexing, sorting."""

import numpy as np
import torch

from golden import FLOATS, INTS, Family, Rng, special_values

SOME = ["f32", "bf16", "i4", "bool", "c128", "u64"]  # one dtype per element width


def moving(f):
    def add(op, shape, fn, attrs, tag="", more=lambda r, d: [], dtypes=SOME):
        for d in dtypes:
            r = Rng(op + d + tag)
            f.add(op, [(d, r.values(d, shape))] + more(r, d), fn, attrs=attrs, tag=d + tag)

    add("reshape", (2, 3, 4), lambda x: x.reshape(4, 6), "shape = [4, 6]")
    add("reshape", (2, 0, 4), lambda x: x.reshape(0, 3), "shape = [0, 3]", "_empty", dtypes=["f32"])
    add("reshape", (1, 1), lambda x: x.reshape(()), "shape = []", "_scalar", dtypes=["f32"])
    add("transpose", (2, 3, 4), lambda x: x.permute(2, 0, 1), "perm = [2, 0, 1]")
    add("transpose", (2, 3), lambda x: x.T, "perm = [-1, 0]", "_negative", dtypes=["f32"])
    add("expand_dims", (2, 3), lambda x: x[None, :, None], "axes = [0, 2]")
    add("expand_dims", (2, 3), lambda x: x[..., None], "axes = [-1]", "_last", dtypes=["f32"])
    add("squeeze", (1, 3, 1), lambda x: x.squeeze(0).squeeze(-1), "axes = [0, -1]")
    add("broadcast_to", (3, 1), lambda x: x.expand(2, 3, 4), "shape = [2, 3, 4]")
    add("slice", (4, 5), lambda x: x[1:4:2, 0:5:3], "starts = [1, 0], limits = [4, 5], strides = [2, 3]")
    add("slice", (4, 5), lambda x: x.flip(1)[2:2, ::2], "starts = [2, 4], limits = [2, -1], strides = [1, -2]", "_down_empty",
        dtypes=["f32", "i4"])
    add("slice", (4, 5), lambda x: x.flip(1)[0:4, ::2], "starts = [0, 4], limits = [4, -1], strides = [1, -2]", "_down",
        dtypes=["f32", "i4"])
    add("as_strided", (3, 4), lambda x: torch.as_strided(x, (3, 2), (1, 2), 3), "shape = [3, 2], strides = [1, 2], offset = 3")
    add("flip", (2, 3, 4), lambda x: x.flip(0, 2), "axes = [0, -1]")
    add("diagonal", (3, 4, 2), lambda x: x.diagonal(1, 0, 1), "offset = 1")
    add("diagonal", (2, 3, 4), lambda x: x.diagonal(-1, 1, 2), "offset = -1, axis1 = 1, axis2 = -1", "_below")
    add("tile", (2, 3), lambda x: x.tile(2, 1, 2), "repeats = [2, 1, 2]")
    add("roll", (3, 4), lambda x: x.roll((1, -6), (0, 1)), "shifts = [1, -6], axes = [0, 1]")
    add("roll", (3, 4), lambda x: x.roll(5), "shifts = [5], axes = []", "_flat", dtypes=["f32"])
    for k in (-1, 0, 1):
        add("tril", (2, 3, 4), lambda x: x.tril(k), f"diagonal = {k}", f"_{k + 1}")
        add("triu", (2, 4, 3), lambda x: x.triu(k), f"diagonal = {k}", f"_{k + 1}")
    second = lambda r, d: [(d, r.values(d, (2, 2)))]
    add("concat", (2, 3), lambda a, b: torch.cat([a, b], 1), "axis = 1", more=second)
    add("concat", (0, 2), lambda a, b: torch.cat([a, b], 0), "axis = -2", "_empty", more=second, dtypes=["f32"])
    add("stack", (2, 2), lambda a, b: torch.stack([a, b], 1), "axis = 1", more=second)
    add("stack", (2, 2), lambda a, b: torch.stack([a, b], -1), "axis = -1", "_last", more=second, dtypes=["f32"])
    for d in SOME:
        r = Rng("split" + d)
        f.add("split", [(d, r.values(d, (2, 7)))], lambda x: x.split([2, 0, 5], 1), attrs="sizes = [2, 0, 5], axis = 1", out=[d] * 3)

    for d in ["f32", "bf16", "i32", "i4"]:
        r = Rng("pad" + d)
        x, value = (d, r.values(d, (3, 4))), (d, np.array(1))
        pad = torch.nn.functional.pad
        f.add("pad", [x, value], lambda v, c: pad(v, (2, 1, 0, 3), value=c.item()), attrs="low = [0, 2], high = [3, 1]")
        f.add("pad", [x, None], lambda v, _: pad(v, (-1, 2, 1, -2)), attrs="low = [1, -1], high = [-2, 2]", tag=f"{d}_crop")

        def interior(v, c):
            out = torch.full((1 + 3 + 2 * 1 + 0, 4 + 3 * 2 + 1), c.item(), dtype=v.dtype)
            out[1:6:2, 0:10:3] = v
            return out
        f.add("pad", [x, value], interior, attrs="low = [1, 0], high = [0, 1], interior = [1, 2]", tag=f"{d}_interior")
        for mode, kind in (("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")):
            f.add("pad", [x, None], lambda v, _: pad(v.double()[None], (2, 3, 1, 2), mode=kind)[0].to(v.dtype),
                  attrs=f'low = [1, 2], high = [2, 3], mode = "{mode}"', tag=f"{d}_{mode}")


def creating(f):
    for d in SOME + ["f8e4m3fn"]:
        f.add("full", [(d, Rng(d).values(d, ()))], lambda v: v.expand(2, 3), attrs="shape = [2, 3]")
    for d in ["f32", "bf16", "i32", "u8", "i64", "f64", "c64"]:
        f.add("iota", [], lambda: torch.arange(4).expand(3, 4), attrs=f"shape = [3, 4], axis = 1, dtype = {d}", out=[d], tag=d)
    f.add("constant", [], lambda: torch.tensor([[1.5, -2.0], [0.0, 3.0]]), attrs="value = dense<f32[2, 2]: [1.5, -2.0, 0.0, 3.0]>",
          out=["f32"], tag="f32")
    f.add("constant", [], lambda: torch.full((3,), 7), attrs="value = dense<i4[3]: splat 7>", out=["i4"], tag="i4")
    f.add("dim_value", [], lambda: torch.tensor(12), attrs="value = 12", out=["i64"], tag="number")
    f.add("shape_of", [("f32", np.zeros((2, 0, 5)))], lambda x: torch.tensor(x.shape), out=["i64"])
    f.add("shape_of", [("i4", np.zeros(()))], lambda x: torch.zeros(0, dtype=torch.int64), out=["i64"])


def indexing(f):
    for index in ("i64", "i32"):
        for d in SOME if index == "i64" else ["f32"]:
            r = Rng("gather" + d)
            x, tag = (d, r.values(d, (3, 4, 2))), f"{d}_{index}"
            i = (index, np.array([[0, 3, 1], [2, 2, 0]]))
            f.add("gather", [x, i], lambda v, k: v[:, k], attrs="axis = 1", tag=tag)
            f.add("gather", [x, (index, np.array(1))], lambda v, k: v[..., k], attrs="axis = -1", tag=tag + "_scalar")
            f.add("gather", [x, (index, np.zeros((0,)))], lambda v, k: v[k], attrs="axis = 0", tag=tag + "_none")
            f.add("embedding", [(d, r.values(d, (5, 3))), (index, np.array([[4, 0], [1, 4]]))], lambda w, k: w[k], tag=tag)
            along = (index, r.g.integers(0, 4, (3, 5, 2)))
            f.add("take_along_axis", [x, along], lambda v, k: torch.gather(v, 1, k), attrs="axis = 1", tag=tag)
            f.add("take_along_axis", [x, (index, r.g.integers(0, 3, (2, 4, 1)))], lambda v, k: torch.gather(v, 0, k), attrs="axis = 0",
                  tag=tag + "_smaller")
            pairs = (index, np.array([[0, 3], [2, 1], [2, 1]]))
            f.add("gather_nd", [x, pairs], lambda v, k: v[k[:, 0], k[:, 1]], tag=tag)
            batched = (index, np.array([[[1], [0]], [[3], [3]], [[2], [0]]]))
            f.add("gather_nd", [x, batched], lambda v, k: torch.stack([v[b][k[b, :, 0]] for b in range(3)]), attrs="batch_dims = 1",
                  tag=tag + "_batched")
            unique = (index, np.array([[2, 0], [1, 3], [0, 2]]))
            f.add("scatter", [(d, r.values(d, (3, 4))), unique, (d, r.values(d, (3, 2)))],
                  lambda v, k, u: v.scatter(1, k, u), attrs="axis = 1", tag=tag)
            f.add("scatter_nd", [x, (index, np.array([[1], [0]])), (d, r.values(d, (2, 4, 2)))],
                  lambda v, k, u: v.index_copy(0, k[:, 0], u), tag=tag)
    kinds = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    for reduction, kind in kinds.items():
        for d in ["f32", "f64", "i32", "i64", "u8"]:
            r = Rng(reduction + d)
            f.add("scatter", [(d, r.values(d, (3, 4), 1, 4)), ("i64", r.g.integers(0, 3, (5, 4))), (d, r.values(d, (5, 4), 1, 4))],
                  lambda v, k, u: v.scatter_reduce(0, k, u, kind), attrs=f'axis = 0, reduction = "{reduction}"', tag=f"{d}_{reduction}")
            f.add("scatter_nd", [(d, r.values(d, (4,), 1, 4)), ("i64", np.array([[3], [0], [3], [1]])), (d, r.values(d, (4,), 1, 4))],
                  lambda v, k, u: v.scatter_reduce(0, k[:, 0], u, kind), attrs=f'reduction = "{reduction}"', tag=f"{d}_{reduction}")
    for d in ["f32", "bf16", "i64", "bool"]:
        r = Rng("one_hot" + d)
        hot = lambda i, axis: torch.nn.functional.one_hot(i, 4).movedim(-1, axis)
        f.add("one_hot", [("i64", r.g.integers(0, 4, (2, 3)))], lambda i: hot(i, -1), attrs=f"depth = 4, dtype = {d}", out=[d], tag=d)
        f.add("one_hot", [("i32", r.g.integers(0, 4, (2, 3)))], lambda i: hot(i, 1), attrs=f"depth = 4, axis = 1, dtype = {d}", out=[d],
              tag=d + "_axis1")
    f.add("one_hot", [("i64", np.array([-1, 4, 2]))], lambda i: (i[:, None] == torch.arange(4)), attrs="depth = 4", out=["f32"],
          tag="outside")
    for d in SOME:
        r = Rng("dynamic" + d)
        x = (d, r.values(d, (4, 5)))
        for start, tag in (((1, 2), ""), ((-3, 4), "_clamped")):
            at = [("i64", np.array(s)) for s in start]
            clamp = [max(0, min(s, n - k)) for s, n, k in zip(start, (4, 5), (2, 3))]
            part = (slice(clamp[0], clamp[0] + 2), slice(clamp[1], clamp[1] + 3))
            f.add("dynamic_slice", [x] + at, lambda v, *_: v[part], attrs="sizes = [2, 3]", tag=d + tag)

            def update(v, u, *_):
                v = v.clone()
                v[part] = u
                return v
            f.add("dynamic_update_slice", [x, (d, r.values(d, (2, 3)))] + at, update, tag=d + tag)
        f.add("dynamic_reshape", [x, ("i64", np.array([2, -1, 5]))], lambda v, s: v.reshape(2, 2, 5), attrs="rank = 3")
        f.add("dynamic_broadcast_to", [(d, r.values(d, (3, 1))), ("i64", np.array([2, 1, 4]))], lambda v, s: v.expand(2, 3, 4),
              attrs="rank = 3")


def selecting(f):
    nan = float("nan")
    for d in ["f32", "bf16", "i4", "i64", "bool", "c64"]:
        r = Rng("nonzero" + d)
        x = np.where(r.g.integers(0, 2, (3, 4)) == 1, r.values(d, (3, 4)), np.zeros((), dtype=r.values(d, ()).dtype))
        f.add("nonzero", [(d, x)], torch.nonzero, out=["i64"])
        f.add("masked_select", [(d, r.values(d, (3, 4))), ("bool", r.values("bool", (3, 1)))], torch.masked_select)
    f.add("nonzero", [("f32", np.array([0.0, -0.0, nan, 1e-30]))], torch.nonzero, out=["i64"], tag="special")
    f.add("nonzero", [("f32", np.zeros((0, 2)))], torch.nonzero, out=["i64"], tag="empty")
    f.add("nonzero", [("f32", np.array(3.0))], torch.nonzero, out=["i64"], tag="scalar")

    def unique_of(x, by_value=True):  # numpy, which also gives the first index
        x = x.numpy()
        values, first, inverse, counts = np.unique(x.reshape(-1), return_index=True, return_inverse=True, return_counts=True,
                                                   equal_nan=False)
        if not by_value:
            order = np.argsort(first)
            place = np.argsort(order)
            values, first, inverse, counts = values[order], first[order], place[inverse], counts[order]
        return values, first, inverse.reshape(x.shape), counts
    for d in ["f32", "i64", "u8", "i4", "bool"]:
        x = Rng("unique" + d).values(d, (3, 5), -2, 2)
        x = np.round(x) if d == "f32" else x
        f.add("unique", [(d, x)], unique_of, out=[d, "i64", "i64", "i64"])
        f.add("unique", [(d, x)], lambda v: unique_of(v, False), attrs="sorted = false", out=[d, "i64", "i64", "i64"], tag=d + "_met")
    f.add("unique", [("f32", np.zeros((0,)))], unique_of, out=["f32", "i64", "i64", "i64"], tag="empty")

    for d in ["f32", "f64", "f16", "bf16", "i8", "i64", "u8", "bool", "i4"]:
        r = Rng("sort" + d)
        x = r.values(d, (3, 7), -3, 3)
        if d in FLOATS:
            x = np.concatenate([x, [[nan] * 2, [float("inf"), 0.0], [-1.0, nan]]], axis=1)
        elif d == "i4":
            x = x % 4
        for axis, size in ((1, x.shape[1]), (0, 3)):
            for down in (False, True):
                f.add("sort", [(d, x)], lambda v: tuple(torch.sort(v, dim=axis, descending=down, stable=True)),
                      attrs=f"axis = {axis}, descending = {str(down).lower()}", out=[d, "i64"])

            def top(v, largest):
                values, indices = torch.sort(v, dim=axis, descending=largest, stable=True)
                return values.narrow(axis, 0, 2), indices.narrow(axis, 0, 2)
            for largest in (True, False):
                f.add("topk", [(d, x)], lambda v: top(v, largest), attrs=f"k = 2, axis = {axis}, largest = {str(largest).lower()}",
                      out=[d, "i64"])
    for d in ["f32", "f64", "bf16", "i32", "u8"]:
        r = Rng("searchsorted" + d)
        line, lines, values = np.sort(r.values(d, (6,), -3, 3)), np.sort(r.values(d, (2, 6), -3, 3), axis=1), r.values(d, (2, 5), -3, 3)
        values[0, :2] = line[2]
        values[1, :2] = lines[1, 3]
        for right in (False, True):
            for s in (line, lines):
                f.add("searchsorted", [(d, s), (d, values)], lambda a, v: torch.searchsorted(a, v, right=right),
                      attrs=f"right = {str(right).lower()}", out=["i64"])


def families():
    shape, index, order = Family("shape"), Family("index"), Family("order")
    moving(shape)
    creating(shape)
    indexing(index)
    selecting(order)
    return [shape, index, order]
