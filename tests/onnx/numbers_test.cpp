// SPDX-License-Identifier: Apache-2.0
// What operators compute on integers, where PyTorch's promotion or a formula in floats would lose digits: against exact
// arithmetic, on every backend.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>

#include "model_builder.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/embed.hpp"

using namespace tessera::onnx_test;
namespace e = tessera::embed;
namespace fs = std::filesystem;

namespace {

const char* const kConfigs[] = {"eager", "reference", "cpu"};

const e::Context& context(const std::string& config) {
  static std::map<std::string, e::Context> all;
  if (const auto at = all.find(config); at != all.end()) return at->second;
  e::ContextOptions o;
  o.config_path = config;
  if (const char* build = std::getenv("TESSERA_BUILD_DIR")) o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
  return all.emplace(config, e::Context(o)).first->second;
}

struct Dtype {
  const char* name;
  tsr_dtype dtype;
  int onnx;
};
constexpr Dtype kDtypes[] = {{"i8", TSR_I8, 3},    {"i16", TSR_I16, 5}, {"i32", TSR_I32, 6},  {"i64", TSR_I64, 7},
                             {"u8", TSR_U8, 2},    {"u16", TSR_U16, 4}, {"u32", TSR_U32, 12}, {"u64", TSR_U64, 13},
                             {"f16", TSR_F16, 10}, {"f32", TSR_F32, 1}, {"f64", TSR_F64, 11}, {"bf16", TSR_BF16, 16}};

using Wide = __int128;

// Elements of an integer or a float dtype, from numbers that it holds.
struct Values {
  const Dtype* dtype;
  std::vector<Wide> integers;
  std::vector<double> floats;
  [[nodiscard]] size_t size() const { return integers.empty() ? floats.size() : integers.size(); }
  [[nodiscard]] std::string bytes() const {
    const auto n = static_cast<int64_t>(size());
    std::string out(static_cast<size_t>(tessera::storage_bytes(dtype->dtype, n)), 0);
    for (int64_t i = 0; i < n; ++i) {
      if (integers.empty())
        tessera::store_from(dtype->dtype, out.data(), i, floats[static_cast<size_t>(i)]);
      else
        tessera::store_from(dtype->dtype, out.data(), i, static_cast<uint64_t>(integers[static_cast<size_t>(i)]));
    }
    return out;
  }
  [[nodiscard]] e::Tensor tensor() const {
    const int64_t sizes[] = {static_cast<int64_t>(size())};
    const e::Tensor t = e::Tensor::create(dtype->dtype, sizes);
    const std::string b = bytes();
    std::copy(b.begin(), b.end(), static_cast<char*>(t.data()));
    return t;
  }
};

e::Tensor pow_of(const std::string& config, const Values& a, const Values& b, bool constant) {
  const auto n = static_cast<int64_t>(a.size());
  std::vector<Msg> initializers, inputs = {value_info("a", a.dtype->onnx, {n})};
  if (constant)
    initializers.push_back(tensor("b", b.dtype->onnx, {n}, b.bytes()));
  else
    inputs.push_back(value_info("b", b.dtype->onnx, {n}));
  const std::string bytes =
      model(graph({{node("Pow", {"a", "b"}, {"y"})}, initializers, inputs, {value_info("y", a.dtype->onnx, {n})}})).bytes();
  const fs::path path = fs::temp_directory_path() / ("tessera_pow_" + std::to_string(::getpid()) + ".onnx");
  std::ofstream(path, std::ios::binary) << bytes;
  const e::Context& c = context(config);
  const e::Executable run = c.compile(c.load(path.string()));
  fs::remove(path);
  std::vector<e::Tensor> in = {a.tensor()};
  if (!constant) in.push_back(b.tensor());
  return run.run(in)[0].copy_to(0);
}

struct Limits {
  Wide least, most;
};
Limits limits(tsr_dtype d) {
  const int bits = tessera::dtype_bits(d);
  if (tessera::is_signed_int(d)) return {-(Wide{1} << (bits - 1)), (Wide{1} << (bits - 1)) - 1};
  return {0, (Wide{1} << bits) - 1};
}
Wide wrapped(Wide v, tsr_dtype d) {
  const int bits = tessera::dtype_bits(d);
  v &= (Wide{1} << bits) - 1;
  return tessera::is_signed_int(d) && (v >> (bits - 1)) != 0 ? v - (Wide{1} << bits) : v;
}
// a to the power n modulo 2^64, n >= 0.
uint64_t power(uint64_t a, uint64_t n) {
  uint64_t r = 1;
  for (; n != 0; n >>= 1, a *= a)
    if ((n & 1) != 0) r *= a;
  return r;
}
// Truncated and saturated; false: the float arithmetic of this test cannot tell.
bool real_power(Wide a, double n, tsr_dtype d, Wide* out) {
  const Limits l = limits(d);
  if (n == std::floor(n) && n >= 0 && std::isfinite(n)) {
    Wide r = 1;
    for (double i = 0; i < std::min(n, 200.0); ++i) {
      if (__builtin_mul_overflow(r, a, &r)) r = l.most + 1;
      if (r < l.least || r > l.most) break;
    }
    if (n > 200 && a == -1) r = std::fmod(n, 2) == 0 ? 1 : -1;
    if (r < l.least || r > l.most) {  // negative powers beyond the range are those of odd exponents
      *out = a < 0 && std::fmod(n, 2) != 0 ? l.least : l.most;
      return true;
    }
    *out = r;
    return true;
  }
  const long double r = std::pow(static_cast<long double>(a), static_cast<long double>(n));
  if (std::isnan(r)) return *out = 0, true;
  if (r >= static_cast<long double>(l.most)) return *out = l.most, true;
  if (r <= static_cast<long double>(l.least)) return *out = l.least, true;
  const long double nearest = std::nearbyint(r);
  if (std::fabs(r) > 0x1p52L || (r != nearest && std::fabs(r - nearest) < 1e-9L * std::fabs(r))) return false;
  *out = static_cast<Wide>(std::trunc(r));
  return true;
}

Wide element(const e::Tensor& t, size_t i, tsr_dtype d) {
  return tessera::is_signed_int(d) ? Wide{tessera::load_as<int64_t>(d, t.data(), static_cast<int64_t>(i))}
                                   : Wide{tessera::load_as<uint64_t>(d, t.data(), static_cast<int64_t>(i))};
}
std::string text(Wide v) {
  return v < 0 ? "-" + std::to_string(static_cast<uint64_t>(-v)) : std::to_string(static_cast<uint64_t>(v));
}

}  // namespace

