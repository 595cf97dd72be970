// SPDX-License-Identifier: Apache-2.0
// Demand-driven: a tensor's value at a position is asked for, and asks for its operands' values at the positions that it reads. Views only
// change positions. A first walk finds the reductions, how they depend on each other, and where a reshape cuts an axis in two (then the
// domain is refined and the walk begins again); a second one emits.
#include "tessera/kit/lower.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "axes.hpp"
#include "node_table.hpp"
#include "tessera/kit/verify.hpp"

namespace tessera::kit {
namespace {

using Position = std::vector<Expr>;
constexpr uint32_t kPlaceholder = 0xf0000000u;  // stands for an index that is data while planning
constexpr int kMaxRefinements = 16;
constexpr size_t kMaxInsts = 20000;

[[noreturn]] void unfit(std::string why) { throw Unfit{std::move(why)}; }

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
  Lowering(const Piece& piece, const std::string& name, const std::vector<Split>& splits)
      : piece_(piece), splits_(splits), pool_(k_.pool), table_(piece.graph, pool_, &k_) {
    k_.name = name;
  }

  Lowered run() {
    tensors();
    domain();
    for (Output& o : outputs_) o.level = visit(o.tensor, o.at, false);
    emit();
    merge_axes(k_);
    verify(k_);
    return {std::move(k_), std::move(table_.symbol_dims)};
  }

 private:
  struct Output {
    int tensor;
    uint32_t buffer;
    Position at;
    bool full;
    int level;
  };

  void tensors() {
    for (const sdk::Value& v : piece_.inputs) {
      const auto id = static_cast<uint32_t>(k_.buffers.size());
      const int t = table_.input(v, id);
      add_buffer(v, Access::In, table_.at(t).shape);
    }
    for (const sdk::Node& n : piece_.nodes) {
      if (n.is("constant")) continue;
      table_.add(n, false);
    }
    for (const sdk::Value& v : piece_.outputs) {
      int t = table_.find(v.id);
      if (t < 0) unfit("output %" + std::string(v.name()) + " is not computed by the piece");
      outputs_.push_back({t, static_cast<uint32_t>(k_.buffers.size()), {}, false, 0});
      add_buffer(v, Access::Out, table_.at(t).shape);
    }
    if (outputs_.empty()) unfit("it has no outputs");
  }

  void add_buffer(sdk::Value v, Access access, const std::vector<Expr>& shape) {
    std::string name(v.name());
    for (char& c : name)
      if (!isalnum(static_cast<unsigned char>(c)) && c != '_') c = '_';
    const auto taken = [&](const std::string& s) {
      return std::any_of(k_.buffers.begin(), k_.buffers.end(), [&](const Buffer& b) { return b.name == s; });
    };
    std::string unique = name;
    for (int i = 1; taken(unique); ++i) unique = name + "_" + std::to_string(i);
    k_.buffers.push_back({unique, access, type_of(v.type().dtype()), pool_.product(shape)});
  }

  // ---- the iteration space

  // The reduction that gives the domain: the first one that an output depends on.
  int root() const {
    std::vector<uint8_t> seen;
    int found = -1;
    std::vector<int> stack;
    for (const Output& o : outputs_) stack.push_back(o.tensor);
    while (!stack.empty()) {
      const int t = stack.back();
      stack.pop_back();
      if (static_cast<size_t>(t) >= seen.size()) seen.resize(static_cast<size_t>(t) + 1, 0);
      if (seen[static_cast<size_t>(t)]++) continue;
      if (table_.at(t).kind == Kind::Reduce && (found < 0 || t < found)) found = t;
      for (const int o : table_.at(t).operands) stack.push_back(o);
    }
    return found;
  }

