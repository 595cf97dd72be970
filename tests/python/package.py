# SPDX-License-Identifier: Apache-2.0
"""The package without any other: models, DLPack, errors, threads, Ctrl-C."""

import ctypes
import gc
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

import tessera
from tessera import _core

SUM = "graph @g(%x: f32[s0, 3], %y: f32[3]) -> (f32[s0, 3]) symbols { s0: 1..100 } { %a = add %x, %y return %a }"


def floats(*values, shape=None):
    return tessera.from_bytes("f32", shape or (len(values),), struct.pack(f"<{len(values)}f", *values))


def values(tensor):
    data = tensor.tobytes()
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def onnx_model(op, names, inputs):
    """The bytes of a model of one node; inputs: name, element type, sizes that are numbers or names."""

    def varint(v):
        return bytes([v]) if v < 128 else bytes([v & 127 | 128]) + varint(v >> 7)

    def field(number, value):
        if isinstance(value, int):
            return varint(number << 3) + varint(value)
        value = value.encode() if isinstance(value, str) else value
        return varint(number << 3 | 2) + varint(len(value)) + value

    def info(name, element, sizes):
        shape = b"".join(field(1, field(1 if isinstance(s, int) else 2, s)) for s in sizes)
        return field(1, name) + field(2, field(1, field(1, element) + field(2, shape)))

    node = b"".join(field(1, n) for n in names) + field(2, "y") + field(4, op)
    output = field(1, "y") + field(2, field(1, field(1, 1)))
    graph = field(1, node) + field(2, "g") + b"".join(field(11, info(*i)) for i in inputs) + field(12, output)
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


class Models(unittest.TestCase):
    def test_runs_with_every_size(self):
        model = tessera.compile(SUM)
        self.assertEqual((model.inputs, model.outputs), (["x", "y"], ["a"]))
        for n in (1, 2, 7, 2):
            (out,) = model(floats(*range(3 * n), shape=(n, 3)), floats(10, 20, 30))
            self.assertEqual((out.shape, out.dtype, out.device), ((n, 3), "f32", "cpu"))
            self.assertEqual(values(out), [v + (10, 20, 30)[v % 3] for v in range(3 * n)])

    def test_inputs_by_name(self):
        model = tessera.compile(SUM)
        (out,) = model(y=floats(1, 1, 1), x=floats(1, 2, 3, shape=(1, 3)))
        self.assertEqual(values(out), [2, 3, 4])
        for args, kwargs in (((), {"x": 1}), ((floats(1, 2, 3),), {"x": 1, "y": 2}), ((), {"z": 1})):
            with self.assertRaises(TypeError):
                model(*args, **kwargs)

    def test_names_are_those_of_the_model(self):
        model = tessera.compile(
            'graph @g(%x: f32[2], %w: f32[2] param "fc.weight") -> (f32[2], "the \\"sum\\"": f32[2]) { %y = add %x, %w return %y, %y }',
            "default",
        )
        self.assertEqual((model.inputs, model.outputs), (["x", "fc.weight"], ["y", 'the "sum"']))
        for out in model(**{"fc.weight": floats(1, 2), "x": floats(3, 4)}):
            self.assertEqual(values(out), [4, 6])

    def test_file_and_config(self):
        with tempfile.NamedTemporaryFile("w", suffix=".tsr") as file:
            file.write(SUM)
            file.flush()
            x, y = floats(1, 2, 3, shape=(1, 3)), floats(1, 1, 1)
            for config in (None, "eager", "default"):
                self.assertEqual(values(tessera.load(file.name, config, {"runtime.threads": 1})(x, y)[0]), [2, 3, 4])
            (difference,) = tessera.compare(file.name, "eager", "default", x, y)
            self.assertEqual((difference.output, difference.largest), ("a", 0.0))
        self.assertIn("passes", str(tessera.explain()))

    def test_a_call_that_the_file_does_not_foresee_is_compiled_for_itself(self):
        squeeze = onnx_model("Squeeze", ["x"], [("x", 1, ["n", 3])])
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(squeeze)
            file.flush()
            model = tessera.load(file.name)
            for n, shape in ((2, (2, 3)), (1, (3,)), (4, (4, 3)), (1, (3,))):
                (out,) = model(floats(*range(3 * n), shape=(n, 3)))
                self.assertEqual((out.shape, values(out)), (shape, list(range(3 * n))))
            with self.assertRaises(tessera.UserError) as caught:
                model(floats(1, 2))
            self.assertEqual(caught.exception.code, "TSR-T022")

    def test_a_model_whose_shapes_are_computed_from_an_input_is_compiled_for_its_values(self):
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(onnx_model("Unsqueeze", ["x", "axes"], [("x", 1, ["n", 3]), ("axes", 7, ["k"])]))
            file.flush()
            model = tessera.load(file.name)
            self.assertEqual((model.inputs, model.outputs), (["x", "axes"], []))
            for axis, shape in ((0, (1, 1, 3)), (2, (1, 3, 1)), (0, (1, 1, 3))):
                axes = tessera.from_bytes("i64", (1,), struct.pack("<q", axis))
                (out,) = model(axes=axes, x=floats(1, 2, 3, shape=(1, 3)))
                self.assertEqual((out.shape, values(out)), (shape, [1, 2, 3]))
            self.assertEqual(model.outputs, ["y"])
            self.assertEqual(len(model.describe()["entries"]), 2)
            with self.assertRaises(TypeError):
                model.plan()
            (difference,) = tessera.compare(file.name, "eager", "default", floats(1, 2, 3, shape=(1, 3)), axes)
            self.assertEqual((difference.output, difference.largest), ("y", 0.0))

    def test_plan_and_description(self):
        model = tessera.compile(SUM)
        self.assertIn("add", model.plan())
        self.assertEqual([i["name"] for i in model.describe()["inputs"]], ["x", "y"])


