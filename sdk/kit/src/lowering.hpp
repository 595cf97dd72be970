// SPDX-License-Identifier: Apache-2.0
// The lowering of one piece, in parts: lower_domain.cpp, lower_positions.cpp, lower_levels.cpp, lower_loops.cpp,
// lower_values.cpp; of windows of it: lower_window.cpp.
//
// Demand-driven: a tensor's value at a position is asked for, and asks for its operands' values at the positions that it reads.
// Views only change positions. A first walk finds the reductions, how they depend on each other, and where a reshape cuts an
// axis in two (then the domain is refined and the walk begins again); a second one emits.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "node_table.hpp"
#include "tessera/kit/lower.hpp"

namespace tessera::kit {

struct Split {   // a domain axis that a reshape cuts: outer part of extent / inner, inner part
  struct Part {  // of `inner`, which lives longer than the pool it was found in: a number times symbols
    int64_t coefficient;
    std::vector<uint32_t> symbols;
  };
  size_t axis;
  std::vector<Part> inner;
};

struct Demand {
  int reduction;
  Position at;
  int level;  // loops that must run before it can be computed
  uint32_t value = kNone;
};

class Lowering {
 public:
  Lowering(const Piece& piece, const std::string& name, const std::vector<Split>& splits, const LowerOptions& options = {})
      : piece_(piece), splits_(splits), pool_(k_.pool), table_(piece.graph, pool_, &k_, options) {
    k_.name = name;
  }

  // Throws Unfit; a Split where an axis must be cut first.
  Lowered run();
  LoweredWindow run_window(std::span<const tsr_dim> shape, std::span<const sdk::Value> windowed);

 private:
  struct Output {
    int tensor;
    uint32_t buffer;
    Position at;
    bool full;
    int level;
  };

  static constexpr size_t kMaxInsts = 20000;
  static constexpr uint32_t kPlaceholder = 0xf0000000u;  // stands for an index that is data while planning
  static constexpr uint32_t kMostIndices = 8;            // of one tensor

  // ---- the piece

  void tensors();
  void add_buffer(sdk::Value v, Access access, const std::vector<Expr>& shape);

  // ---- windows: lower_window.cpp

  // The axes of each dimension of the tensor.
  std::vector<std::vector<uint32_t>> window_axes(const std::vector<Expr>& sizes);
  std::vector<Expr> extents_of(const std::vector<uint32_t>& axes) const;
  // Puts the place of the window and its own axes in place of those; `point`: the number of a point in the tensor.
  void place_window(const std::vector<std::vector<uint32_t>>& axes, Expr point, std::span<const sdk::Value> windowed);

  // ---- the iteration space

  // The reduction that gives the domain: the first one that an output depends on.
  int root() const;
  void domain();
  Expr extent_of(const Split& s);  // of the inner part
  std::optional<Position> as_another_output(int id) const;
  // The position in `shape` of the point of these axes, by row-major number; dimension by dimension where those agree.
  Position reshaped(Expr, const std::vector<Expr>& extents, const std::vector<uint32_t>& axes, const std::vector<Expr>& shape);
  // Groups of dimensions with equal products, from the right; each group by its row-major number.
  Position reshape(const Position& from, const std::vector<Expr>& in, const std::vector<Expr>& out);
  // A floordiv or mod of one whole domain axis is a cut of that axis.
  void look_for_cuts(const Position& at);

  // ---- positions of operands

  Position broadcast(const Position& at, const Tensor& operand);
  Position through_view(const Tensor& t, const Position& at);
  Position reduced(const Tensor& t, const Position& at);
  // Position of a gather's indices, and of its operand once the index is known.
  Position gather_index(const Tensor& t, const Position& at);
  Position gathered(const Tensor& t, const Position& at, Expr index);
  // Positions of the tuple that a gather_nd reads, and of its operand once the indices are known.
  std::vector<Position> tuple_of(const Tensor& t, const Position& at);
  Position gathered_nd(const Tensor& t, const Position& at, const std::vector<Expr>& indices);
  Expr placeholder(int id, size_t number) const {
    return pool_.value(kPlaceholder + static_cast<uint32_t>(id) * kMostIndices + static_cast<uint32_t>(number));
  }
  bool uses_loop(const Position& at) const;

  // ---- first walk: levels. `guarded`: some positions may be outside.

  int visit(int id, const Position& at, bool guarded);

  // ---- second walk: loops

  void emit();
  // Expensive values that loops up to this one compute, by the number of loops. One that a later loop computes again is kept in
  // an output of its type, whose element of the same point is written for good in the last loop only.
  void find_kept(int level);
  bool expensive(const Tensor& t) const;
  void note_expensive(int id, const Position& at, int level);
  void store(const Output& o);

  // ---- second walk: values

  // x^2 and x^3: the bits of pow, at once.
  std::optional<Ex> known_power(const Tensor& t, const std::vector<Ex>& args) const;
  // The value of a tensor at a position, as its dtype is stored. `guard`: positions are inside only where it holds.
  uint32_t eval(int id, const Position& at, uint32_t guard);
  uint32_t both(uint32_t a, uint32_t b);
  // low <= x, x < size, as far as that is not certain; kNone: it is.
  uint32_t inside(Expr x, Expr size);
  static int64_t signed_bits(const Inst& c);
  uint32_t compute(int id, const Position& at, uint32_t guard);
  // The index that operand `from` has at a position, checked: a value inside of [0, size). *in: whether it was.
  uint32_t checked_index(int from, const Position& at, Expr size, uint32_t guard, uint32_t origin, uint32_t* in);
  uint32_t compute_window(const Tensor& t, const Position& at, uint32_t guard);
  uint32_t compute_gather_nd(const Tensor& t, const Position& at, uint32_t guard);
  uint32_t compute_dynamic(const Tensor& t, const Position& at, uint32_t guard);

  const Piece& piece_;
  const std::vector<Split>& splits_;
  Kernel k_;
  IndexPool& pool_;
  TensorTable table_;
  std::vector<Output> outputs_;
  std::vector<uint32_t> loop_, all_;  // axes of the loops; of the whole domain, in its order
  bool across_ = false;               // the last dimension of the domain is not reduced
  Expr loop_extent_ = kOne, loop_number_ = kZero;
  std::map<std::tuple<int, Position, bool>, int> levels_;
  std::vector<Demand> demands_;
  Builder* b_ = nullptr;
  struct Kept {
    uint32_t buffer = kNone;
    Expr index = kZero;
    int until = 0;      // loop that stores the output
    bool done = false;  // the loop that computes it has ended
  };
  std::map<std::pair<int, Position>, int> expensive_;  // first loop that computes it
  std::map<std::pair<int, Position>, Kept> kept_;
  std::vector<std::pair<int, Position>> now_kept_;
  std::map<std::tuple<int, Position, uint32_t>, uint32_t> known_, in_loop_;
};

// What `attempt` makes, once as many axes are cut as its reshapes ask for.
template <class F>
auto refined(F attempt) {
  constexpr int kMaxRefinements = 16;
  std::vector<Split> splits;
  for (int i = 0; i < kMaxRefinements; ++i) {
    try {
      return attempt(splits);
    } catch (const Split& s) {
      splits.push_back(s);
    }
  }
  unfit("its reshapes cut axes too often");
}

}  // namespace tessera::kit
