# SPDX-License-Identifier: Apache-2.0
"""One FX graph of AOTAutograd's into a function that runs it."""

import itertools
import math
import operator
import time

import torch
from torch.fx.node import Node, map_arg

from .. import _core
from .emit import Emitter, Unsupported, is_lazy
from .packing import packing
from .partition import (
    ON_HOST,
    Partitioner,
    bytes_at_hints,
    is_on_host,
    is_tensor,
    leaving_views,
    lower,
    order_in_memory,
    regions_of,
    steps_of,
    symbols_of,
    with_all_outputs,
)
from .program import Program
from .shared import compile_shared
from .steps import Steps, argument_values
from .strides import Strided, arranged
from .verify import verified

_graphs = itertools.count()


class UnsupportedResult(Unsupported):
    """A region cannot give this node's result as PyTorch has it; the rest of the region is not to blame."""

    def __init__(self, node, why):
        super().__init__(why)
        self.node = node


class CompiledRegion:
    """A region as an executable: run(a call's list) -> tensors. The list begins with tensors and numbers, in the order of
    `inputs` and `carried`; behind them stands what steps need (steps.py)."""

    def __init__(
        self, context, records, region, shape_env, name, report, program, verify=False, frozen=None, recorded=None, marks=0,
        given_up=frozenset()
    ):
        self.region, self.report, self.name, self.verify = region, report, name, verify
        # given_up: inputs of which nobody keeps hold but the list of a call.
        self.given_up = frozenset() if verify else given_up.intersection(region.inputs)
        # recorded: what steps gave in another call, which they then give again.
        self.every_node = lambda recorded: CompiledRegion(
            context,
            records,
            with_all_outputs(region),
            shape_env,
            name,
            report,
            program,
            frozen=frozen,
            recorded=recorded,
            marks=marks,
        )
        self.with_constants = lambda tensors: CompiledRegion(
            context, records, region, shape_env, f"{name}_packed", report, program, frozen=tensors, marks=marks
        )
        self.static = ()  # inputs whose weights are to be packed (packing.py)
        steps = Steps(region) if region.steps else None
        self.values = (lambda s: shape_env.replace(s)) if shape_env is not None else (lambda s: s)
        self.frozen = {n: frozen[n] for n in region.inputs if n in frozen} if frozen else {}
        self.inputs, self.outputs = [n for n in region.inputs if n not in self.frozen], region.outputs
        self.views = []  # per output: what makes PyTorch's strides of the dense result, or None
        # What Python computes at a call: expressions, each with the dtype of the 0-d input or None for a size.
        self.carried = []

        def build(builder):
            e = Emitter(builder, records, shape_env, marks)
            env = {
                n: e.input(n.name, n.meta["val"], order_in_memory(n.meta["val"]), donated=n in self.given_up)
                for n in self.inputs
            }
            env.update((n, e.tensor(t)) for n, t in self.frozen.items())
            lowered = {}
            for node in region.nodes:
                if steps and node not in steps.ours:
                    steps.emit(e, node, env)
                    continue
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
                    value = e.placed(value, node.meta["val"].device)
                except Unsupported as why:
                    raise UnsupportedResult(node, str(why)) from None
                results.append(value.id)
                self.views.append(view)
            self.carried = [*e.numbers, *((s, None) for s in e.carry_sizes(self.inputs))]
            builder.outputs(results)

        graph = context.build(name, build)
        if _core.log_enabled("graph"):
            _core.log_write("graph", graph.print())
        self.executable = compile_shared(context, graph)
        count = len(self.inputs)
        sources = sources_of(self, range(count), range(count, count + len(self.carried)))
        self.steps, functions = steps, None
        if steps:
            self._check_carried(steps)
            steps.place(len(sources), keep_all=verify)
            functions = steps.replays(recorded) if recorded is not None else steps.functions(program)
            if _core.log_enabled("output_code"):
                _core.log_write("output_code", "".join(getattr(f, "source", "") for f in functions))
        self.runner = _core.Runner(self.executable, sources, torch.Tensor, functions)

    def _check_carried(self, steps):
        """A number that a call brings cannot come of what a step of the same call computes."""
        made = set()
        for n in steps.nodes:
            v = n.meta.get("val")
            made |= set().union(*[symbols_of(x) for x in (v if isinstance(v, (list, tuple)) else [v])])
        known = set()
        for n in [*self.inputs, *self.region.others]:
            v = n.meta.get("val")
            known |= {s for x in (v if isinstance(v, (list, tuple)) else [v]) for s in symbols_of(x)}
        for expression, _ in self.carried:
            if (getattr(expression, "free_symbols", set()) & made) - known:
                raise Unsupported("a number that depends on the size of a step's result")

    def guarded(self, run, inputs):
        """`run`, and ATen where the call is not what PyTorch's fake tensors promised: a dtype, a size or an assumption. Under
        torch.profiler the region and each of its kernels is a range.

        inputs: where in the arguments of `run` the tensors of this region stand.
        """

        def call(args):
            try:
                if _profiling():
                    with torch.profiler.record_function(f"tessera {self.name}"):
                        return run(args, KernelRanges())
                return run(args)
            except _core.UserError as e:
                if not e.code.startswith("TSR-T02") or (self.steps and args[self.steps.ran]):
                    raise
                self.report.fell_back(e)
                return self.through_aten_call(args, inputs)

        return verified(self, call, inputs, self.name) if self.verify else call

    def through_aten_call(self, args, inputs):
        """What ATen computes of a call's list, as the executable and its steps would leave it."""
        tensors, numbers = [args[k] for k in inputs], args[len(self.inputs) : len(self.inputs) + len(self.carried)]
        values = argument_values(self.steps, args) if self.steps else {}
        results = self.through_aten(tensors, numbers, values)
        if self.steps:
            for n, where in self.steps.slots.items():
                args[where] = values[n]
        return results

    def through_aten(self, tensors, numbers, others=None):
        """What ATen computes of the region's inputs, as the executable would give it. others: what steps read from outside, by
        node, and their results where they are not to run again; it gets those that run."""
        others = {} if others is None else others
        env = {**self.frozen, **dict(zip(self.inputs, tensors)), **others}
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
            if node not in others:
                env[node] = node.target(*map_arg(node.args, argument), **map_arg(node.kwargs, argument))
            if self.steps and node in self.steps.slots:
                others[node] = env[node]
            if is_tensor(node.meta["val"]):
                for k, d in enumerate(node.meta["val"].shape):
                    if isinstance(d, torch.SymInt) and d.node.expr.is_Symbol:
                        values.setdefault(d.node.expr, env[node].shape[k])
        results = []
        for n, view in zip(self.outputs, self.views):  # as the executable would give them: the view comes after
            results.append(view.undo(env[n]) if view is not None else env[n])
        return results


