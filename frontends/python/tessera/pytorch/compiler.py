# SPDX-License-Identifier: Apache-2.0
"""One FX graph of AOTAutograd's into a function that runs it."""

import itertools
import math
import operator
import time

import torch
from torch.fx.node import Node, map_arg

from .. import _core
from .emit import Emitter, Unsupported
from .partition import (
    Partitioner,
    hints,
    is_dense,
    is_tensor,
    leaving_views,
    lower,
    order_in_memory,
    regions_of,
    with_all_outputs,
)
from .verify import verified

_graphs = itertools.count()


class UnsupportedResult(Unsupported):
    """A region cannot give this node's result as PyTorch has it; the rest of the region is not to blame."""

    def __init__(self, node, why):
        super().__init__(why)
        self.node = node


class CompiledRegion:
    """A region as an executable: run(tensors and sizes) -> tensors."""

    def __init__(self, context, records, region, shape_env, name, report, verify=False, frozen=None):
        self.region, self.report, self.name, self.verify = region, report, name, verify
        self.every_node = lambda: CompiledRegion(
            context, records, with_all_outputs(region), shape_env, name, report, frozen=frozen
        )
        self.values = (lambda s: shape_env.replace(s)) if shape_env is not None else (lambda s: s)
        self.frozen = {n: frozen[n] for n in region.inputs if n in frozen} if frozen else {}
        self.inputs, self.outputs = [n for n in region.inputs if n not in self.frozen], region.outputs
        self.views = []  # per output: what makes PyTorch's strides of the dense result, or None
        # What Python computes at a call: expressions, each with the dtype of the 0-d input or None for a size.
        self.carried = []

        def build(builder):
            e = Emitter(builder, records, shape_env)
            env = {n: e.input(n.name, n.meta["val"], order_in_memory(n.meta["val"])) for n in self.inputs}
            env.update((n, e.tensor(t)) for n, t in self.frozen.items())
            lowered = {}
            for node in region.nodes:
                if node.target is operator.getitem:
                    env[node] = lowered[node.args[0]][node.args[1]]
                    continue
                result = lower(e, node, env)
                if isinstance(result, list):
                    lowered[node] = result
                else:
                    env[node] = result
            results = []
            self.views.clear()
            for node in region.outputs:
                try:
                    value, view = arranged(e, env[node], node.meta["val"])
                except Unsupported as why:
                    raise UnsupportedResult(node, str(why)) from None
                results.append(value.id)
                self.views.append(view)
            # A symbol that no input has as a size of its own gets an input that only carries it.
            bare = {d.node.expr for n in self.inputs for d in n.meta["val"].shape if isinstance(d, torch.SymInt)}
            self.carried = list(e.numbers)
            for s, size in e.symbols.items():
                if s not in bare and s not in e.made:
                    builder.input(f"size_{len(self.carried)}", _core.dtypes["bool"], [size], 1)
                    self.carried.append((s, None))
            builder.outputs(results)

        graph = context.build(name, build)
        if _core.log_enabled("graph"):
            _core.log_write("graph", graph.print())
        self.executable = context.compile(graph)
        sources = tensor_sources(self.inputs, range(len(self.inputs)))
        kinds = {None: 1, torch.float64: 2, torch.int64: 3}
        sources += [(len(self.inputs) + k, kinds[dtype]) for k, (_, dtype) in enumerate(self.carried)]
        self.runner = _core.Runner(self.executable, sources, torch.Tensor)

    def guarded(self, run, inputs):
        """`run`, and ATen where the call is not what PyTorch's fake tensors promised: a dtype, a size or an assumption.

        inputs: where in the arguments of `run` the tensors of this region stand.
        """

        def call(args):
            try:
                return run(args)
            except _core.UserError as e:
                if not e.code.startswith("TSR-T02"):
                    raise
                self.report.fell_back(e)
                tensors = [args[k] for k in inputs]
                return self.through_aten(tensors, args[len(self.inputs) :])

        return verified(self, call, inputs, self.name, self.every_node) if self.verify else call

    def through_aten(self, tensors, numbers):
        """What ATen computes of the region's inputs, as the executable would give it."""
        env = {**self.frozen, **dict(zip(self.inputs, tensors))}
        values = {}  # of symbols and expressions
        for n in self.inputs:
            for k, d in enumerate(n.meta["val"].shape):
                if isinstance(d, torch.SymInt) and d.node.expr.is_Symbol:
                    values[d.node.expr] = env[n].shape[k]
        values.update((expression, value) for (expression, _), value in zip(self.carried, numbers))

        def argument(n):
            if n in env:
                return env[n]
            number = n.meta["val"]
            expression = number.node.expr
            found = values[expression] if expression in values else expression.subs(values)
            return int(found) if isinstance(number, torch.SymInt) else float(found)

        for node in self.region.nodes:
            env[node] = node.target(*map_arg(node.args, argument), **map_arg(node.kwargs, argument))
            if is_tensor(node.meta["val"]):
                for k, d in enumerate(node.meta["val"].shape):
                    if isinstance(d, torch.SymInt) and d.node.expr.is_Symbol:
                        values.setdefault(d.node.expr, env[node].shape[k])
        results = []
        for n, view in zip(self.outputs, self.views):  # as the executable would give them: the view comes after
            results.append(view.undo(env[n]) if view is not None else env[n])
        return results


