// SPDX-License-Identifier: Apache-2.0
#include "ir/infer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "ir/graph.hpp"
#include "ir/lexer.hpp"
#include "ir/op_callback.hpp"
#include "ir/printer.hpp"
#include "ir/reader.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {
namespace {

std::string shape_text(const std::vector<ShapeItem>& shape) {
  std::string s;
  for (const ShapeItem& item : shape) {
    if (!s.empty()) s += ", ";
    switch (item.kind) {
      case ShapeItem::kDim: s += item.name; break;
      case ShapeItem::kRun: s += "*" + item.name; break;
      case ShapeItem::kNumber: s += std::to_string(item.number); break;
      case ShapeItem::kAttr: s += "$" + item.name; break;
      case ShapeItem::kUnknown: s += "?"; break;
      case ShapeItem::kCall: {
        s += item.name + "(";
        for (size_t i = 0; i < item.args.size(); ++i) s += (i ? ", " : "") + item.args[i];
        s += ")";
        break;
      }
    }
  }
  return s;
}

bool unknown_shape(const std::vector<ShapeItem>& shape) { return shape.size() == 1 && shape[0].kind == ShapeItem::kUnknown; }

// One application under inspection: binds the names of the record's patterns, then builds the results from them.
class Application {
 public:
  Application(Graph& g, const OpRecord& r, const tsr_call& c, Prove prove)
      : g_(g), sizes_(g.sizes()), r_(r), c_(c), prove_(prove) {
    const size_t dims = r.dim_names.size();
    for (size_t i = 0; i < dims; ++i) dims_[i].from = kUnbound;
    for (size_t i = 0; i < r.run_names.size(); ++i) runs_[i] = {nullptr, 0, kUnbound};
    for (size_t i = 0; i < r.dtype_names.size(); ++i) dtypes_[i] = {TSR_DTYPE_INVALID, kUnbound};
  }

  void match_operands() {
    const size_t declared = r_.operands.size();
    const bool variadic = declared > 0 && r_.operands.back().variadic;
    // An op with regions may well need nothing from outside.
    const size_t least = variadic && r_.has(kControl) ? declared - 1 : declared;
    if (variadic ? c_.num_operands < least : c_.num_operands != declared)
      fail("TSR-I030",
           "found " + counted(c_.num_operands, "operand") + ", expected " + (variadic ? "at least " : "") +
               std::to_string(least),
           r_.signature);
    if (c_.num_regions > 0 && !r_.has(kControl))
      fail("TSR-I037", "found " + counted(c_.num_regions, "region") + ", expected none: the op takes no regions");
    for (uint32_t i = 0; i < c_.num_operands; ++i) {
      const OperandDecl& d = decl(i);
      const tsr_type* t = c_.operands[i];
      if (!t) {
        if (!d.optional) fail("TSR-I030", operand(i) + " is left out, but is not optional", r_.signature);
        continue;
      }
      if (!is_valid_dtype(t->dtype)) fail("TSR-I031", operand(i) + " has no valid dtype");
      match_dtype(i, d, *t);
      if (!unknown_shape(d.shape)) match_shape(i, d, *t);
      if (t->device != 0) {
        if (device_ != 0 && device_ != t->device)
          fail("TSR-I038",
               operand(i) + " is on " + host_core().device_name(t->device) + ", another operand on " +
                   host_core().device_name(device_),
               "copy one of them to the other's device: to_device {device = \"" +
                   std::string(host_core().device_name(device_)) + "\"}, in a program .to()");
        device_ = t->device;
      }
    }
    // real(T) of an operand that came before the one that binds T.
    for (uint32_t i = 0; i < c_.num_operands && derived_; ++i)
      if (c_.operands[i]) match_derived(i, decl(i).dtype, c_.operands[i]->dtype);
  }

  std::vector<tsr_type> results() {
    // A callback is asked even where the patterns give the types: it checks what patterns cannot say.
    bool callback = r_.impl && r_.impl->infer;
    for (const ResultDecl& d : r_.results) callback |= d.dtype.kind == DtypePattern::kUnknown || unknown_shape(d.shape);
    if (!callback) {
      std::vector<tsr_type> types(r_.results.size());
      for (size_t i = 0; i < types.size(); ++i) {
        types[i].dtype = result_dtype(r_.results[i].dtype);
        build_shape(r_.results[i], types[i]);
        finish(types[i], i);
      }
      return types;
    }
    if (r_.has(kConstant) && !(r_.impl && r_.impl->infer)) return {constant_type()};
    std::vector<tsr_type> types = from_callback();
    for (size_t i = 0; i < types.size(); ++i) finish(types[i], i);
    return types;
  }

