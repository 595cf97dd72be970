// SPDX-License-Identifier: Apache-2.0
// Assignment of nodes to backends by capability, and decomposition of what they refuse.
#pragma once

#include <vector>

#include "plan/assignment.hpp"
#include "tessera/abi.h"

namespace tessera::core {

class Error;
class Graph;
struct CompileOptions;
struct Factory;

// The stage "assign". One entry per node id. In program order, nested regions of control ops included, each node goes to
//  0. the backend it names, when it is a fused group that this backend claims; else its nodes take its place;
//  1. nobody, when it is a constant; the host, when it is control flow, a copy to another device or a view that needs no copy
//     of dense memory;
//  2. the first backend, in the order of the options, that claims it with "yes";
//  3. the next stage, as kRefused, when a backend answers "decompose" before that, or every backend says no, and the op has a
//     decomposition;
//  4. the op's host kernel (`compute`).
// Where the graph names devices (place_on_devices()), backends of the node's device are asked first, and those of the host only
// for what nobody there takes even decomposed.
// Backends that why_not_asked() names a reason for are passed over, and with `deterministic` host kernels of ops that are not
// pure, unless nobody reads what they give. Pure nodes whose results are unused are erased. Edits the graph in one transaction.
// Throws TSR-R020, which names the node, every backend and its reason; TSR-R027 where one of the reasons is `deterministic`.
std::vector<Assignment> assign_backends(Graph& graph, const CompileOptions& options);

// The stage "decompose": decompositions take the place of refused nodes, and what they bring is assigned by the same rules,
// until nothing is refused. Edits the graph in one transaction and completes `assignment`. Throws what assign_backends() does;
// TSR-B020 and TSR-B021 for a decomposition that leads back to its op or gives another number of values.
bool any_refused(const std::vector<Assignment>& assignment);
void decompose_refused(Graph& graph, std::vector<Assignment>& assignment, const CompileOptions& options);

// Both, of a graph that was assigned before and has been edited since.
std::vector<Assignment> assign_again(Graph& graph, const CompileOptions& options);

// What keeps this backend from being offered the node by these options, as words for a list of refusals; null: nothing does.
const char* why_not_asked(const Graph& graph, tsr_id node, const Factory& backend, const CompileOptions& options);
bool is_unassignable(const Error& error);  // TSR-R020, TSR-R027

// Whether assign_again() would find somebody for this node of the body. Looks at the node as it stands, transaction or not.
bool assignable(Graph& graph, tsr_id node, const CompileOptions& options);

}  // namespace tessera::core
