// SPDX-License-Identifier: Apache-2.0
// From a piece of the graph, as a plugin sees it, to one kernel: pointwise ops, casts, broadcasting, views (folded into index
// expressions), concatenation, padding, gathers, reductions and the normalisations built of them.
//
// The numbers are those of the graph's numerics rules, op by op: every source op's result is rounded to its dtype, so a fused
// region gives the bits of its ops compiled one at a time.
//
// The iteration space comes from the first reduction's operand (its kept dimensions are the parallel axes, its reduced ones the
// loops' axes), or else from the largest output. Reductions that depend on each other follow in loops over the same axes; those
// that do not share a loop.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/kit/ir.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {

// Why something is no kernel: not an error, a decision that a fusion pass or a backend's `claim` reads. Thrown out of a
// `claim`, it is a refusal with this reason; out of a `compile`, which has promised a kernel, an error with it.
class Unfit : public std::exception {
 public:
  explicit Unfit(std::string reason) : why(std::move(reason)) {}
  [[nodiscard]] const char* what() const noexcept override { return why.c_str(); }
  std::string why;
};

// A piece of one region of a graph.
struct Piece {
  sdk::Graph graph;
  std::vector<sdk::Node> nodes;  // in program order
  std::vector<sdk::Value>
      inputs;  // what the nodes use and do not define; constants of one element may be missing and become literals
  std::vector<sdk::Value> outputs;  // results of the nodes
};
// The body of a `fused` node (its region's inputs and outputs), or any other node by itself; throws Unfit for one with regions.
// An omitted operand is no input; the i-th input is operand operand_of[i] of the node.
struct NodePiece {
  Piece piece;
  std::vector<uint32_t> operand_of;
};
NodePiece piece_of(sdk::Graph g, sdk::Node n);

struct Lowered {
  Kernel kernel;                     // buffers: the inputs, then the outputs, in the piece's order
  std::vector<tsr_dim> symbol_dims;  // one per kernel symbol: the size that the launch passes
};

// What is lowered beside the pointwise ops, reductions, views and scatters of one update a line that every family writes
// kernels for.
struct LowerOptions {
  // Products, convolutions, pools, and ops that read elsewhere than they write (gather_nd, dynamic_slice, pad in every mode).
  // For families that run what has no schedule of its own; those with kernels for these leave it off, so that fusion takes none
  // of them in.
  bool everything = false;
};

// Can this node be part of a kernel? Its op, dtypes and attributes are looked at, not its neighbours. Empty: yes; else the
// reason.
std::string why_not(sdk::Graph g, sdk::Node n, const LowerOptions& options = {});

// Throws Unfit when the piece is no single kernel; sdk::Error for a fault. The kernel is verified.
Lowered lower(const Piece& piece, const std::string& name, const LowerOptions& options = {});

// For devices that pick from 32 numbers in registers in one instruction: calls of functions that have a form with tables become
// calls of that form. The kernel's bits are then others, within the same bounds.
void use_tables(Kernel& k);

// ---- windows
//
// A kernel that works on a part of a tensor of rank 2 or more, for a backend that has that part in memory of its own (the
// scores of some queries and keys, in its attention): `rows` rows and `columns` columns of the last two dimensions, from `row`
// and `column` on, at one place of the dimensions before those. Elements of the window lie apart from the tensor, [column][row]
// with `step` elements between columns, those of f16 and bf16 that are stored as f32. All other operands lie as they always do,
// dense.
struct LoweredWindow : Lowered {
  uint32_t rank = 0;  // of the tensor
  // The kernel's last symbols, behind those of symbol_dims: the place in each of the rank - 2 dimensions before, then these.
  enum Symbol { kRow, kRows, kColumn, kColumns, kStep, kNumSymbols };
  size_t place_at() const { return symbol_dims.size(); }
  size_t symbol_at(Symbol s) const { return symbol_dims.size() + rank - 2 + s; }
};
// `shape`: of the tensor; the piece's one output has it, or broadcasts to it. `windowed`: inputs of that many elements that lie
// in windows too, and of which only the point that is computed may be read; the output's window may be in the same memory as
// theirs. Throws Unfit as lower() does, and for reductions.
LoweredWindow lower_window(const Piece& piece, const std::string& name, std::span<const tsr_dim> shape,
                           std::span<const sdk::Value> windowed);

// The input whose memory the first output may take over, or -1: every load of it is at the index that the same point stores,
// and before that.
int in_place_input(Kernel& k);
std::vector<uint32_t> in_place_inputs(Kernel& k);  // all of them

}  // namespace tessera::kit
