# SPDX-License-Identifier: Apache-2.0
"""Compiled Python functions: trees, numbers, graph breaks, control flow, random numbers, errors."""

import dataclasses
import gc
import math
import threading
import typing
import unittest
import weakref

from support import Case, Log, compiles, tessera

tn = tessera.numpy


@dataclasses.dataclass
class State:
    h: object
    count: int = 0


@dataclasses.dataclass(frozen=True)
class Pair:
    a: object
    b: object


class Named(typing.NamedTuple):
    mean: object
    var: object


@tessera.pytree
class Model:
    def __init__(self):
        self.layers = [{"w": tn.ones((2, 2)), "b": tn.zeros(2)} for _ in range(2)]
        self.calls = tessera.scalar(0, "i64")
        self.scale = 2.0

    def forward(self, x):
        for layer in self.layers:
            x = tn.tanh(x @ layer["w"] + layer["b"])
        self.calls = self.calls + 1
        return x * self.scale


class Trees(Case):
    def test_arguments_and_results_nest(self):
        @tessera.jit
        def f(batch, pair, *rest, scale=1.0, **named):
            total = batch["x"][0] + batch["x"][1] * scale + pair.a - pair.b
            for r in rest:
                total = total + r
            return (
                {"sum": total, "named": [named[k] * 2 for k in named], "pair": Named(total.mean(), total.var())},
                None,
                "text",
            )

        x = tn.asarray([1.0, 2.0])
        out, nothing, text = f({"x": [x, x]}, Pair(x, x), x, x, scale=3.0, extra=x)
        self.assertEqual((out["sum"].tolist(), nothing, text), ([6.0, 12.0], None, "text"))
        self.assertEqual((out["named"][0].tolist(), type(out["pair"]), out["pair"].mean.item()), ([2.0, 4.0], Named, 9.0))
        self.assertEqual(out["pair"].var.item(), 9.0)

    def test_paths_in_messages(self):
        @tessera.jit
        def f(state, batch):
            return state.h + batch["x"][1]

        one, two = tn.ones(3), tn.ones(4)
        f(State(one), {"x": (one, one)})
        with Log() as log:
            f(State(two), {"x": (two, two)})
        self.assertEqual(log.lines[-1], "    - 0/0: tensor 'state.h' size mismatch at index 0. expected 3, actual 4")
        with Log() as log:
            f(State(one), {"y": (one, one), "x": (one, one)})
        self.assertIn("0/1: list(batch.keys()) == ['x']", log.lines[-2])
        with Log() as log:
            f(State(one), {"x": [one, one]})
        self.assertTrue(any("type(batch['x']) == 'tuple'" in line for line in log.lines), log.lines)

    def test_keys_that_are_no_texts(self):
        @tessera.jit
        def f(d):
            return d[1] if 1 in d else d["1"] * 100.0

        self.assertEqual(f({1: tn.ones(1)}).item(), 1.0)
        self.assertEqual(f({"1": tn.ones(1)}).item(), 100.0)

    def test_tensors_are_written_back(self):
        @tessera.jit
        def f(state, boxes, pairs):
            state.h = state.h * 2.0
            boxes[1] = boxes[0] + boxes[1]
            pairs["p"] = (pairs["p"][0], pairs["p"][1] + 1.0)
            return state.h.sum()

        state, boxes, pairs = State(tn.ones(2), 3), [tn.ones(2), tn.ones(2)], {"p": (tn.ones(1), tn.ones(1))}
        for i in range(1, 4):
            self.assertEqual(f(state, boxes, pairs).item(), 2.0 * 2**i)
            self.assertEqual(boxes[1].tolist(), [1.0 + i] * 2)
            self.assertEqual(pairs["p"][1].tolist(), [1.0 + i])
        self.assertEqual((compiles(f), state.count), (1, 3))

    def test_methods_and_objects(self):
        model = Model()
        forward = tessera.jit(Model.forward)
        x = tn.ones((1, 2))
        expected = math.tanh(2 * math.tanh(2)) * 2.0
        for i in range(1, 4):
            self.assertAlmostEqual(forward(model, x)[0, 0].item(), expected, places=5)
            self.assertEqual(model.calls.item(), i)
        model.scale = 3.0  # a number that is read as a factor is an input of the graph
        self.assertAlmostEqual(forward(model, x)[0, 0].item(), expected * 1.5, places=5)
        self.assertEqual(compiles(forward), 1)

    def test_host_values_that_change_are_refused(self):
        @tessera.jit
        def f(state, x):
            state.count += 1
            return x

        error = self.fails("TSR-F041", f, State(tn.ones(1)), tn.ones(1), text="state.count")
        self.assertIn("0-d", error.hint)

        @tessera.jit
        def g(items, x):
            items.append(x)
            return x

        self.fails("TSR-F041", g, [tn.ones(1)], tn.ones(1), text="structure")

    def test_one_object_twice(self):
        @tessera.jit
        def f(a, b):
            a["x"] = a["x"] + 1.0
            return b["x"]

        one = {"x": tn.zeros(1)}
        self.assertEqual(f(one, one).item(), 1.0)
        self.assertEqual(f({"x": tn.zeros(1)}, {"x": tn.zeros(1)}).item(), 0.0)
        self.assertEqual(f(one, one).item(), 2.0)
        self.assertEqual(one["x"].item(), 2.0)
        self.assertEqual(compiles(f), 2)

    def test_unknown_objects(self):
        class Opaque:
            pass

        f = tessera.jit(lambda x, o: x)
        error = self.fails("TSR-F084", f, tn.ones(1), Opaque(), text="Opaque")
        self.assertIn("@tessera.pytree", error.hint)

    def test_results_of_other_kinds(self):
        @tessera.jit
        def f(x):
            return x.shape[0], 2.5, [x * 1.0, (x,)]

        n, c, (y, (z,)) = f(tn.ones(3))
        self.assertEqual((n, c, y.tolist(), z.tolist()), (3, 2.5, [1.0] * 3, [1.0] * 3))
        self.assertEqual(f(tn.ones(5))[0], 5)


