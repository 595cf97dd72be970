# SPDX-License-Identifier: Apache-2.0
"""Optimisers over trees of parameters. Each update follows the single-tensor implementation in torch.optim, in its order of
operations.

    opt = tessera.optim.Adam(params, lr=1e-3)

    @tessera.jit
    def step(params, opt, x, y):
        value, gradients = tessera.value_and_grad(loss)(params, x, y)
        return value, opt.step(params, gradients)

    for x, y in batches:
        value, params = step(params, opt, x, y)
        opt.param_groups[0]["lr"] *= 0.9        # a number, an input of what is compiled: nothing is compiled again

Learning rates are floats in `param_groups`; moments and the count of steps are tensors, and a compiled function writes them
back.
"""

from .tracing.array import asarray, scalar, sign, sqrt, where, zeros_like
from .tracing.symbolic import SymFloat, SymInt
from .tracing.tree import leaves, mapped, pytree


def _beside(number, x):
    """A number or an f64 scalar in the dtype of x, as Python's numbers are beside a tensor."""
    return number if type(number) in (float, int, SymFloat, SymInt) else number.astype(x.dtype)


@pytree
class Optimizer:
    _slots = ()

    def __init__(self, params, lr, **settings):
        tensors = [asarray(p) for p in leaves(params)]
        self.param_groups = [{"lr": lr, **settings}]
        self.state = [{name: zeros_like(p) for name in self._slots} for p in tensors]
        self.steps = scalar(0.0, "f64")

    def step(self, params, gradients):
        """The parameters after one step, in the structure of `params`; gradients that are None leave theirs alone."""
        group = self.param_groups[0]
        self.steps = self.steps + 1.0
        states = iter(self.state)
        given = iter(_with_none(gradients, params))

        def update(p):
            state, gradient = next(states), next(given)
            if gradient is None:
                return p
            p = asarray(p)
            return self._update(p, asarray(gradient).astype(p.dtype), group, state)

        return mapped(update, params)


def _with_none(gradients, params):
    """One gradient per leaf of params; None where there is none."""
    if isinstance(params, dict):
        return [g for k in params for g in _with_none(gradients[k], params[k])]
    if isinstance(params, (list, tuple)):
        return [g for p, part in zip(params, gradients) for g in _with_none(part, p)]
    if hasattr(params, "__dict__") and not hasattr(params, "__dlpack__"):
        return [g for n in vars(params) for g in _with_none(getattr(gradients, n), getattr(params, n))]
    return [gradients] if len(leaves(params)) == 1 else []


@pytree
class SGD(Optimizer):
    _slots = ("momentum",)

    def __init__(self, params, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
        super().__init__(params, lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)

    def _update(self, p, g, group, state):
        momentum = _fixed(group["momentum"])
        if _fixed(group["weight_decay"]):
            g = g + p * group["weight_decay"]
        if momentum:
            kept = 1.0 - _fixed(group["dampening"])
            made = state["momentum"] * momentum + g * kept
            if kept != 1.0:  # the first step takes the gradient as it is
                made = where(self.steps == 1.0, g, made)
            state["momentum"] = made
            g = g + made * momentum if group["nesterov"] else made
        return p - g * _beside(group["lr"], p)


@pytree
class Adam(Optimizer):
    _slots = ("exp_avg", "exp_avg_sq")
    _decoupled = False

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _update(self, p, g, group, state):
        lr, eps = group["lr"], _fixed(group["eps"])
        first, second = (_fixed(b) for b in group["betas"])
        decay = _fixed(group["weight_decay"])
        if decay and type(self)._decoupled:
            p = p * _beside(1.0 - lr * decay, p)
        elif decay:
            g = g + p * decay
        m = state["exp_avg"] + (g - state["exp_avg"]) * (1.0 - first)
        v = state["exp_avg_sq"] * second + g * g * (1.0 - second)
        state["exp_avg"], state["exp_avg_sq"] = m, v
        correction = 1.0 - scalar(first, "f64") ** self.steps
        root = sqrt(1.0 - scalar(second, "f64") ** self.steps)
        size = asarray_f64(lr) / correction
        return p - (m / (sqrt(v) / _beside(root, p) + eps)) * _beside(size, p)


def asarray_f64(number):
    return asarray(number).astype("f64") if type(number) not in (float, int, SymFloat, SymInt) else scalar(number, "f64")


def _fixed(number):
    """A setting that stays what it is: read as a number, and guarded."""
    return float(number) if type(number) in (SymFloat, SymInt) else number


@pytree
class AdamW(Adam):
    _decoupled = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, lr, betas, eps, weight_decay)


@pytree
class Lion(Optimizer):
    _slots = ("exp_avg",)

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, lr, betas=betas, weight_decay=weight_decay)

    def _update(self, p, g, group, state):
        first, second = (_fixed(b) for b in group["betas"])
        decay, lr = _fixed(group["weight_decay"]), group["lr"]
        if decay:
            p = p * _beside(1.0 - lr * decay, p)
        m = state["exp_avg"]
        state["exp_avg"] = m * second + g * (1.0 - second)
        return p - sign(m * first + g * (1.0 - first)) * _beside(lr, p)
