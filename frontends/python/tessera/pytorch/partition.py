# SPDX-License-Identifier: Apache-2.0
"""Divides an FX graph into regions that one executable each runs, and nodes that run by themselves.

Every node is first lowered alone, over inputs of the types that PyTorch gives: what is refused there, or comes out with
another type, stays with ATen, with the reason. ATen's nodes between ours become steps of the plan that ours are compiled to, so
that most graphs are one region; those that read nothing of ours run before it, and those that nothing of ours reads behind it.
What ends a region is a number that Python computes of its values: a size that depends on data. Nodes that draw random numbers
or have effects keep their order.
"""

import operator
import re
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch.fx.node import Node, map_arg

from .. import _core
from .emit import NUMBERS, Emitter, Unsupported, Value, device_name
from .ops import NOT_TAKEN, TABLE, lowering_of


@dataclass
class Refusal:
    """A node that stays with ATen."""

    node: str
    op: str
    why: str
    where: str = ""  # the user's line, where PyTorch knows it


@dataclass
class Region:
    """Nodes that one executable runs, ATen's as its steps. An executable's inputs and outputs are those of our nodes alone:
    what ATen's nodes read from outside, and of each other, is passed beside it."""

    nodes: list = field(default_factory=list)
    inputs: list = field(default_factory=list)  # nodes
    outputs: list = field(default_factory=list)  # nodes
    steps: list = field(default_factory=list)  # nodes that ATen runs
    others: list = field(default_factory=list)  # nodes outside that steps read
    kept: list = field(default_factory=list)  # steps that are read outside


def name_of(target):
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


def is_tensor(v):
    return isinstance(v, torch.Tensor)


def is_number(v):
    return isinstance(v, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))


def of_numbers(node):
    """Whether a node computes with sizes and other numbers alone, or checks them: Python does so, and no operator runs."""
    if is_number(node.meta.get("val")):
        return True
    return str(node.target) == "aten._assert_scalar.default"


def symbols_of(v):
    """The symbols in the shape of a fake value."""
    if isinstance(v, torch.SymInt):
        return set(v.node.expr.free_symbols)
    if isinstance(v, torch.Tensor):
        return {s for d in v.shape if isinstance(d, torch.SymInt) for s in d.node.expr.free_symbols}
    if isinstance(v, (list, tuple)):
        return set().union(*[symbols_of(x) for x in v])
    return set()


def hints(sizes):
    """Numbers for sizes or strides as the first call had them, or None where it had none. Asks nothing that would become a
    guard."""
    found = [s.node.hint if isinstance(s, torch.SymInt) else s for s in sizes]
    return None if any(h is None for h in found) else [int(h) for h in found]


def expressions(sizes):
    """Sizes or strides as numbers and expressions over symbols, which are alike where they are alike for all values of these.
    Comparing them asks nothing that would become a guard, as comparing the sizes does."""
    return [s.node.expr if isinstance(s, torch.SymInt) else s for s in sizes]


def bytes_at_hints(v):
    """Of a tensor; 0 where its size depends on data, and of what is no tensor."""
    sizes = hints(v.shape) if is_tensor(v) else None
    if sizes is None:
        return 0
    n = v.element_size()
    for s in sizes:
        n *= s
    return n


def is_dense(fake, order=None):
    """Whether a tensor lies dense and row-major in the first call; with an order of dimensions, as that lays them out. Sizes
    that depend on data are compared as expressions."""
    sizes, strides = hints(fake.shape), hints(fake.stride())
    if sizes is None or strides is None:
        sizes, strides = expressions(fake.shape), expressions(fake.stride())
    expected = 1
    for k in reversed(order if order is not None else range(len(sizes))):
        if sizes[k] == 0:
            return True
        if sizes[k] != 1 and strides[k] != expected:
            return False
        expected *= sizes[k]
    return True


def order_in_memory(fake):
    """The order of dimensions in which a tensor lies dense, or None: it does so as it is, or in no order."""
    strides = hints(fake.stride())
    if strides is None or fake.dim() < 2 or is_dense(fake):
        return None
    order = sorted(range(fake.dim()), key=lambda k: (-strides[k], k))
    return order if is_dense(fake, order) else None