_profiling = torch.autograd._profiler_enabled


class KernelRanges:
    """Shows a run's kernels to torch.profiler: their names, and the line of the program that each comes from."""

    def __init__(self):
        self.open = None

    def __call__(self, name, file, line):
        if name is not None:
            self.open = torch.profiler.record_function(f"tessera::{name}", f"{file}:{line}" if file else None)
            self.open.__enter__()
        elif self.open is not None:
            self.open.__exit__(None, None, None)
            self.open = None


def tensor_sources(inputs, places):
    """Of a runner: where the tensors stand among its arguments, and the order of their dimensions in the graph."""
    return [(place, 0, *(order_in_memory(n.meta["val"]) or ())) for place, n in zip(places, inputs)]


def sources_of(region, places, carried):
    """Of a region's runner: tensors at `places` among its arguments, and the numbers that Python computes at `carried`."""
    kinds = {None: 1, torch.float64: 2, torch.int64: 3}
    numbers = [(place, kinds[dtype]) for place, (_, dtype) in zip(carried, region.carried)]
    return tensor_sources(region.inputs, places) + numbers


def compile_graph(gm, context, records, options, report, frozen=None, static=(), marks=0, backward=False):
    """gm: AOTAutograd's graph, with fake values in its nodes' meta; frozen: tensors that never change, by placeholder; static:
    placeholders of weights to be packed; marks: of all nodes, TSR_MARK_*; backward: the graph is a backward half, which is the
    last to read what was kept for it. A boxed function."""
    started = time.perf_counter()
    shape_env = _shape_env(gm)
    partitioner = Partitioner(context, records, gm, shape_env)
    ours = partitioner.assign()
    # A budget in bytes was planned with what was kept on its way out.
    bounded = isinstance(options["activation_memory_budget"], str)
    given_up = _given_up(gm, 0 if bounded else _LARGE) if backward else frozenset()
    may_step = True
    while True:
        steps = steps_of(gm, ours) if may_step else set()
        levels = Partitioner.levels(gm, ours, steps)
        chains = leaving_views(gm, ours)
        regions = regions_of(gm, levels, ours, steps, chains)
        program = _program(gm, report)
        try:
            compiled = {}
            for level, region in sorted(regions.items()):
                for n in region.outputs:
                    if partitioner.on_gpu and is_on_host(n):
                        raise UnsupportedResult(n, ON_HOST)
                name = f"graph{next(_graphs)}"
                compiled[level] = CompiledRegion(
                    context, records, region, shape_env, name, report, program, options["verify"], frozen, marks=marks,
                    given_up=given_up
                )
                compiled[level].static = static
            call = _generate(program, levels, ours, steps, chains, compiled)
            break
        except UnsupportedResult as e:
            why, blamed = str(e), [e.node]
            if e.node.target is operator.getitem:
                blamed = [n for n in regions[level].nodes if n in (e.node.args[0], *e.node.args[0].users)]
        except (Unsupported, _core.UserError) as e:
            if steps:  # perhaps the plan cannot have them as its steps; then they run between regions
                may_step = False
                continue
            # What single nodes could not show: the region is given to ATen as a whole.
            why = f"{e.code}: {e.message}" if isinstance(e, _core.UserError) else str(e)
            blamed = [n for n in regions[level].nodes if ours[n]]
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
    return call


