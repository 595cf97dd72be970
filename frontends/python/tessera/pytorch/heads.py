# SPDX-License-Identifier: Apache-2.0
"""Keys and values that a model repeats for its heads of queries: attention of ours reads them as they were."""

from torch.fx.node import Node
from torch.utils.checkpoint import CheckpointPolicy

_VIEWS = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.clone.default")


def repeat_again(joint):
    """Marks what repeats the keys and values of attention in a joint graph of AOTAutograd's: backward repeats them again. Kept
    repeated, they would take the memory of all heads, and reach backward as tensors that nobody knows to be repeated."""
    for node in joint.graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None or "_scaled_dot_product_" not in schema.name:
            continue
        for k, a in enumerate(schema.arguments):
            if a.name in ("key", "value"):
                for n in _repeats(node.args[k]):
                    n.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def _repeats(x):
    """The nodes that make x of a tensor with fewer heads, last first; none where it is not made so."""
    nodes = []
    while isinstance(x, Node) and str(x.target) in _VIEWS:
        nodes.append(x)
        x = x.args[0]
    if not nodes or not isinstance(x, Node) or str(x.target) != "aten.expand.default":
        return []
    few, many = x.args[0].meta["val"].shape, x.meta["val"].shape
    repeated = len(few) == len(many) == 5 and isinstance(few[2], int) and few[2] == 1
    return [*nodes, x] if repeated and isinstance(many[2], int) and many[2] > 1 else []
