# SPDX-License-Identifier: Apache-2.0
"""A compile of a Python function that Ctrl-C ends."""

import subprocess
import sys
import textwrap
import unittest


class Interrupt(unittest.TestCase):
    def test_ctrl_c_ends_a_compile(self):
        # In a process of its own, which gets the signal while it compiles; the function is as if it had not been called.
        program = textwrap.dedent("""
            import os, signal, threading, tessera
            tn = tessera.numpy

            def f(x, armed):
                for i in range(1500):
                    x = (tn.sin, tn.tanh, tn.exp)[i % 3](x)
                if armed:
                    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                return x

            compiled = tessera.jit(f)
            x = tn.zeros(8)
            try:
                compiled(x, True)
                print("compiled")
            except KeyboardInterrupt:
                print("interrupted", len(compiled.describe()["entries"]))
            print(compiled(x, False).shape, len(compiled.describe()["entries"]))
        """)
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((out.returncode, out.stderr), (0, ""))
        self.assertEqual(out.stdout.split("\n"), ["interrupted 0", "(8,) 1", ""])


if __name__ == "__main__":
    unittest.main()
