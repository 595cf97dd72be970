# SPDX-License-Identifier: Apache-2.0
"""x[...]: numbers, slices, None, Ellipsis, one tensor of indices, or a mask."""

from .errors import error
from .symbolic import SymInt, dim_of, is_symbolic
from .trace import apply1, is_traced


def index(x, items):
    from . import array

    items = list(items) if isinstance(items, tuple) else [items]
    for i, item in enumerate(items):
        if isinstance(item, list) or (not isinstance(item, array._Tensor) and hasattr(item, "__dlpack__")):
            items[i] = array.asarray(item)
    tensors = [t for t in items if isinstance(t, array._Tensor)]
    masks = [t for t in tensors if t.dtype == "bool"]
    if masks:
        if len(items) > 1 or masks[0].ndim != x.ndim:
            raise error(
                "TSR-F017", "index: a mask is the only index, and has the shape of what it masks", "use tessera.numpy.where"
            )
        return apply1("masked_select", [x, masks[0]])
    if len(tensors) > 1:
        raise error("TSR-F017", "index: one index tensor at most", "use tessera.ops.gather_nd, or take several times")
    if sum(i is Ellipsis for i in items) > 1:
        raise error("TSR-F017", "index: only one Ellipsis is allowed")
    used = sum(i is not None and i is not Ellipsis for i in items)
    if used > x.ndim:
        raise error("TSR-F017", f"index: {used} indices for a tensor of rank {x.ndim}")
    if Ellipsis not in [i for i in items if not isinstance(i, array._Tensor)]:
        items.append(Ellipsis)

    sizes = x.shape
    starts, limits, steps, flips, drop = [0] * len(sizes), list(sizes), [1] * len(sizes), [], []
    axis, taken, new = 0, None, []
    out = 0  # the axis in the result before new ones are made
    for item in items:
        if item is None:
            new.append(out + len(new))
            continue
        if item is Ellipsis:
            axis += len(sizes) - used
            out += len(sizes) - used
            continue
        n = sizes[axis]
        if isinstance(item, slice):
            step = 1 if item.step is None else int(item.step)
            if step == 0:
                raise error("TSR-F015", "slice: step 0")
            if step < 0:
                if item.start is not None or item.stop is not None:
                    raise error("TSR-F015", f"slice: step {step} with bounds", "slice first, then flip")
                flips.append(axis)
                step = -step
            starts[axis] = 0 if item.start is None else _bound(item.start, n)
            limits[axis] = n if item.stop is None else _bound(item.stop, n)
            if not is_symbolic(starts[axis]) and not is_symbolic(limits[axis]) and limits[axis] < starts[axis]:
                limits[axis] = starts[axis]
            steps[axis] = step
            out += 1
        elif isinstance(item, array._Tensor) and (item.ndim > 0 or is_traced(item)):
            taken = (axis, item, out)
            out += item.ndim
        else:
            at = item if type(item) is SymInt else item.__index__()
            if not is_symbolic(at) and at < 0:
                at = n + at
            if not is_symbolic(at) and not is_symbolic(n) and not 0 <= dim_of(at) < dim_of(n):
                raise error("TSR-F016", f"index {item} is out of range for dimension {axis} of size {n}")
            starts[axis], limits[axis] = at, at + 1
            drop.append(axis)
        axis += 1
    if flips:
        x = apply1("flip", [x], axes=flips)
    if (
        any(s is not z for s, z in zip(limits, sizes))
        or any(is_symbolic(s) or s != 0 for s in starts)
        or any(s != 1 for s in steps)
    ):
        x = apply1("slice", [x], starts=starts, limits=limits, strides=steps)
    if taken:
        x = apply1("gather", [x, array._wrapped(taken[1], sizes[taken[0]])], axis=taken[0])
        drop = [a if a < taken[0] else a + taken[1].ndim - 1 for a in drop]
    if drop:
        x = apply1("squeeze", [x], axes=drop)
    return apply1("expand_dims", [x], axes=new) if new else x


def _bound(at, size):
    """As Python slices: negative counts from the end, then clamped to 0..size."""
    at = at if type(at) is SymInt else at.__index__()
    if not is_symbolic(at) and not is_symbolic(size):
        at = at + size if at < 0 else at
        return min(max(at, 0), size)
    if not is_symbolic(at) and at < 0:
        return size + at
    return at  # the op's own check, 0 <= start <= limit <= size, becomes a guard
