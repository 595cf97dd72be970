// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/in_place.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "tessera/kit/lower.hpp"

namespace tessera::kit {

namespace {

// When each instruction runs within one point, the others of its loops aside.
std::vector<uint32_t> times(const Kernel& k) {
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
  return when;
}

}  // namespace

int in_place_input(Kernel& k) {
  const std::vector<uint32_t> all = in_place_inputs(k);
  return all.empty() ? -1 : static_cast<int>(all[0]);
}

std::vector<uint32_t> in_place_inputs(Kernel& k) {
  std::vector<uint32_t> out;
  int output = -1;
  for (size_t i = 0; i < k.buffers.size() && output < 0; ++i)
    if (k.buffers[i].access == Access::Out) output = static_cast<int>(i);
  if (output < 0) return out;
  const std::vector<uint32_t> when = times(k);
  // Every store must be at one place; the first one counts, for what comes later would read what it wrote.
  const Inst* store = nullptr;
  uint32_t written = 0;
  for (size_t i = 0; i < k.insts.size(); ++i)
    if (k.insts[i].op == Op::Store && k.insts[i].id == static_cast<uint32_t>(output)) {
      if (store && store->index != k.insts[i].index) return out;
      written = store ? std::min(written, when[i]) : when[i];
      store = &k.insts[i];
    }
  if (!store) return out;
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
    if (fits) out.push_back(static_cast<uint32_t>(b));
  }
  return out;
}

bool reads_before_writing(const Kernel& k) {
  const std::vector<uint32_t> when = times(k);
  std::map<uint32_t, const Inst*> stores;  // by buffer: the first one
  for (size_t i = 0; i < k.insts.size(); ++i) {
    const Inst& x = k.insts[i];
    if (x.op != Op::Store) continue;
    const auto [at, fresh] = stores.try_emplace(x.id, &x);
    if (fresh) continue;
    if (at->second->index != x.index) return false;
    if (when[i] < when[static_cast<size_t>(at->second - k.insts.data())]) at->second = &x;
  }
  for (size_t i = 0; i < k.insts.size(); ++i) {
    const Inst& x = k.insts[i];
    if (x.op != Op::Load) continue;
    for (const auto& [buffer, store] : stores)
      if (x.index == store->index && when[static_cast<size_t>(store - k.insts.data())] < when[i]) return false;
  }
  return true;
}

}  // namespace tessera::kit