_LARGE = 64 << 20  # bytes: below, the outputs of a call are asked for at once, which is faster


def _given_up(gm, least):
    """What was kept for a backward half, where it is so many bytes that a call lets go of it on its way."""
    kept = [n for n in gm.graph.find_nodes(op="placeholder") if is_tensor(n.meta.get("val")) and not n.name.startswith("primals")]
    return frozenset(kept) if sum(bytes_at_hints(n.meta["val"]) for n in kept) >= least else frozenset()


def _shape_env(gm):
    for node in gm.graph.nodes:
        v = node.meta.get("val")
        for x in v if isinstance(v, (list, tuple)) else [v]:
            if isinstance(x, torch.SymInt):
                return x.node.shape_env
            if isinstance(x, torch.Tensor) and getattr(x, "fake_mode", None) is not None and x.fake_mode.shape_env is not None:
                return x.fake_mode.shape_env
    return None


def _program(gm, report):
    p = Program(gm, report)
    for k, n in enumerate(gm.graph.find_nodes(op="placeholder")):
        p.names[n] = f"a{k}"
    for n in gm.graph.find_nodes(op="get_attr"):
        p.names[n] = p.bind(_attribute(gm, n.target), "k")
    return p


def _generate(p, levels, ours, steps, chains, compiled):
    gm = p.gm
    nodes = [n for n in gm.graph.nodes if n.op not in ("output",)]
    output = next(n for n in gm.graph.nodes if n.op == "output")
    placeholders = [n for n in nodes if n.op == "placeholder"]
    # Statements in order: level by level, in a level as the graph has them.
    statements = []  # (reads, writes, text, text that comes before what nobody reads any more is dropped)
    by_level = {}
    for n in nodes:
        if n.op not in ("placeholder", "get_attr") and not ours[n] and n not in steps:
            by_level.setdefault(levels[n], []).append(n)
    sizes = _size_sources(nodes, ours, steps)
    for level in sorted(set(by_level) | set(compiled)):
        if level in compiled:
            statements.append(_region_step(p, compiled[level], sizes))
        for n in by_level.get(level, []):
            statements.append(_node_step(p, n))
    results = output.args[0]
    made = {}  # views that leave, by node
    for node in results:
        for n in chains.get(node, ()) if isinstance(node, Node) else ():
            if n not in made:
                statements.append(_view_step(p, n, made))
    reads = [n for n in results if isinstance(n, Node) and n not in chains]
    texts = [made[n] if n in chains else p.text(n) for n in results]
    statements.append((reads, [], f"return ({''.join(t + ', ' for t in texts)})", ""))
    direct = _direct(p, placeholders, statements, compiled, results)
    if direct is not None:
        return direct
    last = {}
    for k, (read, _, _, _) in enumerate(statements):
        for n in read:
            last[n] = k
    lines = ["def call(args):"]
    if placeholders:
        lines.append("    " + ", ".join(p.names[n] for n in placeholders) + ("," if len(placeholders) == 1 else "") + " = args")
    lines.append("    args.clear()")
    dead = [p.names[n] for n in placeholders if n not in last]
    if dead:
        lines.append("    del " + ", ".join(dead))
    for k, (read, written, text, before) in enumerate(statements):
        final = k + 1 == len(statements)
        free = [p.names[n] for n in dict.fromkeys(read) if last.get(n, -1) <= k and n.op != "get_attr" and not final]
        if before:
            lines.append("    " + before)
            if free:
                lines.append("    del " + ", ".join(free))
            free = []
        lines.append("    " + text)
        free += [p.names[n] for n in written if n not in last and not final]
        if free:
            lines.append("    del " + ", ".join(dict.fromkeys(free)))
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