  // The patterns alone, for results whose sizes depend on data.
  void match_results(std::span<const tsr_type* const> stored) {
    check_count(stored.size());
    for (size_t i = 0; i < stored.size(); ++i) check_pattern(result(i), *stored[i], i);
  }

  // `known`: how many symbols there were before these types were inferred. A newer one stands for a size that only the run can
  // tell: any unbacked symbol may stand there, as long as it is the same one wherever the new one is.
  void compare(std::span<const tsr_type> inferred, std::span<const tsr_type* const> stored, size_t known) {
    std::map<tsr_dim, tsr_dim> renamed;
    const auto same_size = [&](tsr_dim want, tsr_dim have) {
      if (want == have) return true;
      if (const int64_t symbol = symbol_of(want); symbol >= static_cast<int64_t>(known)) {
        const int64_t other = symbol_of(have);
        return other >= 0 && sizes_.symbols()[static_cast<size_t>(other)].unbacked != 0 &&
               renamed.emplace(want, have).first->second == have;
      }
      return sizes_.compare(TSR_EQ, want, have) == TSR_TRUE;
    };
    if (inferred.size() != stored.size())
      fail("TSR-I039", "found " + counted(stored.size(), "result") + ", expected " + std::to_string(inferred.size()));
    for (size_t i = 0; i < stored.size(); ++i) {
      const tsr_type &want = inferred[i], &have = *stored[i];
      bool agree = want.dtype == have.dtype && want.rank == have.rank;
      for (uint32_t k = 0; agree && k < want.rank; ++k) agree = same_size(want.sizes[k], have.sizes[k]);
      if (!agree)
        fail("TSR-I039",
             "result " + std::to_string(i) + " has the type " + print_type(&sizes_, have) + ", expected " +
                 print_type(&sizes_, want),
             "write the inferred type, or leave it out");
    }
  }

 private:
  static constexpr uint32_t kUnbound = 0xffffffffu;
  struct Dtype {
    uint32_t dtype;
    uint32_t from;
  };
  struct Dim {
    tsr_dim size;
    uint32_t from;
  };
  struct Run {
    const tsr_dim* sizes;
    uint32_t rank;
    uint32_t from;
  };

  [[noreturn]] void fail(const char* code, const std::string& what, const std::string& hint = {}) const {
    throw user_error(code, r_.name + ": " + what, hint);
  }
  [[noreturn]] void blame(const std::string& what) const {
    throw bug("TSR-I036", r_.name + ": " + what,
              "the infer callback of plugin '" + r_.plugin + "' breaks the op's record: " + r_.signature);
  }

  const OperandDecl& decl(uint32_t i) const { return r_.operands[std::min<size_t>(i, r_.operands.size() - 1)]; }
  const ResultDecl& result(size_t i) const { return r_.results[std::min(i, r_.results.size() - 1)]; }
  std::string operand(uint32_t i) const {
    const OperandDecl& d = decl(i);
    std::string s = "operand '" + d.name + "'";
    if (d.variadic) s += " number " + std::to_string(i - (r_.operands.size() - 1));
    return s;
  }
  std::string found(uint32_t i) const { return operand(i) + " has the type " + print_type(&sizes_, *c_.operands[i]); }
  std::string dim_text(tsr_dim d) const { return sizes_.print(d); }
  int64_t symbol_of(tsr_dim d) const {  // -1: it is none
    if (!TSR_DIM_IS_EXPR(d)) return -1;
    const tsr_dim_expr& e = sizes_.exprs()[TSR_DIM_EXPR_ID(d)];
    return e.op == TSR_DIM_SYMBOL ? static_cast<int64_t>(e.symbol) : -1;
  }