def tensor_sources(inputs, places):
    """Of a runner: where the tensors stand among its arguments, and the order of their dimensions in the graph."""
    return [(place, 0, *(order_in_memory(n.meta["val"]) or ())) for place, n in zip(places, inputs)]


class Permuted:
    """A result that lies in another order of dimensions than its shape says."""

    def __init__(self, order):
        self.order = order
        self.inverse = [order.index(k) for k in range(len(order))]

    def __call__(self, x):
        return x.permute(self.inverse)

    def undo(self, x):
        return x.permute(self.order)


class Strided:
    """A result with gaps between its elements, or with elements that are several: a view of something larger in PyTorch."""

    def __init__(self, sizes, strides):
        self.sizes, self.strides = sizes, strides  # numbers, or expressions that each call computes

    def __call__(self, x, sizes=None, strides=None):
        sizes, strides = sizes or self.sizes, strides or self.strides
        repeated = [k for k, (n, s) in enumerate(zip(sizes, strides)) if s == 0 and n > 1]
        for k in repeated:
            x = x.narrow(k, 0, 1)
        y = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)
        return y.expand(sizes)

    def undo(self, x):
        return x


def _number_or_expression(s):
    return s.node.expr if isinstance(s, torch.SymInt) else s


def arranged(e, value, fake):
    """The value in the order of memory that PyTorch's strides ask for, and what makes of it a tensor with these strides, or
    None."""
    if fake.dim() == 0 or is_dense(fake):
        return value, None
    strides = hints(fake.stride())
    if strides is None:  # sizes depend on data
        order = list(reversed(range(fake.dim())))
        if not is_dense(fake, order):
            raise Unsupported("a result whose size depends on data, and whose elements do not lie side by side")
        return e("transpose", value, perm=order), Permuted(order)
    order = sorted(range(fake.dim()), key=lambda k: (-strides[k], k))
    if not is_dense(fake, order):
        return value, Strided(*([_number_or_expression(s) for s in of] for of in (fake.shape, fake.stride())))
    if order == list(range(fake.dim())):
        return value, None
    return e("transpose", value, perm=order), Permuted(order)


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


def compile_graph(gm, context, records, options, report, frozen=None):
    """gm: AOTAutograd's graph, with fake values in its nodes' meta; frozen: tensors that never change, by placeholder. A boxed
    function."""
    started = time.perf_counter()
    shape_env = _shape_env(gm)
    partitioner = Partitioner(context, records, gm, shape_env)
    ours = partitioner.assign()
    while True:
        levels = Partitioner.levels(gm, ours)
        chains = leaving_views(gm, ours)
        regions = regions_of(gm, levels, ours, chains)
        try:
            compiled = {}
            for level, region in sorted(regions.items()):
                compiled[level] = CompiledRegion(
                    context, records, region, shape_env, f"graph{next(_graphs)}", report, options["verify"], frozen
                )
            break
        except UnsupportedResult as e:
            why, blamed = str(e), [e.node]
            if e.node.target is operator.getitem:
                blamed = [n for n in regions[level].nodes if n in (e.node.args[0], *e.node.args[0].users)]
        except Unsupported as e:  # what single nodes could not show: the region is given to ATen as a whole
            why, blamed = str(e), regions[level].nodes
        except _core.UserError as e:
            why, blamed = f"{e.code}: {e.message}", regions[level].nodes
        for node in blamed:
            ours[node] = False
            if node.target is not operator.getitem:
                partitioner.refuse(node, why)
    report.add(gm, partitioner.refusals, compiled, time.perf_counter() - started)
    if options["fallback"] == "error" and partitioner.refusals:
        r = partitioner.refusals[0]
        error = _core.UserError(
            f"{len(partitioner.refusals)} nodes would run through ATen, and options={{'fallback': 'error'}} refuses it; "
            f"the first is {r.op}: {r.why}" + (f" ({r.where})" if r.where else "")
        )
        error.code, error.message, error.hint = "TSR-F060", str(error), "leave the option out to let ATen run them"
        raise error
    return _generate(gm, levels, ours, chains, compiled, report)


