// SPDX-License-Identifier: Apache-2.0
#include "cse.hpp"

#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <tessera/dtypes.hpp>

namespace tessera::passes {
namespace {

struct OpTraits {
  bool pure, commutative;
};

size_t mix(size_t h, size_t v) { return (h ^ v) * 0x9e3779b97f4a7c15ull + (h >> 29); }
size_t hash_bytes(const void* p, size_t n) { return std::hash<std::string_view>()({static_cast<const char*>(p), n}); }

size_t elements(const tsr_tensor& t) {
  size_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= static_cast<size_t>(t.sizes[i]);
  return n;
}
size_t bytes(const tsr_tensor& t) { return (elements(t) * static_cast<size_t>(dtype_bits(t.dtype)) + 7) / 8; }

bool same(const void* a, const void* b, size_t n) { return n == 0 || std::memcmp(a, b, n) == 0; }

// Bitwise, so that -0.0 and 0.0, or two NaNs, are told apart and equal NaNs are not.
bool same_attr(const tsr_attr& a, const tsr_attr& b) {
  if (a.kind != b.kind || a.count != b.count || std::strcmp(a.name, b.name) != 0) return false;
  switch (a.kind) {
    case TSR_ATTR_FLOAT: return same(&a.f, &b.f, sizeof a.f);
    case TSR_ATTR_STRING: return std::strcmp(a.s, b.s) == 0;
    case TSR_ATTR_INTS:
    case TSR_ATTR_DIMS: return same(a.ints, b.ints, a.count * sizeof(int64_t));
    case TSR_ATTR_FLOATS: return same(a.floats, b.floats, a.count * sizeof(double));
    case TSR_ATTR_STRINGS:
      for (uint32_t i = 0; i < a.count; ++i)
        if (std::strcmp(a.strings[i], b.strings[i]) != 0) return false;
      return true;
    case TSR_ATTR_TENSOR: {
      const tsr_tensor &x = *a.tensor, &y = *b.tensor;
      return x.dtype == y.dtype && x.rank == y.rank && same(x.sizes, y.sizes, x.rank * sizeof(int64_t)) &&
             (x.data == y.data || same(x.data, y.data, bytes(x)));
    }
    default: return a.i == b.i;
  }
}

size_t hash_attr(const tsr_attr& a) {
  size_t h = mix(a.kind, a.count);
  switch (a.kind) {
    case TSR_ATTR_FLOAT: return mix(h, hash_bytes(&a.f, sizeof a.f));
    case TSR_ATTR_STRING: return mix(h, hash_bytes(a.s, std::strlen(a.s)));
    case TSR_ATTR_INTS:
    case TSR_ATTR_DIMS: return mix(h, hash_bytes(a.ints, a.count * sizeof(int64_t)));
    case TSR_ATTR_FLOATS: return mix(h, hash_bytes(a.floats, a.count * sizeof(double)));
    case TSR_ATTR_STRINGS: return h;
    case TSR_ATTR_TENSOR:  // the head tells large constants apart; equality looks at all of it
      return mix(h, hash_bytes(a.tensor->data, std::min<size_t>(bytes(*a.tensor), 256)));
    default: return mix(h, static_cast<size_t>(a.i));
  }
}

class Cse {
 public:
  explicit Cse(sdk::Graph g) : g_(g), seen_(16, Hash{this}, Equal{this}) {}

  bool sweep(tsr_id region) {
    bool changed = false;
    for (sdk::Node n : g_.nodes(region)) {
      for (tsr_id r : n.regions()) {
        Cse inner(g_);  // regions are isolated: nothing outside is visible in them
        changed |= inner.sweep(r);
      }
      if (n.regions().empty() && traits(n.raw().op).pure && n.num_results() != 0) changed |= visit(n);
    }
    return changed;
  }

 private:
  bool visit(sdk::Node n) {
    auto [it, fresh] = seen_.insert(n.id);
    if (fresh) return false;
    const sdk::Node first = g_.node(*it);
    for (uint32_t i = 0; i < n.num_results(); ++i) g_.replace_uses(n.result(i), first.result(i));
    g_.erase(n);
    return true;
  }
  OpTraits traits(const char* op) {
    auto [it, fresh] = traits_.try_emplace(op, OpTraits{});
    if (fresh) it->second = {g_.has_trait(op, "pure") && !g_.has_trait(op, "unbacked"), g_.has_trait(op, "commutative")};
    return it->second;
  }
  std::pair<tsr_id, tsr_id> ordered(const tsr_node& n) const { return std::minmax(n.operands[0], n.operands[1]); }
  size_t hash(tsr_id id) {
    const tsr_node& n = g_.node(id).raw();
    size_t h = mix(mix(n.op_index, n.num_operands), n.marks & TSR_MARK_RECOMPUTED);
    if (n.num_operands == 2 && traits(n.op).commutative) {
      const auto [a, b] = ordered(n);
      h = mix(mix(h, a), b);
    } else {
      for (uint32_t i = 0; i < n.num_operands; ++i) h = mix(h, n.operands[i]);
    }
    for (uint32_t i = 0; i < n.num_attrs; ++i) h = mix(h, hash_attr(n.attrs[i]));
    return h;
  }
  bool equal(tsr_id x, tsr_id y) {
    const tsr_node &a = g_.node(x).raw(), &b = g_.node(y).raw();
    if (a.op_index != b.op_index || a.num_operands != b.num_operands || a.num_attrs != b.num_attrs ||
        a.num_results != b.num_results)
      return false;
    // What is computed again, to free memory in between, must not be kept after all.
    if ((a.marks ^ b.marks) & TSR_MARK_RECOMPUTED) return false;
    if (a.num_operands == 2 && traits(a.op).commutative) {
      if (ordered(a) != ordered(b)) return false;
    } else if (!same(a.operands, b.operands, a.num_operands * sizeof(tsr_id))) {
      return false;
    }
    for (uint32_t i = 0; i < a.num_attrs; ++i)
      if (!same_attr(a.attrs[i], b.attrs[i])) return false;
    for (uint32_t i = 0; i < a.num_results; ++i)
      if (g_.value(a.results[i]).raw().type != g_.value(b.results[i]).raw().type) return false;  // types are interned
    return true;
  }
  struct Hash {
    Cse* p;
    size_t operator()(tsr_id n) const { return p->hash(n); }
  };
  struct Equal {
    Cse* p;
    bool operator()(tsr_id a, tsr_id b) const { return p->equal(a, b); }
  };

  sdk::Graph g_;
  std::unordered_map<const char*, OpTraits> traits_;
  std::unordered_set<tsr_id, Hash, Equal> seen_;
};

class Pass final : public sdk::Pass {
  const char* summary() const override { return "replaces a pure node by an earlier one that computes the same"; }
  const char* ensures() const override {
    return "no two pure nodes of one region have the same op, operands and attributes, unless one is marked recomputed";
  }
  bool run(sdk::Graph g, const sdk::Options&) override { return eliminate_common_subexpressions(g); }
};

}  // namespace

bool eliminate_common_subexpressions(sdk::Graph g) { return Cse(g).sweep(0); }

}  // namespace tessera::passes

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("cse", std::make_unique<tessera::passes::Pass>());
}
