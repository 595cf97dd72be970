# SPDX-License-Identifier: Apache-2.0
"""AOTAutograd's joint graph as one graph of ours, and what the core's partitioner says of it.

The graph is planned as it was imported: no pass changes it, so that every value belongs to a node of FX. What is not ours stands
in it as a step of the client, which never runs again. Plans are lowered, fused and laid out by the core as the two halves that
they make before they are chosen; peaks are those of the arenas, of what is kept and of outputs, as these come and go.
"""

import json
import operator
import re

from .. import _core
from .compiler import _shape_env
from .emit import Emitter, Unsupported
from .options import refuse
from .partition import Partitioner, Region, expressions, is_tensor, lower, order_in_memory, steps_of
from .steps import Steps

_BACKWARD, _CHECKPOINT, _SAVE = 1, 4, 8  # TSR_MARK_*


def _label(index):
    return f"n{index}"


def _index(name):
    found = re.match(r"n(\d+)(?:_\d+)?$", name)
    return int(found[1]) if found else None


def _is_alike(a, b):
    x, y = a.meta.get("val"), b.meta.get("val")
    if not (is_tensor(x) and is_tensor(y)) or (x.dtype, x.device) != (y.dtype, y.device):
        return False
    return expressions(x.shape) == expressions(y.shape)


class JointGraph:
    """A joint graph's values in a graph of ours. `forward`: the nodes of the forward half; `once` of them must not run again, and
    `again` must."""

    def __init__(self, joint, forward, once, again, context, records):
        self.nodes = list(joint.graph.nodes)
        self.marks = dict.fromkeys(self.nodes, _BACKWARD)
        self.marks.update(dict.fromkeys(forward, 0))
        self.marks.update(dict.fromkeys(again, _CHECKPOINT))
        self.marks.update(dict.fromkeys(once, _SAVE))
        self.graph = context.build("joint", lambda builder: self._build(builder, joint, context, records))

    def _build(self, builder, joint, context, records):
        shape_env = _shape_env(joint)
        ours = Partitioner(context, records, joint, shape_env).assign()
        steps = steps_of(joint, ours)
        region = Region(nodes=[n for n in self.nodes if ours.get(n) or n in steps], steps=[n for n in self.nodes if n in steps])
        client, inside = Steps(region), set(region.nodes)
        e, env, lowered, inputs = Emitter(builder, records, shape_env), {}, {}, []
        leaving = self.nodes[-1].all_input_nodes
        results = [n for n in leaving if not self.marks[n] & _BACKWARD]

        for index, node in enumerate(self.nodes):
            if node not in inside:
                continue
            e.label = _label(index)
            builder.set_marks(self.marks[node])
            for n in node.all_input_nodes:  # from outside: an input of the graph, or what ATen computes beside it
                if n not in inside and n not in env and is_tensor(n.meta.get("val")):
                    of = next((env[r] for r in results if r in env and _is_alike(r, n)), None)
                    tangent = of is not None and n.op == "placeholder" and n.name.startswith("tangents")
                    if tangent:
                        env[n] = e("tangent", of)
                        continue
                    env[n] = e.input(n.name, n.meta["val"], order_in_memory(n.meta["val"]))
                    inputs.append(n)
            if node in steps:
                client.emit(e, node, env)
            elif node.target is operator.getitem:
                env[node] = lowered[node.args[0]][node.args[1]]
            else:
                result = lower(e, node, env)
                if isinstance(result, list):
                    lowered[node] = result
                else:
                    env[node] = result
        e.carry_sizes(inputs)
        builder.outputs([env[n].id for n in leaving if n in env and n in inside])


def plan(joint, forward, once, again, context, records):
    """(nodes that run again, nodes of which something is kept, the core's account of the plan). What is in neither is nothing to
    the core, a view or a copy. Raises what the core says where no plan keeps to the budget."""
    try:
        graph = JointGraph(joint, forward, once, again, context, records)
        found = json.loads(context.memory_plans(graph.graph))[0]
    except Unsupported as why:
        raise refuse(
            f"this graph cannot be planned for a budget in bytes: {why}", "give activation_memory_budget as a number from 0 to 1"
        ) from None
    if not found["feasible"]:
        least = found["peak_bytes"]
        error = _core.UserError(
            f"error[TSR-A010] a step does not fit activation_memory_budget = {found['budget_bytes']} bytes: the smallest peak that "
            f"partitioner '{found['partitioner']}' finds is {least} bytes\n  hint: give {least} bytes or more, or a smaller batch"
        )
        error.code, error.message, error.hint = "TSR-A010", str(error), f"give {least} bytes or more"
        raise error
    # A node of FX may be several of ours: it runs again where one of them does.
    again, kept = ({graph.nodes[k] for k in map(_index, found[what]) if k is not None} for what in ("recomputed", "saved"))
    return again, kept, found
