# SPDX-License-Identifier: Apache-2.0
"""Every option and every mode of torch.compile(backend="tessera"): each works, or is refused by name with what to do."""

import os
import unittest

import torch

import tessera
from tessera import pytorch
from tessera.pytorch import backend, list_mode_options, list_options
from tessera.pytorch.options import parsed

# By option: values that work, and values that do not.
CASES = {
    "fallback": (["aten", "error"], ["never", None, 1]),
    "verify": ([True, False], ["yes", None, 1]),
    "mode": ([None, "default", "verify", "eager"], ["fastest", 3]),
    "config": ([None, "eager", "reference"], ["no_such_config", 3]),
    "freezing": ([True, False, None], ["yes", 1]),
    "pack_weights": ([True, False], ["yes", 1, None]),
    "activation_memory_budget": ([None, 0, 0.5, 1], [-0.1, 1.5, "3", True]),
    "set": ([{}, {"runtime.threads": 1}, ["runtime.threads=1"], ()], ["runtime.threads=1", {"no.such.key": 1}, ["x"], 3]),
    "max_autotune": ([True, False], ["yes", None]),
    "coordinate_descent_tuning": ([True, False], ["yes", 0]),
    "deterministic": ([True, False], ["yes", 2]),
}


class Options(unittest.TestCase):
    def setUp(self):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, before)
        pytorch.reset()

    def run_with(self, **kwargs):
        torch._dynamo.reset()
        m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
        x = torch.randn(2, 4)
        torch.testing.assert_close(torch.compile(m, backend=backend, **kwargs)(x), m(x))

    def refused(self, names, **kwargs):
        with self.assertRaises(Exception) as caught:
            self.run_with(**kwargs)
        text = str(caught.exception)
        self.assertIn("TSR-", text)
        self.assertIn("hint:", text)
        self.assertIn(names, text)

    def test_the_cases_are_all_options(self):
        self.assertEqual(set(CASES), set(list_options()))

    def test_each_option_works_or_is_refused_by_name(self):
        for name, (good, bad) in CASES.items():
            for value in good:
                with self.subTest(option=name, value=value):
                    self.run_with(options={name: value})
            for value in bad:
                with self.subTest(option=name, value=value):
                    # One of the right kind is refused by what it names.
                    named = value if value in ("no_such_config", "fastest") else name
                    self.refused("no.such.key" if isinstance(value, dict) else named, options={name: value})

    def test_each_mode_works_or_is_refused_by_name(self):
        for mode in list_mode_options():
            with self.subTest(mode=mode):
                self.run_with(mode=mode)
        self.refused("max-autotun", mode="max-autotun")

    def test_options_of_other_backends_are_refused_by_name(self):
        for name in ("triton.cudagraphs", "epilogue_fusion", "shape_padding", "max_autotun", "trace.enabled"):
            with self.subTest(option=name):
                self.refused(name, options={name: True})

    def test_a_config_by_path(self):
        self.run_with(options={"config": os.path.join(os.path.dirname(__file__), "../../../configs/eager.toml")})

    def test_deterministic_reaches_the_config(self):
        self.assertIn("deterministic=true", parsed(None, {"deterministic": True})[1])
        self.assertEqual(parsed(None, None)[1], ())

    def test_a_version_outside_is_refused(self):
        from unittest import mock

        with mock.patch.object(torch, "__version__", "2.9.1"):
            self.refused("2.9.1")
        self.assertTrue(issubclass(tessera.UserError, tessera.Error))


if __name__ == "__main__":
    unittest.main()