TEST_CASE("an integer to a float power has every digit") {
  const Values a{&kDtypes[2], {16777217, 3, -3, 46340, 7}, {}}, b{&kDtypes[9], {}, {1, 19, 19, 2, 0.5}};
  for (const char* config : kConfigs)
    for (const bool constant : {false, true}) {
      INFO(config << (constant ? ", constant exponents" : ""));
      const e::Tensor y = pow_of(config, a, b, constant);
      REQUIRE(y.dtype() == TSR_I32);
      const auto* got = static_cast<const int32_t*>(y.data());
      const int32_t want[] = {16777217, 1162261467, -1162261467, 2147395600, 2};
      CHECK(std::equal(want, want + 5, got));
    }
}

TEST_CASE("powers of every integer dtype by every dtype are exact") {
  std::mt19937_64 random(5);
  for (const Dtype& base : kDtypes) {
    if (!tessera::is_int(base.dtype)) continue;
    for (const Dtype& exponent : kDtypes) {
      Values a{&base, {}, {}}, b{&exponent, {}, {}};
      const Limits l = limits(base.dtype), m = tessera::is_int(exponent.dtype) ? limits(exponent.dtype) : Limits{0, 0};
      std::vector<Wide> want;
      const auto add = [&](Wide x, double real, Wide whole) {
        x = std::clamp(x, l.least, l.most);
        Wide r = 0;
        if (tessera::is_int(exponent.dtype)) {
          whole = std::clamp(whole, m.least, m.most);
          if (base.dtype == exponent.dtype && whole < 0) return;
          r = whole < 0 ? (x == 1    ? 1
                           : x == -1 ? (whole % 2 != 0 ? -1 : 1)
                                     : 0)
                        : wrapped(power(static_cast<uint64_t>(x), static_cast<uint64_t>(whole)), base.dtype);
          b.integers.push_back(whole);
        } else {
          char held[8];  // as the dtype holds it
          tessera::store_from(exponent.dtype, held, 0, real);
          real = tessera::load_as<double>(exponent.dtype, held, 0);
          if (!real_power(x, real, base.dtype, &r)) return;
          b.floats.push_back(real);
        }
        a.integers.push_back(x);
        want.push_back(r);
      };
      for (int i = 0; i < 300; ++i) {
        // Bases of every length, and exponents for which the power is about as long as the dtype.
        const int bits = 1 + static_cast<int>(random() % static_cast<uint64_t>(tessera::dtype_bits(base.dtype)));
        Wide x = static_cast<Wide>(random() >> (64 - bits));
        if (random() % 2 == 0) x = -x;
        const auto n = static_cast<int64_t>(random() % (static_cast<uint64_t>(70 / bits) + 2));
        add(x, random() % 4 == 0 ? static_cast<double>(n) + 0.5 : static_cast<double>(n), n);
      }
      for (const Wide x : {l.least, l.most, Wide{0}, Wide{1}, Wide{-1}, Wide{2}, Wide{-2}, Wide{3}})
        for (const double n : {0.0, 1.0, 2.0, 3.0, 62.0, 63.0, 64.0, 65.0, 1e6, -1.0, -2.0})
          if (n >= 0 || x == 1 || x == -1) add(x, n, static_cast<Wide>(n));
      for (const Wide x : {Wide{0}, Wide{1}, Wide{-1}, Wide{2}, Wide{3}, l.most}) add(x, 1, m.most), add(x, 2, m.most - 1);
      for (const char* config : kConfigs)
        for (const bool constant : {false, true}) {
          const e::Tensor y = pow_of(config, a, b, constant);
          REQUIRE(y.dtype() == base.dtype);
          int wrong = 0;
          for (size_t i = 0; i < want.size(); ++i) {
            const Wide got = element(y, i, base.dtype);
            if (got == want[i] || ++wrong > 3) continue;
            UNSCOPED_INFO(base.name << " " << text(a.integers[i]) << " ^ " << exponent.name << " "
                                    << (b.integers.empty() ? std::to_string(b.floats[i]) : text(b.integers[i])) << " on "
                                    << config << (constant ? " as a constant" : "") << ": got " << text(got) << ", expected "
                                    << text(want[i]));
          }
          CHECK(wrong == 0);
        }
    }
  }
}

