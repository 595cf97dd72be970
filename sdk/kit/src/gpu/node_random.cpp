// SPDX-License-Identifier: Apache-2.0
// Random numbers by Philox 4x32-10 (Salmon et al., SC'11), as docs/random.md defines them: a thread makes one block of four
// words and the elements that take them. A second launch of one thread writes the state that follows.
#include <array>
#include <numbers>

#include "node_program.hpp"

namespace tessera::kit {
namespace {

class RandomWriter {
 public:
  explicit RandomWriter(NodeWriter& w) : w_(w), type_(w.b.p.buffers[w.output(0)].type), count_(w.points(w.shape(w.output(0)))) {
    wide_ = type_ == Type::F64 || w.node.is("random_int");
  }

  void write() {
    IndexPool& p = w_.pool();
    const int64_t each = wide_ ? 2 : 4;  // elements of a block of words
    const Expr blocks = w_.b.ceil_div(count_, each);
    w_.each(blocks, [&](Expr block) {
      const std::array<uint32_t, 4> words = philox(block);
      const std::vector<uint32_t> elements = values(words);
      for (size_t e = 0; e < elements.size(); ++e) {
        const Expr at = p.add(w_.b.scaled(block, each), p.number(static_cast<int64_t>(e)));
        if (p.nonnegative(p.sub(at, count_))) continue;  // fewer elements than a block has
        const bool exists = w_.b.begin_if(w_.b.below(at, count_));
        w_.b.store(w_.output(0), at, elements[e]);
        w_.b.end_if(exists);
      }
    });
    w_.each(kOne, [&](Expr) {
      w_.b.store(w_.output(1), kZero, state(0));
      w_.b.store(w_.output(1), kOne, w_.b.binary(Op::Add, state(1), w_.convert(w_.b.index(blocks), Type::U64)));
    });
  }

 private:
  uint32_t state(int64_t i) { return w_.b.load(w_.input(0), w_.pool().number(i)); }
  uint32_t u32(uint64_t x) { return w_.b.constant(Type::U32, x); }
  uint32_t u64(uint64_t x) { return w_.b.constant(Type::U64, x); }
  uint32_t f64(double x) { return w_.b.constant(Type::F64, constant_bits(Type::F64, x)); }
  uint32_t low(uint32_t v) { return w_.convert(v, Type::U32); }
  uint32_t high(uint32_t v) { return w_.convert(w_.b.binary(Op::Shr, v, u64(32)), Type::U32); }
  uint32_t wide(uint32_t v) { return w_.convert(v, Type::U64); }
  uint32_t op(Op o, uint32_t a, uint32_t b) { return w_.b.binary(o, a, b); }

  std::array<uint32_t, 4> philox(Expr block) {
    const uint32_t key = state(0), counter = op(Op::Add, state(1), w_.convert(w_.b.index(block), Type::U64));
    uint32_t k0 = low(key), k1 = high(key);
    std::array<uint32_t, 4> c = {low(counter), high(counter), u32(0), u32(0)};
    for (int round = 0; round < 10; ++round) {
      const uint32_t p0 = op(Op::Mul, u64(0xD2511F53), wide(c[0])), p1 = op(Op::Mul, u64(0xCD9E8D57), wide(c[2]));
      c = {op(Op::Xor, op(Op::Xor, high(p1), c[1]), k0), low(p1), op(Op::Xor, op(Op::Xor, high(p0), c[3]), k1), low(p0)};
      k0 = op(Op::Add, k0, u32(0x9E3779B9));
      k1 = op(Op::Add, k1, u32(0xBB67AE85));
    }
    return c;
  }

