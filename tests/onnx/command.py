# SPDX-License-Identifier: Apache-2.0
"""Models through the command `tessera run`, one process each, values in and out by name."""

import os
import re
import subprocess
import tempfile

import numpy as np


class Refused(Exception):
    """The command ended with an error: its text."""


class Command:
    def __init__(self, tool, config, folder=None):
        self.tool, self.config = tool, config
        self.folder = folder or tempfile.mkdtemp(prefix="tessera_onnx_")

    def run_files(self, model, inputs, more=(), timeout=300):
        """inputs: arguments of --inputs. Returns the outputs by name."""
        out = os.path.join(self.folder, f"out_{os.getpid()}_{id(inputs)}.npz")
        words = [self.tool, "run", model, "--config", self.config, "--outputs", out, *more]
        for i in inputs:
            words += ["--inputs", i]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, errors="replace")
        except subprocess.TimeoutExpired as e:
            raise Refused(f"no end after {timeout} s") from e
        if done.returncode != 0:
            raise Refused(
                f"exit status {done.returncode}: "
                + first_line(done.stderr or done.stdout).replace(os.path.dirname(model) + "/", "")
            )
        try:
            with np.load(out) as z:
                return {k: z[k] for k in z.files}
        finally:
            os.remove(out)

    def run(self, model, inputs):
        """model: a ModelProto; inputs: arrays by name."""
        path = os.path.join(self.folder, f"model_{os.getpid()}.onnx")
        with open(path, "wb") as f:
            f.write(model.SerializeToString())
        data = path[:-5] + ".npz"
        np.savez(data, **inputs)
        return self.run_files(path, [data] if inputs else [])


def first_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error\[|TSR-", line)]
    return (errors or lines or ["no message"])[0]