class Numbers(Case):
    def test_sizes_stay_symbolic(self):
        @tessera.jit(dynamic=True)
        def f(x):
            n = x.shape[0]
            return tn.reshape(x, (n // 2, 2)).sum(axis=0) / n

        for n in (4, 6, 10):
            self.assertEqual(f(tn.ones(n)).tolist(), [0.5, 0.5])
        self.assertEqual(compiles(f), 1)

    def test_a_branch_on_a_size_is_a_guard(self):
        @tessera.jit(dynamic=True)
        def f(x):
            return x * 2.0 if x.shape[0] > 4 else x * 3.0

        self.assertEqual([f(tn.ones(n))[0].item() for n in (3, 4, 5, 9, 2)], [3.0, 3.0, 2.0, 2.0, 3.0])
        self.assertEqual(compiles(f), 2)

    def test_integers_become_symbols(self):
        @tessera.jit
        def f(x, n):
            return x + n, n * 2

        for n in (3, 5, 7, 11):
            y, twice = f(tn.zeros(2), n)
            self.assertEqual((y.tolist(), twice), ([float(n)] * 2, 2 * n))

    def test_loops_over_numbers(self):
        @tessera.jit
        def power(x, n):
            y = x
            for _ in range(n - 1):
                y = y * x
            return y

        self.assertEqual([power(tn.full(1, 2.0), n).item() for n in (1, 3, 5, 3)], [2.0, 8.0, 32.0, 8.0])
        self.assertEqual(compiles(power), 3)

    def test_floats_are_inputs_and_reading_one_is_a_guard(self):
        @tessera.jit
        def scale(x, c):
            return x * (c + 1.0) / 2.0

        self.assertEqual([scale(tn.ones(1), c).item() for c in (1.0, 3.0, 5.0)], [1.0, 2.0, 3.0])
        self.assertEqual(compiles(scale), 1)

        @tessera.jit
        def branch(x, c):
            return x if c > 0.5 else -x

        self.assertEqual([branch(tn.ones(1), c).item() for c in (1.0, 0.0, 1.0)], [1.0, -1.0, 1.0])
        self.assertEqual(compiles(branch), 2)

    def test_what_is_not_used_is_not_guarded(self):
        @tessera.jit
        def f(x, unused, n):
            return x + 1.0

        f(tn.ones(2), tn.ones(3), 4)
        f(tn.ones(2), tn.ones((5, 5), "i64"), 9)
        self.assertEqual(compiles(f), 1)

    def test_marks(self):
        @tessera.jit
        def f(x):
            return x.sum()

        f(tessera.mark_dynamic(tn.ones(3), 0))
        f(tn.ones(7))
        self.assertEqual(compiles(f), 1)

        @tessera.jit
        def fixed(x):
            return x * float(x.shape[0].__index__())

        self.fails("TSR-D001", fixed, tessera.mark_dynamic(tn.ones(3), 0))

    def test_unused_defaults_and_keywords(self):
        @tessera.jit
        def f(x, scale=2.0, *, shift=1.0):
            return x * scale + shift

        self.assertEqual(
            [f(tn.ones(1)).item(), f(tn.ones(1), shift=0.0).item(), f(scale=3.0, x=tn.ones(1)).item()], [3.0, 2.0, 4.0]
        )
        self.assertEqual(compiles(f), 1)
        with self.assertRaises(TypeError):
            f()


class Breaks(Case):
    def test_reading_a_value_ends_a_segment(self):
        @tessera.jit
        def f(x):
            y = x * 2.0
            if y.sum() > 0:
                return y + 1.0
            return y - 1.0

        self.assertEqual(f(tn.ones(2)).tolist(), [3.0, 3.0])
        self.assertEqual(f(-tn.ones(2)).tolist(), [-3.0, -3.0])
        self.assertEqual(f(tn.full(2, 5.0)).tolist(), [11.0, 11.0])
        found = tessera.explain(f)
        self.assertEqual([b.code for b in found.breaks], ["TSR-G010"])
        self.assertIn("the truth of bool[]", found.breaks[0].detail)
        self.assertEqual(len(found.graphs), 3)  # the head and two tails
        self.assertIn("3 graphs, 1 graph break", str(found))

    def test_host_code_runs_once_per_path(self):
        seen = []

        @tessera.jit
        def f(x):
            seen.append(1)
            n = int(x.sum())
            return x * n

        for v in (2.0, 2.0, 3.0, 2.0, 3.0):
            self.assertEqual(f(tn.full(1, v)).item(), v * v)
        self.assertEqual(len(seen), 2)

    def test_elements(self):
        @tessera.jit
        def f(x):
            values = (x + 1.0).tolist()
            return x * sum(values)

        self.assertEqual(f(tn.asarray([1.0, 2.0])).tolist(), [5.0, 10.0])
        self.assertEqual(f(tn.asarray([1.0, 4.0])).tolist(), [7.0, 28.0])

    def test_every_live_tensor_survives(self):
        @tessera.jit
        def f(x, y):
            a, b = x + 1.0, {"k": y * 2.0}
            first = a.mean().item()
            c = a + b["k"]
            second = float(c.max())
            return a * first, b["k"] * second, c

        a, b, c = f(tn.ones(2), tn.ones(2))
        self.assertEqual((a.tolist(), b.tolist(), c.tolist()), ([4.0, 4.0], [8.0, 8.0], [4.0, 4.0]))

    def test_disabled_functions_run_at_every_call(self):
        seen = []

        @tessera.disable
        def host(y, factor):
            seen.append(y.tolist())
            return {"y": y * factor, "n": len(seen) > 2}

        @tessera.jit
        def f(x):
            made = host(x + 1.0, 3.0)
            return made["y"] - 1.0 if made["n"] else made["y"] + 1.0

        self.assertEqual([f(tn.full(1, v)).item() for v in (1.0, 2.0, 3.0)], [7.0, 10.0, 11.0])
        self.assertEqual(seen, [[2.0], [3.0], [4.0]])
        self.assertEqual(tessera.explain(f).breaks[0].code, "TSR-G013")

    def test_fullgraph_and_scopes(self):
        f = tessera.jit(lambda x: x * float(x.sum()), fullgraph=True, name="f")
        error = self.fails("TSR-G001", f, tn.ones(2))
        self.assertIn("float()", error.message)

        @tessera.jit
        def g(x):
            with tessera.error_on_graph_break():
                return x * float(x.sum())

        self.fails("TSR-G001", g, tn.ones(2))

    def test_a_break_in_a_region(self):
        @tessera.jit
        def f(x):
            return tessera.cond(x.sum() > 0, lambda v: v * float(v[0]), lambda v: v, x)

        self.fails("TSR-G020", f, tn.ones(2))

    def test_sizes_that_depend_on_data(self):
        @tessera.jit
        def f(x):
            kept = x[x > 0]
            return kept.sum() * kept.shape[0]

        self.assertEqual([f(tn.asarray(v)).item() for v in ([1.0, -1.0, 2.0], [1.0, 1.0, 1.0])], [6.0, 9.0])


class Control(Case):
    def test_cond_while_loop_scan(self):
        @tessera.jit
        def f(x):
            a = tessera.cond(x.sum() > 0, lambda v: v * 2.0, lambda v: v - 1.0, x)
            start = (tessera.scalar(0, "i64"), tn.zeros(()))
            n, total = tessera.while_loop(lambda i, t: i < 5, lambda i, t: (i + 1, t + 1.5), start)
            (carry,), stacked = tessera.scan(lambda c, v: ((c + v,), (c * v,)), (tn.zeros(()),), [x])
            return a, n, total, carry, stacked

        for x in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]):
            inside = f(tn.asarray(x))
            outside = f.original(tn.asarray(x))
            self.assertEqual([t.tolist() for t in inside], [t.tolist() for t in outside])
        self.assertEqual(compiles(f), 1)

    def test_outside_tensors_in_regions(self):
        @tessera.jit
        def f(x):
            y = x * 2.0
            return tessera.cond(x.sum() > 0, lambda v: v + y, lambda v: v, x)

        self.fails("TSR-F003", f, tn.ones(2))


