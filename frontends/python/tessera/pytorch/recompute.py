# SPDX-License-Identifier: Apache-2.0
"""What the forward half of a training graph keeps for the backward half, under a budget.

The plan is a minimum cut over values and nodes, in which chains of recomputation are charged in full (a minimum closure, exact
for one price per byte); the price is bisected until what is kept fits. Nodes are marked with the policies of
torch.utils.checkpoint, and PyTorch's default partitioner divides the graph along the marks. What draws random numbers or writes
is never computed again, and what the program itself has marked stays as marked.
"""

import math
import operator
from copy import deepcopy

import torch
from torch._functorch import partitioners
from torch.fx.node import Node
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.flop_counter import flop_registry

from .. import _core
from .joint import plan as plan_joint
from .partition import bytes_at_hints, hints, is_tensor, is_view

_NEVER = 1 << 60  # a capacity that no cut pays
_PICOSECONDS = 10**12
_FLOPS, _BYTES = 50e9, 10e9  # per second: what one core and its memory do
_LAUNCH = 1e-6  # seconds for a node however small
_STEPS = 24  # of bisection
_SHARES = 6  # that are tried, the last of them 0 where none fits
_FULL = 0.98  # of what may be kept: no further share is tried


def _at_hints(value):
    """A value of a node with numbers for its sizes: a formula over symbols gives a symbol, and a number of that is a guard."""

    def of(v):
        if is_tensor(v):
            return torch.empty(hints(v.shape), dtype=v.dtype, device="meta")
        return hints([v])[0] if isinstance(v, torch.SymInt) else v

    with torch.utils._python_dispatch._disable_current_modes():
        return torch.utils._pytree.tree_map(of, value)


def _picoseconds(node):
    """What computing a node once more costs: its arithmetic where PyTorch counts it, and the memory that it moves."""
    values = [node.meta["val"]] if not isinstance(node.meta["val"], (list, tuple)) else node.meta["val"]
    moved = sum(bytes_at_hints(v) for v in values) + sum(
        bytes_at_hints(n.meta["val"]) for n in node.all_input_nodes if is_tensor(n.meta.get("val"))
    )
    seconds = _LAUNCH + moved / _BYTES
    packet = getattr(node.target, "overloadpacket", None)
    if packet in flop_registry:
        try:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: _at_hints(n.meta["val"]))
            seconds += int(flop_registry[packet](*args, **kwargs, out_val=_at_hints(node.meta["val"]))) / _FLOPS
        except Exception:  # a size without a hint, or a formula that does not take these arguments
            seconds += moved * 16 / _FLOPS
    return int(seconds * _PICOSECONDS)


def _runs_once(node):
    """Whether a node must not run again: it draws random numbers, writes, or is none of ATen's."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable or node.is_impure():
        return True
    if torch.Tag.nondeterministic_seeded in op.tags:
        return True
    return op.namespace not in ("aten", "prims") or symbols_of_data(node)


def _written_inputs(graph):
    """The inputs of a joint graph that the program writes to, as the running statistics of a norm."""
    results = torch.utils._pytree.tree_leaves(graph.output_node().meta.get("desc", ()))
    written = {d.mutated_input for d in results if type(d).__name__ == "InputMutationAOTOutput"}
    return {n for n in graph.find_nodes(op="placeholder") if n.meta.get("desc") in written}


def symbols_of_data(node):
    """Whether a result's size depends on data: hints say nothing of it."""
    v = node.meta["val"]
    return any(hints(t.shape) is None for t in (v if isinstance(v, (list, tuple)) else [v]) if is_tensor(t))


class Plan:
    """Which nodes of the forward half run again, by node; what is kept then, in bytes at the hints."""

    def __init__(self, recomputed, kept, cost):
        self.recomputed, self.kept, self.cost = recomputed, kept, cost