def _size_sources(nodes, ours, steps):
    """Where a symbol's value can be had at run time: a node that is it, or a tensor and a dimension."""
    found = {}
    for n in nodes:
        v = n.meta.get("val")
        if isinstance(v, (torch.SymInt, torch.SymFloat)) and v.node.expr.is_Symbol:
            found.setdefault(v.node.expr, (n, None))
    for n in nodes:
        v = n.meta.get("val")
        if is_tensor(v) and not ours.get(n) and n not in steps:
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
    count = len(region.inputs)
    run = packing(region, region.runner.run, region.static, range(count), range(count, count + len(region.carried)))
    run = p.bind(region.guarded(run, range(count)), "run")
    steps = region.steps
    others = steps.region.others if steps else []
    # An executable reads memory, which does not hold the value where its conjugate or negative is taken by who reads it.
    resolved = {n: ".resolve_conj().resolve_neg()" if is_lazy(n.meta["val"]) else "" for n in region.inputs}
    reads, arguments = [*region.inputs, *others], [p.names[n] + resolved[n] for n in region.inputs]
    arguments += [_number_text(p, expression, sizes, region.values, reads) for expression, _ in region.carried]
    before, listed = "", f"[{', '.join(arguments)}]"
    if steps:
        arguments += [p.names[n] for n in others] + ["None"] * (len(steps.slots) + 1)
        before, listed = f"call_list = [{', '.join(arguments)}]", "call_list"
    elif region.given_up:  # then no name holds them in the call
        before, listed = f"call_list = {listed}", "call_list"
    written = [*region.outputs, *(steps.region.kept if steps else [])]
    for n in written:
        p.names[n] = f"v{len(p.names)}"
    text = ", ".join(p.names[n] for n in region.outputs)
    text += f"{',' if len(region.outputs) == 1 else ''} = " if region.outputs else ""
    text += f"{run}({listed})"
    for n in steps.region.kept if steps else []:
        text += f"; {p.names[n]} = {steps.result_text(n, listed)}"
    if listed == "call_list":
        text += "; del call_list"
    late = False
    for n, view in zip(region.outputs, region.views):
        if view is None:
            continue
        extra = ""
        if isinstance(view, Strided) and not all(isinstance(s, int) for s in (*view.sizes, *view.strides)):
            lists = [[_number_text(p, s, sizes, region.values, reads) for s in of] for of in (view.sizes, view.strides)]
            extra = "".join(f", [{', '.join(of)}]" for of in lists)
            late = True
        text += f"; {p.names[n]} = {p.bind(view, 'view')}({p.names[n]}{extra})"
    if late and before:  # what is read behind the call lives until then
        before, text = "", f"{before}; {text}"
    return reads, written, text, before


def _node_step(p, n):
    f = p.bind(n.target, "f") if n.op == "call_function" else None
    if f is None:
        raise Unsupported(f"a node of kind {n.op}")
    arguments = [p.text(a) for a in n.args] + [f"{k}={p.text(v)}" for k, v in n.kwargs.items()]
    p.names[n] = f"v{len(p.names)}"
    reads = []
    map_arg((n.args, n.kwargs), lambda m: reads.append(m))
    return reads, [n], f"{p.names[n]} = {f}({', '.join(arguments)})", ""


def _view_step(p, n, made):
    """A view that leaves the graph, of its base as ATen has it."""
    reads = []
    map_arg((n.args, n.kwargs), lambda m: reads.append(m) if m not in made else None)
    f = p.bind(n.target, "f")
    first = made.get(n.args[0]) or p.text(n.args[0])
    arguments = [first] + [p.text(a) for a in n.args[1:]] + [f"{k}={p.text(v)}" for k, v in n.kwargs.items()]
    made[n] = f"w{len(made)}"
    return reads, [], f"{made[n]} = {f}({', '.join(arguments)})", ""


def _direct(p, placeholders, statements, compiled, results):
    """The runner itself, when all there is to do is one region: no line of Python runs in a call."""
    if len(statements) != 2 or len(compiled) != 1:
        return None
    region = next(iter(compiled.values()))
    if region.steps or region.carried or any(v is not None for v in region.views) or list(results) != region.outputs:
        return None
    position = {n: k for k, n in enumerate(placeholders)}
    if any(n not in position or is_lazy(n.meta["val"]) for n in region.inputs):
        return None
    places = [position[n] for n in region.inputs]
    run = _core.Runner(region.executable, tensor_sources(region.inputs, places), torch.Tensor).run
    run = region.guarded(packing(region, run, region.static, places), places)

    def call(args):
        results = run(args)
        args.clear()
        return results

    call._boxed_call = True
    return call