class Random(Case):
    def test_keys(self):
        key = tessera.random.key(7)

        @tessera.jit
        def draw(key):
            first, second = tessera.random.split(key)
            return tessera.random.normal(first, (1000,)), tessera.random.uniform(second, (1000,))

        n, u = draw(key)
        again, _ = draw(key)
        outside = tessera.random.normal(tessera.random.split(key)[0], (1000,))
        self.assertEqual(n.tolist(), again.tolist())
        self.assertEqual(n.tolist(), outside.tolist())
        self.assertAlmostEqual(n.mean().item(), 0, delta=0.15)
        self.assertTrue(0 <= u.min().item() and u.max().item() < 1)
        other, _ = draw(tessera.random.key(8))
        self.assertNotEqual(n.tolist(), other.tolist())
        folded = [tessera.random.fold_in(key, i).tolist() for i in range(4)]
        self.assertEqual(len({tuple(f) for f in folded}), 4)

    def test_a_generator_moves_on(self):
        generator = tessera.random.Generator(1)

        @tessera.jit
        def dropout(x, generator):
            return x * (generator.uniform(x.shape) < 0.5)

        first, second = dropout(tn.ones(64), generator), dropout(tn.ones(64), generator)
        self.assertNotEqual(first.tolist(), second.tolist())
        fresh = tessera.random.Generator(1)
        self.assertEqual(dropout(tn.ones(64), fresh).tolist(), first.tolist())
        self.assertEqual(compiles(dropout), 1)


