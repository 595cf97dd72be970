# SPDX-License-Identifier: Apache-2.0
"""What has been captured of a function: graphs with guards, and where the graph broke."""

from dataclasses import dataclass, field

from .function import Function, jit


@dataclass
class Graph:
    id: str  # "0/1": frame and compile
    function: str
    place: str
    ops: int
    guards: list


@dataclass
class Break:
    code: str  # "TSR-G010", of docs/graph_breaks.md
    place: str
    what: str
    detail: str
    why: str
    fixes: list
    paths: int  # in how many paths it stands


@dataclass
class Explanation:
    graphs: list = field(default_factory=list)
    breaks: list = field(default_factory=list)

    @property
    def op_count(self):
        return sum(g.ops for g in self.graphs)

    def __str__(self):
        def count(n, noun):
            return f"{n} {noun}" + ("" if n == 1 else "s")

        lines = [
            f"{count(len(self.graphs), 'graph')}, {count(len(self.breaks), 'graph break')}, {count(self.op_count, 'operation')}"
        ]
        for g in self.graphs:
            lines.append(f"graph {g.id}: {g.function} ({g.place}), {count(g.ops, 'operation')}")
            lines += [f"  guard: {text}" for text in g.guards]
        for b in self.breaks:
            lines.append(f"break {b.code} at {b.place}: {b.what}" + (f": {b.detail}" if b.detail else ""))
            lines.append(f"  why: {b.why}")
            lines += [f"  fix: {fix}" for fix in b.fixes]
        return "\n".join(lines) + "\n"


def explanation(described):
    out = Explanation()

    def graph(found, frame):
        if isinstance(found["id"], str):  # others are segments without operations
            out.graphs.append(Graph(found["id"], frame["name"], frame["loc"], found.get("ops", 0), list(found["guards"])))

    for entry in described.get("entries", []):
        if "breaks" not in entry:  # an entry of a function with breaks is a path: its segments are listed by frame
            graph(entry, described)
    for frame in described.get("frames", []):
        for segment in frame["segments"]:
            graph(segment, frame)
    for b in described.get("breaks", []):
        fixes = [line for line in b["fix"].split("\n") if line]
        out.breaks.append(Break(b["code"], b["loc"], b["what"], b["detail"], b["why"], fixes, b["paths"]))
    return out


def explain(function, args, kwargs):
    """With arguments the function is called with them first, and one that is not compiled yet is compiled for this alone."""
    if not isinstance(function, Function):
        function = getattr(function, "compiled", None) or jit(function)
    if args or kwargs:
        function(*args, **kwargs)
    return explanation(function.describe())