def _shape_env(gm):
    for node in gm.graph.nodes:
        v = node.meta.get("val")
        for x in v if isinstance(v, (list, tuple)) else [v]:
            if isinstance(x, torch.SymInt):
                return x.node.shape_env
            if isinstance(x, torch.Tensor) and getattr(x, "fake_mode", None) is not None and x.fake_mode.shape_env is not None:
                return x.fake_mode.shape_env
    return None


def _generate(gm, levels, ours, chains, compiled, report):
    p = Program(gm, report)
    nodes = [n for n in gm.graph.nodes if n.op not in ("output",)]
    output = next(n for n in gm.graph.nodes if n.op == "output")
    placeholders = [n for n in nodes if n.op == "placeholder"]
    for k, n in enumerate(placeholders):
        p.names[n] = f"a{k}"
    for n in nodes:
        if n.op == "get_attr":
            p.names[n] = p.bind(_attribute(gm, n.target), "k")
    # Statements in order: level by level, in a level as the graph has them.
    steps = []  # (reads, writes, text)
    by_level = {}
    for n in nodes:
        if n.op not in ("placeholder", "get_attr") and not ours[n]:
            by_level.setdefault(levels[n], []).append(n)
    sizes = _size_sources(nodes, ours)
    for level in sorted(set(by_level) | set(compiled)):
        if level in compiled:
            steps.append(_region_step(p, compiled[level], sizes))
        for n in by_level.get(level, []):
            steps.append(_node_step(p, n))
    results = output.args[0]
    made = {}  # views that leave, by node
    for node in results:
        for n in chains.get(node, ()) if isinstance(node, Node) else ():
            if n not in made:
                steps.append(_view_step(p, n, made))
    reads = [n for n in results if isinstance(n, Node) and n not in chains]
    texts = [made[n] if n in chains else p.text(n) for n in results]
    steps.append((reads, [], f"return ({''.join(t + ', ' for t in texts)})"))
    direct = _direct(p, placeholders, steps, compiled, results)
    if direct is not None:
        return direct
    last = {}
    for k, (read, _, _) in enumerate(steps):
        for n in read:
            last[n] = k
    lines = ["def call(args):"]
    if placeholders:
        lines.append("    " + ", ".join(p.names[n] for n in placeholders) + ("," if len(placeholders) == 1 else "") + " = args")
    lines.append("    args.clear()")
    dead = [p.names[n] for n in placeholders if n not in last]
    if dead:
        lines.append("    del " + ", ".join(dead))
    for k, (read, written, text) in enumerate(steps):
        lines.append("    " + text)
        if k + 1 == len(steps):
            continue
        free = [p.names[n] for n in dict.fromkeys([*read, *written]) if last.get(n, -1) <= k and n.op != "get_attr"]
        if free:
            lines.append("    del " + ", ".join(free))
    source = "\n".join(lines) + "\n"
    if _core.log_enabled("output_code"):
        _core.log_write("output_code", source)
    exec(compile(source, "<tessera graph>", "exec"), p.globals)
    call = p.globals["call"]
    call._boxed_call = True
    call._source = source
    return call


def _attribute(gm, target):
    value = gm
    for part in target.split("."):
        value = getattr(value, part)
    return value