class Policy(Case):
    def test_stances(self):
        runs = []

        @tessera.jit
        def f(x):
            runs.append(tessera.is_compiling())
            return x + 1.0

        with tessera.set_stance("force_eager"):
            self.assertEqual(f(tn.ones(2)).tolist(), [2.0, 2.0])
        self.assertEqual(runs, [False])
        f(tn.ones(2))
        with tessera.set_stance("fail_on_recompile"):
            f(tn.ones(2))
            self.fails("TSR-D010", f, tn.ones((2, 2)))
        self.fails("TSR-D004", tessera.set_stance, "sometimes")

    def test_writes_when_it_runs_as_it_is(self):
        @tessera.jit
        def f(state):
            state.h = state.h + 1.0
            return state.h

        state = State(tn.ones(1))
        with tessera.set_stance("force_eager"):
            self.assertEqual(f(state).item(), 2.0)
        self.assertEqual(state.h.item(), 2.0)

    def test_compile_ahead(self):
        @tessera.jit
        def f(x, c):
            return x * c

        self.assertEqual(f.compile_ahead((tn.ones(2), 1.0), (tn.ones((2, 2)), 1.0)), 2)
        with tessera.set_stance("fail_on_recompile"):
            self.assertEqual(f(tn.ones(2), 3.0).tolist(), [3.0, 3.0])

    def test_guard_filter(self):
        @tessera.jit(guard_filter=lambda kind, path, text: path != "n")
        def f(x, n):
            return x * float(int(n))

        self.assertEqual(f(tn.ones(1), 2).item(), 2.0)
        self.assertEqual(f(tn.ones(1), 5).item(), 2.0)  # unsafe: it gives what it was compiled to give

    def test_reset_and_recompile(self):
        f = tessera.jit(lambda x: x + 1.0)
        f(tn.ones(2))
        with tessera.set_stance("fail_on_recompile"):
            f(tn.ones(2))
            f.recompile()
            self.fails("TSR-D010", f, tn.ones(2))
        f.reset()
        self.assertEqual(compiles(f), 0)

    def test_nested_functions_are_part_of_the_trace(self):
        inner = tessera.jit(lambda x: x * 2.0)
        outer = tessera.jit(lambda x: inner(x) + inner(x))
        self.assertEqual(outer(tn.ones(1)).item(), 4.0)
        self.assertEqual((compiles(outer), compiles(inner)), (1, 0))

    def test_recursion_without_an_end(self):
        f = tessera.jit(lambda x: f(x + 1.0), name="f")
        self.fails("TSR-F047", f, tn.ones(1))