class Problem:
    """The forward half as nodes that give values: a node of several results has one value for each getitem."""

    def __init__(self, joint, num_fwd_outputs):
        graph = joint.graph
        inside = self._forward_nodes(graph)
        results = torch.utils._pytree.arg_tree_leaves(*graph.output_node().args)
        leaving, wanted = set(results[:num_fwd_outputs]), set(results[num_fwd_outputs:])
        self.nodes = []  # that compute tensors, in program order
        self.node_of = {}  # value -> node
        for n in inside:
            if n.op != "call_function" or not self._gives_tensors(n):
                continue
            if n.target is operator.getitem and n.args[0] in self.node_of.values():
                self.node_of[n] = n.args[0]
                continue
            self.nodes.append(n)
            self.node_of[n] = n
        held = set(inside)
        self.bytes = {v: 0 if v in leaving or self._is_pair(v) else bytes_at_hints(v.meta["val"]) for v in self.node_of}
        self.read = {
            v
            for v in self.node_of
            if v in wanted or any(u not in held and u.op != "output" and self._reads(u) for u in v.users)
        }
        self.cost = {n: 0 if is_view(n) else _picoseconds(n) for n in self.nodes}
        written = _written_inputs(graph)  # between the halves: what reads them would read something else the second time
        self.once = {
            n
            for n in self.nodes
            if _runs_once(n)
            or n.meta.get("recompute") == CheckpointPolicy.MUST_SAVE
            or any(i in written for i in n.all_input_nodes)
        }
        self.again = {n for n in self.nodes if n not in self.once and (is_view(n) or partitioners.must_recompute(n))}

    @staticmethod
    def _forward_nodes(graph):
        """As PyTorch's default partitioner has it: everything up to the last node of the forward half."""
        nodes, last = [n for n in graph.nodes if not partitioners._is_tangent(n)], 0
        for k, n in enumerate(nodes):
            if partitioners._has_tag_is_forward(n) or partitioners._is_primal(n):
                last = k
        return nodes[: last + 1]

    @staticmethod
    def _gives_tensors(n):
        v = n.meta.get("val")
        return is_tensor(v) or (isinstance(v, (list, tuple)) and any(map(is_tensor, v)))

    @staticmethod
    def _is_pair(v):
        return not is_tensor(v.meta["val"])

    @staticmethod
    def _reads(user):
        """Sizes are kept as numbers."""
        return not isinstance(user.meta.get("val"), (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))

    def inputs(self, node):
        return [v for v in node.all_input_nodes if v in self.node_of]

    def solve(self, price):
        """The plan that is best when a byte that is kept costs `price` picoseconds."""
        import networkx

        g = networkx.DiGraph()
        g.add_nodes_from(("source", "sink"))

        def arc(a, b, capacity):
            if g.has_edge(a, b):
                capacity = min(_NEVER, capacity + g[a][b]["capacity"])
            g.add_edge(a, b, capacity=min(_NEVER, capacity))

        for v in self.read:
            arc("source", ("available", v), _NEVER)
        for v, n in self.node_of.items():
            if v is not n or not self._is_pair(v):
                arc(("available", v), ("again", n), _NEVER if n in self.again else int(price * self.bytes[v]))
            elif v is n:
                for item in v.users:
                    if item in self.node_of:
                        arc(("available", v), ("available", item), _NEVER)
        for n in self.nodes:
            arc(("again", n), "sink", _NEVER if n in self.once else self.cost[n])
            for v in self.inputs(n):
                arc(("again", n), ("available", v), _NEVER)
        value, (ones, _) = networkx.minimum_cut(g, "source", "sink", flow_func=networkx.algorithms.flow.boykov_kolmogorov)
        return value, self.plan({n for n in self.nodes if ("again", n) in ones})

    def plan(self, recomputed):
        kept, cost = 0, sum(self.cost[n] for n in recomputed)
        needed = set(self.read)
        for n in recomputed:
            needed.update(self.inputs(n))
        kept = sum(self.bytes[v] for v in needed if self.node_of[v] not in recomputed)
        return Plan(recomputed, kept, cost)


