# SPDX-License-Identifier: Apache-2.0
"""Gradients: one node of the op `grad`, which the compiler's autograd stage expands."""

import functools

from .. import _core
from . import dtypes, tree
from .errors import error
from .function import jit
from .trace import apply, apply1, is_traced, state


def _leaf(x):
    if dtypes.is_float(x._dtype()):
        return apply1("leaf", [x])
    return x


def _differentiated(function, argnums, has_aux, args, kwargs):
    """(value, auxiliary results, gradients) in the function that is being traced."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    args = list(args)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise error(
                "TSR-F050",
                f"grad: argnums names argument {n}, and the call has {len(args)}",
                "gradients are of positional arguments",
            )
    trace = state.trace
    wanted = []

    def fresh(x):
        if not isinstance(x, _core.Tensor):
            return x
        made = _leaf(x if is_traced(x) else trace.tensor(trace.value_of(x)))
        if dtypes.is_float(made._dtype()):
            wanted.append(made)
        return made

    for n in numbers:
        args[n] = tree.mapped(fresh, args[n])
    if not wanted:
        raise error(
            "TSR-F050",
            "grad: there is no floating-point tensor in what is to be differentiated with respect to",
            'argnums says which argument that is; convert it with .astype("f32") before',
        )
    made = function(*args, **kwargs)
    value, aux = made if has_aux else (made, None)
    if not isinstance(value, _core.Tensor) or value.ndim != 0 or not dtypes.is_float(value._dtype()):
        found = f"{value.dtype} of rank {value.ndim}" if isinstance(value, _core.Tensor) else type(value).__name__
        raise error(
            "TSR-F050",
            f"grad: the function returns {found}, expected a floating-point tensor of rank 0",
            "sum it or take its mean; has_aux=True for a function that returns (value, other results)",
        )
    gradients = iter(apply("grad", [value, *wanted], {"outputs": 1, "seeded": False}))

    def gradient(x):
        return next(gradients) if isinstance(x, _core.Tensor) and dtypes.is_float(x._dtype()) else None

    found = [tree.mapped(gradient, args[n]) for n in numbers]
    return value, aux, found[0] if isinstance(argnums, int) else tuple(found)


def value_and_grad(function, argnums=0, has_aux=False):
    """The function that gives (value, gradients); with has_aux ((value, other results), gradients).

    Gradients have the structure of the argument that `argnums` names, one or a tuple of them; what is no floating-point tensor
    has None.
    Called outside of a compiled function it is compiled itself.
    """
    plain = getattr(function, "original", function)

    @functools.wraps(plain)
    def traced(*args, **kwargs):
        value, aux, gradients = _differentiated(plain, argnums, has_aux, args, kwargs)
        return ((value, aux) if has_aux else value), gradients

    return _compiled_outside(traced)


def grad(function, argnums=0, has_aux=False):
    """The function that gives the gradients alone; with has_aux (gradients, other results)."""
    plain = getattr(function, "original", function)

    @functools.wraps(plain)
    def traced(*args, **kwargs):
        _, aux, gradients = _differentiated(plain, argnums, has_aux, args, kwargs)
        return (gradients, aux) if has_aux else gradients

    return _compiled_outside(traced)


def _compiled_outside(traced):
    compiled = jit(traced)

    @functools.wraps(traced)
    def call(*args, **kwargs):
        return traced(*args, **kwargs) if state.trace is not None else compiled(*args, **kwargs)

    call.compiled = compiled
    return call


def stop_gradient(x):
    """x as a constant: no gradient flows through it."""
    if state.trace is None:
        return x.detach() if x.requires_grad else x
    return apply1("stop_gradient", [x])


def checkpoint(function):
    """What the function computes is computed again in the backward half instead of being kept; its results are kept."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        trace = state.trace
        if trace is None:
            return function(*args, **kwargs)
        first = trace.builder.num_nodes()
        made = function(*args, **kwargs)
        kept = [t._value for t in tree.leaves(made) if isinstance(t, _core.Tensor) and is_traced(t)]
        trace.builder.checkpoint(first, kept)
        return made

    return call


class no_grad:
    """Within, nothing is recorded for gradients: what a compiled function computes here is a constant to them."""

    def __enter__(self):
        self._before = _core.set_grad_enabled(False)

    def __exit__(self, *_):
        _core.set_grad_enabled(self._before)
