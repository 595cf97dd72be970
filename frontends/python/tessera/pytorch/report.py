# SPDX-License-Identifier: Apache-2.0
"""What became of the graphs that PyTorch handed over: counted, named, never silent."""

import sys
from dataclasses import dataclass, field

from .. import _core


@dataclass
class GraphReport:
    nodes: int  # operators of ATen's
    regions: int
    refusals: list = field(default_factory=list)
    seconds: float = 0.0  # that the compile took


class Report:
    def __init__(self):
        self.graphs = []
        self._told = set()

    def add(self, gm, refusals, compiled, seconds):
        import operator

        nodes = sum(1 for n in gm.graph.nodes if n.op == "call_function" and n.target is not operator.getitem)
        self.graphs.append(GraphReport(nodes, len(compiled), list(refusals), seconds))
        new = {r.op: r.why for r in refusals if r.op not in self._told}
        if new:
            self._told.update(new)
            sys.stderr.write(f"tessera: through ATen: {', '.join(f'{op} ({why})' for op, why in sorted(new.items()))}\n")
        if refusals and _core.log_enabled("fallbacks"):
            for r in refusals:
                _core.log_write("fallbacks", f"{r.node} = {r.op}: {r.why}" + (f"  # {r.where}" if r.where else "") + "\n")

    def clear(self):
        self.graphs.clear()
        self._told.clear()

    def __str__(self):
        nodes = sum(g.nodes for g in self.graphs)
        refusals = [r for g in self.graphs for r in g.refusals]
        lines = [f"{len(self.graphs)} graphs, {nodes} operators, {len(refusals)} of them through ATen, "
                 f"{sum(g.regions for g in self.graphs)} regions, {sum(g.seconds for g in self.graphs):.2f} s"]
        counts = {}
        for r in refusals:
            counts[(r.op, r.why)] = counts.get((r.op, r.why), 0) + 1
        lines += [f"  {n} x {op}: {why}" for (op, why), n in sorted(counts.items(), key=lambda item: -item[1])]
        return "\n".join(lines)


REPORT = Report()
