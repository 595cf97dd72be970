# SPDX-License-Identifier: Apache-2.0
"""options={"freezing": True}: parameters and buffers as constants, which share PyTorch's memory and are packed for kernels.

A write to one of them would be seen by what reads the memory and not by what was packed. So every call compares addresses and
versions with those of the compile, and refuses to compute with a mixture.
"""

import torch

from .options import refuse


def weights_of(graph, inputs):
    """By placeholder, the parameters and buffers that the graph reads and does not write."""
    tracing = torch._guards.TracingContext.try_get()
    meta = tracing.fw_metadata if tracing is not None else None
    if meta is None:
        return {}
    static, found = set(meta.static_input_indices or ()), {}
    for node in graph.graph.find_nodes(op="placeholder"):
        index = getattr(node.meta.get("desc"), "idx", None)
        if index not in static or index >= len(inputs) or meta.input_info[index].mutates_data:
            continue
        real, fake = inputs[index], node.meta["val"]
        plain = type(real) in (torch.Tensor, torch.nn.Parameter) and real.device.type in ("cpu", "cuda")
        if plain and real.dtype == fake.dtype and tuple(real.shape) == tuple(fake.shape):
            found[node] = real
    return found


def states_of(tensors):
    """Where each lies and how often it was written. A tensor of inference mode counts no writes."""
    try:
        return [(t.data_ptr(), t._version) for t in tensors]
    except RuntimeError:
        return [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors]


class FrozenGraph:
    """A boxed function, as `run`, which has made constants of `weights`, by placeholder of `graph`. names: of the inputs that the
    program gives."""

    _boxed_call = True

    def __init__(self, run, graph, weights, names):
        self.run = run
        self.places = [k for k, n in enumerate(graph.graph.find_nodes(op="placeholder")) if n in weights]
        self.names = [names[n.meta["desc"].idx] for n in weights]
        self.states = states_of(weights.values())

    def __call__(self, args):
        if states_of([args[k] for k in self.places]) != self.states:
            raise self._refused(args)
        return self.run(args)

    def _refused(self, args):
        found = states_of([args[k] for k in self.places])
        changed = [name for name, was, now in zip(self.names, self.states, found) if was != now]
        return refuse(
            f"{len(changed)} of {len(found)} frozen parameters and buffers were written or replaced after they were compiled; the "
            f"first is {changed[0]}",
            "call torch.compiler.reset() after a change, or compile without options={'freezing': True}",
            "TSR-F065",
        )