  // -------------------------------------------------------------------------------------------------------- dtypes
  void match_dtype(uint32_t i, const OperandDecl& d, const tsr_type& t) {
    const DtypePattern& p = d.dtype;
    switch (p.kind) {
      case DtypePattern::kUnknown: break;
      case DtypePattern::kConcrete:
        if (t.dtype != p.dtype)
          fail("TSR-I031", found(i) + ", expected the dtype " + std::string(dtype_name(p.dtype)), "insert a cast");
        break;
      case DtypePattern::kAttr:
        if (t.dtype != static_cast<uint64_t>(c_.attrs[p.slot].i))
          fail("TSR-I031", found(i) + ", expected the dtype that attribute '" + p.name + "' names", "insert a cast");
        break;
      case DtypePattern::kVariable: {
        Dtype& v = dtypes_[p.slot];
        if (v.from == kUnbound) {
          if ((r_.dtype_masks[p.slot] >> t.dtype & 1) == 0)
            fail("TSR-I031", found(i) + ", expected a dtype of " + p.name + ": " + set_text(r_.dtype_masks[p.slot]),
                 "insert a cast");
          v = {t.dtype, i};
        } else if (v.dtype != t.dtype) {
          fail("TSR-I031",
               found(i) + ", expected the dtype " + std::string(dtype_name(v.dtype)) + ", as " + operand(v.from) + " has",
               "ops do not promote: insert a cast");
        }
        break;
      }
      case DtypePattern::kRealOf:
      case DtypePattern::kComplexOf: derived_ = true; break;
    }
  }

  void match_derived(uint32_t i, const DtypePattern& p, uint32_t dtype) {
    if (p.kind != DtypePattern::kRealOf && p.kind != DtypePattern::kComplexOf) return;
    const uint32_t want = result_dtype(p);
    if (dtype != want) fail("TSR-I031", found(i) + ", expected the dtype " + std::string(dtype_name(want)), "insert a cast");
  }

  static std::string set_text(uint64_t mask) {
    std::string s;
    for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d)
      if (mask >> d & 1) s += (s.empty() ? "" : " ") + std::string(dtype_name(d));
    return s;
  }

  uint32_t result_dtype(const DtypePattern& p) const {
    switch (p.kind) {
      case DtypePattern::kConcrete: return p.dtype;
      case DtypePattern::kAttr: return static_cast<uint32_t>(c_.attrs[p.slot].i);
      case DtypePattern::kUnknown: return TSR_DTYPE_INVALID;
      default: break;
    }
    const Dtype& v = dtypes_[p.slot];
    if (v.from == kUnbound)
      fail("TSR-I035", "the dtype " + p.name + " cannot be known: the operands that would tell it are left out", r_.signature);
    if (p.kind == DtypePattern::kVariable) return v.dtype;
    const uint32_t d = p.kind == DtypePattern::kRealOf ? to_real_dtype(v.dtype) : to_complex_dtype(v.dtype);
    if (d == TSR_DTYPE_INVALID)
      fail("TSR-I031", "there is no " + std::string(p.kind == DtypePattern::kRealOf ? "real" : "complex") + " dtype for " +
                           std::string(dtype_name(v.dtype)));
    return d;
  }

  // -------------------------------------------------------------------------------------------------------- shapes
  void require_equal(tsr_dim a, tsr_dim b, const char* code, uint32_t i, uint32_t dimension, const std::string& other) {
    if (a == b) return;
    const tsr_truth truth = sizes_.compare(TSR_EQ, a, b);
    if (truth == TSR_TRUE) return;
    if (truth == TSR_UNKNOWN && prove_ == Prove::kAssume) {
      sizes_.require(TSR_EQ, a, b,
                     r_.name + ": dimension " + std::to_string(dimension) + " of " + operand(i) + " equals " + other);
      return;
    }
    std::string what = found(i) + ": found the size " + dim_text(a) + " in dimension " + std::to_string(dimension) +
                       ", expected " + dim_text(b) + ", " + other;
    if (truth == TSR_FALSE) fail(code, what);
    fail(code, what + "; whether they are equal depends on the symbols",
         "record the equality with dim_require before the edit");
  }