TEST_CASE("an integer exponent that the base's dtype does not hold keeps its digits") {
  for (const int base : {8, 9, 11}) {  // f16, f32, bf16
    const Values a{&kDtypes[base], {}, {-1, -1, 1, 2}}, b{&kDtypes[3], {16777217, 16777216, 16777217, 3}, {}};
    for (const char* config : kConfigs)
      for (const bool constant : {false, true}) {
        INFO(kDtypes[base].name << " on " << config << (constant ? ", constant exponents" : ""));
        const e::Tensor y = pow_of(config, a, b, constant);
        REQUIRE(y.dtype() == kDtypes[base].dtype);
        std::vector<double> got;
        for (int i = 0; i < 4; ++i) got.push_back(tessera::load_as<double>(kDtypes[base].dtype, y.data(), i));
        CHECK(got == std::vector<double>{-1, 1, 1, 8});
      }
  }
}

// ---- quantised tensors

namespace {

const Dtype kByte[] = {{"u8", TSR_U8, 2}, {"i8", TSR_I8, 3}};
constexpr int kF32 = 1, kI32 = 6;

// A tensor of integers, f32 or i32.
struct Data {
  int onnx;
  std::vector<int64_t> sizes;
  std::vector<double> values;
  [[nodiscard]] tsr_dtype dtype() const { return onnx == 2 ? TSR_U8 : onnx == 3 ? TSR_I8 : onnx == kI32 ? TSR_I32 : TSR_F32; }
  [[nodiscard]] std::string bytes() const {
    std::string out(static_cast<size_t>(tessera::storage_bytes(dtype(), static_cast<int64_t>(values.size()))), 0);
    for (size_t i = 0; i < values.size(); ++i) tessera::store_from(dtype(), out.data(), static_cast<int64_t>(i), values[i]);
    return out;
  }
};
int64_t count(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}
Data one(int onnx, double x) { return {onnx, {}, {x}}; }

using Named = std::vector<std::pair<const char*, Data>>;

// The first output of a model of these nodes. `constant`: everything but the first input is an initialiser.
std::vector<double> run_nodes(const std::string& config, const std::vector<Msg>& nodes, const Named& data, int result,
                              bool constant) {
  std::vector<Msg> initializers, inputs;
  std::vector<e::Tensor> in;
  for (const auto& [name, d] : data) {
    Msg shape;
    for (const int64_t s : d.sizes) shape.m(1, Msg().i(1, s));
    if (constant && name != std::string(data[0].first)) {
      Msg t;
      for (const int64_t s : d.sizes) t.i(1, s);
      initializers.push_back(t.i(2, d.onnx).s(8, name).s(9, d.bytes()));
      continue;
    }
    inputs.push_back(Msg().s(1, name).m(2, Msg().m(1, Msg().i(1, d.onnx).m(2, shape))));
    const e::Tensor t = e::Tensor::create(d.dtype(), d.sizes);
    const std::string b = d.bytes();
    std::copy(b.begin(), b.end(), static_cast<char*>(t.data()));
    in.push_back(t);
  }
  const std::string bytes =
      model(graph({nodes, initializers, inputs, {Msg().s(1, "y").m(2, Msg().m(1, Msg().i(1, result)))}}), 17).bytes();
  const fs::path path = fs::temp_directory_path() / ("tessera_quantised_" + std::to_string(::getpid()) + ".onnx");
  std::ofstream(path, std::ios::binary) << bytes;
  const e::Context& c = context(config);
  const e::Executable run = c.compile(c.load(path.string()));
  fs::remove(path);
  const e::Tensor y = run.run(in)[0].copy_to(0);
  std::vector<double> out;
  for (int64_t i = 0; i < y.elements(); ++i) out.push_back(tessera::load_as<double>(y.dtype(), y.data(), i));
  return out;
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  // Any byte, the ends of the range often.
  double byte(const Dtype& d) {
    const int64_t x = below(4) == 0 ? below(2) * 255 : below(256);
    return static_cast<double>(d.dtype == TSR_I8 ? x - 128 : x);
  }
  Data bytes(const Dtype& d, const std::vector<int64_t>& sizes) {
    Data out{d.onnx, sizes, {}};
    for (int64_t i = 0; i < count(sizes); ++i) out.values.push_back(byte(d));
    return out;
  }

 private:
  std::mt19937_64 random_;
};

struct ConvSizes {
  int64_t n, c, h, w, o, kh, kw, stride, pad, dilation, groups;
  [[nodiscard]] int64_t out(int64_t size, int64_t kernel) const {
    return (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
  }
};
constexpr ConvSizes kConvs[] = {{2, 5, 9, 7, 13, 3, 3, 1, 1, 1, 1},
                                {1, 24, 8, 8, 40, 1, 1, 1, 0, 1, 1},
                                {1, 3, 15, 14, 17, 5, 4, 2, 2, 1, 1},
                                {2, 8, 10, 9, 16, 3, 2, 1, 1, 2, 2},
                                {1, 6, 7, 7, 6, 3, 3, 1, 1, 1, 6}};

// Sums of a convolution whose padding is the zero point.
std::vector<double> conv_sums(const ConvSizes& s, const Data& x, const Data& w, double xz, const std::vector<double>& wz) {
  std::vector<double> out;
  const int64_t oh = s.out(s.h, s.kh), ow = s.out(s.w, s.kw), in_group = s.c / s.groups;
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t o = 0; o < s.o; ++o)
      for (int64_t y = 0; y < oh; ++y)
        for (int64_t u = 0; u < ow; ++u) {
          double sum = 0;
          for (int64_t c = 0; c < in_group; ++c)
            for (int64_t i = 0; i < s.kh; ++i)
              for (int64_t j = 0; j < s.kw; ++j) {
                const int64_t a = y * s.stride + i * s.dilation - s.pad, b = u * s.stride + j * s.dilation - s.pad;
                if (a < 0 || a >= s.h || b < 0 || b >= s.w) continue;
                const int64_t channel = o / (s.o / s.groups) * in_group + c;
                sum += (x.values[static_cast<size_t>(((n * s.c + channel) * s.h + a) * s.w + b)] - xz) *
                       (w.values[static_cast<size_t>(((o * in_group + c) * s.kh + i) * s.kw + j)] - wz[static_cast<size_t>(o)]);
              }
          out.push_back(sum);
        }
  return out;
}
std::vector<Msg> conv_attributes(const ConvSizes& s) {
  return {attribute("strides", std::vector<int64_t>{s.stride, s.stride}), attribute("pads", std::vector<int64_t>(4, s.pad)),
          attribute("dilations", std::vector<int64_t>{s.dilation, s.dilation}), attribute("group", s.groups)};
}
Msg with(Msg n, const std::vector<Msg>& attributes) {
  for (const Msg& a : attributes) n.m(5, a);
  return n;
}

// round(x) + zero, saturated: half to even.
double quantised(double x, double zero, const Dtype& d) {
  const double lo = d.dtype == TSR_I8 ? -128 : 0;
  return std::clamp(std::nearbyint(x) + zero, lo, lo + 255);
}

}  // namespace

