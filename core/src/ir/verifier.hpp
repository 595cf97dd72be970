// SPDX-License-Identifier: Apache-2.0
// The invariants of a graph. Whatever holds here, passes and backends may rely on; each line has a negative test that breaks it
// (tests/unit/verifier_test.cpp). A violation throws TSR-I1NN, where NN is the number of the invariant, with the node's text;
// its family is "bug": valid text and the checked edits of Graph cannot get there.
//
//   structure
//   V01  region 0 is the graph's body: alive, owned by no node
//   V02  a region's nodes form one doubly linked list from `first` to `last`, all alive, each with the region as its parent
//   V03  every live node is in the list of a reachable region, and their number is what the graph counts
//   V04  a nested region is alive and owned by exactly one node, which names it as its parent; no region contains itself
//   V05  operands, results, region inputs and region outputs are ids of live values
//   values
//   V06  an operand is defined before its use
//   V07  regions are isolated: an operand is defined in the region of its node
//   V08  results name their node, index and region; region inputs their region and index, and no node
//   V09  the uses of a value are exactly the operands and outputs that name it, and num_uses counts them
//   V10  value names are not empty, unique in the graph, and found by name
//   V11  a region's outputs are values of that region
//   V12  inputs of the body are arg, param or state; inputs of nested regions are block; results are neither
//   V13  a state is written back with an existing output of its own dtype and sizes; nothing else is; two states share no
//        output
//   V14  only a state or an arg is donated
//   V15  state keys are unique
//   nodes
//   V16  the op is known, and the node has its name and index
//   V17  attributes are complete, sorted, of the declared kinds and among the declared choices
//   V18  operands, regions and attributes satisfy the op's record (count, dtypes, shape patterns, devices) without new
//        assumptions
//   V19  result types are what the record infers: dtype, rank, sizes
//   V20  only control ops own regions
//   V21  a constant attribute has a static shape, row-major strides, host memory and data
//   types and sizes
//   V22  every type has a valid dtype, at most 64 dimensions, no size that is negative for all values of its symbols, and a
//        size in
//        bytes that fits 64 bits
//   V23  strided types have one stride per dimension of a fixed rank; packed dtypes (2 and 4 bits) are row-major
//   V24  sizes name existing expressions; expressions name earlier expressions and existing symbols
//   V25  symbol names are identifiers, unique, with a range that is not empty
//   V26  no assumption is false for every value of its symbols
//   signature
//   V27  the names that outputs were given are not empty, and unique
#pragma once

#include <span>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// All of it, in time linear in the graph.
void verify(const Graph& graph);

// V05 to V09 and V16 to V24 for these live nodes and their results: what an edit of exactly these nodes can break. In time
// linear in them and their uses, but for the order of defs and uses, which costs one walk over each region that holds one of
// them.
void verify_nodes(const Graph& graph, std::span<const tsr_id> nodes);

}  // namespace tessera::core
