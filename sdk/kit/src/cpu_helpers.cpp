// SPDX-License-Identifier: Apache-2.0
#include "cpu_helpers.hpp"

#include <numeric>

namespace tessera::kit {

std::string lanes_of(int count, int from, int period) {
  std::string s;
  for (int j = 0; j < count; ++j) s += ", " + std::to_string(from + j % period);
  return s;
}

std::string in_halves(const std::string& f, const std::string& before, const std::vector<std::string>& operands, int lanes) {
  const auto half = [&](int from) {
    std::string s = f + "(" + before;
    for (size_t i = 0; i < operands.size(); ++i)
      s += (i ? ", " : "") + ("__builtin_shufflevector(" + operands[i] + ", " + operands[i]) + lanes_of(lanes / 2, from) + ")";
    return s + ")";
  };
  return "__builtin_shufflevector(" + half(0) + ", " + half(lanes / 2) + lanes_of(lanes, 0) + ")";
}

std::string lane_loop(int lanes, const std::string& statement) {
  return "  for (int j = 0; j < " + std::to_string(lanes) + "; ++j) " + statement + "\n";
}

std::string math_helper(const std::string& name, int lanes) {
  // floor_f32, fma_f64, popcount_u32: through the compiler's own vector builtin where it has one.
  const size_t cut = name.rfind('_');
  const std::string op = name.substr(0, cut), t = name.substr(cut + 1), v = t + "x" + std::to_string(lanes),
                    suffix = t == "f32" ? "f" : "";
  const std::string n = std::to_string(lanes);
  if (op == "fma")
    return "INLINE " + v + " fma_" + t + "_x" + n + "(" + v + " a, " + v + " b, " + v +
           " c) {\n#if __has_builtin(__builtin_elementwise_fma)\n  return "
           "__builtin_elementwise_fma(a, b, c);\n#else\n  " +
           v + " r;\n" + lane_loop(lanes, "r[j] = __builtin_fma" + suffix + "(a[j], b[j], c[j]);") + "  return r;\n#endif\n}\n";
  if (op == "popcount")
    return "INLINE " + v + " popcount_" + t + "_x" + n + "(" + v + " a) {\n  " + v + " r;\n" +
           lane_loop(lanes, t == "i32" || t == "u32" ? "r[j] = __builtin_popcount((unsigned)a[j]);"
                                                     : "r[j] = __builtin_popcountll((u64)a[j]);") +
           "  return r;\n}\n";
  const std::string builtin = op == "round" ? "roundeven" : op;
  return "INLINE " + v + " " + op + "_" + t + "_x" + n + "(" + v + " a) {\n#if __has_builtin(__builtin_elementwise_" + builtin +
         ")\n  return __builtin_elementwise_" + builtin + "(a);\n#else\n  " + v + " r;\n" +
         lane_loop(lanes, "r[j] = __builtin_" + (op == "round" ? "nearbyint" : op) + suffix + "(a[j]);") +
         "  return r;\n#endif\n}\n";
}

// From a table of 32 numbers, by the low five bits.
static const char* const kLookup16 =
    "INLINE f32x16 lookup_x16(const float* t, i32x16 i) {\n"
    "#if defined(__AVX512F__) && __has_builtin(__builtin_ia32_vpermi2varps512)\n"
    "  return __builtin_ia32_vpermi2varps512(*(const f32x16*)t, i, *(const f32x16*)(t + 16));\n"
    "#elif defined(__AVX512F__) && __has_builtin(__builtin_ia32_vpermt2varps512_mask)\n"
    "  return __builtin_ia32_vpermt2varps512_mask(i, *(const f32x16*)t, *(const f32x16*)(t + 16), (unsigned short)-1);\n"
    "#else\n"
    "  f32x16 r;\n  for (int j = 0; j < 16; ++j) r[j] = t[i[j] & 31];\n  return r;\n#endif\n}\n";

std::string lookup_helper(int lanes) {
  if (lanes == 16) return kLookup16;
  const std::string n = std::to_string(lanes);
  std::string s = "INLINE f32x" + n + " lookup_x" + n + "(const float* t, i32x" + n + " i) {\n";
  if (lanes < 16)
    return s + "  const f32x16 r = lookup_x16(t, __builtin_shufflevector(i, i" + lanes_of(16, 0, lanes) +
           "));\n  return __builtin_shufflevector(r, r" + lanes_of(lanes, 0) + ");\n}\n";
  // Larger halves than of 16 lanes have helpers of their own.
  return s + "  return " + in_halves("lookup_x" + std::to_string(lanes / 2), "t, ", {"i"}, lanes) + ";\n}\n";
}

// From a table of 256 bytes. Four registers hold it as words of two bytes, and one instruction picks words from two of them:
// from the lower half of the table and from the upper one; then the byte of the word.
std::string byte_table_helper(const std::string& v, const std::string& element, int lanes) {
  const std::string n = std::to_string(lanes);
  std::string s = "INLINE " + v + " byte_table_" + v + "(const " + element + "* t, i64x" + n + " i) {\n";
  const std::string bytes = "  const u8x" + n + " b = __builtin_convertvector(i, u8x" + n + ");\n";
  if (lanes <= 32) {
    s += "#if defined(__AVX512BW__) && \\\n"
         "    (__has_builtin(__builtin_ia32_vpermi2varhi512) || __has_builtin(__builtin_ia32_vpermt2varhi512_mask))\n"
         "  typedef short w __attribute__((vector_size(64)));\n"
         "  typedef short w_m __attribute__((vector_size(64), aligned(1), may_alias));\n" +
         bytes + "  const u16x" + n + " word = __builtin_convertvector(b, u16x" + n + ");\n";
    s += lanes == 32 ? "  const w at = (w)(word >> 1);\n"
                     : "  const w at = (w)__builtin_shufflevector(word >> 1, word" + lanes_of(32, 0, lanes) + ");\n";
    s += "  const w_m* const p = (const w_m*)t;\n"
         "#if __has_builtin(__builtin_ia32_vpermi2varhi512)\n"
         "  const w low = __builtin_ia32_vpermi2varhi512(p[0], at, p[1]), high = __builtin_ia32_vpermi2varhi512(p[2], at, "
         "p[3]);\n"
         "#else\n"
         "  const w low = __builtin_ia32_vpermt2varhi512_mask(at, p[0], p[1], ~0u),\n"
         "          high = __builtin_ia32_vpermt2varhi512_mask(at, p[2], p[3], ~0u);\n"
         "#endif\n"
         "  const w two = at > 63 ? high : low;\n";
    s += lanes == 32 ? "  const u16x32 r = (u16x32)two >> (word % 2 * 8);\n"
                     : "  const u16x" + n + " r = (u16x" + n + ")__builtin_shufflevector(two, two" + lanes_of(lanes, 0) +
                           ") >> (word % 2 * 8);\n";
    s += "  return (" + v + ")__builtin_convertvector(r, u8x" + n + ");\n#else\n";
  }
  s += bytes + "  " + v + " r;\n" + lane_loop(lanes, "r[j] = t[b[j]];") + "  return r;\n";
  return s + (lanes <= 32 ? "#endif\n}\n" : "}\n");
}

// Formats: docs/ir.md, rule 7. The same operations as float_formats.hpp.
std::string half_helper(const std::string& name, int lanes) {
  const std::string n = lanes == 1 ? "" : "_x" + std::to_string(lanes);
  const std::string x = "x" + std::to_string(lanes);
  const std::string u16 = lanes == 1 ? "unsigned short" : "u16" + x, u32 = lanes == 1 ? "unsigned" : "u32" + x,
                    f32 = lanes == 1 ? "float" : "f32" + x;
  const auto to = [&](const std::string& t, const std::string& v) {
    return lanes == 1 ? "(" + t + ")(" + v + ")" : "__builtin_convertvector(" + v + ", " + t + ")";
  };
  const auto as = [&](const std::string& t, const std::string& v) {
    return lanes == 1 ? "__builtin_bit_cast(" + t + ", " + v + ")" : "((" + t + ")(" + v + "))";
  };
  const std::string zero = lanes == 1 ? "0u" : u32 + "{}";
  // One shuffle that leaves zeros between the elements, for the two instructions of the other way share their ports. The
  // compiler must not see the order of the shuffle, or it takes one with two sources, which overwrites its order each time.
  static const std::string kSpread =
      "#if defined(__AVX512BW__) && __has_builtin(__builtin_ia32_permvarhi512) && __has_builtin(__builtin_ia32_selectw_512)\n"
      "  typedef short i16s __attribute__((vector_size(64)));\n"
      "  i16s order = {0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};\n"
      "  __asm__(\"\" : \"+v\"(order));\n"
      "  const i16s twice = (i16s)__builtin_shufflevector(h, h, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -1, -1, "
      "-1, -1, -1, -1, "
      "-1, -1, -1, -1, -1, -1, -1, -1, -1, -1);\n"
      "  return (f32x16)__builtin_ia32_selectw_512(0xaaaaaaaau, __builtin_ia32_permvarhi512(twice, order), i16s{});\n#else\n";
  if (name == "widen_bf16")
    return "INLINE " + f32 + " widen_bf16" + n + "(" + u16 + " h) {\n" + (lanes == 16 ? kSpread : "") + "  return " +
           as(f32, to(u32, "h") + " << 16") + ";\n" + (lanes == 16 ? "#endif\n" : "") + "}\n";
  if (name == "cut_bf16")
    return "INLINE " + u16 + " cut_bf16" + n + "(" + f32 + " x) { return " + to(u16, as(u32, "x") + " >> 16") + "; }\n";
  // The instruction takes subnormals for zeros and keeps what a NaN holds: vectors with one of those (0xa1: NaN of both kinds,
  // subnormal) go the long way.
  static const std::string kHas =
      "#if defined(__AVX512BF16__) && __has_builtin(__builtin_ia32_cvtneps2bf16_512_mask)\n"
      "  typedef __bf16 bf16s __attribute__((vector_size(32)));\n";
  static const std::string kConverted =
      "return (u16x16)__builtin_ia32_cvtneps2bf16_512_mask(x, bf16s{}, (unsigned short)-1);\n";
  static const std::string kInstruction =
      kHas + "  if (__builtin_expect(__builtin_ia32_fpclassps512_mask(x, 0xa1, (unsigned short)-1) == 0, 1))\n    " +
      kConverted + "#endif\n";
  if (lanes == 32 &&
      (name == "widen_bf16" || name == "narrow_bf16" || name == "narrow_fast_bf16")) {  // what 16 have an instruction for
    const bool widen = name == "widen_bf16";
    return "INLINE " + (widen ? f32 : u16) + " " + name + n + "(" + (widen ? u16 : f32) + " x) {\n  return " +
           in_halves(name + "_x16", "", {"x"}, lanes) + ";\n}\n";
  }
  if (name == "narrow_fast_bf16")
    return "INLINE " + u16 + " narrow_fast_bf16" + n + "(" + f32 + " x) {\n" + kHas + "  " + kConverted +
           "#else\n  return narrow_bf16" + n + "(x);\n#endif\n}\n";
  if (name == "narrow_bf16")
    return "INLINE " + u16 + " narrow_bf16" + n + "(" + f32 + " x) {\n" + (lanes == 16 ? kInstruction : "") + "  const " + u32 +
           " b = " + as(u32, "x") + ", r = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;\n  return " +
           to(u16, "(x != x) ? " + (lanes == 1 ? std::string("0x7fc0u") : zero + " + 0x7fc0u") + " : r") + ";\n}\n";
  if (name == "round_bf16" || name == "round_any_bf16") {
    const std::string r = as(f32, "(b + 0x7fffu + ((b >> 16) & 1u)) & 0xffff0000u");
    return "INLINE " + f32 + " " + name + n + "(" + f32 + " x) {\n  const " + u32 + " b = " + as(u32, "x") + ";\n  return " +
           (name == "round_bf16" ? r : "(x != x) ? " + as(f32, zero + " + 0x7fc00000u") + " : " + r) + ";\n}\n";
  }
  if (name == "widen_f16")
    return "INLINE " + f32 + " widen_f16" + n + "(" + u16 + " h) {\n  const " + u32 + " w = " + to(u32, "h") +
           ", sign = (w & 0x8000u) << 16, mag = (w & 0x7fffu) << 13;\n  const " + u32 +
           " quiet = (mag > 0x0f800000u) ? (~mag & 0x400000u) : " + zero +
           ", special = mag + 0x70000000u + quiet, normal = mag + 0x38000000u;\n  const " + f32 +
           " s = " + as(f32, "mag + 0x38800000u") + " - 6.103515625e-05f;\n  const " + u32 + " small = " + as(u32, "s") +
           ";\n  return " + as(f32, "sign | ((mag >= 0x0f800000u) ? special : (mag >= 0x00800000u) ? normal : small)") +
           ";\n}\n";
  return "INLINE " + u16 + " narrow_f16" + n + "(" + f32 + " x) {\n  const " + u32 + " raw = " + as(u32, "x") +
         ", mag = raw & 0x7fffffffu;\n  const " + u32 + " special = (mag > 0x7f800000u) ? 0x7e00u | ((mag >> 13) & 0x3ffu) : " +
         (lanes == 1 ? std::string("0x7c00u") : zero + " + 0x7c00u") + ";\n  const " + u32 +
         " normal = (mag + 0xc8000fffu + ((mag >> 13) & 1u)) >> 13;\n  const " + f32 + " t = " + as(f32, "mag") +
         " + 0.5f;\n  const " + u32 + " small = " + as(u32, "t") +
         " - 0x3f000000u, code = (mag >= 0x47800000u) ? special : (mag < 0x38800000u) ? small : normal;\n  return " +
         to(u16, "((raw ^ mag) >> 16) | code") + ";\n}\n";
}

// Alive lanes only: by masked instructions where a vector of floats has them, else through memory, by stretches whose lengths
// are powers of two.
std::string some_helpers(const std::string& t, int lanes) {
  const std::string v = t + "x" + std::to_string(lanes);
  static constexpr std::pair<const char*, const char*> elements[] = {
      {"f32", "float"},          {"f64", "double"}, {"i8", "signed char"}, {"u8", "unsigned char"}, {"i16", "short"},
      {"u16", "unsigned short"}, {"i32", "int"},    {"u32", "unsigned"},   {"i64", "i64"},          {"u64", "u64"}};
  std::string e;
  for (const auto& [name, spelled] : elements)
    if (t == name) e = spelled;
  const auto stretches = [&](const std::string& to, const std::string& from) {
    std::string all = "  i64 j = 0;\n";
    for (int h = lanes; h > 0; h /= 2) {
      const std::string size = std::to_string(h);
      all += "  if (n & " + size + ") __builtin_memcpy(" + to + " + j, " + from + " + j, " + size +
             " * sizeof(*p)), j += " + size + ";\n";
    }
    return all;
  };
  const std::string several = "  " + e + " t[" + std::to_string(lanes) + "];\n",
                    plain_load = "  " + v + " r = {};\n" + several + "  __builtin_memcpy(t, &r, sizeof r);\n" +
                                 stretches("t", "p") + "  __builtin_memcpy(&r, t, sizeof r);\n  return r;\n",
                    plain_store = several + "  __builtin_memcpy(t, &x, sizeof x);\n" + stretches("p", "t");
  std::string load = plain_load, store = plain_store;
  if (t == "f32" && (lanes == 16 || lanes == 8)) {
    const bool wide = lanes == 16;
    const std::string condition = wide ? "#if defined(__AVX512F__) && __has_builtin(__builtin_ia32_loadups512_mask)\n"
                                       : "#if defined(__AVX2__) && __has_builtin(__builtin_ia32_maskloadps256)\n  typedef int "
                                         "mask __attribute__((vector_size(32)));\n"
                                         "  const mask alive = mask{0, 1, 2, 3, 4, 5, 6, 7} < (int)n;\n";
    load = condition +
           (wide ? "  return __builtin_ia32_loadups512_mask(p, " + v + "{}, (unsigned short)((1u << n) - 1));\n"
                 : "  return __builtin_ia32_maskloadps256((const " + v + "*)p, alive);\n") +
           "#else\n" + plain_load + "#endif\n";
    store = condition +
            (wide ? "  __builtin_ia32_storeups512_mask(p, x, (unsigned short)((1u << n) - 1));\n"
                  : "  __builtin_ia32_maskstoreps256((" + v + "*)p, alive, x);\n") +
            "#else\n" + plain_store + "#endif\n";
  }
  return "INLINE " + v + " load_some_" + v + "(const " + e + "* p, i64 n) {\n" + load + "}\n" + "INLINE void store_some_" + v +
         "(" + e + "* p, " + v + " x, i64 n) {\n" + store + "}\n";
}

// By halves (J. Eklundh 1972): in step h, rows i and i + h exchange the lanes whose number has and has not the bit h.
std::string transpose_helper(const std::string& v, const std::string& element, int lanes) {
  std::string s = "INLINE void transpose_" + v + "(const " + element + "* p, i64 step, " + element + "* tile) {\n";
  std::vector<std::string> row;
  for (int j = 0; j < lanes; ++j) {
    row.push_back("r" + std::to_string(j));
    s += "  const " + v + " " + row.back() + " = *(const " + v + "_m*)(p + " + std::to_string(j) + " * step);\n";
  }
  int fresh = lanes;
  for (int h = lanes / 2; h > 0; h /= 2)
    for (int i = 0; i < lanes; ++i) {
      if (i & h) continue;
      const auto at = static_cast<size_t>(i), other = static_cast<size_t>(i + h);
      std::string low, high;
      for (int l = 0; l < lanes; ++l) {
        low += ", " + std::to_string(l & h ? lanes + l - h : l);
        high += ", " + std::to_string(l & h ? lanes + l : l + h);
      }
      const std::string a = "r" + std::to_string(fresh++), b = "r" + std::to_string(fresh++),
                        both = row[at] + ", " + row[other];
      s += "  const " + v + " " + a + " = __builtin_shufflevector(" + both + low + "), " + b + " = __builtin_shufflevector(" +
           both + high + ");\n";
      row[at] = a, row[other] = b;
    }
  for (int j = 0; j < lanes; ++j)
    s += "  *(" + v + "_m*)(tile + " + std::to_string(j * lanes) + ") = " + row[static_cast<size_t>(j)] + ";\n";
  return s + "}\n";
}

static std::string shuffled(const std::string& a, const std::string& b, const std::vector<int>& order) {
  std::string s = "__builtin_shufflevector(" + a + ", " + b;
  for (const int i : order) s += ", " + std::to_string(i);
  return s + ")";
}

// Each part of 16 bytes of four rows is transposed by itself: elements of two rows by turns, then pairs of them of all four. Of
// four bytes, register q so holds elements q, q + 4, and so on, of all rows; of two bytes, elements 2 q and 2 q + 1, 2 q + 8
// and 2 q + 9, and so on.
std::string four_rows_helper(const std::string& v, const std::string& element, int lanes, int part) {
  std::string s = "INLINE void four_rows_" + v + "(const " + element + "* p, i64 step, " + element + "* to) {\n";
  for (int j = 0; j < 4; ++j) {
    const std::string n = std::to_string(j);
    s += "  const " + v + " p" + n + " = *(const " + v + "_m*)(p + " + n + " * step);\n";
  }
  // Of each part of both operands: `unit` elements by turns, from the half of it that begins at `from` on.
  const auto by_turns = [&](int unit, int from) {
    std::vector<int> order;
    for (int at = 0; at < lanes; at += part)
      for (int i = 0; i < part / 2; i += unit)
        for (const int side : {0, lanes})
          for (int u = 0; u < unit; ++u) order.push_back(side + at + from + i + u);
    return order;
  };
  const std::vector<int> low = by_turns(1, 0), high = by_turns(1, part / 2), first = by_turns(2, 0),
                         second = by_turns(2, part / 2);
  s += "  const " + v + " a = " + shuffled("p0", "p1", low) + ", b = " + shuffled("p2", "p3", low) + ";\n";
  s += "  const " + v + " c = " + shuffled("p0", "p1", high) + ", d = " + shuffled("p2", "p3", high) + ";\n";
  const std::string results[4] = {shuffled("a", "b", first), shuffled("a", "b", second), shuffled("c", "d", first),
                                  shuffled("c", "d", second)};
  for (int q = 0; q < 4; ++q) s += "  *(" + v + "_m*)(to + " + std::to_string(q * lanes) + ") = " + results[q] + ";\n";
  return s + "}\n";
}

std::string joined_fours_helper(const std::string& element_name, const std::string& element, int lanes) {
  const auto vector = [&](int n) { return element_name + "x" + std::to_string(n); };
  std::string s = "INLINE " + vector(lanes) + " joined_fours_" + vector(lanes) + "(const " + element + "* p) {\n";
  std::vector<std::string> parts;
  for (int j = 0; j < lanes / 4; ++j) {
    parts.push_back("p" + std::to_string(j));
    s += "  const " + vector(4) + " " + parts.back() + " = *(const " + vector(4) + "_m*)(p + " + std::to_string(j * 4 * lanes) +
         ");\n";
  }
  for (int n = 8; n <= lanes; n *= 2) {
    std::vector<int> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::string> joined;
    for (size_t i = 0; i < parts.size(); i += 2) {
      joined.push_back(parts[i] + "_" + std::to_string(n));
      s += "  const " + vector(n) + " " + joined.back() + " = " + shuffled(parts[i], parts[i + 1], order) + ";\n";
    }
    parts = joined;
  }
  return s + "  return " + parts[0] + ";\n}\n";
}

}  // namespace tessera::kit
