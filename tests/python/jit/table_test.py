# SPDX-License-Identifier: Apache-2.0
"""The recompilation examples, exactly: the same calls as examples/recompiles makes in C++, and the same texts."""

import unittest

from support import Log, compiles, tessera

tn = tessera.numpy
SPECIALIZE = {"guards.specialize_float": True}


def place(function):
    return f"{__file__}:{function.original.__code__.co_firstlineno}"


def block(head, *reasons):
    return [
        f"Recompiling function {head}",
        "    triggered by the following guard failure(s):",
        *(f"    - {r}" for r in reasons),
    ]


def size(expected, actual):
    return f"tensor 'x' size mismatch at index 0. expected {expected}, actual {actual}"


class Adam(unittest.TestCase):
    """The optimiser of rows 5 and 6: one step of Linear(3, 3), gradients as arguments."""

    def run_adam(self, options, lr=0.01):
        weights = [tn.ones((3, 3)), tn.zeros(3)]
        gradients = [tn.full((3, 3), 0.5), tn.full(3, 0.25)]
        opt = tessera.optim.Adam(weights, lr=lr)

        def step(self, params, gradients):
            return self.step(params, gradients)

        step = tessera.jit(step, options=options)
        with Log() as log:
            for _ in range(5):
                weights = step(opt, weights, gradients)
                group = opt.param_groups[0]
                group["lr"] = group["lr"] * 0.9
        return step, log, weights, opt

    def setUp(self):
        tessera.reset()

    def test_row_5(self):
        step, log, *_ = self.run_adam(SPECIALIZE)
        self.assertEqual(log.lines, block(f"step in {place(step)}", "0/0: self.param_groups[0]['lr'] == 0.01"))
        self.assertEqual(compiles(step), 2)

    def test_row_6_floats_as_they_are(self):
        step, log, weights, opt = self.run_adam({})
        self.assertEqual((log.lines, compiles(step)), ([], 1))
        self.assertEqual(opt.steps.item(), 5.0)
        # Adam moves every weight by about the learning rate: 1 - 0.01 (1 + 0.9 + .. + 0.9^4)
        self.assertAlmostEqual(weights[0][0, 0].item(), 1 - 0.01 * (1 - 0.9**5) / 0.1, places=5)

    def test_row_6_a_tensor(self):
        step, log, *_ = self.run_adam(SPECIALIZE, tessera.scalar(0.01, "f32"))
        self.assertEqual((log.lines, compiles(step)), ([], 1))


