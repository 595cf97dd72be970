# SPDX-License-Identifier: Apache-2.0
"""ATen's nodes as steps of a plan: the op that stands for one in a graph, and the function that the plan calls for it.

A call of a region has one list: tensors and numbers for the executable, then what its steps read from outside, then a place
for the result of each step, and last whether a step has run. A step gets this list and the tensors that the plan has computed
for it. What ATen's nodes read of each other, or of inputs, never passes through the plan: it may have any strides, dtype and
type.
"""

import functools
import operator

import torch
from torch.fx.node import Node

from .emit import DTYPES, Unsupported, device_name
from .partition import _where, is_ordered, is_tensor, is_view, name_of, order_in_memory, place_of
from .strides import Strided, arranged

# Operators of ATen's own keep nothing of their arguments. Others get copies, for what they keep would change.
BORROWING = ("aten", "prims")


def fresh(value):
    """Results that lie in memory of their own."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, value)


def owner(node):
    """The node whose results this one picks from, through lists of lists, or itself."""
    while node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def path_of(node):
    """The indices that lead from the result of owner(node) to this one."""
    path = []
    while node.target is operator.getitem and isinstance(node.args[0], Node):
        path.insert(0, node.args[1])
        node = node.args[0]
    return path


def path_text(node):
    return "".join(f"[{index!r}]" for index in path_of(node))


class Steps:
    """The steps of one region."""

    def __init__(self, region):
        self.region = region
        inside = set(region.steps)
        self.ours = set(region.nodes) - inside
        self.nodes = [n for n in region.steps if not (n.target is operator.getitem and owner(n) in inside)]
        # By node: nodes of ours that it reads; nodes of its results that ours read, with their order in memory.
        self.operands, self.results = {}, {}
        for n in self.nodes:
            self.operands[n] = [m for m in n.all_input_nodes if m in self.ours]
            parts = [m for m in region.steps if m is n or owner(m) is n]
            read = [m for m in parts if any(u in self.ours for u in m.users)]
            self.results[n] = [(m, order_in_memory(m.meta["val"])) for m in read if is_tensor(m.meta["val"])]
        self.views = {}  # by node of ours: what makes PyTorch's strides of the dense value, or None

    def emit(self, e, node, env):
        """The op that stands for `node`; its results' values go to `env`."""
        if node not in self.operands:
            return  # one of the results of another node
        told = {}  # symbols that only this step knows, by the number that stands for them

        def size(d):
            if isinstance(d, torch.SymInt) and d.node.expr.is_Symbol:
                s = d.node.expr
                if s not in e.symbols and e.is_unbacked(s):
                    return told.setdefault(s, -1 - len(told))
            elif isinstance(d, torch.SymInt) and any(s not in e.symbols and e.is_unbacked(s) for s in d.node.expr.free_symbols):
                raise Unsupported("a size that is computed from one that depends on data")
            return e.size(d)

        shapes = []
        for m, order in self.results[node]:
            fake = m.meta["val"]
            shapes.append([size(fake.shape[k]) for k in (order or range(fake.dim()))])
        operands = []
        for m in self.operands[node]:
            value, self.views[m] = arranged(e, env[m], m.meta["val"])
            value = e.placed(value, m.meta["val"].device)
            view = self.views[m]
            if isinstance(view, Strided) and not all(isinstance(s, int) for s in (*view.sizes, *view.strides)):
                raise Unsupported("an operand with gaps between elements, of symbolic sizes")
            operands.append(value)
        homes = {device_name(m.meta["val"].device) for m, _ in self.results[node]}
        if len(homes) > 1:
            raise Unsupported("results on several devices")
        # A node that only others of ATen's read stands in no one's way, and must not be lost.
        effect = is_ordered(node) or not self.results[node] or self._read_by_steps(node)
        e.builder.set_place(*place_of(node))
        values = e.ops(
            "client_effect" if effect else "client_step",
            *operands,
            step=self.nodes.index(node),
            name=name_of(node.target),
            dtypes=[DTYPES[m.meta["val"].dtype] for m, _ in self.results[node]],
            ranks=[len(shape) for shape in shapes],
            sizes=[d for shape in shapes for d in shape],
            device=homes.pop() if homes else "",
        )
        for (m, order), value in zip(self.results[node], values):
            if order is not None:
                value = e("transpose", value, perm=[order.index(k) for k in range(len(order))])
            if why := e.same(value, m.meta["val"]):
                raise Unsupported(why)
            if e.device(value) != device_name(m.meta["val"].device):
                raise Unsupported("a result on another device than its operands")
            env[m] = value

    def _read_by_steps(self, node):
        parts = [m for m in self.region.steps if owner(m) is node or m is node]
        return any(u in self.operands for m in parts for u in m.users) or any(m in self.region.kept for m in parts)

    def place(self, first, keep_all=False):
        """Says where in the list of a call things stand, from `first` on. keep_all: nothing in it is dropped."""
        self.others = {n: first + k for k, n in enumerate(self.region.others)}
        self.slots = {n: first + len(self.others) + k for k, n in enumerate(self.nodes)}
        self.ran = first + len(self.others) + len(self.slots)
        self.keep_all = keep_all
        self.length = self.ran + 1
        kept = {owner(m) for m in self.region.kept} | set(self.region.kept)
        last = {}  # by place: the step that reads it last
        for n in self.nodes:
            for m in n.all_input_nodes:
                where = self.others.get(m, self.slots.get(owner(m) if m not in self.slots else m))
                if where is not None and m not in self.ours:
                    last[where] = n
        for n in kept:
            last.pop(self.slots.get(n), None)
        self._dropped = {n: [] if keep_all else [w for w, reader in last.items() if reader is n] for n in self.nodes}
        self._stored = {n for n in self.nodes if keep_all or n in kept or self.slots[n] in last}

    def result_text(self, node, arguments):
        """Where the result of a step stands behind a call."""
        if node in self.slots:
            return f"{arguments}[{self.slots[node]}]"
        return f"{arguments}[{self.slots[owner(node)]}]{path_text(node)}"

    def functions(self, program):
        """A function per step. program: prints arguments that are no nodes."""
        return [self._function(n, program) for n in self.nodes]

    def replays(self, recorded):
        """Functions that give the results of another call: recorded[node]."""

        def function(n):
            picked = [(m, order) for m, order in self.results[n]]

            def replay(_, __):
                tensors = [functools.reduce(operator.getitem, path_of(m), recorded[n]) for m, _ in picked]
                return [t if order is None else t.permute(order) for t, (_, order) in zip(tensors, picked)]

            return replay

        return [function(n) for n in self.nodes]

    def _function(self, node, program):
        mine = self.operands[node]
        aten = isinstance(node.target, torch._ops.OpOverload)
        borrows = aten and node.target.namespace in BORROWING
        names = {}
        for m in node.all_input_nodes:
            if m in self.ours:
                names[m] = f"t[{mine.index(m)}]" if borrows else f"t[{mine.index(m)}].clone()"
                if self.views[m] is not None:
                    names[m] = f"{program.bind(self.views[m], 'view')}({names[m]})"
            elif m in self.others:
                names[m] = f"a[{self.others[m]}]"
            else:
                names[m] = self.result_text(m, "a")
        outside, program.names = program.names, names
        arguments = [program.text(a) for a in node.args] + [f"{k}={program.text(v)}" for k, v in node.kwargs.items()]
        program.names = outside
        f = program.bind(node.target, "f")
        call = f"{f}({', '.join(arguments)})"
        if mine and is_view(node):
            call = f"{program.bind(fresh, 'fresh')}({call})"
        lines = ["def step(a, t):", f"    a[{self.ran}] = True", f"    v = {call}"]
        if node in self._stored:
            lines.append(f"    a[{self.slots[node]}] = v")
        lines += [f"    a[{where}] = None" for where in self._dropped[node]]
        given = []
        for m, order in self.results[node]:
            text = f"v{path_text(m)}"
            given.append(text if order is None else f"{text}.permute({tuple(order)})")
        lines.append(f"    return [{', '.join(given)}]")
        source = "\n".join(lines) + "\n"
        where = _where(node)
        scope = dict(program.globals)
        exec(compile(source, f"<tessera step {node.name}{', ' + where if where else ''}>", "exec"), scope)
        scope["step"].source = source
        return scope["step"]


def argument_values(steps, args):
    """By node: what of a call's list steps have read from outside, and what they gave."""
    found = {n: args[where] for n, where in steps.others.items()}
    if args[steps.ran]:
        found.update((n, args[where]) for n, where in steps.slots.items())
    return found


