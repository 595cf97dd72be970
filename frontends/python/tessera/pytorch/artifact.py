# SPDX-License-Identifier: Apache-2.0
"""What torch.compile(f).aot_compile(...) saves and loads: the captured graph with how it is to be compiled.

Loading compiles it again, which takes what the cache of kernels has (TESSERA_CACHE_DIR).
"""

import pickle

import torch
from torch._dynamo.aot_compile_types import SerializableCallable


def wanted():
    """Whether PyTorch is compiling ahead of time, and asks for something that can be saved."""
    c = torch._functorch.config
    return bool(c.bundled_autograd_cache and c.force_autograd_cache)


class Artifact(SerializableCallable):
    def __init__(self, state, compiled):
        self._state, self._compiled = state, compiled

    @classmethod
    def of(cls, gm, inputs, settings, compile_now):
        """Compiles `gm`, and keeps it as it was before that."""
        state = _saved(gm, inputs, settings)
        # AOTAutograd's own entry would take Inductor's code alone.
        off = {"bundled_autograd_cache": False, "force_autograd_cache": False, "enable_autograd_cache": False}
        off |= {"bypass_autograd_cache_key": False, "strict_autograd_cache": False}
        with torch._functorch.config.patch(off):
            return cls(state, compile_now())

    @classmethod
    def serialize_compile_artifacts(cls, fn):
        return pickle.dumps(fn._state)

    @classmethod
    def deserialize_compile_artifacts(cls, data):
        from torch._guards import TracingContext, tracing
        from torch._subclasses import FakeTensorMode
        from torch.fx._graph_pickler import GraphPickler
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        from . import backend

        state = pickle.loads(data)
        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        gm, inputs = GraphPickler.loads(state["graph"], mode)
        gm.recompile()
        gm.meta.pop("dynamo_compile_id", None)  # it marks graphs that know where in the program their inputs came from
        with tracing(TracingContext(mode)):
            return cls(state, backend(gm, inputs, **state["settings"]))

    def __call__(self, *args, **kwargs):
        return self._compiled(*args, **kwargs)


def _saved(gm, inputs, settings):
    from torch.fx._graph_pickler import GraphPickler, Options

    dropped = ("nn_module_stack", "source_fn_stack", "fwd_source_fn_stack")
    kept = {n: dict(n.meta) for n in gm.graph.nodes}
    fake = [n.meta["example_value"] for n in gm.graph.find_nodes(op="placeholder")]
    try:
        for n in gm.graph.nodes:
            for key in (*dropped, *(() if n.op == "placeholder" else ("example_value",))):
                n.meta.pop(key, None)
        graph = GraphPickler.dumps((gm, fake), Options(ops_filter=None))
    finally:
        for n, meta in kept.items():
            n.meta.clear()
            n.meta.update(meta)
    return {"graph": graph, "settings": settings}
