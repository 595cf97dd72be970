// SPDX-License-Identifier: Apache-2.0
// How schedules write programs: statements into open bodies, and instructions of a kernel at a point that threads and loops
// give.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../interpret_parts.hpp"
#include "tessera/kit/gpu/schedule.hpp"
#include "tessera/kit/program/program.hpp"

namespace tessera::kit {

[[noreturn]] void no_program(const std::string& why);  // TSR-K041

// Verifies a finished program, rewritten first where the device has no shuffles; one that is too large for it is TSR-K041.
void check_program(Program& p, const GpuDescription& device);

class ProgramBuilder {
 public:
  ProgramBuilder(std::string name, const GpuDescription& device);
  Program p;
  IndexPool& pool() { return p.pool; }

  // ---- structure
  void begin_launch();
  void end_launch();
  Expr begin(Bind bind, const char* prefix, Expr extent);  // the axis
  void end();
  // A loop of one point is none: its axis is 0.
  Expr begin_unless_one(Bind bind, const char* prefix, Expr extent);
  void end_unless_one();
  bool begin_if(uint32_t condition);  // kNone: always; no statement then. Returns whether there is one
  void end_if(bool opened);
  void barrier(BarrierScope scope);

  // ---- buffers
  uint32_t buffer(const std::string& name, Memory memory, Type type, Expr extent, Access access = Access::InOut,
                  int64_t align = 16);

  // ---- values
  uint32_t inst(const Inst& x);
  uint32_t constant(Type t, uint64_t bits);
  uint32_t index(Expr e);
  uint32_t unary(Op op, uint32_t a);
  uint32_t binary(Op op, uint32_t a, uint32_t b);
  uint32_t select(uint32_t c, uint32_t a, uint32_t b);
  // a * b + sum, rounded once where they are floats: a step of a dot.
  uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t sum);
  uint32_t load(uint32_t buffer, Expr at);
  uint32_t load_or(uint32_t buffer, Expr at, uint32_t condition, uint32_t otherwise);
  void store(uint32_t buffer, Expr at, uint32_t value);
  uint32_t shuffle_xor(uint32_t v, int64_t bits);
  uint32_t shuffle_from(uint32_t v, int64_t lane, int64_t lanes);
  // A matrix instruction: sums += left * right.
  void mma(Type factors, Fragment sums, Fragment left, Fragment right);
  void mma_group(Type factors, Fragment sums, Fragment left, Fragment right, const GroupShape& shape);
  void mma_wait(Fragment sums, int64_t columns);
  // Begins to bring `n` elements to shared memory; the batch of a thread's copies; waits for all batches but the last ones.
  void copy(Fragment to, Fragment from, int64_t n, uint32_t condition = kNone);
  void copy_end();
  void copy_wait(int64_t but);
  Type type_of(uint32_t v) const { return p.statements[v].inst.type; }
  // e < n as far as that is not certain: kNone where it is.
  uint32_t below(Expr e, Expr n);
  uint32_t both(uint32_t a, uint32_t b);  // kNone: true

  // ---- reductions
  uint32_t identity(const Reducer& r) { return constant(r.type, r.identity().a); }
  uint32_t combine(const Reducer& r, uint32_t a, uint32_t b);
  // Of an arg-reduction: does (a, at) come before (b, other)? A place of -1 is that of nothing.
  uint32_t comes_first(const Reducer& r, uint32_t a, uint32_t at, uint32_t b, uint32_t other);
  // Elements [at, at + n) of a register buffer, n a power of two, by halves; the result.
  uint32_t combine_halves(const Reducer& r, uint32_t buffer, Expr at, int64_t n);
  uint32_t combine_halves(const Reducer& r, std::vector<uint32_t> values);
  // Over lanes whose numbers differ below `lanes`; every lane of the group gets the result.
  uint32_t combine_lanes(const Reducer& r, uint32_t v, int64_t lanes);

  // ---- several elements between memory and registers; `n` elements side by side, in accesses as wide as alignment allows.
  void load_elements(uint32_t from, Expr at, uint32_t registers, Expr to, int64_t n);
  void store_elements(uint32_t to, Expr at, uint32_t registers, Expr from, int64_t n);
  Expr ceil_div(Expr e, int64_t n) { return pool().floordiv(pool().add(e, pool().number(n - 1)), pool().number(n)); }
  Expr scaled(Expr e, int64_t n) { return pool().mul(e, pool().number(n)); }

 private:
  uint32_t add(Statement s);
  void move_elements(uint32_t from, Expr at, uint32_t to, Expr to_at, int64_t n, uint32_t memory, Expr memory_at);
  struct Open {
    uint32_t id;  // kNone: a loop of one point
    std::vector<uint32_t> body;
  };
  std::vector<Open> open_;
  std::map<std::string, int> names_;
};

// Rows of a run where `count` of them are reduced across (SimtOrder::run_of).
Expr run_of(IndexPool& p, const SimtOrder& o, Expr count);