class Errors(unittest.TestCase):
    def test_texts_with_a_zero_byte(self):
        for call in (
            lambda: tessera.load("model\0.onnx"),
            lambda: tessera.compile(SUM, "default\0x"),
            lambda: tessera.compile(SUM + "\0"),
            lambda: tessera.compile(SUM, name="a\0b"),
            lambda: tessera.compile(SUM, plugin_dirs=["a\0b"]),
            lambda: _core.Context().build("g\0", lambda b: None),
            lambda: _core.Context().build("g", lambda b: b.input("x\0", 2, [1], 1)),
            lambda: _core.memory_in_use("cpu\0"),
        ):
            with self.assertRaises(tessera.UserError) as caught:
                call()
            self.assertEqual(caught.exception.code, "TSR-E015")

    def test_families(self):
        model = tessera.compile(SUM)
        with self.assertRaises(tessera.UserError) as caught:
            model(floats(1, 2, 3), floats(1, 2, 3))
        self.assertEqual(caught.exception.code, "TSR-T022")
        self.assertIn("rank mismatch", caught.exception.message)
        self.assertIn("reshape", caught.exception.hint)
        with self.assertRaises(tessera.Error) as caught:
            tessera.load("/no/such/model.onnx")
        self.assertEqual(caught.exception.code, "TSR-R030")
        with self.assertRaises(tessera.UserError):
            tessera.compile(SUM, set={"no.such.key": 1})
        with self.assertRaises(tessera.UserError):
            tessera.compile("graph @g( {")

    def test_bad_arguments(self):
        model = tessera.compile(SUM)
        for bad in (None, 3, [1.0], "text"):
            with self.assertRaises(TypeError):
                model(bad, bad)
        with self.assertRaises(ValueError):
            tessera.from_bytes("f32", (2,), b"123")
        with self.assertRaises(ValueError):
            tessera.from_bytes("float", (1,), b"1234")
        with self.assertRaises(TypeError):
            _core.Tensor()

    def test_a_graph_is_compiled_once(self):
        context = _core.Context()
        graph = context.parse(SUM)
        context.compile(graph)
        with self.assertRaises(tessera.UserError):
            context.compile(graph)