  void bind_dim(const ShapeItem& item, tsr_dim size, uint32_t i, uint32_t dimension) {
    switch (item.kind) {
      case ShapeItem::kDim: {
        Dim& d = dims_[item.slot];
        if (d.from == kUnbound)
          d = {size, i};
        else
          require_equal(size, d.size, "TSR-I032", i, dimension, item.name + " of " + operand(d.from));
        break;
      }
      case ShapeItem::kNumber: require_equal(size, item.number, "TSR-I032", i, dimension, "the op's fixed size"); break;
      default: break;
    }
  }

  void match_shape(uint32_t i, const OperandDecl& d, const tsr_type& t) {
    size_t run = d.shape.size();
    for (size_t k = 0; k < d.shape.size(); ++k)
      if (d.shape[k].kind == ShapeItem::kRun || d.shape[k].kind == ShapeItem::kAttr) run = k;
    const bool has_run = run < d.shape.size();
    const size_t fixed = d.shape.size() - (has_run ? 1 : 0);
    if (has_run ? t.rank < fixed : t.rank != fixed)
      fail("TSR-I032",
           found(i) + ", expected " + (has_run ? "at least " : "") + counted(fixed, "dimension") + ": " +
               pattern_text(d.dtype, d.shape),
           r_.signature);
    for (size_t k = 0; k < run; ++k) bind_dim(d.shape[k], t.sizes[k], i, static_cast<uint32_t>(k));
    if (!has_run) return;
    const size_t length = t.rank - fixed;
    for (size_t k = run + 1; k < d.shape.size(); ++k) {
      const size_t at = k - 1 + length;
      bind_dim(d.shape[k], t.sizes[at], i, static_cast<uint32_t>(at));
    }
    const ShapeItem& item = d.shape[run];
    Run given;
    std::string other;
    if (item.kind == ShapeItem::kAttr) {
      const tsr_attr& a = c_.attrs[item.slot];
      given = {a.ints, a.count, i};
      other = "attribute '" + item.name + "'";
    } else {
      Run& r = runs_[item.slot];
      if (r.from == kUnbound) {
        r = {t.sizes + run, static_cast<uint32_t>(length), i};
        return;
      }
      given = r;
    }
    if (given.sizes == t.sizes + run && given.rank == length) return;
    if (item.kind == ShapeItem::kRun) other = "as in " + operand(given.from);
    if (given.rank != length)
      fail("TSR-I032",
           found(i) + ": the number of dimensions that stand for " + (item.kind == ShapeItem::kRun ? "*" : "$") + item.name +
               " is " + std::to_string(length) + ", expected " + std::to_string(given.rank) + ", " + other,
           r_.signature);
    for (uint32_t k = 0; k < length; ++k)
      require_equal(t.sizes[run + k], given.sizes[k], "TSR-I032", i, static_cast<uint32_t>(run) + k, other);
  }

  tsr_dim* new_dims(size_t n) const { return static_cast<tsr_dim*>(g_.scratch(n * sizeof(tsr_dim))); }

  void build_shape(const ResultDecl& d, tsr_type& t) {
    if (d.shape.empty()) return;
    if (d.shape.size() == 1) {  // the usual case: no copy
      const Run r = item_run(d.shape[0], nullptr);
      t.rank = r.rank;
      t.sizes = r.sizes;
      return;
    }
    std::array<tsr_dim, kMaxRank> buffer;
    uint32_t n = 0;
    for (const ShapeItem& item : d.shape) {
      tsr_dim one;
      const Run r = item_run(item, &one);
      if (n + r.rank > kMaxRank) fail("TSR-I034", "a result of more than " + std::to_string(kMaxRank) + " dimensions");
      std::copy(r.sizes, r.sizes + r.rank, buffer.begin() + n);
      n += r.rank;
    }
    tsr_dim* sizes = new_dims(n);
    std::copy(buffer.begin(), buffer.begin() + n, sizes);
    t.rank = n;
    t.sizes = sizes;
  }

