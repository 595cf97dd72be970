// SPDX-License-Identifier: Apache-2.0
// Whole models on the simulated GPU, every kernel of them as text, at both sizes of a wave: close to the reference, and the
// same bits whether ops are fused or not and however wide a wave is. The batch is a symbol, and each program runs at two sizes
// of it.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "runner.hpp"

#ifdef TESSERA_TEST_SIM

namespace tessera::differential {

namespace {

std::string brackets(const std::vector<std::string>& sizes) {
  std::string out = "[";
  for (size_t i = 0; i < sizes.size(); ++i) out += (i ? ", " : "") + sizes[i];
  return out + "]";
}

// A graph as text, line by line; parameters become arguments in the order of their use.
class ModelText {
 public:
  explicit ModelText(std::string input) : inputs_{std::move(input)} {}
  std::string parameter(const std::vector<int64_t>& sizes, const char* dtype = "f32") {
    std::vector<std::string> s;
    for (const int64_t n : sizes) s.push_back(std::to_string(n));
    inputs_.push_back("%w" + std::to_string(inputs_.size()) + ": " + dtype + brackets(s));
    parameters_.push_back(sizes);
    return "%w" + std::to_string(inputs_.size() - 1);
  }
  std::string op(const std::string& text) {
    lines_ += "  %v" + std::to_string(count_) + " = " + text + "\n";
    return "%v" + std::to_string(count_++);
  }
  void line(const std::string& text) { lines_ += "  " + text + "\n"; }
  std::string done(const std::string& result) const {
    std::string head;
    for (const std::string& i : inputs_) head += (head.empty() ? "" : ", ") + i;
    return "graph @model(" + head + ") symbols { s0: 1.. } {\n" + lines_ + "  return " + result + "\n}\n";
  }
  const std::vector<std::vector<int64_t>>& parameters() const { return parameters_; }

  // ---- layers
  std::string linear(const std::string& x, int64_t in, int64_t out) {
    const std::string w = parameter({out, in}), b = parameter({out});
    return op("linear " + x + ", " + w + ", " + b);
  }
  std::string norm(const std::string& x, int64_t n) {
    const std::string w = parameter({n}), b = parameter({n});
    return op("layer_norm " + x + ", " + w + ", " + b);
  }
  std::string conv(const std::string& x, int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
    const std::string w = parameter({out, in, kernel, kernel}), b = parameter({out});
    const std::string s = std::to_string(stride), p = std::to_string(kernel / 2);
    return op("conv " + x + ", " + w + ", " + b + " {strides = [" + s + ", " + s + "], pad_low = [" + p + ", " + p +
              "], pad_high = [" + p + ", " + p + "], dilations = [1, 1]}");
  }
  std::string block(const std::string& x, int64_t length, int64_t width, int64_t heads, bool causal) {
    const std::string t = std::to_string(length), h = std::to_string(heads), d = std::to_string(width / heads);
    const std::string n = norm(x, width);
    const auto split = [&] {
      const std::string y = op("reshape " + linear(n, width, width) + " {shape = [s0, " + t + ", " + h + ", " + d + "]}");
      return op("transpose " + y + " {perm = [0, 2, 1, 3]}");
    };
    const std::string q = split(), k = split(), v = split();
    const std::string a = op("attention " + q + ", " + k + ", " + v + ", _ {causal = " + (causal ? "true" : "false") + "}");
    const std::string joined = op("reshape " + op("transpose " + a + " {perm = [0, 2, 1, 3]}") + " {shape = [s0, " + t + ", " +
                                  std::to_string(width) + "]}");
    const std::string y = op("add " + x + ", " + linear(joined, width, width));
    const std::string m = linear(op("gelu " + linear(norm(y, width), width, 2 * width)), 2 * width, width);
    return op("add " + y + ", " + m);
  }

