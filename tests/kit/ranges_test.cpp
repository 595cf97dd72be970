// SPDX-License-Identifier: Apache-2.0
// What the builder leaves out because ranges decide it: random kernels built with that and without it compute the same bits,
// and values lie in their ranges.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>

#include "kit_support.hpp"
#include "tessera/kit/builder.hpp"
#include "tessera/kit/interpret.hpp"
#include "tessera/kit/ranges.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/kit/verify.hpp"

using namespace tessera;
using namespace tessera::test;
using kit::kNone;
using kit::Op;
using kit::Type;

namespace {

// Writes the same random instructions through a builder's functions, or one by one as they are.
class Writer {
 public:
  Writer(uint64_t seed, bool plain) : random_(seed), plain_(plain) {
    kernel_.name = "k";
    const kit::Expr n = kernel_.pool.number(kPoints);
    const auto buffer = [&](const char* name, kit::Access access, Type t) {
      kernel_.buffers.push_back({name, access, t, n});
      return static_cast<uint32_t>(kernel_.buffers.size() - 1);
    };
    const uint32_t inputs[] = {buffer("x", kit::Access::In, Type::F32), buffer("q", kit::Access::In, Type::I8),
                               buffer("u", kit::Access::In, Type::U8)};
    const uint32_t axis = kernel_.add_axis("p0", n);
    kernel_.parallel = {axis};
    kit::Builder b(kernel_);
    b_ = &b;
    const kit::Expr at = kernel_.pool.axis(axis);
    floats_.push_back(b.load(inputs[0], Type::F32, at));
    for (const int i : {1, 2}) {
      const uint32_t v = b.load(inputs[i], kernel_.buffers[inputs[i]].type, at);
      ints_.push_back(convert(v, Type::I32));
      floats_.push_back(convert(ints_.back(), Type::F32));
    }
    for (int i = 0; i < 24; ++i) step();
    for (const uint32_t v : floats_) b.store(buffer(("f" + std::to_string(v)).c_str(), kit::Access::Out, Type::F32), at, v);
    for (const uint32_t v : ints_) b.store(buffer(("i" + std::to_string(v)).c_str(), kit::Access::Out, Type::I32), at, v);
    b_ = nullptr;
    kit::verify(kernel_);
  }
  kit::Kernel& kernel() { return kernel_; }

  static constexpr int64_t kPoints = 256;

 private:
  size_t pick(size_t n) { return random_() % n; }
  uint32_t any(const std::vector<uint32_t>& of) { return of[pick(of.size())]; }
  uint32_t emit(Op op, Type t, uint32_t a, uint32_t b = kNone, uint32_t c = kNone) {
    kit::Inst x;
    x.op = op, x.type = t, x.args = {a, b, c};
    return b_->emit(x);
  }
  uint32_t convert(uint32_t a, Type t) { return plain_ ? emit(Op::Convert, t, a) : b_->convert(a, t); }
  uint32_t binary(Op op, uint32_t a, uint32_t b) {
    return plain_ ? emit(op, kit::is_compare(op) ? Type::Bool : b_->type_of(a), a, b) : b_->binary(op, a, b);
  }
  uint32_t select(uint32_t c, uint32_t a, uint32_t b) {
    return plain_ ? emit(Op::Select, b_->type_of(a), c, a, b) : b_->select(c, a, b);
  }
  uint32_t number(Type t) {
    static const double kNumbers[] = {0, 1, -1, 2, -128, 127, 255, 0.5, -3.25, 100000, INFINITY};
    const double x = kNumbers[pick(kit::is_float(t) ? 11 : 7)];
    return kit::is_float(t) ? b_->constant(t, x) : b_->constant(t, static_cast<int64_t>(x));
  }
  uint32_t condition() {
    static const Op kCompares[] = {Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge};
    const Op op = kCompares[pick(6)];
    const bool of_floats = pick(3) != 0;
    const uint32_t a = any(of_floats ? floats_ : ints_);
    return binary(op, a,
                  pick(4) == 0 ? a
                  : pick(2)    ? any(of_floats ? floats_ : ints_)
                               : number(of_floats ? Type::F32 : Type::I32));
  }
  // Limits, with the sides of the comparison and of the choice in any order, and NaN kept or not.
  uint32_t limited(uint32_t x) {
    static const Op kOrders[] = {Op::Lt, Op::Le, Op::Gt, Op::Ge};
    const uint32_t limit = pick(3) ? number(Type::F32) : any(floats_);
    const Op op = kOrders[pick(4)];
    const uint32_t c = pick(2) ? binary(op, x, limit) : binary(op, limit, x);
    const uint32_t y = pick(2) ? select(c, limit, x) : select(c, x, limit);
    return pick(2) ? select(binary(Op::Ne, x, x), x, y) : y;
  }
  // A cast to an integer of 8 bits, and back.
  uint32_t narrowed(uint32_t x) {
    const bool is_signed = pick(2);
    const uint32_t low = b_->constant(Type::F32, is_signed ? -128.0 : 0.0),
                   high = b_->constant(Type::F32, is_signed ? 127.0 : 255.0);
    uint32_t y = select(binary(Op::Ne, x, x), b_->constant(Type::F32, 0.0), x);
    y = select(binary(Op::Lt, y, low), low, y);
    y = select(binary(Op::Gt, y, high), high, y);
    return convert(convert(convert(y, Type::I32), is_signed ? Type::I8 : Type::U8), Type::I32);
  }
  void step() {
    static const Op kOps[] = {Op::Add, Op::Sub, Op::Mul, Op::Div};
    static const Op kRoundings[] = {Op::Round, Op::Floor, Op::Ceil, Op::Trunc};
    switch (pick(9)) {
      case 0: floats_.push_back(binary(kOps[pick(4)], any(floats_), pick(2) ? any(floats_) : number(Type::F32))); break;
      case 1: ints_.push_back(binary(kOps[pick(3)], any(ints_), pick(2) ? any(ints_) : number(Type::I32))); break;
      case 2: floats_.push_back(emit(kRoundings[pick(4)], Type::F32, any(floats_))); break;
      case 3: floats_.push_back(emit(Op::Neg, Type::F32, any(floats_))); break;
      case 4: floats_.push_back(limited(any(floats_))); break;
      case 5: ints_.push_back(narrowed(any(floats_))); break;
      case 6: floats_.push_back(convert(any(ints_), Type::F32)); break;
      case 7: ints_.push_back(convert(convert(any(ints_), pick(2) ? Type::I8 : Type::U8), Type::I32)); break;
      default: {
        uint32_t c = condition();
        if (pick(2)) c = binary(pick(2) ? Op::And : Op::Or, c, condition());
        const bool of_floats = pick(2);
        std::vector<uint32_t>& of = of_floats ? floats_ : ints_;
        of.push_back(select(c, any(of), any(of)));
      }
    }
  }

