# SPDX-License-Identifier: Apache-2.0
"""Attention masks that no input decides. Models build the mask of causal attention out of positions, in each call anew; what it
says is known when the graph is compiled, and attention that knows it is causal computes and reads half."""

import torch
from torch.fx.node import Node, map_arg
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core

_MOST_NODES, _MOST_ELEMENTS = 512, 1 << 26
_HIDES = -65504.0  # as PyTorch writes a mask of booleans for cuDNN; beside scores that differ by less it weighs exactly 0


def simplify_masks(gm):
    """Takes masks that hide nothing, or from each query the keys behind it, off the attention of an FX graph of AOTAutograd's.

    Only masks of fixed sizes that depend on no input are looked at.
    """
    kinds = {}  # by mask, "" where it stays
    for node in gm.graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None or "_scaled_dot_product_" not in schema.name:
            continue
        places = {a.name: k for k, a in enumerate(schema.arguments)}
        mask_at = places.get("attn_mask", places.get("attn_bias"))
        mask = _argument(node, schema, mask_at)
        if not isinstance(mask, Node) or _argument(node, schema, places["is_causal"]) or _wants_its_gradient(node, schema):
            continue
        if mask not in kinds:
            kinds[mask] = _kind(mask)
        if not kinds[mask]:
            continue
        _set(node, schema, mask_at, None)
        _set(node, schema, places["is_causal"], kinds[mask] == "causal")
        if _core.log_enabled("passes"):
            _core.log_write("passes", f"{node.name}: its mask {mask.name} is {kinds[mask]}\n")
    if any(kinds.values()):
        gm.graph.eliminate_dead_code()


def _argument(node, schema, at):
    name = schema.arguments[at].name
    return node.kwargs[name] if name in node.kwargs else node.args[at] if at < len(node.args) else schema.arguments[at].default_value


def _set(node, schema, at, value):
    argument = schema.arguments[at]
    if argument.kwarg_only or argument.name in node.kwargs:
        node.update_kwarg(argument.name, value)
        return
    args = list(node.args)
    args += [a.default_value for a in schema.arguments[len(args) : at + 1]]
    args[at] = value
    node.args = tuple(args)


def _wants_its_gradient(node, schema):
    wanted = [k for k, a in enumerate(schema.arguments) if a.name == "grad_input_mask"]
    return bool(wanted) and _argument(node, schema, wanted[0])[3]


def _kind(mask):
    """What it says: "causal" or "of no effect"; empty: something else, or only a call tells."""
    value = mask.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return ""
    needed = _ancestors(mask)
    if needed is None:
        return ""
    with _disable_current_modes(), torch.no_grad():
        m = _computed(mask, needed)
        for d in range(m.dim()):
            if m.stride(d) == 0 and m.shape[d] > 1:
                m = m.narrow(d, 0, 1)
        visible, hidden = (m, ~m) if m.dtype == torch.bool else (m == 0, m <= _HIDES)
        if visible.all():
            return "of no effect"
        if m.shape[-2:] != value.shape[-2:]:
            return ""
        before = torch.ones(m.shape[-2:], dtype=torch.bool, device=m.device).tril()
        return "causal" if (visible == before).all() and (hidden != before).all() else ""


def _ancestors(node):
    """The nodes that compute `node`, in their order; None: they read inputs, are random, or compute what is large."""
    found, left = set(), [node]
    while left:
        n = left.pop()
        if n in found:
            continue
        found.add(n)
        if len(found) > _MOST_NODES or not (_is_literal(n) or (n.op == "call_function" and _is_fixed(n))):
            return None
        left += n.all_input_nodes
    return [n for n in node.graph.nodes if n in found]


def _is_literal(n):
    """A tensor written down in the program, of which each call makes a copy."""
    return n.op == "get_attr" and "." not in n.target and all(str(u.target).startswith("aten.lift_fresh") for u in n.users)


def _is_fixed(n):
    target, value = n.target, n.meta.get("val")
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or not isinstance(value, torch.Tensor):
        return False
    elements = 1
    for size in value.shape:
        if isinstance(size, torch.SymInt):
            return False
        elements *= size
    return value.device.type in ("cpu", "cuda") and elements <= _MOST_ELEMENTS


def _computed(node, needed):
    env = {}
    last = {n: k for k, m in enumerate(needed) for n in m.all_input_nodes}
    for k, n in enumerate(needed):
        args, kwargs = map_arg((n.args, n.kwargs), lambda x: env[x])
        env[n] = n.target(*args, **kwargs) if n.op == "call_function" else getattr(n.graph.owning_module, n.target)
        for x in n.all_input_nodes:
            if last[x] == k:
                del env[x]
    return env[node]