def _plain_tensor(v):
    """Why a tensor is not one of ours: "" when it is."""
    if v.layout != torch.strided:
        return f"a tensor of layout {v.layout}"
    if v.is_quantized:
        return "a quantized tensor"
    if v.dtype not in NUMBERS:
        return f"dtype {v.dtype}"
    if v.device.type not in ("cpu", "cuda") or (v.device.type == "cuda" and torch.version.hip):
        return f"a tensor on {v.device}"
    return ""


TRANSFERS = ("aten._to_copy.default", "prims.device_put.default")


ON_HOST = "a result on cpu, in a graph of a GPU"


def is_on_host(node):
    """Whether a node gives a tensor of the host."""
    return any(is_tensor(v) and v.device.type == "cpu" for v in torch.utils._pytree.tree_leaves(node.meta.get("val")))


def devices_of(gm):
    """The devices of the values of a graph's nodes."""
    values = [n.meta.get("val", n.meta.get("example_value")) for n in gm.graph.nodes]
    return {v.device for v in torch.utils._pytree.tree_leaves(values) if is_tensor(v)}


def _where(node):
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.strip().splitlines()]
    return next((line for line in reversed(lines) if line.startswith("File ")), "")


_PLACE = re.compile(r'File "(.*)", line (\d+)')


def place_of(node):
    """(file, line) of the program that a node comes from; ("", 0) where PyTorch does not know."""
    found = _PLACE.match(_where(node))
    return (found[1], int(found[2])) if found else ("", 0)


def _of_complex(node):
    fake = node.meta.get("val")  # an assertion has none
    tensors = [*(fake if isinstance(fake, (list, tuple)) else [fake]), *[n.meta["val"] for n in tensor_arguments(node)]]
    return any(is_tensor(v) and v.dtype.is_complex for v in tensors)


def lower(e, node, env):
    """Lowers one node; `env` gives the Values of nodes. A Value, or a list with None where a result is not expressed."""
    fake = node.meta["val"]
    f = lowering_of(name_of(node.target), _of_complex(node))
    if f is None:
        raise Unsupported("no lowering")

    def argument(n):
        if is_tensor(n.meta["val"]):
            env[n].dense = is_dense(n.meta["val"]) and hints([n.meta["val"].storage_offset()]) == [0]
            return env[n]
        return n.meta["val"]  # a size

    several = isinstance(fake, (list, tuple))
    homes = {v.device for v in (fake if several else [fake]) if is_tensor(v)}
    e.builder.set_place(*place_of(node))
    e.wanted = {u.args[1] for u in node.users} if several else {0}
    e.home = device_name(*homes) if len(homes) == 1 and torch.device("cpu") not in homes else None
    result = f(e, fake, *map_arg(node.args, argument), **map_arg(node.kwargs, argument))
    e.home = None
    for r, v in zip(result if several else [result], fake if several else [fake]):
        if r is not None:
            if why := e.same(r, v):
                raise Unsupported(why)
    if several and len(result) != len(fake):
        raise Unsupported("another number of results")
    return list(result) if several else result


def tensor_arguments(node):
    found = []
    map_arg((node.args, node.kwargs), lambda n: found.append(n) if is_tensor(n.meta.get("val")) else None)
    return list(dict.fromkeys(found))