  // Elements of one block, of the output's type.
  std::vector<uint32_t> values(const std::array<uint32_t, 4>& words) {
    std::vector<uint32_t> out;
    if (w_.node.is("random_bits")) {
      for (const uint32_t word : words) out.push_back(word);
    } else if (w_.node.is("random_int")) {
      for (const size_t i : {0u, 2u}) out.push_back(integer(words[i], words[i + 1]));
    } else if (w_.node.is("random_uniform")) {
      if (wide_)
        for (const size_t i : {0u, 2u})
          out.push_back(op(Op::Mul, w_.convert(bits53(words[i], words[i + 1]), Type::F64), f64(0x1p-53)));
      else
        for (const uint32_t word : words) out.push_back(uniform(word));
    } else {
      const auto pair = [&](uint32_t u, uint32_t v, double scale) {  // integers of 53 or 24 bits
        for (const uint32_t x : normal(op(Op::Mul, w_.convert(op(Op::Add, u, u64(1)), Type::F64), f64(scale)),
                                       op(Op::Mul, w_.convert(v, Type::F64), f64(scale))))
          out.push_back(x);
      };
      if (wide_)
        pair(bits53(words[0], words[1]), bits53(words[2], words[3]), 0x1p-53);
      else
        for (const size_t i : {0u, 2u}) pair(wide(bits24(words[i])), wide(bits24(words[i + 1])), 0x1p-24);
    }
    return out;
  }

  uint32_t bits24(uint32_t word) { return op(Op::Shr, word, u32(8)); }
  uint32_t word64(uint32_t a, uint32_t b) { return op(Op::Or, op(Op::Shl, wide(a), u64(32)), wide(b)); }
  uint32_t bits53(uint32_t a, uint32_t b) { return op(Op::Shr, word64(a, b), u64(11)); }

  // In [0, 1), toward zero: what a narrower type has no bits for is cut off before it is converted.
  uint32_t uniform(uint32_t word) {
    Inst scale;
    scale.op = Op::Const, scale.type = Type::F32, scale.bits = constant_bits(Type::F32, 0x1p-24);
    uint32_t x = op(Op::Mul, w_.convert(bits24(word), Type::F32), w_.b.inst(scale));
    if (type_ == Type::F32) return x;
    x = bitcast(op(Op::And, bitcast(x, Type::U32), u32(type_ == Type::BF16 ? 0xffff0000u : 0xffffe000u)), Type::F32);
    return w_.convert(x, type_);
  }

  // low + the high 64 bits of w * (high - low), whose partial products are those of 32 bits.
  uint32_t integer(uint32_t a, uint32_t b) {
    const auto from = static_cast<uint64_t>(w_.node.attr("low").as_int());
    const uint64_t span = static_cast<uint64_t>(w_.node.attr("high").as_int()) - from, s1 = span >> 32, s0 = span & 0xffffffffu;
    const uint32_t x = wide(a), y = wide(b), half = u64(0xffffffffu);
    const auto shifted = [&](uint32_t v) { return op(Op::Shr, v, u64(32)); };
    const uint32_t middle = op(Op::Add, op(Op::Mul, x, u64(s0)), shifted(op(Op::Mul, y, u64(s0))));
    const uint32_t more = op(Op::Add, op(Op::Mul, y, u64(s1)), op(Op::And, middle, half));
    const uint32_t product = op(Op::Add, op(Op::Mul, x, u64(s1)), op(Op::Add, shifted(middle), shifted(more)));
    return w_.convert(w_.convert(op(Op::Add, product, u64(from)), Type::I64), type_);
  }

  // Box and Muller 1958, in f64, rounded to f32 at least.
  std::array<uint32_t, 2> normal(uint32_t u, uint32_t v) {
    const uint32_t radius = w_.b.unary(Op::Sqrt, op(Op::Mul, f64(-2), call("log_f64", u)));
    const uint32_t angle = op(Op::Mul, f64(2 * std::numbers::pi), v);
    std::array<uint32_t, 2> out = {op(Op::Mul, radius, call("cos_f64", angle)), op(Op::Mul, radius, call("sin_f64", angle))};
    for (uint32_t& x : out) {
      if (type_ != Type::F64) x = w_.convert(x, Type::F32);
      x = w_.convert(x, type_);
    }
    return out;
  }
  uint32_t call(const char* name, uint32_t a) {
    Inst x;
    x.op = Op::Call, x.type = Type::F64, x.id = function_named(name), x.args[0] = a;
    return w_.b.inst(x);
  }
  uint32_t bitcast(uint32_t v, Type to) {
    Inst x;
    x.op = Op::Bitcast, x.type = to, x.args[0] = v;
    return w_.b.inst(x);
  }

  NodeWriter& w_;
  Type type_;
  Expr count_;
  bool wide_ = false;  // an element takes two words, or four
};

}  // namespace

void write_random(NodeWriter& w) { RandomWriter(w).write(); }

}  // namespace tessera::kit