  void domain() {
    struct Dim {
      Expr extent;
      bool reduced;
    };
    std::vector<Dim> dims;
    if (const int r = root(); r >= 0) {
      const Tensor& t = table_.at(r);
      const auto& shape = table_.at(t.operands[0]).shape;
      for (uint32_t d = 0; d < shape.size(); ++d)
        dims.push_back({shape[d], std::find(t.axes.begin(), t.axes.end(), d) != t.axes.end()});
      if (t.axes.empty()) dims.push_back({kOne, true});
    } else {
      const Output* best = &outputs_[0];
      for (const Output& o : outputs_)
        if (table_.at(o.tensor).shape.size() > table_.at(best->tensor).shape.size()) best = &o;
      for (const Expr e : table_.at(best->tensor).shape) dims.push_back({e, false});
    }
    std::erase_if(dims, [](const Dim& d) { return d.extent == kOne && !d.reduced; });
    for (const Split& s : splits_) {
      const Dim d = dims[s.axis];
      Expr inner = kZero;
      for (const Split::Part& p : s.inner) {
        Expr e = pool_.number(p.coefficient);
        for (const uint32_t x : p.symbols) e = pool_.mul(e, pool_.symbol(x));
        inner = pool_.add(inner, e);
      }
      dims[s.axis].extent = *pool_.divide_exactly(d.extent, inner);
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(s.axis) + 1, {inner, d.reduced});
    }
    for (const Dim& d : dims) {
      const size_t number = d.reduced ? loop_.size() : k_.parallel.size();
      const uint32_t a = k_.add_axis((d.reduced ? "r" : "p") + std::to_string(number), d.extent);
      (d.reduced ? loop_ : k_.parallel).push_back(a);
      all_.push_back(a);
    }
    const auto extents = [&](const std::vector<uint32_t>& axes) {
      std::vector<Expr> e;
      for (const uint32_t a : axes) e.push_back(pool_.extent(a));
      return e;
    };
    const auto number = [&](const std::vector<uint32_t>& axes) {
      std::vector<Expr> p;
      for (const uint32_t a : axes) p.push_back(pool_.axis(a));
      return pool_.linear(p, extents(axes));
    };
    const Expr points = pool_.product(extents(all_)), rows = pool_.product(extents(k_.parallel));
    loop_extent_ = pool_.product(extents(loop_));
    loop_number_ = number(loop_);
    // Of a reduction over one element, rows and points are as many; rows are then right.
    for (Output& o : outputs_) {
      const auto& shape = table_.at(o.tensor).shape;
      const Expr elements = pool_.product(shape);
      if (elements == rows && !loop_.empty()) {
        o.at = reshaped(number(k_.parallel), extents(k_.parallel), k_.parallel, shape);
      } else if (elements == points) {
        o.at = reshaped(number(all_), extents(all_), all_, shape);
        o.full = !loop_.empty();
      } else {
        unfit("its outputs have different sizes");
      }
    }
  }

  // The position in `shape` of the point of these axes, by row-major number; dimension by dimension where those agree.
  Position reshaped(Expr, const std::vector<Expr>& extents, const std::vector<uint32_t>& axes, const std::vector<Expr>& shape) {
    Position from;
    for (const uint32_t a : axes) from.push_back(pool_.axis(a));
    return reshape(from, extents, shape);
  }

  // Groups of dimensions with equal products, from the right; each group by its row-major number.
  Position reshape(const Position& from, const std::vector<Expr>& in, const std::vector<Expr>& out) {
    Position at(out.size(), kZero);
    size_t i = in.size(), j = out.size();
    while (i > 0 || j > 0) {
      const size_t i1 = i, j1 = j;
      Expr a = kOne, b = kOne;
      bool closed = false;
      if (i > 0 && in[i - 1] == kOne) {
        --i;
        continue;
      }
      if (j > 0 && out[j - 1] == kOne) {
        --j;
        continue;
      }
      if (i == 0 || j == 0) break;
      a = in[--i];
      b = out[--j];
      while (!closed) {
        if (a == b) {
          closed = true;
        } else if (i > 0 && pool_.divide_exactly(b, a)) {
          a = pool_.mul(a, in[--i]);
        } else if (j > 0 && pool_.divide_exactly(a, b)) {
          b = pool_.mul(b, out[--j]);
        } else if (i > 0 || j > 0) {  // no common grouping is found: all that is left is one group
          i = j = 0;
          closed = true;
        } else {
          closed = true;
        }
      }
      const std::span<const Expr> part(from.data() + i, i1 - i), sizes(in.data() + i, i1 - i), target(out.data() + j, j1 - j);
      if (part.size() == 1 && target.size() == 1) {
        at[j] = part[0];
        continue;
      }
      const Position p = pool_.position(pool_.linear(part, sizes), target);
      std::copy(p.begin(), p.end(), at.begin() + static_cast<std::ptrdiff_t>(j));
    }
    return at;
  }