TEST_CASE("MatMulInteger and ConvInteger are exact") {
  Draw draw(7);
  for (const Dtype& a : kByte)
    for (const Dtype& b : kByte)
      for (const bool constant : {false, true}) {
        const int64_t m = 1 + draw.below(40), k = 1 + draw.below(200), n = 1 + draw.below(70);
        const Data x = draw.bytes(a, {m, k}), w = draw.bytes(b, {k, n}), xz = draw.bytes(a, {}), wz = draw.bytes(b, {n});
        std::vector<double> want;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t c = 0; c < k; ++c)
              sum += (x.values[static_cast<size_t>(i * k + c)] - xz.values[0]) *
                     (w.values[static_cast<size_t>(c * n + j)] - wz.values[static_cast<size_t>(j)]);
            want.push_back(sum);
          }
        for (const char* config : kConfigs) {
          INFO(a.name << " by " << b.name << ", " << m << " x " << k << " x " << n << " on " << config
                      << (constant ? ", constant weights" : ""));
          CHECK(run_nodes(config, {node("MatMulInteger", {"x", "w", "xz", "wz"}, {"y"})},
                          {{"x", x}, {"w", w}, {"xz", xz}, {"wz", wz}}, kI32, constant) == want);
        }
        for (const ConvSizes& s : kConvs) {
          const Data image = draw.bytes(a, {s.n, s.c, s.h, s.w}), filters = draw.bytes(b, {s.o, s.c / s.groups, s.kh, s.kw}),
                     zeros = draw.bytes(b, {s.o});
          const std::vector<double> sums = conv_sums(s, image, filters, xz.values[0], zeros.values);
          for (const char* config : kConfigs) {
            INFO(a.name << " by " << b.name << ", " << s.c << " channels, " << s.groups << " groups on " << config);
            CHECK(run_nodes(config, {with(node("ConvInteger", {"x", "w", "xz", "wz"}, {"y"}), conv_attributes(s))},
                            {{"x", image}, {"w", filters}, {"xz", xz}, {"wz", zeros}}, kI32, constant) == sums);
          }
        }
      }
}

