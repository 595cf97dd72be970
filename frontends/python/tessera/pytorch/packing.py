# SPDX-License-Identifier: Apache-2.0
"""options={"pack_weights": True}: weights that PyTorch may still change, in the form that kernels read.

On the third call in which all weights of a region have the address and version of the call before, the region is compiled once
more with the weights as constants, which products and convolutions rearrange. Every call compares addresses and versions; a
write drops what was made. A version does not count every write: those through `p.data`, or to a tensor that shares its memory
(sharding), keep it. So this is asked for, and not done by itself.
"""

import torch

from .. import _core
from .frozen import states_of

CALLS = 3
MOST_BYTES = 1 << 30  # of one region's weights


class PackedWeights:
    """run(args, profiler=None) of a region: as `plain`, or with the weights as constants."""

    def __init__(self, region, plain, weights, places, carried):
        # weights: by node of the region's inputs, where it stands in the arguments; places, carried: of all inputs and numbers.
        self.region, self.plain, self.weights, self.places, self.carried = region, plain, weights, places, carried
        self.state = None, 0, None  # key, calls in a row that had it, run

    def __call__(self, args, profiler=None):
        key = states_of([args[k] for k in self.weights.values()])
        known, calls, run = self.state
        if key != known:
            calls, run = 0, None
        calls += 1
        if calls == CALLS:
            run = self._packed(args)
        self.state = key, min(calls, CALLS + 1), run
        return (self.plain if run is None else run)(args, profiler)

    def _packed(self, args):
        tensors = {n: args[k].detach() for n, k in self.weights.items()}
        if sum(t.numel() * t.element_size() for t in tensors.values()) > MOST_BYTES:
            return None
        from .compiler import sources_of

        region = self.region.with_constants(tensors)
        places = {n: k for n, k in zip(self.region.inputs, self.places)}
        numbers = {expression: k for (expression, _), k in zip(self.region.carried, self.carried)}
        if any(expression not in numbers for expression, _ in region.carried):
            return None  # a size that only the weights had
        sources = sources_of(region, [places[n] for n in region.inputs], [numbers[x] for x, _ in region.carried])
        return _core.Runner(region.executable, sources, torch.Tensor).run


def packing(region, run, static, places, carried=()):
    """`run`, or one that packs. static: placeholders that hold parameters and buffers."""
    given = zip(region.inputs, places)
    weights = {n: k for n, k in given if n in static and n.meta["val"].dim() >= 2 and n.meta["val"].device.type == "cpu"}
    if not weights or region.steps or region.frozen:
        return run
    return PackedWeights(region, run, weights, list(places), list(carried))