  // The sizes that one item of a result's pattern stands for; `one` has room for a single size, null: take scratch memory.
  Run item_run(const ShapeItem& item, tsr_dim* one) {
    switch (item.kind) {
      case ShapeItem::kRun: return bound_run(item.slot);
      case ShapeItem::kAttr: return {c_.attrs[item.slot].ints, c_.attrs[item.slot].count, 0};
      case ShapeItem::kDim:
      case ShapeItem::kNumber: {
        if (item.kind == ShapeItem::kDim && dims_[item.slot].from == kUnbound)
          fail("TSR-I035", "the size " + item.name + " cannot be known: the operand that would tell it is left out",
               r_.signature);
        if (!one) one = new_dims(1);
        *one = item.kind == ShapeItem::kDim ? dims_[item.slot].size : item.number;
        return {one, 1, 0};
      }
      case ShapeItem::kCall: break;
      case ShapeItem::kUnknown: return {nullptr, 0, 0};
    }
    switch (item.slot) {
      case kBroadcast: return broadcast(item);
      case kReduce: return reduce(item);
      case kPermute: return permute(item);
      default: return concat(item);
    }
  }

  Run bound_run(uint32_t slot) const {
    if (runs_[slot].from == kUnbound)
      fail("TSR-I035", "the sizes *" + r_.run_names[slot] + " cannot be known: the operand that would tell them is left out",
           r_.signature);
    return runs_[slot];
  }

  Run broadcast(const ShapeItem& item) {
    Run out{nullptr, 0, kUnbound};
    for (const uint32_t slot : item.arg_slots) {
      const Run& r = runs_[slot];
      if (r.from == kUnbound) continue;  // an operand that is left out takes no part
      if (out.from == kUnbound)
        out = r;
      else
        out = broadcast(out, r);
    }
    return out;
  }

  // NumPy's rule: aligned at the last dimension, sizes are equal or one of them is 1.
  Run broadcast(const Run& a, const Run& b) {
    const Run &high = a.rank >= b.rank ? a : b, &low = a.rank >= b.rank ? b : a;
    const uint32_t shift = high.rank - low.rank;
    tsr_dim* made = nullptr;
    for (uint32_t k = 0; k < low.rank; ++k) {
      const tsr_dim x = high.sizes[shift + k], y = low.sizes[k];
      if (x == y || y == 1) continue;
      if (x != 1) {
        const tsr_truth truth = sizes_.compare(TSR_EQ, x, y);
        const bool numbers = !TSR_DIM_IS_EXPR(x) && !TSR_DIM_IS_EXPR(y);
        if (numbers || truth == TSR_FALSE) {
          // A size that is known to be 1 in every case broadcasts too.
          if (!numbers && sizes_.compare(TSR_EQ, y, 1) == TSR_TRUE) continue;
          if (numbers || sizes_.compare(TSR_EQ, x, 1) != TSR_TRUE) no_broadcast(a, b, shift + k, x, y);
        } else {
          if (truth == TSR_UNKNOWN) {
            if (prove_ == Prove::kStrict) no_broadcast(a, b, shift + k, x, y);
            sizes_.require(TSR_EQ, x, y,
                           r_.name + ": " + operand(a.from) + " and " + operand(b.from) + " broadcast in dimension " +
                               std::to_string(shift + k));
          }
          if (TSR_DIM_IS_EXPR(x) <= TSR_DIM_IS_EXPR(y)) continue;  // keep the number rather than the expression
        }
      }
      if (!made) {
        made = new_dims(high.rank);
        std::copy(high.sizes, high.sizes + high.rank, made);
      }
      made[shift + k] = y;
    }
    return {made ? made : high.sizes, high.rank, high.from};
  }

  [[noreturn]] void no_broadcast(const Run& a, const Run& b, uint32_t dimension, tsr_dim x, tsr_dim y) const {
    const bool unproved = sizes_.compare(TSR_EQ, x, y) == TSR_UNKNOWN;
    fail("TSR-I033",
         "the sizes " + dim_text(x) + " and " + dim_text(y) + " in dimension " + std::to_string(dimension) + " of the result " +
             (unproved ? "are not known to be equal: " : "do not broadcast: ") + found(a.from) + ", " + found(b.from),
         unproved ? "record the equality with dim_require before the edit" : "sizes must be equal, or one of them 1");
  }

  // An axis attribute, normalised; `rank` is what it counts in.
  uint32_t axis(int64_t a, uint32_t rank, const std::string& attr) const {
    const int64_t r = rank;
    if (a < -r || a >= r)
      fail("TSR-I034", "attribute '" + attr + "' names axis " + std::to_string(a) + ", expected " + std::to_string(-r) +
                           " .. " + std::to_string(r - 1) + " for " + counted(rank, "dimension"));
    return static_cast<uint32_t>(a < 0 ? a + r : a);
  }

