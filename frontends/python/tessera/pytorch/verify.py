# SPDX-License-Identifier: Apache-2.0
"""mode="verify": what regions compute beside what ATen computes of the same inputs."""

import contextlib
import operator

import torch

from .. import _core
from .steps import argument_values

# Of results: how far they may be from ATen's, where the distance to the result in f64 does not decide.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def difference(found, expected, exact=None):
    """What differs between two tensors: "" when nothing does.

    Floats are compared by the distance of both to `exact`, the result in f64, where there is one.
    """
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return f"{found.dtype} {list(found.shape)}, expected {expected.dtype} {list(expected.shape)}"
    if not found.dtype.is_floating_point:
        different = int((found != expected).sum())
        return f"{different} of {found.numel()} elements differ" if different else ""
    if torch.allclose(found, expected, rtol=1e-6, atol=1e-7, equal_nan=True):
        return ""
    if exact is not None and exact.shape != expected.shape:
        exact = None
    tolerance = TOLERANCES.get(found.dtype, 1e-4)
    if torch._dynamo.utils.same(expected, found, exact, tol=tolerance, equal_nan=True, log_error=lambda *_: None):
        return ""
    off = (found.double() - expected.double()).abs()
    return f"the largest difference is {float(off.nan_to_num(0.0, 0.0, 0.0).max()):.3g}" + (
        "; NaN stands in one of them only" if bool((found.isnan() != expected.isnan()).any()) else ""
    )


@contextlib.contextmanager
def autocast_off(tensors):
    """Of the devices of tensors, and of the host."""
    with contextlib.ExitStack() as stack:
        for kind in {"cpu", *(t.device.type for t in tensors)}:
            stack.enter_context(torch.amp.autocast(kind, enabled=False))
        yield


def doubled(value):
    return value.double() if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else value


def verified(region, run, inputs, name):
    """`run`, with every result of ours compared: what ATen computes has no other judge, and its steps are not run again.

    region: the CompiledRegion; inputs: where in the arguments of `run` its tensors stand.
    """

    def call(args):
        tensors = [args[k] for k in inputs]
        numbers = args[len(inputs) : len(inputs) + len(region.carried)]
        found = run(args)
        others = argument_values(region.steps, args) if region.steps else {}
        with torch.no_grad(), autocast_off(tensors):
            expected = region.through_aten(tensors, numbers, dict(others))
            exact = _exact(region, tensors, numbers, others)
            for node, mine, theirs, wide in zip(region.outputs, found, expected, exact):
                why = difference(mine, theirs, wide)
                if why:
                    raise _fault(name, *_first(region, tensors, numbers, others, (node, why)))
        return found

    return call


def _exact(region, tensors, numbers, others):
    wide = {n: torch.utils._pytree.tree_map(doubled, v) for n, v in others.items()}
    try:
        return region.through_aten([doubled(t) for t in tensors], numbers, wide)
    except Exception:  # an operator that does not take f64 beside what else there is
        return [None] * len(region.outputs)


def _first(region, tensors, numbers, others, otherwise):
    """The first node of the region whose value differs, with what differs; `otherwise` where it only shows in the whole."""
    try:
        every = region.every_node(others)
        room = [None] * (every.steps.length - len(tensors) - len(numbers)) if every.steps else []
        found = every.runner.run([*tensors, *numbers, *room])
        expected = every.through_aten(tensors, numbers, dict(others))
        exact = _exact(every, tensors, numbers, others)
    except (_core.Error, RuntimeError):
        return otherwise
    for node, mine, theirs, wide in zip(every.outputs, found, expected, exact):
        if why := difference(mine, theirs, wide):
            return node, why
    return otherwise


def _fault(name, node, why):
    from .partition import _where, name_of

    source = node.args[0] if node.target is operator.getitem else node
    where = _where(source)
    message = f"'{node.name}' of region {name}, {name_of(source.target)}, differs from ATen's result: {why}" + (
        f" ({where})" if where else ""
    )
    hint = "report it with the graph that TESSERA_LOGS=graph prints; until then the config 'reference' computes it differently"
    error = _core.InternalError(f"error[TSR-F062] {message}\n  hint: {hint}")
    error.code, error.message, error.hint = "TSR-F062", message, hint
    return error