def choose(problem, budget):
    """(the plan, bytes that the budget allows, bytes at budgets 0 and 1, picoseconds to a bound that no plan beats)"""
    _, most = problem.solve(0)
    _, least = problem.solve(_NEVER >> 24)
    allowed = least.kept + int(budget * (most.kept - least.kept))
    best, bound = least, 0
    if most.kept <= allowed:
        return most, allowed, (least.kept, most.kept), 0
    low, high = 0.0, float(_NEVER >> 24)
    for _ in range(_STEPS):
        price = (max(low, 1.0) * high) ** 0.5 if high > 4 * max(low, 1.0) else (low + high) / 2
        value, plan = problem.solve(price)
        bound = max(bound, value - price * allowed)
        if plan.kept <= allowed:
            best, high = (plan if plan.cost <= best.cost or best.kept > allowed else best), price
        else:
            low = price
        if high - low < 1e-3 * high:
            break
    return best, allowed, (least.kept, most.kept), max(0, best.cost - bound)


def _as_pytorch_decomposes(graph):
    """Brings nodes that PyTorch's compiler decomposes to the form that its partitioner knows: those run again, or read nothing."""
    aten, prims = torch.ops.aten, torch.ops.prims
    for n in graph.find_nodes(op="call_function", target=aten.detach.default):
        n.target = aten.alias.default
    for n in graph.find_nodes(op="call_function", target=aten._to_copy.default):
        if set(n.kwargs) == {"dtype"}:
            n.target, n.args, n.kwargs = prims.convert_element_type.default, (n.args[0], n.kwargs["dtype"]), {}
    for n in graph.find_nodes(op="call_function", target=aten.zeros_like.default):
        sizes = list(n.meta["val"].shape)
        if all(isinstance(s, int) for s in sizes):
            n.target, n.args, n.kwargs = aten.full.default, (sizes, 0), {}


def kept_by_pytorch(joint, joint_inputs, num_fwd_outputs, **kwargs):
    """The bytes, at the hints, that PyTorch's own partitioner keeps for backward where no budget is given; inputs are not counted."""
    copy = torch.fx.GraphModule(joint, deepcopy(joint.graph))
    _as_pytorch_decomposes(copy.graph)
    with torch._functorch.config.patch(activation_memory_budget=1.0):
        forward, _ = partitioners.min_cut_rematerialization_partition(
            copy, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs
        )
    results = torch.utils._pytree.arg_tree_leaves(*forward.graph.output_node().args)
    kept = {n for n in results[num_fwd_outputs:] if isinstance(n, Node) and n.op != "placeholder"}
    return sum(bytes_at_hints(n.meta["val"]) for n in kept - set(results[:num_fwd_outputs]))


def _plan_of_the_core(joint, problem, planning):
    forced = {n for n in problem.again if not is_view(n)}
    return plan_joint(joint, Problem._forward_nodes(joint.graph), problem.once, forced, *planning)


def by_the_core(joint, problem, planning):
    """The plan of the core's partitioner as `planning` has it, a context and its records, and one line about it."""
    recomputed, kept, found = _plan_of_the_core(joint, problem, planning)
    # What only looks nothing like a view, as _unsafe_view and clone, would be kept in the place of what it is made of.
    again = {n for n in problem.nodes if (n in recomputed or n not in kept) and n not in problem.once}
    step = found["predicted_ms"] if found["predicted_ms"] is not None else found["step_ms"]
    limit = f"budget of {found['budget_bytes']} bytes: " if found["budget_bytes"] is not None else ""
    line = (
        f"{limit}a step takes {found['peak_bytes']} at its peak, {found['saved_bytes']} of them "
        f"kept for backward; {len(again)} operators run again, about {found['recompute_ms']:.3f} ms of a step of {step:.3f} ms"
    )
    if found["gap"] is not None:
        line += f"; before fusion {found['unfused_ms']:.3f} ms, at most {100 * found['gap']:.2f} % of a step more than the best plan"
    return problem.plan(again), line