  Run reduce(const ShapeItem& item) {
    const Run in = bound_run(item.arg_slots[0]);
    const tsr_attr& axes = c_.attrs[item.arg_slots[1]];
    const bool keep = item.args.size() > 2 && c_.attrs[item.arg_slots[2]].i != 0;
    std::array<bool, kMaxRank> reduced{};
    for (uint32_t k = 0; k < axes.count; ++k) {
      const uint32_t a = axis(axes.ints[k], in.rank, axes.name);
      if (reduced[a]) fail("TSR-I034", "attribute '" + std::string(axes.name) + "' names axis " + std::to_string(a) + " twice");
      reduced[a] = true;
    }
    if (axes.count == 0) return in;
    tsr_dim* out = new_dims(in.rank);
    uint32_t n = 0;
    for (uint32_t k = 0; k < in.rank; ++k) {
      if (!reduced[k])
        out[n++] = in.sizes[k];
      else if (keep)
        out[n++] = 1;
    }
    return {out, n, in.from};
  }

  Run permute(const ShapeItem& item) {
    const Run in = bound_run(item.arg_slots[0]);
    const tsr_attr& perm = c_.attrs[item.arg_slots[1]];
    if (perm.count != in.rank)
      fail("TSR-I034", "attribute '" + std::string(perm.name) + "' has " + counted(perm.count, "number") + ", expected " +
                           std::to_string(in.rank) + ", one per dimension");
    std::array<bool, kMaxRank> seen{};
    tsr_dim* out = new_dims(in.rank);
    for (uint32_t k = 0; k < in.rank; ++k) {
      const uint32_t a = axis(perm.ints[k], in.rank, perm.name);
      if (seen[a]) fail("TSR-I034", "attribute '" + std::string(perm.name) + "' names axis " + std::to_string(a) + " twice");
      seen[a] = true;
      out[k] = in.sizes[a];
    }
    return {out, in.rank, in.from};
  }

  Run concat(const ShapeItem& item) {
    const Run first = bound_run(item.arg_slots[0]);
    const tsr_attr& attr = c_.attrs[item.arg_slots.back()];
    const uint32_t at = axis(attr.i, first.rank, attr.name);
    tsr_dim* out = new_dims(first.rank);
    std::copy(first.sizes, first.sizes + first.rank, out);
    for (size_t i = 1; i + 1 < item.arg_slots.size(); ++i) {
      const Run r = bound_run(item.arg_slots[i]);
      if (r.rank != first.rank)
        fail("TSR-I032",
             found(r.from) + ", expected " + counted(first.rank, "dimension") + ", as " + operand(first.from) + " has");
      for (uint32_t k = 0; k < r.rank; ++k) {
        if (k == at)
          out[k] = sizes_.add(out[k], r.sizes[k]);
        else
          require_equal(r.sizes[k], out[k], "TSR-I033", r.from, k, "as in " + operand(first.from));
      }
    }
    return {out, first.rank, first.from};
  }

  // ------------------------------------------------------------------------------------------------------- results
  tsr_type constant_type() const {
    for (uint32_t i = 0; i < c_.num_attrs; ++i)
      if (c_.attrs[i].kind == TSR_ATTR_TENSOR) {
        const tsr_tensor& t = *c_.attrs[i].tensor;
        return {t.dtype, t.rank, t.sizes, nullptr, 0, 0};
      }
    fail("TSR-I035", "a constant without a tensor attribute");
  }