def _size_sources(nodes, ours):
    """Where a symbol's value can be had at run time: a node that is it, or a tensor and a dimension."""
    found = {}
    for n in nodes:
        v = n.meta.get("val")
        if isinstance(v, (torch.SymInt, torch.SymFloat)) and v.node.expr.is_Symbol:
            found.setdefault(v.node.expr, (n, None))
    for n in nodes:
        v = n.meta.get("val")
        if is_tensor(v) and not ours.get(n):
            for k, d in enumerate(v.shape):
                if isinstance(d, torch.SymInt) and d.node.expr.is_Symbol:
                    found.setdefault(d.node.expr, (n, k))
    return found


def _number_text(p, expression, sizes, values, reads):
    """The value of a sympy expression at a call as source text; `reads` gets the nodes that it is read from."""
    expression = values(expression) if not isinstance(expression, (int, float)) else expression
    if isinstance(expression, (int, float)) or expression.is_number:
        return repr(int(expression) if int(expression) == expression else float(expression))
    symbols = sorted(expression.free_symbols, key=str)
    texts = []
    for s in symbols:
        if s not in sizes:
            raise Unsupported(f"the size {expression}, whose symbol {s} no node has")
        node, dim = sizes[s]
        reads.append(node)
        texts.append(p.names[node] if dim is None else f"{p.names[node]}.size({dim})")
    if expression.is_Symbol:
        return texts[0]
    from torch.utils._sympy.printers import PythonPrinter

    source = f"lambda {', '.join(map(str, symbols))}: {PythonPrinter().doprint(expression)}"
    return f"{p.bind(eval(source, {'math': math, 'torch': torch}), 'size')}({', '.join(texts)})"


def _region_step(p, region, sizes):
    run = p.bind(region.guarded(region.runner.run, range(len(region.inputs))), "run")
    reads, arguments = list(region.inputs), [p.names[n] for n in region.inputs]
    arguments += [_number_text(p, expression, sizes, region.values, reads) for expression, _ in region.carried]
    for n in region.outputs:
        p.names[n] = f"v{len(p.names)}"
    text = ", ".join(p.names[n] for n in region.outputs)
    text += f"{',' if len(region.outputs) == 1 else ''} = {run}([{', '.join(arguments)}])"
    for n, view in zip(region.outputs, region.views):
        if view is None:
            continue
        extra = ""
        if isinstance(view, Strided) and not all(isinstance(s, int) for s in (*view.sizes, *view.strides)):
            lists = [[_number_text(p, s, sizes, region.values, reads) for s in of] for of in (view.sizes, view.strides)]
            extra = "".join(f", [{', '.join(of)}]" for of in lists)
        text += f"; {p.names[n]} = {p.bind(view, 'view')}({p.names[n]}{extra})"
    return reads, list(region.outputs), text


def _node_step(p, n):
    f = p.bind(n.target, "f") if n.op == "call_function" else None
    if f is None:
        raise Unsupported(f"a node of kind {n.op}")
    arguments = [p.text(a) for a in n.args] + [f"{k}={p.text(v)}" for k, v in n.kwargs.items()]
    p.names[n] = f"v{len(p.names)}"
    reads = []
    map_arg((n.args, n.kwargs), lambda m: reads.append(m))
    return reads, [n], f"{p.names[n]} = {f}({', '.join(arguments)})"


def _view_step(p, n, made):
    """A view that leaves the graph, of its base as ATen has it."""
    reads = []
    map_arg((n.args, n.kwargs), lambda m: reads.append(m) if m not in made else None)
    f = p.bind(n.target, "f")
    first = made.get(n.args[0]) or p.text(n.args[0])
    arguments = [first] + [p.text(a) for a in n.args[1:]] + [f"{k}={p.text(v)}" for k, v in n.kwargs.items()]
    made[n] = f"w{len(made)}"
    return reads, [], f"{made[n]} = {f}({', '.join(arguments)})"


def _direct(p, placeholders, steps, compiled, results):
    """The runner itself, when all there is to do is one region: no line of Python runs in a call."""
    if len(steps) != 2 or len(compiled) != 1:
        return None
    region = next(iter(compiled.values()))
    if region.carried or any(v is not None for v in region.views) or list(results) != region.outputs:
        return None
    position = {n: k for k, n in enumerate(placeholders)}
    if any(n not in position for n in region.inputs):
        return None
    places = [position[n] for n in region.inputs]
    run = region.guarded(_core.Runner(region.executable, tensor_sources(region.inputs, places), torch.Tensor).run, places)

    def call(args):
        results = run(args)
        args.clear()
        return results

    call._boxed_call = True
    return call
