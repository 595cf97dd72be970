# SPDX-License-Identifier: Apache-2.0
"""What is recorded of calls of compiled functions, for `Tensor.backward`: the client library of C++ does the same.

A tensor has a record: that of a tensor that wants gradients holds the sum of them, that of a result says which call made it. A
call holds the tensors that wanted gradients and what its backward half needs.
"""

import itertools

from .. import _core
from . import dtypes, tree
from .errors import error
from .trace import apply, apply1, is_traced

_sequence = itertools.count()


class Gradient:
    """Of a tensor that wants one."""

    __slots__ = ("sum",)

    def __init__(self, value=None):
        self.sum = value


class Result:
    """Of a floating-point result of a recorded call."""

    __slots__ = ("call", "number")

    def __init__(self, call, number):
        self.call, self.number = call, number


class _Call:
    __slots__ = ("sequence", "types", "wanted", "saved")

    def __init__(self, types, wanted, saved):
        self.sequence = next(_sequence)
        self.types = types  # (dtype, shape, device) of the floating-point results
        self.wanted, self.saved = wanted, saved


def wants(t):
    return isinstance(t, _core.Tensor) and t.requires_grad and dtypes.is_float(t._dtype())


class _Wanted(tree.Walk):
    def __init__(self):
        super().__init__()
        self.found = []

    def take(self, leaf, kind, o, path):
        if kind == tree.TENSOR and wants(o):
            self.found.append(o)
        return o


def wanted_of(values):
    """The tensors among the arguments that want gradients, in the order of leaves."""
    walk = _Wanted()
    for i, v in enumerate(values):
        walk.visit(v, (i,))
    return walk.found


def outputs(trace, tensors, wanted):
    """What a function that is recorded computes besides its own results: one cotangent, then a gradient per input of `wanted`.

    The first is a cotangent itself, which makes the others a backward half whatever they depend on.
    """
    results = [t if is_traced(t) else trace.tensor(trace.value_of(t)) for t in tensors]
    results = [t for t in results if dtypes.is_float(t._dtype())]
    if not results:
        raise error(
            "TSR-F052",
            "a call with an argument that requires gradients returns no floating-point tensor, so that there is nothing to go "
            "back from",
            "call it where gradients are off: with tessera.no_grad()",
        )
    cotangents = [apply1("tangent", [y]) for y in results]
    made = apply("grad", [*results, *cotangents, *wanted], {"outputs": len(results), "seeded": True})
    return [trace.value_of(t) for t in (cotangents[0], *made)]


def record(saved, wanted, results):
    """The results, as tensors that know of the call."""
    floats = [t for t in results if dtypes.is_float(t._dtype())]
    for t in wanted:
        if t._record is None:
            t._record = Gradient()
    call = _Call([(t.dtype, t.shape, t.device) for t in floats], wanted, saved)
    numbers = itertools.count()

    def known(t):
        if not dtypes.is_float(t._dtype()):
            return t
        own = t.strided(t.shape, t.strides)  # the result may be one of the arguments, or kept for the backward half
        own.requires_grad, own._record = True, Result(call, next(numbers))
        return own

    return [known(t) for t in results]


def keep_requiring(before, now):
    """What a call puts in the place of a tensor requires gradients if that did."""
    if isinstance(before, _core.Tensor) and before.requires_grad and not now.requires_grad:
        now.requires_grad_()


def refuse_recorded(op, operands):
    """Operations that run at once are not recorded."""
    if any(t is not None and type(t._record) is Result for t in operands) and _core.grad_enabled():
        raise error(
            "TSR-F064",
            f"'{op}' outside of compiled functions gets a tensor whose gradient is recorded: what runs at once is not, and the "
            "gradient would be lost",
            "compute it in a function given to tessera.jit; or take detach() of the tensor, or call it under tessera.no_grad()",
        )


def _sum(a, b):
    return b if a is None else apply1("add", [a, b])


def backward(y, seed):
    from .array import ones, zeros

    if is_traced(y):
        raise error(
            "TSR-F063",
            "backward() of a tensor that is being traced",
            "in a compiled function gradients are asked for by tessera.grad, tessera.value_and_grad",
        )
    if type(y._record) is not Result:
        raise error(
            "TSR-F063",
            "backward() of a tensor of which nothing is recorded: a view, a tensor that was computed outside of compiled "
            "functions, or the result of a call without an argument that requires gradients",
            "compute it in a function given to tessera.jit, call that with gradients on, and requires_grad_() the arguments",
        )
    if seed is not None and (is_traced(seed) or (seed.dtype, seed.shape) != (y.dtype, y.shape)):
        raise error("TSR-F050", "backward(): the seed is not of the type of the tensor")
    if seed is None and y.size != 1:
        raise error(
            "TSR-F050",
            f"backward() of a tensor of {y.size} elements without a seed",
            "give a seed of its type, or take the sum or the mean in the compiled function",
        )
    before = _core.set_grad_enabled(False)
    try:
        _go_back(y._record, ones(y.shape, y.dtype).to(y.device) if seed is None else seed, zeros)
    finally:
        _core.set_grad_enabled(before)


def _go_back(start, cotangent, zeros):
    # Calls from the last to the first: all that came after one have been gone through when it is its turn.
    waiting = {}

    def give(to, cotangent):
        call, cotangents = waiting.setdefault(to.call.sequence, (to.call, [None] * len(to.call.types)))
        cotangents[to.number] = _sum(cotangents[to.number], cotangent)

    give(start, cotangent)
    while waiting:
        call, cotangents = waiting.pop(max(waiting))
        for i, (dtype, shape, device) in enumerate(call.types):
            if cotangents[i] is None:
                cotangents[i] = zeros(shape, dtype).to(device)
        _, *gradients = call.saved.backward(cotangents)
        for t, gradient in zip(call.wanted, gradients):
            if type(t._record) is Result:
                give(t._record, gradient)
            elif t._record is not None:
                t._record.sum = _sum(t._record.sum, gradient)
