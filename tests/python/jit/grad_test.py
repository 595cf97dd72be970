# SPDX-License-Identifier: Apache-2.0
"""Gradients of compiled Python functions, and loops that train with them."""

import unittest

from support import Case, compiles, tessera

tn = tessera.numpy


def numeric_gradient(f, x, i, h=1e-3):
    up, down = list(x), list(x)
    up[i] += h
    down[i] -= h
    return (f(up) - f(down)) / (2 * h)


class Gradients(Case):
    def test_grad_of_a_tree(self):
        def loss(params, x, y):
            hidden = tn.tanh(x @ params["w"] + params["b"])
            return ((hidden - y) ** 2).mean()

        params = {"w": tn.asarray([[0.5, -0.2], [0.1, 0.3]]), "b": tn.asarray([0.1, -0.1]), "step": tessera.scalar(3, "i64")}
        x, y = tn.asarray([[1.0, 2.0], [-1.0, 0.5]]), tn.asarray([[0.2, 0.4], [0.1, -0.3]])

        @tessera.jit
        def both(params, x, y):
            return tessera.value_and_grad(loss)(params, x, y)

        value, gradients = both(params, x, y)
        self.assertAlmostEqual(value.item(), loss(params, x, y).item(), places=6)
        self.assertIsNone(gradients["step"])
        flat = [v for row in params["w"].tolist() for v in row]

        def of(w):
            return loss({**params, "w": tn.asarray([w[:2], w[2:]], "f64")}, x.astype("f64"), y.astype("f64")).item()

        found = [v for row in gradients["w"].tolist() for v in row]
        for i in range(4):
            self.assertAlmostEqual(found[i], numeric_gradient(of, flat, i), places=4)

    def test_outside_of_compiled_functions(self):
        cube = tessera.grad(lambda x: (x * x * x).sum())
        self.assertEqual(cube(tn.asarray([1.0, 2.0])).tolist(), [3.0, 12.0])
        self.assertEqual(cube(tn.asarray([3.0, 2.0])).tolist(), [27.0, 12.0])
        self.assertEqual(compiles(cube.compiled), 1)

    def test_several_arguments_aux_and_second_derivatives(self):
        def f(a, b):
            return (a * a * b).sum(), {"sum": a + b}

        (da, db), aux = tessera.grad(f, argnums=(0, 1), has_aux=True)(tn.full(1, 3.0), tn.full(1, 2.0))
        self.assertEqual((da.item(), db.item(), aux["sum"].item()), (12.0, 9.0, 5.0))
        inner = tessera.grad(lambda x: (x**3).sum())
        second = tessera.grad(lambda x: inner(x).sum())
        self.assertAlmostEqual(second(tn.full(1, 2.0)).item(), 12.0, places=4)

    def test_stop_gradient_and_no_grad(self):
        g = tessera.grad(lambda x: (x * tessera.stop_gradient(x)).sum())
        self.assertEqual(g(tn.full(1, 3.0)).item(), 3.0)

        def f(x):
            with tessera.no_grad():
                fixed = x * 2.0
            return (x * fixed).sum()

        self.assertEqual(tessera.grad(f)(tn.full(1, 3.0)).item(), 6.0)

    def test_checkpoint(self):
        @tessera.checkpoint
        def block(x, w):
            return tn.tanh(x @ w)

        def plain(x, w):
            return tn.tanh(x @ w)

        def loss(f):
            return lambda w, x: f(f(x, w), w).sum()

        w, x = tn.asarray([[0.3, 0.1], [-0.2, 0.5]]), tn.asarray([[1.0, 2.0]])
        self.assertEqual(tessera.grad(loss(block))(w, x).tolist(), tessera.grad(loss(plain))(w, x).tolist())

    def test_errors(self):
        self.fails("TSR-F050", tessera.grad(lambda x: x * 2.0), tn.ones(2), text="rank 1")
        self.fails("TSR-F050", tessera.grad(lambda x: x.sum()), tn.ones(2, "i64"))
        self.fails("TSR-F050", tessera.grad(lambda x: x.sum(), argnums=2), tn.ones(2))


def _clip_backward(saved, dy):
    low, high = saved
    return tn.clip(dy, low, high), None, None


@tessera.custom_gradient(_clip_backward)
def clip_gradient(x, low=-1.0, high=1.0):
    return x * 1.0, (low, high)


