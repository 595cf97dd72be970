// SPDX-License-Identifier: Apache-2.0
// A reduction that is split over units, and the second phase that joins its chunks.
#include "cpu_writer.hpp"

namespace tessera::kit {

std::string KernelWriter::chunk_count(const Loop& l) { return "max(1, (" + expr(points(l)) + " + 4095) / 4096)"; }

std::string KernelWriter::partial(uint32_t which, const Inst& x, const std::string& c) {
  return "((" + type(reduced_type(x), 1) + "*)((u64*)a->workspace + (" + std::to_string(which) +
         " * rows + row) * n_chunks + " + c + "))[0]";
}

std::string KernelWriter::partial_row(uint32_t which, const Inst& x, const std::string& c) {
  return "((" + d_.memory_type(reduced_type(x)) + "*)((u64*)a->workspace + ((" + std::to_string(which) +
         " * rows + row) * n_chunks + " + c + ") * " + extent(s_.lane_axis) + "))";
}

void KernelWriter::partial_loop(const Loop& l) {
  const std::vector<uint32_t> rs = reductions(l);
  declare_results(rs);
  open("{");
  line("const i64 c0 = chunk * 4096, c1 = min(c0 + 4096, " + expr(points(l)) + ");");
  row_by_length(l, "c0", "c1", k_.pool.as_number(points(l)), false);
  close();
  for (uint32_t i = 0; i < rs.size(); ++i) line(partial(i, k_.insts[rs[i]], "chunk") + " = s" + std::to_string(rs[i]) + ";");
}

void KernelWriter::join_loop(const Loop& l) {
  const std::vector<uint32_t> rs = reductions(l);
  declare_results(rs);
  for (const uint32_t r : rs) line(type(reduced_type(k_.insts[r]), 1) + " f" + std::to_string(r) + "[8];");
  line("i64 chunks = 0;");
  open("for (; chunks < n_chunks; ++chunks) {");
  for (uint32_t i = 0; i < rs.size(); ++i) {
    const std::string f = "f" + std::to_string(rs[i]) + "[chunks & 7]", s = partial(i, k_.insts[rs[i]], "chunks");
    line(f + " = chunks < 8 ? " + s + " : " + combiner(k_.insts[rs[i]], 1) + "(" + f + ", " + s + ");");
  }
  close();
  for (const uint32_t r : rs) line("s" + std::to_string(r) + " = f" + std::to_string(r) + "[0];");
  fold_chunks(rs);
  for (const uint32_t r : rs) line("const " + type(k_.insts[r].type, 1) + " " + name(r) + " = s" + std::to_string(r) + ";");
}

}  // namespace tessera::kit
