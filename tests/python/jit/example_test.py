# SPDX-License-Identifier: Apache-2.0
"""examples/jit runs as it stands."""

import os
import subprocess
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")


class Example(unittest.TestCase):
    def test_tour(self):
        done = subprocess.run(
            [sys.executable, os.path.join(ROOT, "examples/jit/tour.py")], capture_output=True, text=True, timeout=300
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "normalise: eight sizes, 2 compiles; the last result is f32[9, 16]")
        self.assertEqual(lines[1], "2 graphs, 1 graph break, 8 operations")
        self.assertTrue(any(line.startswith("break TSR-G010 at ") for line in lines), done.stdout)
        self.assertRegex(lines[-1], r"^training: the loss falls by a factor of \d+, 1 compile, 200 steps$")


if __name__ == "__main__":
    unittest.main()
