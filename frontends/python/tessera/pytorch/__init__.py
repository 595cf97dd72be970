# SPDX-License-Identifier: Apache-2.0
"""torch.compile(module, backend="tessera").

    backend(gm, inputs, *, mode=None, options=None)   what PyTorch calls
    report()                                          what ran where, as text
    reset()                                           forget what it says
    list_options(), list_mode_options()               what `mode` and `options` take

docs/pytorch.md says what `mode` and `options` take.
"""

import functools
import json
import os
import threading

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from .. import _core
from . import artifact, dynamo_trace
from .compiler import compile_graph
from .emit import Records
from .frozen import FrozenGraph, weights_of
from .heads import repeat_again
from .masks import simplify_masks
from .ops import TABLE
from .options import list_mode_options, list_options, parsed, refuse
from .partition import devices_of
from .recompute import partitioner
from .report import REPORT

__all__ = ["backend", "list_mode_options", "list_options", "report", "reset"]

SUPPORTED = ((2, 11), (2, 15))

_SAVE = 8  # TSR_MARK_SAVE

_lock = threading.Lock()
_contexts = {}


def report():
    """What became of the graphs compiled so far: how many, and which operators ran through ATen for which reason."""
    return str(REPORT)


def reset():
    """Forgets what report() says. torch._dynamo.reset() calls it."""
    REPORT.clear()


def _context(config, texts):
    key = (config, texts, os.stat(config).st_mtime_ns if config and os.path.exists(config) else None)
    with _lock:
        if key not in _contexts:
            context = _core.Context(config=config, overrides=list(texts))
            _contexts[key] = context, Records(context)
        return _contexts[key]


def _partition_fn(config, overrides, context, budget, on_gpu):
    if budget is None and not on_gpu:
        return default_partition
    if not on_gpu and not isinstance(budget, str):
        return partitioner(budget)
    # The joint graph is planned as it is, without passes that would change it; fusion belongs to the pricing.
    passes = [p["name"] for p in json.loads(context.explain())["passes"]]
    texts = ["pipeline.passes=" + json.dumps([p for p in passes if p == "fuse"]), "pipeline.joint=[]", 'remat.share_of="kept"']

    def planning(name, limit=None):
        limits = [] if limit is None else [f"partitioner.budget{'_bytes' if isinstance(limit, str) else ''}={json.dumps(limit)}"]
        return _context(config, (*overrides, *texts, f"partitioner.name={json.dumps(name)}", *limits))

    return partitioner(budget, planning)


# Operators that PyTorch's core set leaves whole, and whose decompositions lead to operators that have lowerings.
BEYOND_CORE = {
    "aten._batch_norm_with_update_functional.default",
    "aten.batch_norm_backward.default",
    "aten.dist.default",
    "aten.grid_sampler_2d.default",
    "aten.narrow_copy.default",
    "aten.unbind_copy.int",
}


# On a GPU in parts as well, of which backward computes again what is cheap: the results of these are as large as what they
# read, and as a rule wider.
IN_PARTS_ON_GPU = {"aten._log_softmax.default"}


@functools.cache
def decompositions(on_gpu=False):
    """Those of PyTorch's that lead to what has a lowering, without those that lose something on the way."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    kept = ("scaled_dot_product", "native_dropout.default", "native_layer_norm_backward", "embedding_dense_backward")
    beyond = BEYOND_CORE | IN_PARTS_ON_GPU if on_gpu else BEYOND_CORE
    whole = TABLE.keys() - IN_PARTS_ON_GPU if on_gpu else TABLE.keys()
    table = dict(core_aten_decompositions().items())
    table.update((op, f) for op, f in decomposition_table.items() if str(op) in beyond)
    return {op: f for op, f in table.items() if str(op) not in whole and not any(k in str(op) for k in kept)}


def _check_version():
    found = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if not SUPPORTED[0] <= found <= SUPPORTED[1]:
        raise refuse(
            f"PyTorch {torch.__version__} is outside of {SUPPORTED[0][0]}.{SUPPORTED[0][1]} to "
            f"{SUPPORTED[1][0]}.{SUPPORTED[1][1]}, which this version of tessera supports",
            "install one of these, or a tessera that supports yours",
        )


def backend(gm, inputs, *, mode=None, options=None, name=None, **_):
    """Called by torch.compile for every graph that Dynamo captures."""
    _check_version()
    chosen, overrides = parsed(mode, options)
    on_gpu = any(device.type == "cuda" for device in devices_of(gm))
    if chosen["config"] is None and on_gpu:
        chosen["config"] = "cuda"
    context, records = _context(chosen["config"], overrides)
    budget = chosen["activation_memory_budget"]
    # AOTAutograd keeps the compilers as long as what they made; they must not keep the tensors of the first call with it.
    given = [inputs]
    names = [n.name for n in gm.graph.find_nodes(op="placeholder")]

    def compile_half(graph, _inputs, backward=False):
        # Of a training step, in which parameters change. What a half computes depends on the budget, and bits must not: with
        # one, backends see that it is a part of a training step.
        return compile_graph(graph, context, records, chosen, REPORT, marks=0 if budget is None else _SAVE, backward=backward)

    partition = _partition_fn(chosen["config"], overrides, context, budget, on_gpu)

    def partition_simplified(joint, joint_inputs, **kwargs):
        simplify_masks(joint)
        if on_gpu:
            repeat_again(joint)
        return partition(joint, joint_inputs, **kwargs)

    def compile_inference(graph, _inputs):
        simplify_masks(graph)
        weights = weights_of(graph, given[0]) if given and (chosen["freezing"] or chosen["pack_weights"]) else {}
        if not chosen["freezing"]:
            return compile_graph(graph, context, records, chosen, REPORT, static=weights)
        call = compile_graph(graph, context, records, chosen, REPORT, frozen=weights)
        return FrozenGraph(call, graph, weights, names) if weights else call

    def compile_with(table):
        return aot_autograd(
            fw_compiler=compile_half,
            bw_compiler=functools.partial(compile_half, backward=True),
            inference_compiler=compile_inference,
            partition_fn=partition_simplified,
            decompositions=table,
        )(gm, inputs)

    def compile_now():
        try:
            try:
                return compile_with(decompositions(on_gpu))
            except GuardOnDataDependentSymNode:  # of a decomposition that asks for a value: without one, ATen has it
                return compile_with({})
        finally:
            given.clear()

    if artifact.wanted():
        return artifact.Artifact.of(gm, inputs, {"mode": mode, "options": options}, compile_now)
    return compile_now()


backend.reset = reset
dynamo_trace.start()
