// SPDX-License-Identifier: Apache-2.0
// Matrix instructions of four waves as text: wgmma of Hopper, and its meaning on the host.
#include "group_text.hpp"

namespace tessera::kit {
namespace {

std::string name_of(Type factors, int64_t columns) {
  return "mma_group_" + std::string(type_name(factors)) + "_" + std::to_string(columns);
}
std::string head_of(Type factors, int64_t columns, const std::string& operand) {
  return "template <i32 D, i32 P, i32 PT, i32 Q, i32 QT> DEVICE void " + name_of(factors, columns) + "(float* d, " + operand +
         " a, " + operand + " b) {\n";
}
// "+f"(d[0]), "+f"(d[1]), ..
std::string sums(int64_t columns) {
  std::string out;
  for (int64_t i = 0; i < columns / 2; ++i) out += (i ? ", \"+f\"(d[" : "\"+f\"(d[") + std::to_string(i) + "])";
  return out;
}

}  // namespace

// Operands lie as the instruction calls "swizzling of 128 bytes": lines of 128 bytes, eight of which make an atom. A descriptor
// has the address, the distance of atoms side by side (bit 16; only where the operand is turned), that of atoms behind each
// other (bit 32), all in 16 bytes, and which swizzling it is (bit 62).
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-shared-memory-layout
std::string cuda_group_text(Type factors, int64_t columns) {
  if (factors == Type::None && columns == 0)
    return "DEVICE void group_fence() { asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\"); }\n"
           "template <i32 P, i32 turned> DEVICE u64 group_operand(const u16* x) {\n"
           "  const u64 at = ((u64)__cvta_generic_to_shared(x) & 0x3ffffu) >> 4, beside = turned ? P / 8 : 1, behind = 64;\n"
           "  return at | (beside << 16) | (behind << 32) | (1ull << 62);\n}\n"
           "template <i32 P, i32 turned> DEVICE u64 group_step(i32 k) { return turned ? k * 128 : k / 4 * (P / 8) + k % 4 * 2; "
           "}\n";
  if (factors == Type::None)
    return "DEVICE void mma_wait_" + std::to_string(columns) +
           "(float* d) {\n  asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n  asm volatile(\"\" : " +
           sums(columns) + " :: \"memory\");\n}\n";
  std::string registers;
  for (int64_t i = 0; i < columns / 2; ++i) registers += (i ? ", %" : "%") + std::to_string(i);
  const auto operand = [&](int64_t i) { return "%" + std::to_string(columns / 2 + i); };
  const std::string type = type_name(factors);
  return head_of(factors, columns, "const u16*") +
         "  const u64 left = group_operand<P, PT>(a), right = group_operand<Q, QT>(b);\n"
         "  asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
         "#pragma unroll\n  for (i32 k = 0; k < D / 16; ++k)\n"
         "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, " +
         operand(2) +
         ", 0;\\n"
         "wgmma.mma_async.sync.aligned.m64n" +
         std::to_string(columns) + "k16.f32." + type + "." + type + " {" + registers + "}, " + operand(0) + ", " + operand(1) +
         ", p, 1, 1, " + operand(3) + ", " + operand(4) + ";\\n}\"\n      : " + sums(columns) +
         "\n      : \"l\"(left + group_step<P, PT>(k)), \"l\"(right + group_step<Q, QT>(k)), \"r\"(1), \"n\"(PT), \"n\"(QT)\n"
         "      : \"memory\");\n"
         "  asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n}\n";
}

// At once, each thread for itself: the interpreter of programs is who finds what does not wait.
std::string sim_group_text(Type factors, int64_t columns) {
  if (factors == Type::None && columns == 0)
    return "DEVICE void group_fence() {}\ntemplate <i32 N> DEVICE void mma_wait_but() {}\n"
           "DEVICE i32 group_place(i32 line, i32 d, i32 pitch, i32 turned) {\n"
           "  const i32 x = turned ? line : d, y = turned ? d : line;\n"
           "  return pitch * (x / 64) + 64 * y + 8 * ((x / 8 % 8) ^ (y % 8)) + x % 8;\n}\n"
           "template <float (*widen)(u16), i32 N, i32 D, i32 P, i32 PT, i32 Q, i32 QT>\n"
           "void group_product(float* d, shared_array<u16> a, shared_array<u16> b) {\n"
           "  const i32 thread = (i32)(runner->thread() % 128), lane = thread % 32;\n"
           "  for (i32 e = 0; e < N / 2; ++e) {\n"
           "    const i32 row = thread / 32 * 16 + lane / 4 + 8 * (e % 4 / 2), column = e / 4 * 8 + 2 * (lane % 4) + e % 2;\n"
           "    for (i32 k = 0; k < D; ++k) {\n"
           "      const u16 x = a[group_place(row, k, P, PT)], y = b[group_place(column, k, Q, QT)];\n"
           "      d[e] = fma_of(widen(x), widen(y), d[e]);\n    }\n  }\n}\n";
  if (factors == Type::None) return "DEVICE void mma_wait_" + std::to_string(columns) + "(float*) {}\n";
  return head_of(factors, columns, "shared_array<u16>") + "  group_product<widen_" + type_name(factors) + ", " +
         std::to_string(columns) + ", D, P, PT, Q, QT>(d, a, b);\n}\n";
}

}  // namespace tessera::kit
