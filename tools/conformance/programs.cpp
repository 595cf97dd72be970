// SPDX-License-Identifier: Apache-2.0
#include "programs.hpp"

#include <cmath>
#include <cstring>

#include "tensors.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::conformance {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  size_t below(size_t n) {  // Marsaglia, "Xorshift RNGs", 2003
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<size_t>(state_ >> 11) % n;
  }

 private:
  uint64_t state_;
};

}  // namespace

Program random_program(uint64_t seed, bool symbolic) {
  Draw draw(seed);
  const int64_t row_choices[] = {1, 3, 8, 17, 64}, column_choices[] = {1, 4, 16, 33, 100};
  const int64_t rows = row_choices[draw.below(5)], columns = column_choices[draw.below(5)];
  const std::string r = symbolic ? "s0" : std::to_string(rows), c = std::to_string(columns);
  Program p;
  p.name = "program " + std::to_string(seed);
  p.inputs = {{rows, columns}, {rows, columns}, {1, columns}, {rows, 1}};
  p.text = "graph @g(%a: f32[" + r + ", " + c + "], %b: f32[" + r + ", " + c + "], %c: f32[1, " + c + "], %d: f32[" + r +
           ", 1]) {\n";
  // Values by shape: [rows, columns], [1, columns], [rows, 1].
  std::vector<std::string> wide = {"%a", "%b"}, row = {"%c"}, column = {"%d"};
  const auto any = [&](const std::vector<std::string>& from) { return from[draw.below(from.size())]; };
  const char* const unary[] = {"neg", "relu", "tanh", "sigmoid", "abs", "exp", "sin"};
  const char* const binary[] = {"add", "mul", "sub", "maximum", "minimum"};
  const size_t nodes = 6 + draw.below(9);
  for (size_t i = 0; i < nodes; ++i) {
    const std::string v = "%v" + std::to_string(i);
    std::string line;
    switch (draw.below(8)) {
      case 0:
      case 1:
        line = std::string(unary[draw.below(std::size(unary))]) + " " + any(wide);
        wide.push_back(v);
        break;
      case 2:
      case 3:
      case 4: {
        const size_t kind = draw.below(3);
        line = std::string(binary[draw.below(std::size(binary))]) + " " + any(wide) + ", " +
               any(kind == 0   ? wide
                   : kind == 1 ? row
                               : column);
        wide.push_back(v);
        break;
      }
      case 5:
        line = std::string(draw.below(2) ? "reduce_sum " : "reduce_max ") + any(wide) + " {axes = [1], keepdims = true}";
        column.push_back(v);
        break;
      case 6:
        line = std::string(draw.below(2) ? "reduce_sum " : "reduce_max ") + any(wide) + " {axes = [0], keepdims = true}";
        row.push_back(v);
        break;
      default:
        line = "softmax " + any(wide);
        wide.push_back(v);
        break;
    }
    p.text += "  " + v + " = " + line + "\n";
  }
  p.text += "  return " + wide.back() + ", " + any(wide) + ", " + any(column) + ", " + any(row) + "\n}\n";
  return p;
}

Program training_step() {
  Program p;
  p.name = "training step";
  p.text =
      R"(graph @step(%x: f32[32, 16], %t: f32[32, 16], %w0: f32[16, 16] param, %w1: f32[16, 16] param, %w2: f32[16, 16] param) {
  %h0 = matmul %x, %w0
  %g0 = tanh %h0
  %h1 = matmul %g0, %w1
  %g1 = gelu %h1
  %h2 = matmul %g1, %w2
  %e = sub %h2, %t
  %q = mul %e, %e
  %loss = reduce_sum %q {axes = [0, 1]}
  %d0, %d1, %d2 = grad %loss, %w0, %w1, %w2
  return %loss, %d0, %d1, %d2
}
)";
  p.inputs = {{32, 16}, {32, 16}, {16, 16}, {16, 16}, {16, 16}};
  return p;
}

std::vector<e::Tensor> inputs_of(const Program& p, int seed) {
  std::vector<e::Tensor> out;
  for (const auto& sizes : p.inputs) {
    e::Tensor t = e::Tensor::create(TSR_F32, sizes);
    auto* data = static_cast<float*>(t.data());
    for (int64_t i = 0; i < t.elements(); ++i)  // no sum of these is exact
      data[i] = static_cast<float>((i * 37 + seed * 101 + static_cast<int64_t>(out.size()) * 13) % 257 - 128) * 0.0137f;
    out.push_back(std::move(t));
  }
  return out;
}

std::vector<e::Tensor> run_to_host(const e::Executable& x, const std::vector<e::Tensor>& in) {
  std::vector<e::Tensor> out = x.run(in);
  for (e::Tensor& t : out) t = t.copy_to(0);
  return out;
}

bool same_bits(const std::vector<e::Tensor>& a, const std::vector<e::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].elements() != b[i].elements()) return false;
    const auto bytes = static_cast<size_t>(storage_bytes(a[i].dtype(), a[i].elements()));
    if (bytes && std::memcmp(a[i].data(), b[i].data(), bytes) != 0) return false;
  }
  return true;
}

std::string far_apart(const std::vector<e::Tensor>& got, const std::vector<e::Tensor>& want, double relative) {
  if (got.size() != want.size())
    return "found " + std::to_string(got.size()) + " results, expected " + std::to_string(want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    if (type_text(got[k].desc()) != type_text(want[k].desc()))
      return "result " + std::to_string(k) + " is " + type_text(got[k].desc()) + ", expected " + type_text(want[k].desc());
    const uint32_t dtype = want[k].dtype();
    if (is_complex(dtype)) continue;
    const auto x = [&](int64_t i) { return load_as<double>(dtype, got[k].data(), i); };
    const auto y = [&](int64_t i) { return load_as<double>(dtype, want[k].data(), i); };
    // Two units in the last place of a narrow dtype, where `relative` is less.
    const double narrow = !is_float(dtype) || relative == 0 ? 0
                          : dtype == TSR_BF16               ? 0x1p-6
                          : dtype == TSR_F16                ? 0x1p-9
                          : dtype_bits(dtype) < 16          ? 0.5
                                                            : 0;
    const double limit = is_float(dtype) ? std::max(relative, narrow) : 0;
    double largest = 0;
    for (int64_t i = 0; i < want[k].elements(); ++i)
      if (std::isfinite(y(i))) largest = std::max(largest, std::fabs(y(i)));
    for (int64_t i = 0; i < want[k].elements(); ++i) {
      if (x(i) == y(i) || (std::isnan(x(i)) && std::isnan(y(i)))) continue;
      if (std::fabs(x(i) - y(i)) <= limit * largest) continue;
      return "result " + std::to_string(k) + ", element " + std::to_string(i) + ": got " + print_element(got[k].desc(), i) +
             ", expected " + print_element(want[k].desc(), i);
    }
  }
  return "";
}

}  // namespace tessera::conformance
