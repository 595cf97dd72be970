// SPDX-License-Identifier: Apache-2.0
#include "dispatch/guard_filter.hpp"

#include <algorithm>
#include <set>

#include "support/error.hpp"

namespace tessera::core {

bool filter_guards(Guards& g, const tsr_callable_desc& client) {
  if (!client.guard_filter) return false;
  std::set<uint32_t> symbolic;  // leaves that say what a symbol is
  for (const SymbolicGuards::Place& p : g.symbolic.binds) symbolic.insert(p.leaf);
  for (const SymbolicGuards::Place& p : g.symbolic.equals) symbolic.insert(p.leaf);
  for (const SymbolicGuards::Derived& d : g.symbolic.derived) symbolic.insert(d.leaf);
  bool tensors = false;
  for (uint32_t i = 0; i < g.expected.size(); ++i) {
    Expected& x = g.expected[i];
    if (!x.guarded || x.kind == TSR_ARG_LENGTH || x.kind == TSR_ARG_KEYS || x.kind == TSR_ARG_NONE) continue;
    if (symbolic.count(i) != 0) continue;
    const bool tensor = x.kind == TSR_ARG_TENSOR;
    const std::string text = tensor ? "tensor '" + x.path + "'" : value_text(x);
    const tsr_guard_info info{sizeof info, tensor ? TSR_GUARD_TENSOR : TSR_GUARD_VALUE, 0, x.path.c_str(), text.c_str()};
    int keep = 1;
    throw_if(client.guard_filter(client.self, &info, &keep));
    if (keep) continue;
    x.guarded = false;
    LeafGuard bare;
    bare.kind = g.mask.leaves[i].kind;
    g.mask.leaves[i] = bare;
    tensors = tensors || tensor;
  }
  g.mask.finish();
  return tensors;
}

}  // namespace tessera::core
