# SPDX-License-Identifier: Apache-2.0
"""What became of the graphs that PyTorch handed over: counted, named, never silent."""

import sys
from dataclasses import dataclass, field

from .. import _core

_SEEN = 63


@dataclass
class GraphReport:
    nodes: int  # operators of ATen's
    regions: int
    steps: int = 0  # operators that ATen runs inside of regions
    refusals: list = field(default_factory=list)
    seconds: float = 0.0  # that the compile took


class Report:
    def __init__(self):
        self.graphs = []  # since the last reset
        self.seen = []  # the same, for who looks at them one compile after the other: reset() leaves it alone
        self.calls = {}  # that a region refused, by code of the error
        self._told = set()

    def add(self, gm, refusals, compiled, seconds):
        import operator

        nodes = sum(1 for n in gm.graph.nodes if n.op == "call_function" and n.target is not operator.getitem)
        steps = sum(len(r.steps.nodes) for r in compiled.values() if r.steps)
        self.graphs.append(GraphReport(nodes, len(compiled), steps, list(refusals), seconds))
        self.seen = [*self.seen[-_SEEN:], self.graphs[-1]]
        new = {r.op: r.why for r in refusals if r.op not in self._told}
        if new:
            self._told.update(new)
            sys.stderr.write(f"tessera: through ATen: {', '.join(f'{op} ({why})' for op, why in sorted(new.items()))}\n")
        if refusals and _core.log_enabled("fallbacks"):
            for r in refusals:
                _core.log_write("fallbacks", f"{r.node} = {r.op}: {r.why}" + (f"  # {r.where}" if r.where else "") + "\n")

    def fell_back(self, error):
        """A call that a region refused, for it was not as PyTorch had said, ran through ATen."""
        self.calls[error.code] = self.calls.get(error.code, 0) + 1
        if error.code not in self._told:
            self._told.add(error.code)
            sys.stderr.write(f"tessera: a call through ATen: {error.message}\n")

    def clear(self):
        self.calls.clear()
        self.graphs.clear()
        self._told.clear()

    def __str__(self):
        nodes = sum(g.nodes for g in self.graphs)
        refusals = [r for g in self.graphs for r in g.refusals]
        lines = [
            f"{len(self.graphs)} graphs, {nodes} operators, {len(refusals)} of them through ATen "
            f"({sum(g.steps for g in self.graphs)} as steps of a region), "
            f"{sum(g.regions for g in self.graphs)} regions, {sum(g.seconds for g in self.graphs):.2f} s"
        ]
        counts = {}
        for r in refusals:
            counts[(r.op, r.why)] = counts.get((r.op, r.why), 0) + 1
        lines += [f"  {n} x {op}: {why}" for (op, why), n in sorted(counts.items(), key=lambda item: -item[1])]
        lines += [f"  {n} calls of regions through ATen: {code}" for code, n in sorted(self.calls.items())]
        return "\n".join(lines)


REPORT = Report()