class Graphs(unittest.TestCase):
    def build(self, f):
        return _core.Context().build("made", f)

    def test_by_calls(self):
        def f(b):
            s = b.symbol("s0", 2, 9, 4)
            x = b.input("x", _core.dtypes["f32"], [s, b.dim(3, s, 2)], 1)
            self.assertEqual(b.type(x), (_core.dtypes["f32"], (s, b.dim(3, 2, s))))
            self.assertIs(b.known(5, s, 2), True)
            self.assertIs(b.known(0, s, 5), None)
            self.assertIs(b.known(0, s, 10), False)
            (y,) = b.node("softmax", [x], [("axis", 1, -1)], "y")
            b.outputs([y])

        text = self.build(f).print()
        self.assertIn("f32[s0, s0 * 2]", text)
        self.assertIn("symbols { s0: 2..9 hint 4 }", text)

    def test_exceptions_pass_through(self):
        with self.assertRaises(ZeroDivisionError):
            self.build(lambda b: 1 / 0)
        with self.assertRaises(tessera.Error) as caught:
            self.build(lambda b: b.node("reluu", []))
        self.assertEqual(caught.exception.code, "TSR-O001")

    def test_the_builder_ends_with_its_graph(self):
        kept = []

        def f(b):
            kept.append(b)
            b.outputs([b.input("x", 2, [1], 1)])

        self.build(f)
        with self.assertRaises(tessera.UserError):
            kept[0].symbol("s", 0, 1, -1)


class Memory(unittest.TestCase):
    def test_nothing_is_kept(self):
        model = tessera.compile(SUM)
        x, y = floats(1, 2, 3, shape=(1, 3)), floats(1, 1, 1)
        model(x, y)
        gc.collect()
        before = tessera.memory_in_use()
        for _ in range(100):
            tessera.from_dlpack(model(x, y)[0])
        gc.collect()
        self.assertEqual(tessera.memory_in_use(), before)

    def test_dlpack_both_ways(self):
        class Foreign:  # another library's tensor, which offers nothing but the protocol
            def __init__(self, tensor, versions):
                self.tensor, self.versions = tensor, versions

            def __dlpack__(self, **kwargs):
                if "max_version" in kwargs and not self.versions:
                    raise TypeError("unexpected keyword argument")
                return self.tensor.__dlpack__(**kwargs)

        model = tessera.compile(SUM)
        for versions in (False, True):
            x, y = Foreign(floats(1, 2, 3, shape=(1, 3)), versions), Foreign(floats(1, 1, 1), versions)
            self.assertEqual(values(model(x, y)[0]), [2, 3, 4])
            shared = tessera.from_dlpack(x)
            del x
            self.assertEqual(values(shared), [1, 2, 3])
        capsule = floats(1.0).__dlpack__(max_version=(1, 0))
        self.assertIn("dltensor_versioned", repr(capsule))
        self.assertEqual(floats(1.0).__dlpack_device__(), (1, 0))
        with self.assertRaises(BufferError):
            floats(1.0).__dlpack__(copy=True)


class Threads(unittest.TestCase):
    def test_many_at_once(self):
        model, failed = tessera.compile(SUM), []

        def run(seed):
            for k in range(50):
                n = 1 + (seed + k) % 9
                (out,) = model(floats(*[seed] * (3 * n), shape=(n, 3)), floats(1, 2, 3))
                if values(out) != [seed + 1, seed + 2, seed + 3] * n:
                    failed.append(seed)

        threads = [threading.Thread(target=run, args=(s,)) for s in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])

    def test_ctrl_c_ends_a_compile(self):
        # A model that takes a while to compile, in a process of its own that gets the signal.
        program = textwrap.dedent("""
            import os, signal, threading, time, tessera
            lines = ["%v0 = add %x, %x"] + [f"%v{i} = {('exp', 'sin', 'tanh')[i % 3]} %v{i-1}" for i in range(1, 2500)]
            text = "graph @g(%x: f32[8]) -> (f32[8]) { " + " ".join(lines) + " return %v2499 }"
            context = tessera.Context()
            graph = context.parse(text)
            threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            started = time.time()
            try:
                context.compile(graph)
                print("compiled")
            except KeyboardInterrupt:
                print("interrupted")
        """)
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((out.returncode, out.stderr), (0, ""))
        self.assertEqual(out.stdout.strip(), "interrupted")


class Imports(unittest.TestCase):
    def test_no_other_package_comes_along(self):
        program = "import sys, tessera; print([m for m in ('torch', 'numpy') if m in sys.modules])"
        self.assertEqual(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip(), "[]")


if __name__ == "__main__":
    unittest.main()
