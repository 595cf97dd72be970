# SPDX-License-Identifier: Apache-2.0
"""backward() of results of compiled Python functions."""

import gc
import unittest

from support import Case, compiles, tessera

tn = tessera.numpy


@tessera.jit
def square_sum(x, w):
    return (x * w * w).sum()


@tessera.pytree
class Model:
    def __init__(self):
        self.w = tn.asarray([[0.5, -0.2], [0.1, 0.3]])
        self.b = tn.zeros(2)
        self.w.requires_grad_()
        self.b.requires_grad_()

    def __call__(self, x):
        return tn.tanh(x @ self.w + self.b)


class Backward(Case):
    def setUp(self):
        super().setUp()
        square_sum.reset()

    def test_gradients_are_added_up(self):
        x, w = tn.asarray([1.0, 2.0]), tn.asarray([3.0, 4.0]).requires_grad_()
        y = square_sum(x, w)
        self.assertEqual((y.item(), y.requires_grad, w.grad), (41.0, True, None))
        y.backward()
        self.assertEqual(w.grad.tolist(), [6.0, 16.0])
        square_sum(x, w).backward()
        self.assertEqual(w.grad.tolist(), [12.0, 32.0])
        w.zero_grad()
        self.assertIsNone(w.grad)
        self.assertIsNone(x.grad)
        w.requires_grad_(False)
        self.assertFalse(square_sum(x, w).requires_grad)

    def test_seeds_and_several_results(self):
        @tessera.jit
        def f(p):
            return {"a": p["x"] * 2.0, "n": p["n"] + 1, "b": p["x"] * p["x"]}

        p = {"x": tn.asarray([1.0, 3.0]).requires_grad_(), "n": tessera.scalar(1, "i64")}
        made = f(p)
        self.assertFalse(made["n"].requires_grad)
        self.fails("TSR-F050", made["b"].backward, text="2 elements without a seed")
        self.fails("TSR-F050", made["b"].backward, tn.ones(3))
        made["b"].backward(tn.asarray([1.0, 10.0]))
        self.assertEqual(p["x"].grad.tolist(), [2.0, 60.0])
        self.fails("TSR-A020", made["a"].backward, tn.ones(2))  # the call has been gone back over

    def test_through_calls_and_both_ways(self):
        @tessera.jit
        def double(x):
            return x * 2.0

        @tessera.jit
        def product(a, b):
            return (a * b).sum()

        x = tn.asarray([3.0, 5.0]).requires_grad_()
        y = double(x)
        product(double(y), y).backward()  # 8 x^2
        self.assertEqual(x.grad.tolist(), [48.0, 80.0])
        self.assertEqual((compiles(double), compiles(product)), (0, 0))  # what records is compiled apart

    def test_a_long_chain_goes_without_recursion(self):
        @tessera.jit
        def step(x):
            return x + 1.0

        x = tn.ones(1).requires_grad_()
        y = step(x)
        for _ in range(20000):
            y = step(y)
        del y
        gc.collect()

    def test_sizes_that_vary_compile_twice(self):
        w = tn.asarray([2.0]).requires_grad_()
        for n in (2, 3, 4, 7):
            w.zero_grad()
            square_sum(tn.ones(n), w).backward()
            self.assertEqual(w.grad.tolist(), [4.0 * n])
        self.assertEqual(compiles(square_sum._recording), 2)

    def test_training_with_an_update_of_its_own(self):
        @tessera.jit
        def loss(model, x, y):
            return ((model(x) - y) ** 2).mean()

        @tessera.jit
        def update(model, gradients, lr):
            model.w, model.b = model.w - lr * gradients[0], model.b - lr * gradients[1]

        def value_and_gradients(model, x, y):
            made = tessera.value_and_grad(lambda w, b: ((tn.tanh(x @ w + b) - y) ** 2).mean(), argnums=(0, 1))
            return made(model.w.detach(), model.b.detach())

        model = Model()
        x, y = tn.asarray([[1.0, 2.0], [-1.0, 0.5]]), tn.asarray([[0.2, 0.4], [0.1, -0.3]])
        values = []
        for _ in range(30):
            value = loss(model, x, y)
            expected, (w, b) = value_and_gradients(model, x, y)
            value.backward()
            self.assertEqual(value.item(), expected.item())
            self.assertEqual((model.w.grad.tolist(), model.b.grad.tolist()), (w.tolist(), b.tolist()))
            with tessera.no_grad():
                update(model, [model.w.grad, model.b.grad], 0.5)
            self.assertTrue(model.w.requires_grad)
            self.assertIsNone(model.w.grad)
            values.append(value.item())
        self.assertLess(values[-1], 0.5 * values[0])

    def test_custom_gradients_and_checkpoints(self):
        @tessera.custom_gradient(lambda saved, dy: dy * 7.0)
        def seven(x):
            return x * 1.0, ()

        block = tessera.checkpoint(lambda x: tn.sin(seven(x)))
        x = tn.zeros(2).requires_grad_()
        tessera.jit(lambda x: block(x).sum())(x).backward()
        self.assertEqual(x.grad.tolist(), [7.0, 7.0])

    def test_no_grad_records_nothing(self):
        w = tn.ones(2).requires_grad_()
        with tessera.no_grad():
            y = square_sum(tn.ones(2), w)
        self.assertFalse(y.requires_grad)
        self.fails("TSR-F063", y.backward)

    def test_errors(self):
        w = tn.ones(2).requires_grad_()
        y = square_sum(tn.ones(2), w)
        self.fails("TSR-F064", lambda: y + 1.0)
        self.assertEqual((y.detach() + 1.0).item(), 3.0)
        self.fails("TSR-F063", w.backward)
        self.fails("TSR-F063", y.detach().backward)
        self.fails("TSR-F050", tn.ones(2, "i64").requires_grad_)
        self.fails("TSR-F052", tessera.jit(lambda w: None), w)
        self.fails("TSR-F063", tessera.jit(lambda w: w.backward()), w)
        with tessera.set_stance("force_eager"):
            self.fails("TSR-F052", square_sum, tn.ones(2), w)

        @tessera.jit
        def breaks(w):
            return (w * 2.0).sum() if w.sum() > 0.0 else w.sum()

        with self.assertRaises(tessera.UserError) as caught:
            breaks(w)
        self.assertTrue(caught.exception.code.startswith("TSR-G"), caught.exception.code)


if __name__ == "__main__":
    unittest.main()