class Partitioner:
    def __init__(self, context, records, gm, shape_env):
        self.context, self.records, self.gm, self.shape_env = context, records, gm, shape_env
        self.refusals = []
        self.on_gpu = any(device.type == "cuda" for device in devices_of(gm))
        self._probed = {}

    def taken(self, node, ours):
        """Whether a region takes a node; else a refusal has been noted. `ours` says it of the nodes before."""
        why = self._why_not(node, ours)
        if why:
            self.refuse(node, why)
        return not why

    def refuse(self, node, why):
        self.refusals.append(Refusal(node.name, name_of(node.target), why, _where(node)))

    def _why_not(self, node, ours):
        if not isinstance(node.target, torch._ops.OpOverload):
            return "no operator of ATen's"
        fake = node.meta.get("val")
        outs = fake if isinstance(fake, (list, tuple)) else [fake]
        if node.target._schema.is_mutable:
            return "it writes to an argument"
        name, of_complex = name_of(node.target), _of_complex(node)
        if lowering_of(name, of_complex) is None:
            return NOT_TAKEN.get(name, "no lowering" + (" for complex numbers" if of_complex and name in TABLE else ""))
        ins, used = tensor_arguments(node), None
        if isinstance(fake, (list, tuple)):
            if any(u.target is not operator.getitem for u in node.users):
                return "its results are used as a whole"
            used = tuple(sorted({u.args[1] for u in node.users}))
            outs = [fake[k] for k in used]
        for v in [*outs, *[n.meta["val"] for n in ins]]:
            if not is_tensor(v):
                return "a result that is no tensor"
            if why := _plain_tensor(v):
                return why
        if why := self._misplaced(name, outs, [n.meta["val"] for n in ins]):
            return why
        names = {}

        def described(n):
            v = n.meta["val"]
            if is_tensor(v):
                return (names.setdefault(n, len(names)), v.dtype, tuple(map(str, v.shape)), v.device)
            return str(v)

        key = (
            node.target,
            str(map_arg((node.args, dict(node.kwargs)), described)),
            used,
            str([(v.dtype, tuple(v.shape), v.device) if is_tensor(v) else v for v in outs]),
        )
        if key not in self._probed:
            self._probed[key] = self._probe(node, ins, used)
        return self._probed[key]

    def _misplaced(self, name, outs, ins):
        """Why a node cannot run where its results lie: "" when it can. Tensors of one number come along from the host."""
        homes = {v.device for v in outs if is_tensor(v)}
        if len(homes) != 1:
            return "results on several devices" if homes else "results that nobody reads"
        home = homes.pop()
        if self.on_gpu and home.type == "cpu" and (any(is_tensor(v) and v.dim() for v in outs) or any(v.device != home for v in ins)):
            return ON_HOST
        for v in ins:
            if v.device != home and name not in TRANSFERS and not (v.device.type == "cpu" and v.dim() == 0):
                return f"tensors on {v.device} and {home}"
        return ""

    def _probe(self, node, ins, used):
        def build(builder):
            e = Emitter(builder, self.records, self.shape_env)
            env = {n: e.input(f"x{k}", n.meta["val"]) for k, n in enumerate(ins)}
            result = lower(e, node, env)
            if used is not None:
                if any(result[k] is None for k in used):
                    raise Unsupported("a result that is not expressed")
                result = [result[k] for k in used]
            builder.outputs([r.id for r in (result if isinstance(result, list) else [result])])

        try:
            self.context.build("probe", build)
        except Unsupported as e:
            return str(e) or "not supported"
        except _core.Error as e:
            return f"{e.code}: {e.message}"
        return ""

    def assign(self):
        """By node: whether a region computes it."""
        ours = {}
        for node in self.gm.graph.nodes:
            if (
                node.op == "call_function"
                and node.target is operator.getitem
                and isinstance(node.args[0].meta.get("val"), (list, tuple))
            ):
                ours[node] = ours[node.args[0]]
            else:
                ours[node] = node.op == "call_function" and not of_numbers(node) and self.taken(node, ours)
        # Numbers on the host of a GPU's graph stay within regions: a result there would wait for the GPU.
        for node in reversed(self.gm.graph.nodes if self.on_gpu else ()):
            if ours.get(node) and is_on_host(node) and not all(ours.get(u) for u in node.users):
                ours[node] = False
                self.refuse(node, ON_HOST)
        return ours

    @staticmethod
    def levels(gm, ours, steps):
        """By node: when it runs. Regions have even numbers, nodes that run by themselves odd ones; inputs, and what runs before
        all regions, have -1."""
        levels, ordered = {}, -1
        for node in gm.graph.nodes:
            if node.op == "output":
                continue
            if node.op in ("placeholder", "get_attr"):
                levels[node] = -1
                continue
            sources = node.all_input_nodes
            if _is_part(node):
                levels[node] = levels[sources[0]]
                continue
            inside = ours[node] or node in steps
            level = 0 if inside else -1
            before = [(levels[s], ours.get(s) or s in steps) for s in sources]
            if not ours[node] and is_ordered(node):
                before.append((ordered, ordered % 2 == 0))
            for other, is_inside in before:
                if other >= 0:
                    level = max(level, other if is_inside == inside else other + 1)
            levels[node] = level
            if not ours[node] and is_ordered(node):
                ordered = max(ordered, level)
        return levels


