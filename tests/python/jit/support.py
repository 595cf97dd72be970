# SPDX-License-Identifier: Apache-2.0
"""What tests of compiled Python functions share. Import it before tessera: logs are asked for when the library is loaded."""

import os
import sys
import tempfile
import unittest

os.environ["TESSERA_LOGS"] = "recompiles,graph_breaks"
os.environ.pop("TESSERA_CONFIG", None)

import tessera  # noqa: E402


class Log:
    """What is written to standard error within, by whatever language, as lines without the name of the log."""

    def __init__(self, artifact="recompiles"):
        self._head = f"[{artifact}] "

    def __enter__(self):
        sys.stderr.flush()
        self._file = tempfile.TemporaryFile()
        self._before = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        return self

    def __exit__(self, *_):
        os.dup2(self._before, 2)
        os.close(self._before)
        self._file.seek(0)
        self.text = self._file.read().decode()
        self._file.close()
        self.lines = [line[len(self._head) :] for line in self.text.splitlines() if line.startswith(self._head)]


def compiles(function):
    return len(function.describe()["entries"])


class Case(unittest.TestCase):
    def setUp(self):
        tessera.reset()

    def fails(self, code, function, *args, text=""):
        with self.assertRaises(tessera.UserError) as caught:
            function(*args)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIn(text, caught.exception.message)
        return caught.exception


__all__ = ["Case", "Log", "compiles", "tessera"]
