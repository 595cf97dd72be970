// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/program/program.hpp"

#include <algorithm>

namespace tessera::kit {

const char* bind_name(Bind b) {
  static constexpr const char* names[kNumBinds] = {"grid", "cluster", "block", "warp", "lane", "serial", "unroll", "vector"};
  return names[static_cast<int>(b)];
}

bool Program::divisible(Expr e, int64_t n) const {
  for (const Term& t : pool.terms(e)) {
    int64_t multiple = t.coefficient % n;
    for (const uint32_t a : t.atoms) {
      const Atom& atom = pool.atom_at(a);
      if (atom.kind == AtomKind::Symbol) multiple = multiple * (symbols[atom.id].multiple % n) % n;
    }
    if (multiple != 0) return false;
  }
  return true;
}

LaunchShape launch_shape(Program& p, size_t launch) {
  LaunchShape s;
  const std::vector<uint32_t>* body = &p.launches[launch];
  while (body->size() == 1) {
    const Statement& x = p.statements[(*body)[0]];
    if (x.kind != StatementKind::Loop || !is_launch(x.bind)) break;
    const Expr n = p.pool.extent(x.axis);
    if (x.bind <= Bind::Cluster)
      s.blocks = p.pool.mul(s.blocks, n);
    else
      s.threads *= p.pool.as_number(n).value_or(1);
    body = &x.body;
  }
  const std::vector<int64_t> at = shared_offsets(p, launch);
  for (size_t i = 0; i < p.buffers.size(); ++i)
    if (at[i] >= 0)
      s.shared_bytes =
          std::max(s.shared_bytes, at[i] + p.pool.as_number(p.buffers[i].extent).value_or(0) * type_bytes(p.buffers[i].type));
  return s;
}

std::vector<int64_t> shared_offsets(const Program& p, size_t launch) {
  std::vector<int64_t> at(p.buffers.size(), -1);
  int64_t next = 0;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const ProgramBuffer& b = p.buffers[i];
    if (b.memory != Memory::Shared || b.launch != launch) continue;
    at[i] = (next + b.align - 1) / b.align * b.align;
    next = (at[i] + p.pool.as_number(b.extent).value_or(0) * type_bytes(b.type) + 15) / 16 * 16;
  }
  return at;
}

}  // namespace tessera::kit