  // A floordiv or mod of one whole domain axis is a cut of that axis.
  void look_for_cuts(const Position& at) {
    for (const Expr e : at)
      for (const Term& t : pool_.terms(e))
        for (const uint32_t id : t.atoms) {
          const Atom a = pool_.atom_at(id);
          if (a.kind != AtomKind::FloorDiv && a.kind != AtomKind::Mod) continue;
          const auto axis = pool_.as_axis(a.a);
          if (!axis || !pool_.divide_exactly(pool_.extent(*axis), a.b)) continue;
          Split cut{static_cast<size_t>(std::find(all_.begin(), all_.end(), *axis) - all_.begin()), {}};
          bool plain = true;
          for (const Term& term : pool_.terms(a.b)) {
            cut.inner.push_back({term.coefficient, {}});
            for (const uint32_t x : term.atoms) {
              plain = plain && pool_.atom_at(x).kind == AtomKind::Symbol;
              cut.inner.back().symbols.push_back(pool_.atom_at(x).id);
            }
          }
          if (plain) throw cut;
        }
  }

  // ---- positions of operands

  Position broadcast(const Position& at, const Tensor& operand) {
    Position p(operand.shape.size(), kZero);
    for (size_t d = 0; d < p.size(); ++d)
      if (operand.shape[d] != kOne) p[d] = at[at.size() - p.size() + d];
    return p;
  }

  Position through_view(const Tensor& t, const Position& at) {
    const Tensor& x = table_.at(t.operands[0]);
    switch (t.view) {
      case ViewKind::Broadcast: return broadcast(at, x);
      case ViewKind::Reshape: return reshape(at, t.shape, x.shape);
      case ViewKind::Transpose: {
        Position p(at.size());
        for (size_t d = 0; d < at.size(); ++d) p[static_cast<size_t>(t.perm[d])] = at[d];
        return p;
      }
      case ViewKind::Slice: {
        Position p(at.size());
        for (size_t d = 0; d < at.size(); ++d) p[d] = pool_.add(t.starts[d], pool_.mul(at[d], t.steps[d]));
        return p;
      }
    }
    return at;
  }

  Position reduced(const Tensor& t, const Position& at) {
    const auto& shape = table_.at(t.operands[0]).shape;
    std::vector<Expr> sizes;
    for (const uint32_t a : t.axes) sizes.push_back(shape[a]);
    if (pool_.product(sizes) != loop_extent_) unfit("two reductions run over different numbers of elements");
    Position from;
    std::vector<Expr> extents;
    for (const uint32_t a : loop_) {
      from.push_back(pool_.axis(a));
      extents.push_back(pool_.extent(a));
    }
    const Position inner = reshape(from, extents, sizes);
    Position p = at;
    for (size_t i = 0; i < t.axes.size(); ++i) p[t.axes[i]] = inner[i];
    return p;
  }

  static int64_t signed_bits(const Inst& c) {
    const int unused = 64 - 8 * type_bytes(c.type);
    return static_cast<int64_t>(c.bits << unused) >> unused;
  }

  // Position of a gather's indices, and of its operand once the index is known.
  Position gather_index(const Tensor& t, const Position& at) {
    if (t.op == "take_along_axis") return at;
    const size_t rank = table_.at(t.operands[1]).shape.size();
    return Position(at.begin() + t.number, at.begin() + static_cast<std::ptrdiff_t>(t.number + rank));
  }
  Position gathered(const Tensor& t, const Position& at, Expr index) {
    if (t.op == "take_along_axis") {
      Position p = at;
      p[t.number] = index;
      return p;
    }
    const size_t rank = table_.at(t.operands[1]).shape.size();
    Position p(at.begin(), at.begin() + t.number);
    p.push_back(index);
    p.insert(p.end(), at.begin() + static_cast<std::ptrdiff_t>(t.number + rank), at.end());
    return p;
  }