TEST_CASE("programs in QDQ form have ONNX's numbers: exact sums, halves to even, saturation") {
  // Scales are powers of two, so that everything is exact and halves occur.
  Draw draw(9);
  for (const Dtype& a : kByte)
    for (const bool constant : {false, true}) {
      const Dtype& b = kByte[1];
      for (const ConvSizes& s : kConvs) {
        const Data x = draw.bytes(a, {s.n, s.c, s.h, s.w}), w = draw.bytes(b, {s.o, s.c / s.groups, s.kh, s.kw}),
                   xz = draw.bytes(a, {}), yz = draw.bytes(a, {});
        Data ws{kF32, {s.o}, {}}, bias{kI32, {s.o}, {}}, zeros{3, {s.o}, std::vector<double>(static_cast<size_t>(s.o), 0)};
        Data bias_scale{kF32, {s.o}, {}};
        for (int64_t o = 0; o < s.o; ++o) {
          ws.values.push_back(std::ldexp(1.0, -static_cast<int>(draw.below(3)))),
              bias.values.push_back(static_cast<double>(draw.below(2001) - 1000));
          bias_scale.values.push_back(ws.values.back() * 0.5);
        }
        std::vector<double> want = conv_sums(s, x, w, xz.values[0], zeros.values);
        const auto plane = static_cast<size_t>(s.out(s.h, s.kh) * s.out(s.w, s.kw));
        for (size_t i = 0; i < want.size(); ++i) {
          const size_t o = i / plane % static_cast<size_t>(s.o);
          want[i] = quantised((want[i] + bias.values[o]) * 0.5 * ws.values[o] / 256, yz.values[0], a);
        }
        const std::vector<Msg> nodes = {
            node("DequantizeLinear", {"x", "xs", "xz"}, {"dx"}),
            with(node("DequantizeLinear", {"w", "ws", "wz"}, {"dw"}), {attribute("axis", int64_t{0})}),
            with(node("DequantizeLinear", {"b", "bs"}, {"db"}), {attribute("axis", int64_t{0})}),
            with(node("Conv", {"dx", "dw", "db"}, {"c"}), conv_attributes(s)),
            node("QuantizeLinear", {"c", "ys", "yz"}, {"y"})};
        const Named data = {
            {"x", x},           {"xs", one(kF32, 0.5)}, {"xz", xz}, {"w", w}, {"ws", ws}, {"wz", zeros}, {"b", bias},
            {"bs", bias_scale}, {"ys", one(kF32, 256)}, {"yz", yz}};
        for (const char* config : kConfigs) {
          INFO(a.name << ", " << s.c << " channels, " << s.groups << " groups on " << config
                      << (constant ? ", constant weights" : ""));
          CHECK(run_nodes(config, nodes, data, a.onnx, constant) == want);
        }
        // The same as one operator.
        const std::vector<Msg> linear = {
            with(node("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"}, {"y"}), conv_attributes(s))};
        for (const char* config : kConfigs) CHECK(run_nodes(config, linear, data, a.onnx, constant) == want);
      }
      const int64_t m = 1 + draw.below(40), k = 1 + draw.below(200), n = 1 + draw.below(70);
      const Data x = draw.bytes(a, {m, k}), w = draw.bytes(b, {k, n}), xz = draw.bytes(a, {}), yz = draw.bytes(a, {});
      Data ws{kF32, {n}, {}}, zeros{3, {n}, std::vector<double>(static_cast<size_t>(n), 0)}, bias{kF32, {n}, {}};
      for (int64_t j = 0; j < n; ++j)
        ws.values.push_back(std::ldexp(1.0, -static_cast<int>(draw.below(3)))),
            bias.values.push_back(static_cast<double>(draw.below(200)));
      std::vector<double> want, with_bias;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t c = 0; c < k; ++c)
            sum += (x.values[static_cast<size_t>(i * k + c)] - xz.values[0]) * w.values[static_cast<size_t>(c * n + j)];
          const double value = sum * 0.5 * ws.values[static_cast<size_t>(j)];
          want.push_back(quantised(value / 256, yz.values[0], a));
          with_bias.push_back(quantised((value + bias.values[static_cast<size_t>(j)]) / 256, yz.values[0], a));
        }
      const Msg dx = node("DequantizeLinear", {"x", "xs", "xz"}, {"dx"}),
                dw = with(node("DequantizeLinear", {"w", "ws", "wz"}, {"dw"}), {attribute("axis", int64_t{1})}),
                quantise = node("QuantizeLinear", {"c", "ys", "yz"}, {"y"});
      const Named data = {{"x", x},      {"xs", one(kF32, 0.5)}, {"xz", xz}, {"w", w},   {"ws", ws},
                          {"wz", zeros}, {"ys", one(kF32, 256)}, {"yz", yz}, {"b", bias}};
      for (const char* config : kConfigs) {
        INFO(a.name << ", " << m << " x " << k << " x " << n << " on " << config << (constant ? ", constant weights" : ""));
        CHECK(run_nodes(config, {dx, dw, node("MatMul", {"dx", "dw"}, {"c"}), quantise}, data, a.onnx, constant) == want);
        CHECK(run_nodes(config, {dx, dw, node("Gemm", {"dx", "dw", "b"}, {"c"}), quantise}, data, a.onnx, constant) ==
              with_bias);
        CHECK(run_nodes(config, {node("QLinearMatMul", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz"}, {"y"})}, data, a.onnx,
                        constant) == want);
      }
    }
}