def by_the_core_for_a_share(joint, problem, planning, allowed):
    """The same where `allowed` bytes may be kept: the core counts in parts of what it would keep if nothing ran again."""
    *_, all_kept = _plan_of_the_core(joint, problem, planning("save_all"))
    low, high, best = 0.0, 1.0, None  # a share that fits, and one that does not
    share = allowed / max(1, all_kept["saved_bytes"])
    for left in reversed(range(_SHARES)):
        share = min(1.0, math.floor(1e4 * share) / 1e4) if left or best else 0
        plan, line = by_the_core(joint, problem, planning("budget", share))
        if plan.kept > allowed:
            high = min(high, share)
        else:
            low, last = max(low, share), best
            if best is None or plan.kept > best[0].kept:
                best = plan, line, share
            if share in (0, 1) or plan.kept >= _FULL * allowed or (last and plan.kept <= last[0].kept):
                break
        # PyTorch keeps a node's results, where the core may keep what they are made of.
        share *= allowed / max(1, plan.kept)
        if not low < share < high:
            share = (low + high) / 2
    plan, line, share = best or (plan, line, share)
    return plan, f"{allowed} bytes may be kept, {plan.kept} are, {share:.4f} of {all_kept['saved_bytes']}: {line}"


def by_share(problem, budget):
    """The plan for a part of what the default partitioner would keep, and one line about it."""
    plan, allowed, (least, most), gap = choose(problem, budget)
    return plan, (
        f"budget {budget}: {plan.kept} bytes are kept for backward, of {allowed} allowed ({least} to {most}); "
        f"{sum(1 for n in plan.recomputed if problem.cost[n])} operators run again, about {plan.cost / 1e9:.3f} ms, "
        f"at most {gap / 1e9:.3f} ms more than any plan"
    )


def partitioner(budget, planning=None):
    """A partition_fn of AOTAutograd's that keeps to a part of what is kept without a budget, or to bytes at the peak.

    planning: a function that gives a context with a partitioner of the core, and its records, for the partitioner's name and a
    budget of it; None: what is kept follows from PyTorch's graph alone. With planning, a part is one of what PyTorch's own
    partitioner keeps. With budget None the core's decides without a limit. Where it cannot plan a graph, PyTorch's minimum cut
    does, and for a part what is done without planning.
    """

    def by_planning(joint, joint_inputs, problem, num_fwd_outputs, kwargs):
        if budget is None:  # memory is what a GPU has least of, and what is cheap to compute again costs less than its traffic
            return by_the_core(joint, problem, planning("min_cut"))
        if isinstance(budget, str):
            return by_the_core(joint, problem, planning("budget", budget))
        allowed = int(budget * kept_by_pytorch(joint, joint_inputs, num_fwd_outputs, **kwargs))
        return by_the_core_for_a_share(joint, problem, planning, allowed)

    def partition(joint, joint_inputs, *, num_fwd_outputs, **kwargs):
        problem = Problem(joint, num_fwd_outputs)
        found = None
        if planning:
            try:
                found = by_planning(joint, joint_inputs, problem, num_fwd_outputs, kwargs)
            except _core.UserError as e:
                if isinstance(budget, str):
                    raise
                if _core.log_enabled("partition"):
                    _core.log_write("partition", f"without the core: {e.message}\n")
                if budget is None:
                    theirs = partitioners.min_cut_rematerialization_partition
                    return theirs(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
        plan, line = found or by_share(problem, budget)
        for v, n in problem.node_of.items():
            if n in plan.recomputed:
                v.meta["recompute"] = n.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
            elif n in problem.again:
                v.meta.pop("recompute", None)
        if _core.log_enabled("partition"):
            _core.log_write("partition", line + "\n")
        return partitioners.default_partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)

    return partition
