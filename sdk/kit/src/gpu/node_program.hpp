// SPDX-License-Identifier: Apache-2.0
// Programs of ops that are no kernel of the IR, since their points depend on each other: running sums, sorts, scatters, random
// numbers, and attention on matrix instructions. They are written directly, one thread for each line of elements that depend on
// each other, or for each element where its place can be counted. The results are the op's by definition: updates and running
// sums in sequence, each rounded as the record says.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../node_table.hpp"
#include "build.hpp"
#include "tessera/kit/gpu/simt_programs.hpp"

namespace tessera::kit {

struct NodeProgram {
  Program program;
  std::vector<tsr_dim> symbol_dims;
  std::vector<uint32_t> operand_of;  // of each input buffer
  // Operands that are read where they lie: their strides are symbols behind those of `symbol_dims`. `program` is then right
  // where the last stride is 1 and the others are multiples of kStrideMultiple, and `any_strides` in any case.
  std::vector<OperandStride> strides;
  std::optional<Program> any_strides;
  int in_place = -1;  // see SimtPrograms
};
// Empty: there is a program for it; else the reason why not.
std::string why_no_node_program(sdk::Graph g, sdk::Node n, const GpuDescription& device);
// Throws Unfit with that reason.
NodeProgram node_program(sdk::Graph g, sdk::Node n, const std::string& name, const GpuDescription& device);

// A node's operands and results as buffers, with their sizes in the program's pool.
class NodeWriter {
 public:
  NodeWriter(sdk::Graph g, sdk::Node n, const std::string& name, const GpuDescription& device);
  NodeProgram take();
  // Reads operands [0, count) where they lie. `vectors`: see NodeProgram. Before the first launch begins.
  void read_strided(uint32_t count, bool vectors);
  Expr stride(uint32_t operand, size_t dimension) const { return strides_[operand][dimension]; }

  sdk::Node node;
  bool heads_last = false;  // of attention: the result lies as [.., queries, heads, width]
  ProgramBuilder b;
  IndexPool& pool() { return b.pool(); }
  uint32_t input(uint32_t operand) const { return inputs_[operand]; }
  uint32_t output(uint32_t result) const { return outputs_[result]; }
  const std::vector<Expr>& shape(uint32_t buffer) const { return shapes_[buffer]; }
  const GpuDescription& device() const { return device_; }
  Expr points(const std::vector<Expr>& sizes) { return pool().product(sizes); }
  // The dimension that an attribute says, of a buffer.
  size_t axis(std::string_view attribute, uint32_t buffer) const;

  // Result 0 may take the memory of an operand: each of its elements is read by the thread that writes it, and before.
  void may_overwrite(uint32_t operand) {
    in_place_ = static_cast<int>(operand);
    b.p.buffers[input(operand)].aliased = b.p.buffers[output(0)].aliased = true;
  }

  // One launch, whose threads each run `body` for one of `count` points.
  void each(Expr count, const std::function<void(Expr point)>& body);

  // ---- values
  uint32_t convert(uint32_t v, Type to);
  uint32_t widened(uint32_t v) { return convert(v, compute_type(b.type_of(v))); }
  uint32_t boolean(bool x) { return b.constant(Type::Bool, x ? 1 : 0); }
  uint32_t both(uint32_t x, uint32_t y) { return b.binary(Op::And, x, y); }
  uint32_t either(uint32_t x, uint32_t y) { return b.binary(Op::Or, x, y); }
  uint32_t no(uint32_t x) { return b.unary(Op::Not, x); }
  uint32_t is_nan(uint32_t x) { return is_float(b.type_of(x)) ? b.binary(Op::Ne, x, x) : boolean(false); }
  // x < y of widened values, where NaN is greater than any number and equal to itself; bools are numbers.
  uint32_t less(uint32_t x, uint32_t y);
  // An index as data, checked against a size: a value inside of [0, size), and whether it was.
  struct Checked {
    Expr at;
    uint32_t inside;
  };
  Checked checked(uint32_t buffer, Expr at, Expr size);
  // A register of one element.
  uint32_t variable(Type t) { return b.buffer("v", Memory::Register, t, kOne); }
  uint32_t get(uint32_t variable) { return b.load(variable, kZero); }
  void set(uint32_t variable, uint32_t value) { b.store(variable, kZero, value); }

 private:
  int in_place_ = -1;
  Kernel k_;
  TensorTable table_;
  const GpuDescription& device_;
  std::vector<uint32_t> inputs_, outputs_;
  std::vector<std::vector<Expr>> shapes_;
  std::vector<std::vector<Expr>> strides_;
  std::vector<OperandStride> stride_symbols_;
};

void write_scan(NodeWriter& w);
void write_sort(NodeWriter& w);
void write_search(NodeWriter& w);
void write_scatter(NodeWriter& w);
void write_scatter_nd(NodeWriter& w);
void write_attention(NodeWriter& w, bool vectors);  // attention_lse and attention_backward too
void write_attention_backward(NodeWriter& w, bool vectors);
std::string why_no_attention(sdk::Node n, const GpuDescription& device);
void write_random(NodeWriter& w);

}  // namespace tessera::kit