  bool uses_loop(const Position& at) const {
    for (const Expr e : at)
      for (const uint32_t a : loop_)
        if (pool_.uses(e, AtomKind::Axis, a)) return true;
    return false;
  }

  // ---- first walk: levels. `guarded`: some positions may be outside.

  int visit(int id, const Position& at, bool guarded) {
    const auto key = std::make_tuple(id, at, guarded);
    if (const auto it = levels_.find(key); it != levels_.end()) return it->second;
    if (levels_.size() > kMaxInsts) unfit("it is too large");
    const Tensor t = table_.at(id);
    int level = 0;
    const auto operand = [&](int x, const Position& p, bool g) { level = std::max(level, visit(x, p, g)); };
    switch (t.kind) {
      case Kind::Input:
      case Kind::Constant:
      case Kind::Iota:
      case Kind::Size: break;
      case Kind::Elementwise:
      case Kind::Cast:
        for (const int x : t.operands) operand(x, broadcast(at, table_.at(x)), guarded);
        break;
      case Kind::View: {
        const Position p = through_view(t, at);
        if (t.view == ViewKind::Reshape) look_for_cuts(p);
        operand(t.operands[0], p, guarded);
        break;
      }
      case Kind::Concat: {
        Position p = at;
        for (const int x : t.operands) {
          operand(x, p, true);
          p[t.number] = pool_.sub(p[t.number], table_.at(x).shape[t.number]);
        }
        break;
      }
      case Kind::Pad: {
        Position p;
        for (size_t d = 0; d < at.size(); ++d) p.push_back(pool_.sub(at[d], t.starts[d]));
        operand(t.operands[0], p, true);
        operand(t.operands[1], {}, guarded);
        break;
      }
      case Kind::Gather:
        operand(t.operands[1], gather_index(t, at), guarded);
        operand(t.operands[0], gathered(t, at, pool_.value(kPlaceholder + static_cast<uint32_t>(id))), guarded);
        break;
      case Kind::Reduce: {
        if (guarded) unfit("a padded or concatenated part is reduced first");
        if (uses_loop(at)) unfit("a reduction is read along the dimension that another one reduces");
        for (const Expr e : at) {
          std::vector<uint32_t> values;
          pool_.collect(e, AtomKind::Value, values);
          if (!values.empty()) unfit("the result of a reduction is indexed by data");
        }
        const int l = visit(t.operands[0], reduced(t, at), false);
        demands_.push_back({id, at, l});
        level = l + 1;
        break;
      }
    }
    levels_.emplace(key, level);
    return level;
  }

  // ---- second walk: instructions

  void emit() {
    Builder b(k_);
    b_ = &b;
    int last = -1;
    for (const Demand& d : demands_) last = std::max(last, d.level);
    for (const Output& o : outputs_)
      if (o.full) last = std::max(last, o.level);
    for (int level = 0; level <= last; ++level) find_kept(level);
    for (int level = 0; level <= last; ++level) {
      b.begin_loop(loop_);
      for (Demand& d : demands_)
        if (d.level == level) {
          const Tensor& t = table_.at(d.reduction);
          b.set_origin(t.origin);
          const uint32_t v = eval(t.operands[0], reduced(t, d.at), kNone);
          b.set_origin(t.origin);
          d.value = b.reduce(t.reduce, b.convert(v, compute_type(b.type_of(v))));
        }
      // All values first: an output's memory may hold a kept one until then.
      for (const Output& o : outputs_)
        if (o.full && o.level == level) eval(o.tensor, o.at, kNone);
      for (const Output& o : outputs_)
        if (o.full && o.level == level) store(o);
      b.end_loop();
      in_loop_.clear();
      for (const auto& key : now_kept_) kept_[key].done = true;  // from the next loop on
      now_kept_.clear();
    }
    for (const Output& o : outputs_)
      if (!o.full) store(o);
  }