class Table(unittest.TestCase):
    def setUp(self):
        tessera.reset()

    def check(self, function, calls, blocks, entries):
        with Log() as log:
            for call in calls:
                function(*call)
        head = f"{function.name} in {place(function)}"
        self.assertEqual(log.lines, [line for reasons in blocks for line in block(head, *reasons)])
        self.assertEqual(compiles(function), entries)
        return log

    def test_row_1(self):
        @tessera.jit
        def fn(x):
            return x + 1

        self.check(fn, [(tn.ones(3),), (tn.ones(4),)], [[f"0/0: {size(3, 4)}"]], 2)

    def test_row_2(self):
        @tessera.jit(dynamic=True)
        def gn(x):
            return x + 1

        self.check(gn, [(tn.ones(3),), (tn.ones(4),)], [], 1)

    def test_row_3(self):
        @tessera.jit(options=SPECIALIZE)
        def fn(x, c):
            return x + c

        calls = [(tn.ones(i), 0.5 + i) for i in range(5)]
        self.check(fn, calls, [["0/0: c == 0.5"], [f"0/1: {size(1, 2)}", "0/0: c == 0.5"]], 3)
        self.assertEqual(fn(tn.ones(2), 7.5).tolist(), [8.5, 8.5])

    def test_row_4_floats_as_they_are(self):
        @tessera.jit
        def fn(x, c):
            return x + c

        calls = [(tn.ones(i), 0.5 + i) for i in range(5)]
        self.check(fn, calls, [[f"0/0: {size(0, 1)}"], [f"0/1: {size(1, 2)}", f"0/0: {size(0, 2)}"]], 3)

    def test_row_4_a_tensor(self):
        @tessera.jit(options=SPECIALIZE)
        def fn(x, c):
            return x + c

        calls = [(tn.ones(i), tessera.scalar(0.5 + i, "f32")) for i in range(5)]
        self.check(fn, calls, [[f"0/0: {size(0, 1)}"], [f"0/1: {size(1, 2)}", f"0/0: {size(0, 2)}"]], 3)

    def test_row_7(self):
        @tessera.jit(dynamic=False)
        def fn(x):
            return x + 1

        blocks = [[f"0/{j}: {size(j + 1, k)}" for j in range(k - 2, -1, -1)] for k in range(2, 10)]
        head = f"fn in {place(fn)}"
        with Log() as log:
            for i in range(1, 10):
                self.assertEqual(fn(tn.ones(i)).tolist(), [2.0] * i)
        self.assertEqual(log.lines, [line for reasons in blocks for line in block(head, *reasons)])
        self.assertEqual(compiles(fn), 8)
        limit = [
            "tessera: warning: tessera hit config.recompile_limit (8)",
            f"   function: 'fn' ({place(fn)})",
            f"   last reason: 0/7: {size(8, 9)}",
            'To log all recompilation reasons, use TESSERA_LOGS="recompiles".',
            "To diagnose recompilation issues, see docs/recompiles.md",
        ]
        rest = [line for line in log.text.splitlines() if not line.startswith("[recompiles]")]
        self.assertEqual(rest, limit)
        self.assertEqual(log.text.splitlines()[-5:], limit)  # behind the last block

    def test_row_8(self):
        @tessera.jit(dynamic=False, options={"guards.cache_size_limit": 16})
        def gn(x):
            return x + 1

        blocks = [[f"0/{j}: {size(j + 1, k)}" for j in range(k - 2, -1, -1)] for k in range(2, 10)]
        log = self.check(gn, [(tn.ones(i),) for i in range(1, 10)], blocks, 9)
        self.assertNotIn("hit config", log.text)

    def test_rows_9_and_10(self):
        @tessera.jit
        def big(x):
            return x + 1

        def fn(x, c):
            y = big(x)
            return y + c

        fn = tessera.jit(fn, dynamic=False)
        calls = [(tn.ones(3), c) for c in range(1, 5)]

        def blocks(frame):
            return [[f"{frame}/{j}: c == {j + 1}" for j in range(k - 2, -1, -1)] for k in range(2, 5)]

        self.check(fn, calls, blocks(0), 4)

        def gn(x, c):
            y = big(x)
            tessera.graph_break()
            return y + c

        line = gn.__code__.co_firstlineno + 2
        gn = tessera.jit(gn, dynamic=False)
        with Log() as log:
            for call in calls:
                self.assertEqual(gn(*call).tolist(), [2.0 + call[1]] * 3)
        head = f"tessera_resume_in_gn_at_{line} in {__file__}:{line}"
        self.assertEqual(log.lines, [text for reasons in blocks(2) for text in block(head, *reasons)])
        graphs = [(g.id, g.function) for g in tessera.explain(gn).graphs]
        self.assertEqual(graphs, [("1/0", "gn"), *((f"2/{i}", f"tessera_resume_in_gn_at_{line}") for i in range(4))])

    def two_calls(self, first, second, reason):
        @tessera.jit
        def fn(x):
            return x + 1

        self.check(fn, [(first,), (second,)], [[f"0/0: tensor 'x' {reason}"]], 2)

    def test_dtype(self):
        self.two_calls(tn.ones(4), tn.ones(4, "bf16"), "dtype mismatch. expected Float, actual BFloat16")

    def test_rank(self):
        self.two_calls(tn.ones((2, 4)), tn.ones((2, 4, 1)), "rank mismatch. expected 2, actual 3")

    def test_strides(self):
        wide = tn.ones((4, 8))
        self.two_calls(tn.ones((4, 4)), wide.strided((4, 4), (8, 1)), "stride mismatch at index 0. expected 4, actual 8")

    def test_requires_grad(self):
        with tessera.no_grad():  # nothing is recorded
            self.two_calls(tn.ones(4).requires_grad_(), tn.ones(4), "requires_grad mismatch. expected requires_grad=1")

    def test_devices(self):
        with tessera.use(tessera.Context("null")):
            self.two_calls(tn.empty(4), tn.empty(4, device="null:0"), "device mismatch. expected cpu, actual null:0")
            tessera.reset()
            self.two_calls(
                tn.empty(4, device="null:0"), tn.empty(4, device="null:1"), "device index mismatch. expected 0, actual 1"
            )


class EightShapes(unittest.TestCase):
    """A program that Inductor compiles for each of eight shapes where sizes do not vary is compiled at most twice."""

    def test_eight_shapes(self):
        tessera.reset()

        @tessera.jit
        def attention(q, k, v):
            scores = q @ tn.swapaxes(k, -1, -2) / float(q.shape[-1]) ** 0.5
            return tessera.ops.softmax(scores, axis=-1) @ v

        for batch, length in [(2, 8), (3, 16), (4, 24), (5, 32), (6, 40), (7, 56), (8, 72), (9, 96)]:
            q = tn.ones((batch, length, 16))
            self.assertEqual(attention(q, q, q * 2.0).shape, (batch, length, 16))
        self.assertLessEqual(compiles(attention), 2)

    def test_eight_lengths(self):
        tessera.reset()

        @tessera.jit
        def mlp(x, w):
            return tn.tanh(x @ w).sum(axis=0)

        w = tn.ones((4, 4))
        for n in (3, 5, 8, 13, 21, 34, 55, 89):
            mlp(tn.ones((n, 4)), w)
        self.assertLessEqual(compiles(mlp), 2)


if __name__ == "__main__":
    unittest.main()