class CustomGradients(Case):
    def test_the_gradient_is_what_backward_gives(self):
        @tessera.custom_gradient(lambda saved, dy: dy)
        def straight_through(x):
            return tn.round(x), ()

        x = tn.asarray([0.2, 1.7, -2.4])
        self.assertEqual(straight_through(x).tolist(), [0.0, 2.0, -2.0])  # at once, without a gradient
        value, gradient = tessera.value_and_grad(lambda x: (straight_through(x) * 3.0).sum())(x)
        self.assertEqual((value.item(), gradient.tolist()), (0.0, [3.0, 3.0, 3.0]))
        plain = tessera.grad(lambda x: (tn.round(x) * 3.0).sum())
        self.assertEqual(plain(x).tolist(), [0.0, 0.0, 0.0])

    def test_defaults_keywords_and_plain_values(self):
        loss = tessera.grad(lambda x: (clip_gradient(x, high=0.5) * tn.asarray([3.0, -3.0, 0.25])).sum())
        self.assertEqual(loss(tn.zeros(3)).tolist(), [0.5, -1.0, 0.25])

    def test_trees_saved_values_and_results(self):
        def backward(saved, cotangents):
            (p, x), (dy, dn) = saved, cotangents
            assert dn is None  # of a result that is no floating-point tensor
            return {"w": dy * x * 10.0, "b": None, "n": None}, dy * p["w"] * 10.0

        @tessera.custom_gradient(backward)
        def scaled(p, x):
            return (p["w"] * x + p["b"], p["n"] + 1), (p, x)

        def loss(p, x):
            y, n = scaled(p, x)
            return y.sum(), n

        p = {"w": tn.asarray([2.0, 3.0]), "b": tn.asarray([1.0, 1.0]), "n": tessera.scalar(4, "i64")}
        ((dp, dx), n) = tessera.grad(loss, argnums=(0, 1), has_aux=True)(p, tn.asarray([5.0, 7.0]))
        self.assertEqual((dp["w"].tolist(), dp["b"].tolist(), dp["n"]), ([50.0, 70.0], [0.0, 0.0], None))
        self.assertEqual((dx.tolist(), n.item()), ([20.0, 30.0], 5))

    def test_second_derivatives_are_those_of_backward(self):
        @tessera.custom_gradient(lambda x, dy: dy * x**4.0)  # not the function's own
        def cube(x):
            return x**3.0, x

        first = tessera.grad(lambda x: cube(x).sum())
        second = tessera.grad(lambda x: first(x).sum())
        self.assertEqual(first(tn.full(1, 2.0)).item(), 16.0)
        self.assertEqual(second(tn.full(1, 2.0)).item(), 32.0)

    def test_sizes_that_vary_and_other_paths(self):
        @tessera.custom_gradient(lambda x, dy: dy * 2.0)
        def f(x):
            return x + 1.0, x

        g = tessera.grad(lambda x: (f(x) * x).sum())  # both ways to x
        for n in (2, 3, 5, 7):
            x = tn.full(n, 4.0)
            self.assertEqual(g(x).tolist(), [4.0 * 2.0 + 5.0] * n)
        self.assertEqual(compiles(g.compiled), 2)

    def test_errors(self):
        def with_backward(backward, forward=lambda x: (x * 1.0, ())):
            f = tessera.custom_gradient(backward)(forward)
            return tessera.grad(lambda x: f(x).sum())

        x = tn.ones(2)
        self.fails("TSR-F059", with_backward(lambda saved, dy: dy[0:1]), x, text="expected the type of x")
        self.fails("TSR-F059", with_backward(lambda saved, dy: dy.astype("f64")), x, text="f64")
        three = with_backward(lambda saved, dy: [dy, dy], lambda x, y=2.0, z=1: (x, ()))
        self.fails("TSR-F059", three, x, text="no 3 gradients")
        self.fails("TSR-F059", with_backward(lambda saved, dy: dy, lambda x: x), x, text="no pair")
        self.fails("TSR-F003", with_backward(lambda saved, dy: dy * x_of[0], lambda x: (x_of.append(x * 1.0) or x, ())), x)
        f = tessera.custom_gradient(lambda saved, dy: (dy,))(lambda p: (p["a"], ()))
        self.fails("TSR-F059", tessera.grad(lambda p: f(p).sum()), {"a": x}, text="another structure")


x_of = []


class Training(Case):
    def train(self, make, steps=60):
        key = tessera.random.key(3)
        key, a, b = tessera.random.split(key, 3)
        x = tessera.random.normal(a, (64, 4))
        target = x @ tn.asarray([[1.0], [-2.0], [0.5], [3.0]]) + 0.7
        params = {"w": tessera.random.normal(b, (4, 1)) * 0.1, "b": tn.zeros(1)}
        opt = make(params)

        def loss(params, x, y):
            return ((x @ params["w"] + params["b"] - y) ** 2).mean()

        @tessera.jit
        def step(params, opt, x, y):
            value, gradients = tessera.value_and_grad(loss)(params, x, y)
            return value, opt.step(params, gradients)

        values = []
        for _ in range(steps):
            value, params = step(params, opt, x, target)
            values.append(value.item())
            opt.param_groups[0]["lr"] *= 0.99  # a changing rate compiles nothing
        self.assertEqual(compiles(step), 1)
        self.assertEqual(opt.steps.item(), float(steps))
        return values

    def test_optimisers(self):
        for make in (
            lambda p: tessera.optim.SGD(p, lr=0.1),
            lambda p: tessera.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
            lambda p: tessera.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.5, weight_decay=1e-4),
            lambda p: tessera.optim.Adam(p, lr=0.1),
            lambda p: tessera.optim.AdamW(p, lr=0.1),
            lambda p: tessera.optim.Lion(p, lr=0.05),
        ):
            values = self.train(make)
            self.assertLess(values[-1], values[0] * 0.1)


if __name__ == "__main__":
    unittest.main()