class Faults(Case):
    def test_exceptions_come_as_they_were_raised(self):
        class Mine(Exception):
            pass

        @tessera.jit
        def f(x):
            raise Mine("here")

        with self.assertRaises(Mine):
            f(tn.ones(1))
        with self.assertRaises(Mine):  # and again: nothing half compiled is kept
            f(tn.ones(1))

    def test_exceptions_behind_a_break(self):
        @tessera.jit
        def f(x):
            if float(x.sum()) > 1:
                raise ValueError("too much")
            return x

        self.assertEqual(f(tn.ones(1)).item(), 1.0)
        with self.assertRaises(ValueError):
            f(tn.ones(3))

    def test_escaped_tensors(self):
        kept = []
        tessera.jit(lambda x: kept.append(x) or x)(tn.ones(2))
        self.fails("TSR-F001", lambda: kept[0] + 1.0)
        self.fails("TSR-F001", lambda: kept[0].tolist())
        self.fails("TSR-F001", tessera.jit(lambda x: x + kept[0]), tn.ones(2))
        self.assertEqual(repr(kept[0]), "<tensor of a trace that has ended>")

    def test_tensors_are_values(self):
        def f(x):
            x[0] = 1.0

        self.fails("TSR-F082", f, tn.ones(2))
        self.fails("TSR-F082", tessera.jit(f), tn.ones(2))

    def test_bad_calls(self):
        self.fails("TSR-F080", tn.zeros, 3, "float13")
        self.fails("TSR-F081", lambda: tessera.ops.relu(tn.ones(1), slope=1.0))
        self.fails("TSR-F083", tn.asarray, [[1.0], [1.0, 2.0]])
        self.fails("TSR-F085", lambda: tessera.jit(lambda x: x, dynamic="maybe"))
        self.fails("TSR-F005", lambda: tn.ones(2).sum(axis=3))
        self.fails("TSR-F016", lambda: tn.ones(2)[5])
        self.fails("TSR-F012", lambda: tn.ones(6).reshape(4, -1))
        self.fails("TSR-F007", lambda: tn.ones(2).item())
        with self.assertRaises(AttributeError):
            tessera.ops.no_such_op
        with self.assertRaises(TypeError):
            tessera.Tensor()

    def test_nothing_leaks(self):
        class Token:
            pass

        token = Token()
        seen = weakref.ref(token)

        def make(token):
            def f(x):
                token
                return x + 1.0

            return tessera.jit(f)

        f = make(token)
        f(tn.ones(3))
        del f, token
        gc.collect()
        self.assertIsNone(seen())
        g = tessera.jit(lambda x: x * 2.0)
        g(tn.ones(1000))
        gc.collect()
        before = tessera.memory_in_use()
        for _ in range(50):
            g(tn.ones(1000))
        gc.collect()
        self.assertEqual(tessera.memory_in_use(), before)


class Threads(Case):
    def test_many_threads_one_function(self):
        @tessera.jit
        def f(x, c):
            if float(x.sum()) > 100:
                return x - c
            return x + c

        found, errors = {}, []

        def work(n):
            try:
                for k in range(20):
                    x = tn.full(n + 2, float(k * 10))
                    found[n, k] = f(x, float(n)).tolist()
            except Exception as e:  # noqa: BLE001
                errors.append(e)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
        self.assertEqual(errors, [])
        for (n, k), values in found.items():
            v = float(k * 10)
            self.assertEqual(values, [v - n if v * (n + 2) > 100 else v + n] * (n + 2))


if __name__ == "__main__":
    unittest.main()