  // x^2 and x^3: the bits of pow, at once.
  std::optional<Ex> known_power(const Tensor& t, const std::vector<Ex>& args) const {
    if (t.op != "pow") return std::nullopt;
    const Tensor& exponent = table_.at(t.operands[1]);
    if (exponent.kind != Kind::Constant) return std::nullopt;
    const double e = constant_float(type_of(exponent.dtype), exponent.bits);
    if (e == 2) return args[0] * args[0];
    if (e == 3 && args[0].type() == Type::F32) return call("cube_f32", args[0]);
    return std::nullopt;
  }

  // ---- values that are kept between loops

  // Expensive values that loops up to this one compute, by the number of loops. One that a later loop computes again is kept in an output of
  // its type, whose element of the same point is written for good in the last loop only.
  void find_kept(int level) {
    std::map<std::pair<int, Position>, bool> seen;
    const auto walk = [&](const auto& self, int id, const Position& at) -> void {
      if (!seen.emplace(std::make_pair(id, at), true).second) return;
      const Tensor& t = table_.at(id);
      switch (t.kind) {
        case Kind::Elementwise:
          if (expensive(t) && uses_loop(at)) note_expensive(id, at, level);
          [[fallthrough]];
        case Kind::Cast:
          for (const int x : t.operands) self(self, x, broadcast(at, table_.at(x)));
          return;
        case Kind::View: return self(self, t.operands[0], through_view(t, at));
        default: return;  // what is padded, joined or gathered is not followed
      }
    };
    for (const Demand& d : demands_)
      if (d.level == level) walk(walk, table_.at(d.reduction).operands[0], reduced(table_.at(d.reduction), d.at));
    for (const Output& o : outputs_)
      if (o.full && o.level == level) walk(walk, o.tensor, o.at);
  }
  bool expensive(const Tensor& t) const {
    const uint32_t dtype = table_.at(t.operands.back()).dtype;
    if (!is_float(type_of(dtype))) return false;
    static constexpr std::string_view cheap[] = {
        "add",    "sub",    "mul",       "div",      "maximum",    "minimum",     "fmax",      "fmin",       "clamp_low",
        "neg",    "abs",    "sqrt",      "floor",    "ceil",       "round",       "trunc",     "relu",       "clamp_high",
        "eq",     "ne",     "lt",        "le",       "gt",         "ge",          "select",    "sign",       "reciprocal",
        "is_nan", "is_inf", "is_finite", "copysign", "leaky_relu", "hardsigmoid", "hardswish", "divide_many"};
    return std::find(std::begin(cheap), std::end(cheap), t.op) == std::end(cheap);
  }
  void note_expensive(int id, const Position& at, int level) {
    const auto [it, fresh] = expensive_.try_emplace({id, at}, level);
    if (fresh || it->second == level) return;
    if (const auto known = kept_.find({id, at}); known != kept_.end()) {
      if (level > known->second.until) kept_.erase(known);  // needed longer than its place is free
      it->second = level;
      return;
    }
    for (const Output& o : outputs_) {
      const Buffer& b = k_.buffers[o.buffer];
      if (!o.full || o.level < level || b.type != type_of(table_.at(id).dtype)) continue;
      // The element that this point stores for good: taken by one value only, and not the value itself.
      if (o.tensor == id || std::any_of(kept_.begin(), kept_.end(), [&](const auto& k) { return k.second.buffer == o.buffer; }))
        continue;
      kept_[{id, at}] = {o.buffer, pool_.linear(o.at, table_.at(o.tensor).shape), o.level};
      return;
    }
  }

  void store(const Output& o) {
    const uint32_t v = eval(o.tensor, o.at, kNone);
    b_->set_origin(table_.at(o.tensor).origin);
    b_->store(o.buffer, pool_.linear(o.at, table_.at(o.tensor).shape), v);
  }