  std::vector<tsr_type> from_callback() {
    if (!r_.impl || !r_.impl->infer)
      fail("TSR-I035",
           "the result types cannot be inferred: the record leaves them to a callback that plugin '" + r_.plugin +
               "' does not give",
           "write the types, or give the op an infer callback");
    size_t capacity = 16 + c_.num_operands;
    for (uint32_t i = 0; i < c_.num_attrs; ++i) capacity = std::max<size_t>(capacity, 16 + size_t{c_.attrs[i].count});
    for (uint32_t i = 0; i < c_.num_regions; ++i) capacity = std::max<size_t>(capacity, 16 + size_t{c_.regions[i].num_outputs});
    std::vector<tsr_type> types(capacity);
    uint32_t count = 0;
    const size_t assumed = sizes_.assumptions().size();
    throw_if(op_callback(r_, "infer", [&] {
      return r_.impl->infer(r_.impl->self, &c_, types.data(), static_cast<uint32_t>(capacity), &count);
    }));
    if (prove_ == Prove::kStrict && sizes_.assumptions().size() != assumed) {
      const Assumption& a = sizes_.assumptions().back();
      fail("TSR-I033",
           "the node needs an assumption that the graph lacks: " + dim_text(a.a) + " and " + dim_text(a.b) +
               (a.why.empty() ? "" : " (" + a.why + ")"),
           "record it with dim_require before the edit");
    }
    if (count > capacity)
      blame("infer gave " + std::to_string(count) + " results, more than the " + std::to_string(capacity) + " asked for");
    types.resize(count);
    const bool open_ended = r_.results.size() == 1 && unknown_shape(r_.results[0].shape);
    if (!open_ended && count != r_.results.size())
      blame("infer gave " + std::to_string(count) + " results, expected " + std::to_string(r_.results.size()));
    for (size_t i = 0; i < types.size(); ++i) {
      tsr_type& t = types[i];
      if (t.rank > 0 && !t.sizes) blame("infer gave result " + std::to_string(i) + " no sizes");
      if (!is_valid_dtype(t.dtype)) blame("infer gave result " + std::to_string(i) + " no valid dtype");
      if (const uint32_t want = result_dtype(result(i).dtype); want != TSR_DTYPE_INVALID && want != t.dtype)
        blame("infer gave result " + std::to_string(i) + " the dtype " + std::string(dtype_name(t.dtype)) + ", expected " +
              std::string(dtype_name(want)));
      if (!unknown_shape(result(i).shape)) {  // the record fixes this one
        tsr_type fixed{};
        build_shape(result(i), fixed);
        t.rank = fixed.rank;
        t.sizes = fixed.sizes;
      }
    }
    return types;
  }

  void check_count(size_t count) const {
    const bool open_ended = r_.results.size() == 1 && unknown_shape(r_.results[0].shape);
    if (!open_ended && count != r_.results.size())
      fail("TSR-I039", "found " + counted(count, "result") + ", expected " + std::to_string(r_.results.size()), r_.signature);
  }

  void check_pattern(const ResultDecl& d, const tsr_type& t, size_t i) {
    const uint32_t want = result_dtype(d.dtype);
    auto refuse = [&](const std::string& expected) {
      fail("TSR-I039", "result " + std::to_string(i) + " has the type " + print_type(&sizes_, t) + ", expected " + expected);
    };
    if (want != TSR_DTYPE_INVALID && want != t.dtype) refuse("the dtype " + std::string(dtype_name(want)));
    if (unknown_shape(d.shape)) return;
    tsr_type shape{};
    build_shape(d, shape);
    bool agree = shape.rank == t.rank;
    for (uint32_t k = 0; agree && k < t.rank; ++k)
      agree = shape.sizes[k] == t.sizes[k] || sizes_.compare(TSR_EQ, shape.sizes[k], t.sizes[k]) == TSR_TRUE;
    shape.dtype = t.dtype;
    if (!agree) refuse(print_type(&sizes_, shape));
  }

  tsr_device target() const {
    for (uint32_t i = 0; i < c_.num_attrs; ++i)
      if (std::string_view(c_.attrs[i].name) == "device" && c_.attrs[i].kind == TSR_ATTR_STRING)
        if (const tsr_device d = host_core().device_id(c_.attrs[i].s); d != TSR_NONE) return d;
    fail("TSR-T030", "attribute 'device' does not name a device", "write 'cpu', or a kind and a number such as 'null:0'");
  }

  void finish(tsr_type& t, size_t i) const {
    if (r_.has(kTransfer))
      t.device = target();
    else if (t.device == 0)
      t.device = device_;
    if (const std::string problem = type_problem(&sizes_, t); !problem.empty())
      fail("TSR-I034", "result " + std::to_string(i) + " would be a type that no tensor can have: " + problem);
  }

  Graph& g_;
  Sizes& sizes_;
  const OpRecord& r_;
  const tsr_call& c_;
  const Prove prove_;
  bool derived_ = false;
  tsr_device device_ = 0;
  // Only the slots that the record has are initialised: this runs for every node.
  std::array<Dtype, OpRecord::kMaxNames> dtypes_;
  std::array<Dim, OpRecord::kMaxNames> dims_;
  std::array<Run, OpRecord::kMaxNames> runs_;
};

}  // namespace