// The same expression in another pool, where `leaf` says what axes, symbols and values are.
Expr moved(const IndexPool& from, Expr e, IndexPool& to, const std::function<Expr(const Atom&)>& leaf);

Reducer reducer_of(const Kernel& k, uint32_t reduce);
// Reductions with one result, which need nothing but their values.
bool plain_reduction(const Kernel& k, uint32_t reduce);

// The instructions of a kernel in a program. Axes and buffers are what the schedule says.
class KernelCopy {
 public:
  KernelCopy(ProgramBuilder& b, const Kernel& k, std::vector<uint32_t> buffers)
      : b_(b), k_(k), buffers_(std::move(buffers)), axes_(k.axis_names.size()), values_(k.insts.size(), kNone) {}
  void set_axis(uint32_t axis, Expr e) { axes_[axis] = e; }
  void set_value(uint32_t id, uint32_t v) { values_[id] = v; }
  uint32_t value(uint32_t id) const { return values_[id]; }
  uint32_t buffer(uint32_t id) const { return buffers_[id]; }
  Expr index(Expr e);
  // A pure instruction, a load or a check; operands have values. A load under a guard gives 0 where that does not hold.
  uint32_t copy(uint32_t id, uint32_t guard = kNone);
  void forget(uint32_t id) { values_[id] = kNone; }
  const Kernel& kernel() const { return k_; }

 private:
  ProgramBuilder& b_;
  const Kernel& k_;
  std::vector<uint32_t> buffers_;
  std::vector<std::optional<Expr>> axes_;
  std::vector<uint32_t> values_;
};

// Axes that all index expressions walk as if they were one. The inner one runs over all points, the outer ones are 0.
struct AxisGroup {
  uint32_t inner;
  std::vector<uint32_t> outer;
  Expr extent;  // of the kernel's pool
};
std::vector<AxisGroup> collapse(Kernel& k, const std::vector<uint32_t>& axes);

// The points of a few axes, which are numbered in their order.
struct Space {
  std::vector<AxisGroup> groups;
  std::vector<Expr> extents;  // of each group
  Expr points = kOne;
};
Space space_of(ProgramBuilder& b, KernelCopy& copy, Kernel& k, const std::vector<uint32_t>& axes);
void go_to(ProgramBuilder& b, KernelCopy& copy, const Space& space, Expr point);

// Declares the kernel's symbols and buffers in the program; returns the numbers of the buffers, kNone for those left out.
void declare_symbols(ProgramBuilder& b, const Kernel& k, const SimtAssume& assume);
std::vector<uint32_t> declare_buffers(ProgramBuilder& b, const Kernel& k, const SimtAssume& assume,
                                      std::span<const uint32_t> left_out = {});

// ---- the forms
Program pointwise_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a);
// A reduction across no more rows than the order has runs, each of which then has one: as pointwise work, a thread reads all
// rows of its columns.
bool few_rows(Kernel& k, const SimtOrder& o);
Program transpose_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a);
Program rows_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a);
Program generic_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a);
Program columns_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a);

Program product_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a);
// The same on matrix instructions; of factors that a dot takes as they are, widened: their type, or None.
Program matrix_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a);
Program group_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a);
Type matrix_factors(const Kernel& k, uint32_t dot);
Program split_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a);

// One launch of several programs without barriers, of one launch each: blocks of one behind those of the other. The programs
// have as many threads in a block. symbols[i][s] is the number that symbol s of part i has in the whole; registers are shared.
struct ProgramPart {
  Program program;
  std::vector<uint32_t> symbols;
};
Program side_by_side(std::vector<ProgramPart> parts, const std::string& name, const std::vector<ProgramSymbol>& symbols,
                     const GpuDescription& d);

struct ProductSize {  // nothing: a symbol says how many
  std::optional<int64_t> batch, rows, columns, depth;
};
ProductSize product_size(Kernel& k);

// A load whose elements lie side by side along `axis` in memory that is not written here: its affine rest is worth a vector
// access.
bool contiguous_load(Kernel& k, const Inst& x, uint32_t axis);

// The launches that fold partial results of columns. `count` partial results of `columns` numbers each lie in
// workspaces, one for each reducer; those of `of_runs` are runs, of which `fan` make a block, else blocks. `finish` gets the
// results of column `column` and stores what the kernel makes of them.
struct Fold {
  std::vector<Reducer> reducers;
  std::vector<uint32_t> workspaces;
  Expr count, columns;
  bool of_runs = false;
  bool across = true;  // in the order across rows; else they are results of chunks along rows
};
void fold_launches(ProgramBuilder& b, Fold f, const SimtOrder& o,
                   const std::function<void(Expr column, const std::vector<uint32_t>& results)>& finish);

// Worth overwriting: a kernel may then not assume that its buffers lie apart, and below this nobody is short of memory.
inline bool is_large(IndexPool& pool, const ProgramBuffer& b) {
  const auto n = pool.as_number(b.extent);
  return n && *n * type_bytes(b.type) >= int64_t{1} << 20;
}

}  // namespace tessera::kit
