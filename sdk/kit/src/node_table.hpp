// SPDX-License-Identifier: Apache-2.0
// The graph that lowering works on: nodes of the piece in few kinds, composites taken apart, sizes as index expressions.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/kit/builder.hpp"
#include "tessera/kit/lower.hpp"

namespace tessera::kit {

enum class Kind : uint8_t {
  Input,
  Constant,
  Iota,
  Size,
  Elementwise,
  Cast,
  View,
  Reduce,
  Concat,
  Pad,
  Gather,
  Window,         // reads its operand where a function of the position says, and a fill value where that is outside
  GatherNd,       // the last dimension of the indices is a tuple
  DynamicSlice,   // operands: x, then one start for each dimension
  DynamicUpdate,  // operands: x, the update, then the starts
};
using Position = std::vector<Expr>;

[[noreturn]] inline void unfit(std::string why) { throw Unfit{std::move(why)}; }

// How a view reads: position of the operand from the position of the result.
enum class ViewKind : uint8_t { Reshape, Transpose, Broadcast, Slice };

// Where a window reads its operand for one position of its result. The fill value stands where `at` is outside the operand, or
// one of `zeros` is not 0, or `below` does not hold.
struct Reading {
  Position at;
  std::vector<Expr> zeros;
  std::vector<std::pair<Expr, Expr>> below;  // first < second
  bool inside = false;                       // `at` is inside for certain
};
using ReadMap = std::function<Reading(IndexPool&, const Position&)>;

struct Tensor {  // a node with its one result
  Kind kind = Kind::Input;
  uint32_t dtype = TSR_DTYPE_INVALID;
  std::vector<Expr> shape;
  std::vector<int> operands;
  uint32_t origin = kNone;
  // Input: buffer; Iota: axis; Concat, Gather: axis
  uint32_t number = 0;
  double constant = 0;  // Constant, of its dtype
  uint64_t bits = 0;    // Constant: its bits
  Expr size = kZero;    // Size
  std::string op;       // Elementwise
  std::vector<double> params;
  ViewKind view = ViewKind::Reshape;
  std::vector<int64_t> perm;        // Transpose
  std::vector<Expr> starts, steps;  // Slice; Pad: low
  ReduceKind reduce = ReduceKind::Sum;
  std::vector<uint32_t> axes;  // Reduce: the dimensions, which keep size 1. A dot has two operands of one shape
  ReadMap read;                // Window; operands: x, the fill value
};

// Builds Tensors from graph nodes. Throws Unfit.
class TensorTable {
 public:
  TensorTable(sdk::Graph g, IndexPool& pool, Kernel* kernel, const LowerOptions& options)
      : g_(g), pool_(pool), kernel_(kernel), options_(options) {}

  int input(sdk::Value v, uint32_t buffer);
  // Adds the node; operands that are unknown are one-element constants or, in `alone` mode, inputs.
  int add(sdk::Node n, bool alone);
  int find(tsr_id value) const;
  const Tensor& at(int i) const { return tensors_[static_cast<size_t>(i)]; }
  Expr expr(tsr_dim d);
  std::vector<Expr> shape(sdk::Type t);
  std::vector<tsr_dim> symbol_dims;

 private:
  // Whether dimension `d` of the narrower shape is as long as the one of the wider shape that it is aligned with.
  bool same_size(std::span<const tsr_dim> narrow, std::span<const tsr_dim> wide, size_t d) const;
  Expr symbol(tsr_dim d, const std::string& name, int64_t min);
  int push(Tensor t);
  int operand(sdk::Node n, uint32_t i, bool alone);
  int elementwise(std::string op, uint32_t dtype, std::vector<int> operands, std::vector<double> params = {});
  int cast(int x, uint32_t dtype);
  int reduce(ReduceKind kind, int x, const std::vector<uint32_t>& axes);
  int view(ViewKind kind, int x, std::vector<Expr> shape);
  int literal(double x, uint32_t dtype);
  int literal_bits(uint64_t bits, uint32_t dtype);
  int count_of(int x, const std::vector<uint32_t>& axes, double minus);
  int normalise(sdk::Node n, int x, int weight, int bias, bool rms);
  int composite(sdk::Node n, std::string_view op, bool alone);
  std::vector<uint32_t> axes_of(sdk::Node n, std::string_view name, size_t rank);

  // ---- products, convolutions, pools: node_products.cpp, node_windows.cpp. -1, or nothing: not one of them.
  int transposed(int x, std::vector<int64_t> perm);
  int reshaped(int x, std::vector<Expr> shape);
  int expanded(int x, const std::vector<Expr>& shape);
  // The sum over the last `contracted` dimensions of the products of a and b, both of which broadcast to `full`; in dtype
  // `wide`.
  int dot(int a, int b, const std::vector<Expr>& full, size_t contracted, uint32_t wide);
  int everything(sdk::Node n, std::string_view op, bool alone);
  int product(sdk::Node n, std::string_view op, bool alone);
  int window(int x, int fill, std::vector<Expr> shape, ReadMap read);
  int convolution(sdk::Node n, bool backwards, bool alone);
  std::vector<int> pool_window(sdk::Node n, bool average, bool alone);
  int one_update(sdk::Node n, bool alone);
  int reading(sdk::Node n, std::string_view op, bool alone);

  sdk::Graph g_;
  IndexPool& pool_;
  Kernel* kernel_;
  LowerOptions options_;
  std::vector<Tensor> tensors_;
  std::vector<std::pair<tsr_id, int>> values_;
  std::vector<std::pair<tsr_dim, Expr>> symbols_;
  uint32_t origin_ = kNone;
};

// Whether a scatter writes one update along its axis, wherever that is, to each line of x: no kernel of lines is needed.
bool is_one_update(sdk::Node n);

// The numbers of one elementwise op on values of the dtype's compute type (params: the op's attributes). nullopt: unknown op or
// dtype. The result has the compute type of the result's dtype; `exact`: it is one of the operands' values, so narrowing it is
// exact.
struct Computed {
  Ex value;
  bool exact;
};
bool known_elementwise(std::string_view op, uint32_t dtype, size_t operands);
// Whether a function takes so few instructions that a later loop computes it again rather than keep its value.
bool is_quick(std::string_view op);
Computed compute_elementwise(std::string_view op, uint32_t dtype, std::vector<Ex>& a, const std::vector<double>& params);
// Why this conversion is not done here; empty: it is.
std::string why_no_cast(uint32_t from, uint32_t to);
// From a value of storage type to a value of storage type.
Ex compute_cast(Ex x, uint32_t from, uint32_t to);

}  // namespace tessera::kit
