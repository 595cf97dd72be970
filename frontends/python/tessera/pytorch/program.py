# SPDX-License-Identifier: Apache-2.0
"""Source text of the Python functions that run a graph."""

import torch
from torch.fx.node import Node


class Program:
    """The source of a function over boxed arguments, and what it refers to."""

    def __init__(self, gm, report):
        self.gm, self.report = gm, report
        self.names = {}
        self.globals = {}
        self.lines = []
        self.last_use = {}

    def bind(self, value, prefix="c"):
        name = f"{prefix}{len(self.globals)}"
        self.globals[name] = value
        return name

    def text(self, a):
        """An argument of a node as source text."""
        if isinstance(a, Node):
            return self.names[a]
        if isinstance(a, (list, tuple)) and type(a) in (list, tuple, torch.fx.immutable_collections.immutable_list):
            inner = ", ".join(self.text(x) for x in a)
            return f"({inner},)" if isinstance(a, tuple) and a else f"[{inner}]" if not isinstance(a, tuple) else "()"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{k!r}: {self.text(v)}" for k, v in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({self.text(a.start)}, {self.text(a.stop)}, {self.text(a.step)})"
        if a is None or isinstance(a, (bool, int, str)):
            return repr(a)
        return self.bind(a)
