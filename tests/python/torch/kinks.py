# SPDX-License-Identifier: Apache-2.0
"""Weights with which the gradient of a network with kinks means something in f32.

Where a value lies so close to the kink of a ReLU that the error of f32 decides on which side it falls, two correct programs have
different gradients there, and batch norm over a few values makes that a difference of every gradient before it. A network of a
hundred thousand such values has one or two of them with any weights, eager PyTorch as well. So the biases of batch norms move a
little, each to the middle of the widest gap between the values of its channel near the kink. It is the model in f64 that says
where the values are; what is under test has no say in it.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WINDOW = 0.02  # of a channel's root mean square: as far as a bias may move
PASSES = 3  # a bias that moves for one kink may bring another value to another

aten = torch.ops.aten
_EDGES = {
    aten.relu: (0.0,),
    aten.relu_: (0.0,),
    aten.leaky_relu: (0.0,),
    aten.leaky_relu_: (0.0,),
    aten.hardswish: (-3.0, 3.0),
    aten.hardswish_: (-3.0, 3.0),
    aten.hardsigmoid: (-3.0, 3.0),
    aten.hardsigmoid_: (-3.0, 3.0),
}
_BOUNDED = {aten.hardtanh, aten.hardtanh_, aten.clamp, aten.clamp_}


def _edges(packet, args):
    if packet in _BOUNDED:
        return [e for e in (list(args[1:3]) or [-1.0, 1.0]) if isinstance(e, (int, float))]
    return _EDGES.get(packet, ())


def _shift(values, edges):
    """What is best added to the values of a channel."""
    window = WINDOW * float(values.square().mean().sqrt())
    if window == 0:
        return 0.0
    away = torch.cat([values - e for e in edges])
    near = torch.cat([away[away.abs() < window], away.new_tensor([-window, window])]).sort().values
    gaps = near.diff()
    widest = int(gaps.argmax())
    return -float(near[widest] + near[widest + 1]) / 2


class _Separate(TorchDispatchMode):
    """Moves the bias of the batch norm before each kink, and the values that are on their way to it."""

    def __init__(self):
        super().__init__()
        self.norm = None  # the last that ran

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        x = args[0] if args else None
        edges = _edges(f.overloadpacket, args) if isinstance(x, torch.Tensor) and x.is_floating_point() else ()
        if edges and self.norm is not None and x.dim() > 1 and x.shape[1] == len(self.norm.bias):
            of_channels = x.cpu().transpose(0, 1).flatten(1)
            shifts = x.new_tensor([_shift(values, edges) for values in of_channels])
            self.norm.bias.add_(shifts)
            x.add_(shifts.view(-1, *[1] * (x.dim() - 2)))
            self.norm = None
        return f(*args, **(kwargs or {}))


def separate(wide, args, others):
    """Moves the biases of a model in f64 for these arguments, and those of the others, copies of it, to the same numbers."""
    norms = [m for m in wide.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.bias is not None]
    mode = _Separate()
    hooks = [m.register_forward_hook(lambda m, *_: setattr(mode, "norm", m)) for m in norms]
    with torch.no_grad():
        for _ in range(PASSES if norms else 0):
            with mode:
                wide(**args) if isinstance(args, dict) else wide(*args)
        for m in norms:  # to what all of them can hold
            m.bias.copy_(m.bias.float())
        for other in others:
            for mine, theirs in zip(wide.parameters(), other.parameters()):
                theirs.copy_(mine)
    for h in hooks:
        h.remove()