  // The value of a tensor at a position, as its dtype is stored. `guard`: positions are inside only where it holds.
  uint32_t eval(int id, const Position& at, uint32_t guard) {
    const auto key = std::make_tuple(id, at, guard);
    if (const auto it = known_.find(key); it != known_.end()) return it->second;
    if (const auto it = in_loop_.find(key); it != in_loop_.end()) return it->second;
    if (k_.insts.size() > kMaxInsts) unfit("it is too large");
    const auto kept = guard == kNone ? kept_.find({id, at}) : kept_.end();
    uint32_t v = kNone;
    if (kept != kept_.end() && kept->second.done) {
      b_->set_origin(table_.at(id).origin);
      v = b_->load(kept->second.buffer, type_of(table_.at(id).dtype), kept->second.index);
    } else {
      v = compute(id, at, guard);
      if (kept != kept_.end() && b_->depth(v) > 0) {
        b_->store(kept->second.buffer, kept->second.index, v);
        now_kept_.push_back({id, at});
      }
    }
    (b_->depth(v) == 0 ? known_ : in_loop_).emplace(key, v);
    return v;
  }

  uint32_t both(uint32_t a, uint32_t b) { return a == kNone ? b : b == kNone ? a : b_->binary(Op::And, a, b); }
  // low <= x, x < size, as far as that is not certain; kNone: it is.
  uint32_t inside(Expr x, Expr size) {
    uint32_t c = kNone;
    if (!pool_.nonnegative(x)) c = b_->binary(Op::Ge, b_->index(x), b_->constant(Type::I64, int64_t{0}));
    if (!pool_.less(x, size)) c = both(c, b_->binary(Op::Lt, b_->index(x), b_->index(size)));
    return c;
  }

