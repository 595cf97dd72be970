# SPDX-License-Identifier: Apache-2.0
"""Functions whose gradient another function computes: the op `cpp.custom_gradient`, as the C++ frontend records it."""

import functools
import inspect

from .. import _core
from . import dtypes, tree
from .control import _region, _traced
from .errors import error
from .symbolic import settled
from .trace import apply, state


def _fault(message, hint=""):
    return error("TSR-F059", f"custom_gradient: {message}", hint)


def _tensors(o):
    return [t for t in tree.leaves(o) if isinstance(t, _core.Tensor)]


def _parts(o):
    """What a container holds, by its steps for messages; None: it is no container."""
    if isinstance(o, dict):
        return {f"[{k!r}]": v for k, v in o.items()}
    if type(o) in (list, tuple):
        return {f"[{i}]": v for i, v in enumerate(o)}
    kind = tree._kind_of(o)
    return None if kind is None else {f".{n}": getattr(o, n) for n in kind.fields(o)}


def _pairs(argument, gradient, path, found):
    """Adds (tensor of the argument, its gradient or None, path) to `found`, in the order of leaves."""
    if isinstance(argument, _core.Tensor):
        found.append((argument, gradient, path))
        return
    parts = _parts(argument)
    if parts is None:
        return
    given = dict.fromkeys(parts) if gradient is None else _parts(gradient)
    if given is None or list(given) != list(parts):
        raise _fault(
            f"the gradient of {path} has another structure than {path}",
            "a gradient has the structure of its argument; None stands for zeros, and for what has no gradient",
        )
    for step, part in parts.items():
        _pairs(part, given[step], path + step, found)


def _of_type(trace, gradient, wanted, path):
    """The gradient as a value that is of the type of what it belongs to."""
    from .array import asarray, zeros

    code, sizes = trace.builder.type(wanted._value)
    if gradient is None:
        return zeros(list(sizes), dtypes.NAMES[code])
    made = asarray(gradient)
    found = trace.builder.type(trace.value_of(made))
    if (found[0], tuple(found[1])) != (code, tuple(sizes)):
        raise _fault(
            f"the gradient of {path} is {made.dtype} of shape {tuple(made.shape)}, expected the type of {path}",
            "a gradient has the dtype and the shape of what it belongs to",
        )
    return made


def _record(function, backward, args, kwargs, names):
    trace = state.trace
    if any(dtypes.is_float(t._dtype()) for t in _tensors(kwargs)):
        raise _fault("a tensor is given to a parameter that is by keyword only", "gradients are of positional parameters")
    args = tree.mapped(lambda x: _traced(trace, [x])[0] if isinstance(x, _core.Tensor) else x, tuple(args))
    made = function(*args, **kwargs)
    if not isinstance(made, tuple) or len(made) != 2:
        raise _fault("the function returns no pair", "return (results, what backward needs): (y, (x,)), or (y, ()) for nothing")
    result_tree, results = tree.taken_apart(made[0], settled)
    saved_tree, saved = tree.taken_apart(made[1], settled)
    inputs = _tensors(args)
    if not results or not inputs:
        raise _fault("a function without tensors among its arguments or results has no gradient")
    results, saved = _traced(trace, results), _traced(trace, saved)
    is_float = [dtypes.is_float(y._dtype()) for y in results]

    def region(*given):
        cotangents = [dy if wanted else None for dy, wanted in zip(given, is_float)]
        found = backward(tree.filled(saved_tree, given[len(results) :]), tree.filled(result_tree, cotangents))
        found = (found,) if len(args) == 1 else found
        if not isinstance(found, (tuple, list)) or len(found) != len(args):
            raise _fault(
                f"the function of the gradient returns no {len(args)} gradients", "give one per argument; None for those without"
            )
        pairs = []
        for argument, gradient, name in zip(args, found, names):
            _pairs(argument, gradient, name, pairs)
        wanted = [p for p in pairs if dtypes.is_float(p[0]._dtype())]
        return [_of_type(trace, gradient, x, path) for x, gradient, path in wanted]

    number, _ = _region(trace, region, results + saved)
    out = apply("cpp.custom_gradient", [*results, *inputs, *saved], {"results": len(results), "inputs": len(inputs)}, [number])
    return tree.filled(result_tree, out)


def custom_gradient(backward):
    """Decorator of a function that returns (results, saved): backward(saved, cotangents) computes its gradients.

    Results, saved and arguments are tensors or trees of them. `cotangents` has the structure of the results, with None where
    one is no floating-point tensor. `backward` returns one gradient per positional argument (for one argument, that gradient),
    each of the structure of its argument; None stands for zeros. What `backward` uses of the function's tensors is among
    `saved`. The decorated function returns the results alone; outside of compiled functions `backward` is not used.

        @tessera.custom_gradient(lambda saved, dy: dy)
        def straight_through(x):
            return tessera.numpy.round(x), ()
    """

    def decorated(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args, **kwargs):
            if state.trace is None:
                made = function(*args, **kwargs)
                if not isinstance(made, tuple) or len(made) != 2:
                    raise _fault("the function returns no pair", "return (results, what backward needs)")
                return made[0]
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            names = [f"argument {i}" for i in range(len(bound.args))]
            for i, p in enumerate(signature.parameters.values()):
                if i < len(names) and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                    names[i] = p.name
            return _record(function, backward, bound.args, bound.kwargs, names)

        return call

    return decorated
