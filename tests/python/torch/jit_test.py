# SPDX-License-Identifier: Apache-2.0
"""Compiled Python functions beside numpy and PyTorch: their arrays as arguments and results, functions against numpy's,
optimisers against torch.optim's."""

import unittest

import numpy as np
import torch

import tessera

tn = tessera.numpy
rng = np.random.default_rng(0)


def random(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


class Arrays(unittest.TestCase):
    def setUp(self):
        tessera.reset()

    def test_arrays_of_other_libraries(self):
        @tessera.jit
        def f(a, b, c):
            return a @ b["w"] + c

        a, w, c = random(3, 4), random(4, 5), np.float32(2.0)
        expected = a @ w + c
        for x, y in ((a, w), (torch.from_numpy(a), torch.from_numpy(w)), (tn.asarray(a), torch.from_numpy(w))):
            out = f(x, {"w": y}, c)
            np.testing.assert_allclose(np.from_dlpack(out), expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(torch.from_dlpack(out), torch.from_numpy(expected), rtol=1e-5, atol=1e-6)
        self.assertEqual(len(f.describe()["entries"]), 1)

    def test_memory_is_shared(self):
        a = random(4)
        t = tn.asarray(a)
        a[0] = 7.0
        self.assertEqual(t.tolist()[0], 7.0)
        back = np.from_dlpack(t)
        self.assertEqual(back.__array_interface__["data"][0], a.__array_interface__["data"][0])
        del a, t
        self.assertEqual(back[0], 7.0)

    def test_strided_and_read_only_arrays(self):
        f = tessera.jit(lambda x: x * 2.0)
        a = random(6, 8)
        np.testing.assert_array_equal(np.from_dlpack(f(a[::2, 1::3])), a[::2, 1::3] * 2)
        np.testing.assert_array_equal(np.from_dlpack(f(a.T)), a.T * 2)
        a.flags.writeable = False
        np.testing.assert_array_equal(np.from_dlpack(f(a)), a * 2)

    def test_operators_beside_numpy(self):
        a = random(3)
        t = tn.asarray(a)
        for made in (a + t, t + a, np.float32(1.5) * t + a - a * np.float32(0.5) + t * 0.5 - 0.5 * t * 1.0):
            self.assertIsInstance(made, tessera.Tensor)

    def test_numpy_reads_what_is_traced(self):
        @tessera.jit
        def f(x):
            y = x * 2.0
            return x * float(np.from_dlpack(y).sum())

        for v in (1.0, 2.0):
            np.testing.assert_allclose(np.from_dlpack(f(np.full(2, v, "float32"))), v * 4 * v)

    def test_functions_follow_numpy(self):
        x, y, positive = random(4, 6), random(4, 6), np.abs(random(4, 6)) + 0.1
        i = rng.integers(-4, 4, (5,))
        cases = {
            "unary": [
                (n, (x,))
                for n in "abs negative sign exp exp2 expm1 sin cos tanh arctan floor ceil trunc square isnan isfinite".split()
            ],
            "positive": [(n, (positive,)) for n in "log log2 log10 log1p sqrt cbrt reciprocal".split()],
            "binary": [
                (n, (x, y))
                for n in "add subtract multiply divide remainder fmod maximum minimum arctan2 hypot copysign less equal".split()
            ],
            "reductions": [
                (n, (x,), {"axis": a, "keepdims": k})
                for n in "sum prod mean max min var std".split()
                for a in (None, 0, -1, (0, 1))
                for k in (False, True)
            ],
            "positions": [(n, (x,), {"axis": a}) for n in ("argmax", "argmin") for a in (None, 0, 1)],
            "scans": [(n, (x,), {"axis": a}) for n in ("cumsum", "cumprod") for a in (None, 0, 1)],
            "shapes": [
                ("reshape", (x, (3, 8))),
                ("transpose", (x,)),
                ("swapaxes", (x, 0, 1)),
                ("moveaxis", (x, 0, 1)),
                ("expand_dims", (x, 1)),
                ("squeeze", (x[:, None],)),
                ("broadcast_to", (x[:1], (3, 6))),
                ("flip", (x, 0)),
                ("roll", (x, 2, 1)),
                ("roll", (x, 3)),
                ("tile", (x, (2, 1))),
                ("repeat", (x, 3, 1)),
                ("tril", (x,)),
                ("triu", (x, 1)),
                ("diagonal", (x,)),
                ("pad", (x, ((1, 2), (0, 1)))),
                ("pad", (x, 1), {"mode": "reflect"}),
                ("take", (x, i), {"axis": 0}),
                ("take", (x, i)),
                ("sort", (x,), {"axis": 0}),
                ("argsort", (x,), {"axis": 1}),
                ("outer", (x[0], y[0])),
                ("tensordot", (x, y.T), {"axes": 1}),
                ("matmul", (x, y.T)),
                ("clip", (x, -0.5, 0.5)),
                ("where", (x > 0, x, y)),
            ],
        }
        for group, calls in cases.items():
            for name, args, *rest in calls:
                kwargs = rest[0] if rest else {}
                with self.subTest(group=group, name=name, kwargs=kwargs):
                    expected = getattr(np, name)(*args, **kwargs)
                    function = getattr(tn, name)
                    arrays = [k for k, a in enumerate(args) if isinstance(a, np.ndarray)]

                    def run(*given):
                        full = list(args)
                        for k, a in zip(arrays, given):
                            full[k] = a
                        return function(*full, **kwargs)

                    given = [args[k] for k in arrays]
                    for out in (run(*[tn.asarray(a) for a in given]), tessera.jit(run)(*given)):
                        found = np.from_dlpack(out)
                        self.assertEqual(found.shape, np.shape(expected))
                        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)

    def test_indexing_follows_numpy(self):
        x = random(5, 6, 7)
        k = np.array([3, -1, 0])
        for item in (
            0,
            -1,
            (slice(1, 4), 2),
            (slice(None, None, 2), slice(-3, None)),
            (Ellipsis, 1),
            (0, Ellipsis, slice(2, 100)),
            (slice(4, 2), 0),
            (None, 1, slice(None), None),
            (slice(None, None, -1), Ellipsis),
            k,
            (slice(1, 3), k),
            (1, k),
            (Ellipsis, k, None),
            x > 0.5,
        ):
            with self.subTest(item=str(item)[:40]):
                np.testing.assert_array_equal(np.from_dlpack(tn.asarray(x)[item]), x[item])
                np.testing.assert_array_equal(np.from_dlpack(tessera.jit(lambda v: v[item])(x)), x[item])

    def test_from_nothing(self):
        for name, args in (
            ("zeros", ((2, 3),)),
            ("ones", (3,)),
            ("full", ((2,), 3.5)),
            ("eye", (3,)),
            ("arange", (5,)),
            ("arange", (2, 11, 3)),
            ("arange", (9, 2, -2)),
            ("arange", (0.0, 1.0, 0.25)),
            ("linspace", (0.0, 1.0, 5)),
        ):
            np.testing.assert_allclose(np.from_dlpack(getattr(tn, name)(*args)), getattr(np, name)(*args), rtol=1e-6)


class Optimisers(unittest.TestCase):
    """Twelve steps on the same gradients, with a changing rate: the weights of torch.optim's."""

    def compare(self, ours, theirs):
        tessera.reset()
        weights = [random(3, 4), random(4)]
        gradients = [[random(3, 4), random(4)] for _ in range(12)]
        parameters = [torch.nn.Parameter(torch.from_numpy(w.copy())) for w in weights]
        optimiser = theirs(parameters)
        params = {"w": tn.asarray(weights[0].copy()), "b": tn.asarray(weights[1].copy())}
        opt = ours(params)
        step = tessera.jit(lambda params, opt, g: opt.step(params, g))
        for g in gradients:
            for p, grad in zip(parameters, g):
                p.grad = torch.from_numpy(grad)
            optimiser.step()
            params = step(params, opt, {"w": g[0], "b": g[1]})
            optimiser.param_groups[0]["lr"] *= 0.9
            opt.param_groups[0]["lr"] *= 0.9
        self.assertEqual(len(step.describe()["entries"]), 1)
        for p, made in zip(parameters, params.values()):
            np.testing.assert_allclose(np.from_dlpack(made), p.detach().numpy(), rtol=1e-5, atol=1e-6)

    def test_sgd(self):
        for kwargs in (
            {},
            {"momentum": 0.9},
            {"momentum": 0.9, "nesterov": True},
            {"momentum": 0.8, "dampening": 0.5, "weight_decay": 0.1},
        ):
            self.compare(lambda p: tessera.optim.SGD(p, lr=0.1, **kwargs), lambda p: torch.optim.SGD(p, lr=0.1, **kwargs))

    def test_adam(self):
        for kwargs in ({}, {"weight_decay": 0.1}, {"betas": (0.8, 0.95), "eps": 1e-6}):
            self.compare(lambda p: tessera.optim.Adam(p, lr=0.01, **kwargs), lambda p: torch.optim.Adam(p, lr=0.01, **kwargs))
            self.compare(lambda p: tessera.optim.AdamW(p, lr=0.01, **kwargs), lambda p: torch.optim.AdamW(p, lr=0.01, **kwargs))


if __name__ == "__main__":
    unittest.main()
