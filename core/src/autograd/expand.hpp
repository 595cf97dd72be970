// SPDX-License-Identifier: Apache-2.0
// The autograd stage: replaces `grad` nodes by the nodes that compute the gradients (reverse mode).
#pragma once

namespace tessera::core {

class Graph;

// True if the graph holds a `grad` node, nested regions included.
bool has_gradients(const Graph& graph);

// Expands every `grad` node: those of nested regions first, then in program order, so that a gradient of a gradient finds the
// inner one expanded. Later stages may assume that no `grad`, `leaf` or `stop_gradient` node is left.
//
// The gradient of an op is its record's rule; an op without one is decomposed in place first. A wanted value must be an input
// of the region or the result of a `leaf` node: any other value may be merged with an equal one by a pass, which would change
// the gradient. A wanted value that the outputs do not depend on gets zeros. Where several uses contribute to one gradient, the
// contributions are added in the reverse of program order, which makes the sum's bits a function of the graph alone. Those of
// slices come last, and are joined instead where they cover the value.
//
// Marks the nodes of the backward half, TSR_MARK_BACKWARD: those that it makes, and all that depend on them.
//
// Runs as one transaction under the author "autograd". Throws TSR-A001 (an op on the way has neither a rule nor a
// decomposition), TSR-A002 (a wanted value that is neither input nor leaf) and what the rules throw; the graph is then as
// before.
void expand_gradients(Graph& graph);

}  // namespace tessera::core