 private:
  std::vector<std::string> inputs_;
  std::string lines_;
  std::vector<std::vector<int64_t>> parameters_;
  int count_ = 0;
};

struct SimModel {
  std::string name, text;
  std::vector<int64_t> input;  // behind the batch; empty: tokens
  std::vector<std::vector<int64_t>> parameters;
  int64_t tokens = 0;  // how many each row has
};

std::vector<SimModel> sim_models() {
  std::vector<SimModel> out;
  {
    ModelText m("%x: f32[s0, 24]");
    const std::string h = m.op("relu " + m.linear("%x", 24, 40)), g = m.op("gelu " + m.linear(h, 40, 33));
    const std::string y = m.op("softmax " + m.linear(g, 33, 10));
    out.push_back({"mlp", m.done(y), {24}, m.parameters()});
  }
  {
    ModelText m("%x: f32[s0, 3, 12, 12]");
    const std::string a = m.op("relu " + m.conv("%x", 3, 8, 3));
    m.line("%p, %i = max_pool " + a +
           " {kernel = [2, 2], strides = [2, 2], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}");
    const std::string b = m.op("relu " + m.conv("%p", 8, 16, 3, 2));
    const std::string c = m.op("mean " + b + " {axes = [2, 3]}");
    out.push_back({"cnn", m.done(m.op("log_softmax " + m.linear(c, 16, 7))), {3, 12, 12}, m.parameters()});
  }
  {
    ModelText m("%x: f32[s0, 9, 16]");
    const std::string y = m.norm(m.block("%x", 9, 16, 2, false), 16);
    out.push_back({"encoder", m.done(y), {9, 16}, m.parameters()});
  }
  {
    ModelText m("%x: i64[s0, 7]");
    const std::string e = m.op("embedding " + m.parameter({31, 16}) + ", %x");
    std::string y = m.op("add " + e + ", " + m.parameter({7, 16}));
    for (int layer = 0; layer < 2; ++layer) y = m.block(y, 7, 16, 4, true);
    out.push_back({"gpt2", m.done(m.linear(m.norm(y, 16), 16, 31)), {}, m.parameters(), 7});
  }
  {
    ModelText m("%x: f32[s0, 2, 8, 8]");
    const std::string a = m.op("silu " + m.conv("%x", 2, 6, 3));
    m.line("%p, %i = max_pool " + a +
           " {kernel = [2, 2], strides = [2, 2], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}");
    const std::string b = m.op("silu " + m.conv("%p", 6, 12, 3));
    const std::string u =
        m.op("conv_transpose " + b + ", " + m.parameter({12, 6, 2, 2}) +
             ", _ {strides = [2, 2], pad_low = [0, 0], pad_high = [0, 0], output_pad = [0, 0], dilations = [1, 1]}");
    const std::string c = m.op("concat " + a + ", " + u + " {axis = 1}");
    out.push_back({"unet", m.done(m.conv(m.op("silu " + m.conv(c, 12, 6, 3)), 6, 1, 1)), {2, 8, 8}, m.parameters()});
  }
  return out;
}

e::Tensor sim_numbers(const std::vector<int64_t>& sizes, std::mt19937_64& random) {
  e::Tensor t = e::Tensor::create(TSR_F32, sizes);
  for (int64_t i = 0; i < t.elements(); ++i)
    static_cast<float*>(t.data())[i] = static_cast<float>(static_cast<int64_t>(random() % 2001) - 1000) / 2048;
  return t;
}

std::vector<e::Tensor> sim_arguments(const SimModel& m, int64_t batch, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<e::Tensor> out;
  std::vector<int64_t> sizes = {batch};
  sizes.insert(sizes.end(), m.input.begin(), m.input.end());
  if (m.tokens > 0) {
    out.push_back(e::Tensor::create(TSR_I64, std::vector<int64_t>{batch, m.tokens}));
    for (int64_t i = 0; i < batch * m.tokens; ++i)
      static_cast<int64_t*>(out[0].data())[i] = static_cast<int64_t>(random() % 31);
  } else {
    out.push_back(sim_numbers(sizes, random));
  }
  for (const auto& p : m.parameters) out.push_back(sim_numbers(p, random));
  return out;
}

// Copies within the device: all but inputs on their way there, which no node gives, and outputs on their way back.
size_t copies_within(const e::Executable& x) {
  size_t n = 0;
  const auto plan = nlohmann::json::parse(x.describe());
  for (const auto& step : plan.at("steps"))
    if (step.at("kind") == "copy" && step.at("at_hints") == true && !step.at("op").is_null() && step.at("device") != "cpu") ++n;
  return n;
}

double farthest(const e::Tensor& a, const e::Tensor& b) {
  double most = 0, scale = 1;
  for (int64_t i = 0; i < b.elements(); ++i) {
    const double x = static_cast<const float*>(a.data())[i], y = static_cast<const float*>(b.data())[i];
    most = std::max(most, std::isnan(x) != std::isnan(y) ? INFINITY : std::abs(x - y));
    scale = std::max(scale, std::abs(y));
  }
  return most / scale;
}

}  // namespace

#ifdef TESSERA_TEST_PROGRAMS
// PROGRAMS_TEXT=FOLDER writes the text for CUDA of every kernel (tests/random_simt/program_backend.cpp).
TEST_CASE("models run as programs for GPUs") {
  for (const SimModel& m : sim_models()) {
    INFO(m.name << "\n" << m.text);
    const e::Executable reference = compile(m.text, "reference"), plain = compile(m.text, "programs:32");
    for (const char* backend : {"programs+fuse:32", "programs+fuse:64"}) {
      INFO(backend);
      const std::vector<e::Tensor> in = sim_arguments(m, 2, 5);
      const e::Tensor got = compile(m.text, backend).run(in)[0], want = reference.run(in)[0], same = plain.run(in)[0];
      CHECK(farthest(got, want) < 1e-5);
      CHECK(std::memcmp(got.data(), same.data(), static_cast<size_t>(same.elements()) * sizeof(float)) == 0);
    }
  }
}
#endif

TEST_CASE("models run on the simulated GPU as text") {
  for (const SimModel& m : sim_models()) {
    INFO(m.name << "\n" << m.text);
    const e::Executable reference = compile(m.text, "reference"), plain = compile(m.text, "sim:32");
    for (const char* backend : {"sim:32", "sim+fuse:32", "sim:64", "sim+fuse:64"}) {
      INFO(backend);
      const e::Executable tested = compile(m.text, backend);
      CHECK(tested.plan().find("sim.reference.") == std::string::npos);
      // Products read the heads of attention where they lie.
      const bool fused = std::string(backend).find("+fuse") != std::string::npos;
      if (fused) CHECK(copies_within(tested) == 0);
      if (!fused && m.name == "encoder") CHECK(copies_within(tested) == 4);
      for (const int64_t batch : {int64_t{1}, int64_t{3}}) {
        const std::vector<e::Tensor> in = sim_arguments(m, batch, static_cast<uint64_t>(batch));
        const e::Tensor got = tested.run(in)[0], want = reference.run(in)[0], same = plain.run(in)[0];
        // f32 throughout, sums of at most 108 products one after the other: 2^-24 each, through at most 20 layers.
        CHECK(farthest(got, want) < 1e-5);
        CHECK(std::memcmp(got.data(), same.data(), static_cast<size_t>(same.elements()) * sizeof(float)) == 0);
      }
    }
  }
}

}  // namespace tessera::differential

#endif