  std::mt19937_64 random_;
  bool plain_;
  kit::Kernel kernel_;
  kit::Builder* b_ = nullptr;
  std::vector<uint32_t> floats_, ints_;
};

}  // namespace

TEST_CASE("what ranges decide is left out, and no bit changes") {
  size_t shorter = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Writer plain(seed, true), ranged(seed, false);
    INFO("seed " << seed << "\n" << kit::print(plain.kernel()) << "\n" << kit::print(ranged.kernel()));
    const size_t outputs = plain.kernel().buffers.size();
    REQUIRE(ranged.kernel().buffers.size() == outputs);
    Data want = make_data(plain.kernel(), {}, seed, true);
    Data got = want;
    REQUIRE(kit::interpret(plain.kernel(), want.pointers(), {}) == 0);
    REQUIRE(kit::interpret(ranged.kernel(), got.pointers(), {}) == 0);
    // Values are stored in the order in which they were made; their names differ.
    for (size_t i = 3; i < outputs; ++i) ranged.kernel().buffers[i].name = plain.kernel().buffers[i].name;
    const std::string d = difference(plain.kernel(), want, got);
    if (!d.empty()) FAIL(d);
    shorter += ranged.kernel().insts.size() < plain.kernel().insts.size();
  }
  CHECK(shorter > 300);
}

TEST_CASE("values lie in their ranges") {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Writer w(seed, true);
    const kit::Kernel& k = w.kernel();
    std::vector<kit::Range> ranges;
    for (const kit::Inst& x : k.insts) ranges.push_back(kit::range_of(x, k.insts, ranges));
    Data data = make_data(k, {}, seed, true);
    kit::interpret(k, data.pointers(), {});
    for (const kit::Inst& x : k.insts) {
      if (x.op != Op::Store) continue;
      const kit::Range& r = ranges[x.args[0]];
      INFO("seed " << seed << ", value " << x.args[0] << " in " << r.lo << " .. " << r.hi << " nan " << r.nan << "\n"
                   << kit::print(k));
      size_t outside = 0;
      for (int64_t p = 0; p < Writer::kPoints; ++p) {
        const char* at = data.bytes[x.id].data() + 4 * p;
        double v;
        if (k.buffers[x.id].type == Type::F32) {
          float f;
          std::memcpy(&f, at, 4);
          v = f;
        } else {
          int32_t i;
          std::memcpy(&i, at, 4);
          v = i;
        }
        outside += !(std::isnan(v) ? r.nan : v >= r.lo && v <= r.hi);
      }
      REQUIRE(outside == 0);
    }
  }
}

TEST_CASE("a clamp and a cast to 8 bits keep one limit each") {
  const auto g = parse(
      "graph @g(%x: f32[64]) {\n %l = constant {value = dense<f32[]: -128.0>}\n %h = constant {value = dense<f32[]: 127.0>}\n "
      "%c = clamp "
      "%x, %l, %h\n %q = cast %c {dtype = i8}\n return %q\n}\n");
  const kit::Lowered l = lower_graph(*g, "k");
  INFO(kit::print(l.kernel));
  size_t selects = 0;
  for (const kit::Inst& x : l.kernel.insts) selects += x.op == Op::Select;
  CHECK(selects == 3);  // two limits, and 0 for NaN
}

TEST_CASE("a table that holds every byte needs no check") {
  for (const char* type : {"i8", "u8"}) {
    const std::string index = type == std::string("i8") ? " %h = constant {value = dense<i64[]: 128>}\n %i = add %w, %h\n"
                                                        : " %i = cast %w {dtype = i64}\n";
    const auto g = parse("graph @g(%t: i8[256], %q: " + std::string(type) + "[50]) {\n %w = cast %q {dtype = i64}\n" + index +
                         " %y = gather %t, %i {axis = 0}\n return %y\n}\n");
    const kit::Lowered l = lower_graph(*g, "k");
    INFO(kit::print(l.kernel));
    size_t checks = 0;
    for (const kit::Inst& x : l.kernel.insts) checks += x.op == Op::Check || x.op == Op::Select;
    CHECK(checks == 0);
  }
}