  uint32_t compute(int id, const Position& at, uint32_t guard) {
    const Tensor t = table_.at(id);
    const Type type = type_of(t.dtype);
    Builder& b = *b_;
    const auto origin = [&] { b.set_origin(t.origin); };
    switch (t.kind) {
      case Kind::Input: {
        // A dimension of size 1 is read at 0 whatever the position.
        Position p = at;
        for (size_t d = 0; d < p.size(); ++d)
          if (t.shape[d] == kOne) p[d] = kZero;
        const Expr where = pool_.linear(p, t.shape);
        origin();
        return guard == kNone ? b.load(t.number, type, where)
                              : b.load(t.number, type, where, guard, b.constant_of_bits(type, 0));
      }
      case Kind::Constant: return b.constant_of_bits(type, t.bits);
      case Kind::Iota: origin(); return b.index(t.shape.empty() ? kZero : at[t.number]);
      case Kind::Size: origin(); return b.index(t.size);
      case Kind::Cast: {
        const int x = t.operands[0];
        const uint32_t v = eval(x, at, guard);
        origin();
        return compute_cast({&b, v}, table_.at(x).dtype, t.dtype).v;
      }
      case Kind::Elementwise: {
        std::vector<uint32_t> values;
        for (const int x : t.operands) values.push_back(eval(x, broadcast(at, table_.at(x)), guard));
        origin();
        std::vector<Ex> args;
        for (const uint32_t v : values) args.push_back({&b, b.convert(v, compute_type(b.type_of(v)))});
        if (const auto v = known_power(t, args)) return b.convert(v->v, type);
        const Computed c = compute_elementwise(t.op, table_.at(t.operands.back()).dtype, args, t.params);
        return b.convert(c.value.v, type, c.exact);
      }
      case Kind::View: return eval(t.operands[0], through_view(t, at), guard);
      case Kind::Concat: {
        Position p = at;
        std::vector<std::pair<uint32_t, uint32_t>> parts;  // below the end of a part, its value
        for (const int x : t.operands) {
          const Expr size = table_.at(x).shape[t.number];
          const bool before = pool_.nonnegative(pool_.sub(p[t.number], size));
          if (!before) {
            const uint32_t in = inside(p[t.number], size);
            const uint32_t v = eval(x, p, both(guard, in));
            origin();
            const uint32_t below =
                pool_.less(p[t.number], size) ? kNone : b.binary(Op::Lt, b.index(p[t.number]), b.index(size));
            parts.emplace_back(below, v);
            if (below == kNone) break;
          }
          p[t.number] = pool_.sub(p[t.number], size);
        }
        if (parts.empty()) return b.constant_of_bits(type, 0);  // of nothing but empty tensors
        uint32_t v = parts.back().second;
        for (size_t i = parts.size() - 1; i-- > 0;) v = b.select(parts[i].first, parts[i].second, v);
        return v;
      }
      case Kind::Pad: {
        Position p;
        uint32_t in = kNone;
        origin();
        for (size_t d = 0; d < at.size(); ++d) {
          p.push_back(pool_.sub(at[d], t.starts[d]));
          in = both(in, inside(p[d], table_.at(t.operands[0]).shape[d]));
        }
        const uint32_t v = eval(t.operands[0], p, both(guard, in));
        const uint32_t fill = eval(t.operands[1], {}, guard);
        return in == kNone ? v : b.select(in, v, fill);
      }
      case Kind::Gather: {
        const uint32_t raw = eval(t.operands[1], gather_index(t, at), guard);
        origin();
        // A constant index that is certainly inside is a slice.
        if (const Inst& c = b.inst(raw); c.op == Op::Const && is_integer(c.type)) {
          const int64_t n = is_unsigned(c.type) ? static_cast<int64_t>(c.bits) : signed_bits(c);
          const Expr at_n = pool_.number(n);
          if (n >= 0 && pool_.less(at_n, table_.at(t.operands[0]).shape[t.number]))
            return eval(t.operands[0], gathered(t, at, at_n), guard);
        }
        const uint32_t i = b.convert(raw, Type::I64);
        const uint32_t zero = b.constant(Type::I64, int64_t{0});
        const uint32_t in = b.binary(Op::And, b.binary(Op::Ge, i, zero),
                                     b.binary(Op::Lt, i, b.index(table_.at(t.operands[0]).shape[t.number])));
        b.check(guard == kNone ? in : b.binary(Op::Or, in, b.unary(Op::Not, guard)), kFaultIndex);
        const uint32_t safe = b.select(in, i, zero);
        // Of an operand without elements nothing can be read.
        uint32_t readable = guard;
        const Expr elements = pool_.product(table_.at(t.operands[0]).shape);
        if (!pool_.nonnegative(pool_.sub(elements, kOne))) readable = both(guard, in);
        return eval(t.operands[0], gathered(t, at, pool_.value(safe)), readable);
      }
      case Kind::Reduce: {
        for (const Demand& d : demands_)
          if (d.reduction == id && d.at == at && d.value != kNone) {
            origin();
            uint32_t v = d.value;
            // The extreme of nothing is that of the dtype, not of the compute type.
            const Type wide = b.type_of(v);
            const bool extreme = t.reduce == ReduceKind::Max || t.reduce == ReduceKind::Min;
            if (extreme && wide != type && is_integer(type)) {
              const int bits = type_bytes(type) * 8;
              const bool sign = is_signed(type), low = t.reduce == ReduceKind::Max;
              const int64_t least = sign ? -(int64_t{1} << (bits - 1)) : 0, most = (int64_t{1} << (sign ? bits - 1 : bits)) - 1;
              const uint32_t bound = b.constant(wide, low ? least : most);
              v = b.select(b.binary(low ? Op::Gt : Op::Lt, v, bound), v, bound);
            }
            return b.convert(v, type, extreme);
          }
        throw sdk::Error(TSR_BUG, "TSR-K004", "kernel @" + k_.name + ": a reduction is used before it is computed");
      }
    }
    return kNone;
  }

  const Piece& piece_;
  const std::vector<Split>& splits_;
  Kernel k_;
  IndexPool& pool_;
  TensorTable table_;
  std::vector<Output> outputs_;
  std::vector<uint32_t> loop_, all_;  // axes of the loops; of the whole domain, in its order
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

}  // namespace