std::string pattern_text(const DtypePattern& d, const std::vector<ShapeItem>& shape) {
  std::string s;
  switch (d.kind) {
    case DtypePattern::kVariable: s = d.name; break;
    case DtypePattern::kConcrete: s = dtype_name(d.dtype); break;
    case DtypePattern::kAttr: s = "$" + d.name; break;
    case DtypePattern::kRealOf: s = "real(" + d.name + ")"; break;
    case DtypePattern::kComplexOf: s = "complex(" + d.name + ")"; break;
    case DtypePattern::kUnknown: s = "?"; break;
  }
  return s + "[" + shape_text(shape) + "]";
}

std::vector<tsr_type> infer(Graph& graph, const OpRecord& record, const tsr_call& call, Prove prove) {
  Application a(graph, record, call, prove);
  a.match_operands();
  return a.results();
}

std::vector<tsr_type> infer(Graph& graph, const OpRecord& record, const tsr_call& call) {
  return infer(graph, record, call, Prove::kAssume);
}

void check_result_types(Graph& graph, const OpRecord& record, const tsr_call& call, std::span<const tsr_type* const> stored,
                        Prove prove) {
  Application a(graph, record, call, prove);
  a.match_operands();
  if (record.has(kUnbacked) && !record.has(kControl)) return a.match_results(stored);
  // Regions say nearly everything about the results of a control op; the symbols that inferring them again makes are forgotten.
  Sizes& sizes = graph.sizes();
  const Sizes::Checkpoint before = sizes.checkpoint();
  a.compare(a.results(), stored, before.symbols);
  if (sizes.symbols().size() == before.symbols) return;
  const std::vector<Assumption> assumed(sizes.assumptions().begin() + static_cast<std::ptrdiff_t>(before.assumptions),
                                        sizes.assumptions().end());
  sizes.restore(before);
  for (const Assumption& x : assumed) sizes.require(x.relation, x.a, x.b, x.why);
}

CallView::CallView(const Graph& g, tsr_id node) {
  const tsr_node& n = g.node(node);
  fill(g, n.op, {n.operands, n.num_operands}, {n.attrs, n.num_attrs}, {n.regions, n.num_regions});
}

CallView::CallView(const Graph& g, const OpRecord& record, std::span<const tsr_id> operands, std::span<const tsr_attr> attrs,
                   std::span<const tsr_id> regions) {
  fill(g, record.name.c_str(), operands, attrs, regions);
}

void CallView::fill(const Graph& g, const char* op, std::span<const tsr_id> operands, std::span<const tsr_attr> attrs,
                    std::span<const tsr_id> regions) {
  size_t total = operands.size();
  for (const tsr_id r : regions) total += g.region(r).num_inputs + g.region(r).num_outputs;
  types_.reserve(total);  // signatures point into it
  for (const tsr_id v : operands) types_.push_back(v == TSR_NONE ? nullptr : g.value(v).type);
  for (const tsr_id r : regions) {
    const tsr_region& region = g.region(r);
    tsr_signature s{};
    s.num_inputs = region.num_inputs;
    s.num_outputs = region.num_outputs;
    s.inputs = types_.data() + types_.size();
    for (uint32_t i = 0; i < region.num_inputs; ++i) types_.push_back(g.value(region.inputs[i]).type);
    s.outputs = types_.data() + types_.size();
    for (uint32_t i = 0; i < region.num_outputs; ++i) types_.push_back(g.value(region.outputs[i]).type);
    signatures_.push_back(s);
  }
  call_.struct_size = sizeof call_;
  call_.graph = const_cast<Graph&>(g).handle();  // callbacks intern sizes in it
  call_.op = op;
  call_.operands = types_.data();
  call_.num_operands = static_cast<uint32_t>(operands.size());
  call_.attrs = attrs.data();
  call_.num_attrs = static_cast<uint32_t>(attrs.size());
  call_.regions = signatures_.data();
  call_.num_regions = static_cast<uint32_t>(signatures_.size());
}

}  // namespace tessera::core