def is_ordered(node):
    """Whether a node must not change places with others like it."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return not isinstance(node.target, type(operator.add)) and getattr(node.target, "__module__", "") not in (
            "_operator",
            "math",
        )
    return node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags or node.is_impure()


def _is_part(node):
    """Whether a node picks one of the results of another."""
    return node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), (list, tuple))


def steps_of(gm, ours):
    """ATen's nodes that stand between ours: one of ours leads to each, by data or by an order that has to be kept, and each to
    one of ours."""
    nodes = [n for n in gm.graph.nodes if n.op == "call_function"]
    sources, last = {}, None
    for n in nodes:
        sources[n] = [s for s in n.all_input_nodes if s.op == "call_function"]
        if not ours[n] and not _is_part(n) and is_ordered(n):
            sources[n] += [last] if last is not None else []
            last = n
    behind, ahead = set(), set()  # ours: in both
    for n in nodes:
        if ours[n] or any(s in behind for s in sources[n]):
            behind.add(n)
    for n in reversed(nodes):
        if ours[n] or n in ahead:
            ahead.update([n, *sources[n]])
    steps = {n for n in nodes if not ours[n] and n in behind and n in ahead and not _is_part(n) and not of_numbers(n)}
    steps -= {n for n in steps if _writes_to_ours(n, ours)}
    for node in gm.graph.output_node().args[0]:  # a view that leaves is one of the value that leaves
        chain = []
        while isinstance(node, Node) and not ours.get(node) and is_view(node):
            chain.append(node)
            node = node.args[0]
        if isinstance(node, Node) and (ours.get(node) or node in steps):
            steps -= set(chain)
    for n in nodes:  # a part may be a list again
        if _is_part(n) and n.args[0] in steps:
            steps.add(n)
    return steps


def _writes_to_ours(node, ours):
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return False
    return any(ours.get(s) for s in node.all_input_nodes)


def is_view(node):
    """Whether a node looks at the memory of its first argument, or picks one of several such looks."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], Node) and is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable:
        return False
    schema = node.target._schema
    return (
        bool(schema.returns) and schema.returns[0].alias_info is not None and bool(node.args) and isinstance(node.args[0], Node)
    )


def leaving_views(gm, ours):
    """Results of the graph that are views: by node, the chain of views that ends in it, outermost last.

    PyTorch makes the views that leave a compiled function by the place of the compiled result in its base's memory, so the
    chain runs through
    ATen on the base. Inside of regions the same nodes stay what they are.
    """
    chains = {}
    for node in gm.graph.output_node().args[0]:
        chain, n = [], node
        while isinstance(n, Node) and ours.get(n) and is_view(n):
            chain.append(n)
            n = n.args[0]
        if chain:
            chains[node] = chain[::-1]
    return chains


def regions_of(gm, levels, ours, steps, chains):
    """Regions by level, with what they read and what others read of them."""
    output = gm.graph.output_node()
    leaving = {chains[n][0].args[0] if n in chains else n for n in output.args[0] if isinstance(n, Node)}
    regions = defaultdict(Region)
    for node in gm.graph.nodes:
        if ours.get(node) or node in steps:
            regions[levels[node]].nodes.append(node)
    for level, region in list(regions.items()):
        if not any(ours[n] for n in region.nodes):  # nothing that a plan would be made for
            steps.difference_update(region.nodes)
            del regions[level]
    for region in regions.values():
        inside = set(region.nodes)

        def read_outside(node):
            return node in leaving or any(u not in inside and u is not output for u in node.users)

        for node in region.nodes:
            if node in steps:
                region.steps.append(node)
                for n in node.all_input_nodes:
                    if n not in inside and n not in region.others:
                        region.others.append(n)
                if read_outside(node):
                    region.kept.append(node)
                continue
            if not _is_part(node):
                for n in tensor_arguments(node):
                    if n not in inside and n not in region.inputs:
                        region.inputs.append(n)
                if isinstance(node.meta["val"], (list, tuple)):
                    continue
            if read_outside(node):
                region.outputs.append(node)
    return {level: r for level, r in regions.items() if r.outputs or r.kept or any(is_ordered(n) for n in r.steps)}


def with_all_outputs(region):
    """The same region, giving the value of every node of ours that is one tensor."""
    mine = [n for n in region.nodes if is_tensor(n.meta["val"]) and n not in region.steps]
    return Region(region.nodes, region.inputs, mine, region.steps, region.others, region.kept)