Lowered lower(const Piece& piece, const std::string& name) {
  std::vector<Split> splits;
  for (int i = 0; i < kMaxRefinements; ++i) {
    Lowering attempt(piece, name, splits);
    try {
      return attempt.run();
    } catch (const Split& s) {
      splits.push_back(s);
    }
  }
  unfit("its reshapes cut axes too often");
}

std::string why_not(sdk::Graph g, sdk::Node n) {
  Kernel k;
  TensorTable table(g, k.pool, &k);
  try {
    if (!n.regions().empty()) return "op '" + std::string(n.op()) + "' has regions";
    table.add(n, true);
    return {};
  } catch (const Unfit& u) {
    return u.why;
  }
}

NodePiece piece_of(sdk::Graph g, sdk::Node n) {
  NodePiece p{{g, {}, {}, {}}, {}};
  if (n.regions().size() == 1) {
    const tsr_id r = n.regions()[0];
    for (const sdk::Node& x : g.nodes(r)) p.piece.nodes.push_back(x);
    for (const tsr_id v : g.inputs(r)) p.piece.inputs.push_back(g.value(v));
    for (const tsr_id v : g.outputs(r)) p.piece.outputs.push_back(g.value(v));
    for (uint32_t i = 0; i < p.piece.inputs.size(); ++i) p.operand_of.push_back(i);
    return p;
  }
  p.piece.nodes.push_back(n);
  for (uint32_t i = 0; i < n.num_operands(); ++i) {
    if (!n.has_operand(i)) continue;
    const sdk::Value v = n.operand(i);
    // A literal, here as in a fused group.
    if (v.def() && v.def().is("constant") && v.type().elements() == 1 && type_of(v.type().dtype()) != Type::None) continue;
    if (std::find(p.piece.inputs.begin(), p.piece.inputs.end(), v) != p.piece.inputs.end()) continue;
    p.piece.inputs.push_back(v);
    p.operand_of.push_back(i);
  }
  for (uint32_t i = 0; i < n.num_results(); ++i) p.piece.outputs.push_back(n.result(i));
  return p;
}

int in_place_input(Kernel& k) {
  int output = -1;
  for (size_t i = 0; i < k.buffers.size() && output < 0; ++i)
    if (k.buffers[i].access == Access::Out) output = static_cast<int>(i);
  if (output < 0) return -1;
  // When each instruction runs within one point, the others of its loops aside.
  std::vector<uint32_t> when(k.insts.size(), 0);
  uint32_t now = 0;
  const std::function<void(const std::vector<Item>&)> walk = [&](const std::vector<Item>& body) {
    for (const Item& i : body)
      if (i.is_loop)
        walk(k.loops[i.id].body);
      else
        when[i.id] = now++;
  };
  walk(k.body);
  // Every store must be at one place; the first one counts, for what comes later would read what it wrote.
  const Inst* store = nullptr;
  uint32_t written = 0;
  for (size_t i = 0; i < k.insts.size(); ++i)
    if (k.insts[i].op == Op::Store && k.insts[i].id == static_cast<uint32_t>(output)) {
      if (store && store->index != k.insts[i].index) return -1;
      written = store ? std::min(written, when[i]) : when[i];
      store = &k.insts[i];
    }
  if (!store) return -1;
  for (size_t b = 0; b < k.buffers.size(); ++b) {
    const Buffer& in = k.buffers[b];
    if (in.access != Access::In || type_bytes(in.type) != type_bytes(k.buffers[static_cast<size_t>(output)].type) ||
        in.extent != k.buffers[static_cast<size_t>(output)].extent)
      continue;
    bool fits = true;
    for (size_t i = 0; i < k.insts.size(); ++i) {
      const Inst& x = k.insts[i];
      if (x.op != Op::Load || x.id != b) continue;
      fits = fits && x.index == store->index && when[i] < written;
    }
    if (fits) return static_cast<int>(b);
  }
  return -1;
}

}  // namespace tessera::kit
