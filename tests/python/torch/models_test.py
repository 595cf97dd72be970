# SPDX-License-Identifier: Apache-2.0
"""A tenth of the models that models.py compiles, where their packages are installed."""

import importlib.util
import unittest
import warnings

import models

INFERENCE = {"transformers": ["llama"], "torchvision": ["mobilenet_v2"], "timm": ["timm_mobilevit"]}
TRAINING = {"transformers": ["bert"], "torchvision": ["squeezenet1_1"]}


class Models(unittest.TestCase):
    def check(self, names, training):
        warnings.simplefilter("ignore")
        for package, of in names.items():
            for name in of:
                with self.subTest(name):
                    if importlib.util.find_spec(package) is None:
                        self.skipTest(f"there is no {package}")
                    why, _ = models.check(*models.MODELS[name], training)
                    self.assertEqual(why, "")

    def test_inference(self):
        self.check(INFERENCE, False)

    def test_training(self):
        self.check(TRAINING, True)


if __name__ == "__main__":
    unittest.main()
