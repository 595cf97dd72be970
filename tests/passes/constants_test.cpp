// SPDX-License-Identifier: Apache-2.0
// Which numbers make an idiom that `recognise` knows: what the dtype holds exactly must be exact, what it rounds may be off by
// a unit in the last place.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "support.hpp"
#include "tessera/dtypes.hpp"

using namespace tessera;
using namespace tessera::core;
using namespace tessera::test;

namespace {

// `N0`, `N1`, .. stand for numbers[0], numbers[1], ..
struct Idiom {
  const char *op, *text;
  std::vector<double> numbers;
};
const double kRoot2 = std::sqrt(2.0), kRootHalf = std::sqrt(0.5), kRoot2ByPi = 0.7978845608028654;
const Idiom kIdioms[] = {
    {"gelu", "mul(mul(x, add(erf(div(x, N0)), N1)), N2)", {kRoot2, 1, 0.5}},
    {"gelu", "mul(mul(x, N0), add(erf(mul(x, N1)), N2))", {0.5, kRootHalf, 1}},
    {"gelu", "mul(x, mul(add(erf(mul(x, N0)), N1), N2))", {kRootHalf, 1, 0.5}},
    {"gelu", "mul(mul(x, N0), add(tanh(mul(add(x, mul(pow(x, N1), N2)), N3)), N4))", {0.5, 3, 0.044715, kRoot2ByPi, 1}},
    {"gelu", "mul(mul(x, add(tanh(mul(mul(x, N0), add(mul(mul(x, x), N1), N2))), N3)), N4)", {kRoot2ByPi, 0.044715, 1, 1, 0.5}},
    {"layer_norm", "div(sub(x, mean(x)), sqrt(add(mean(pow(sub(x, mean(x)), N0)), E)))", {2}},
    {"layer_norm", "mul(sub(x, mean(x)), div(N0, sqrt(add(mean(pow(sub(x, mean(x)), N1)), E))))", {1, 2}},
    {"rms_norm", "mul(x, div(N0, sqrt(add(mean(pow(x, N1)), E))))", {1, 2}},
};

// A graph of an idiom, by recursive descent.
class Writer {
 public:
  Writer(const Idiom& idiom, const char* dtype, const std::vector<std::string>& numbers)
      : text_(idiom.text), dtype_(dtype), numbers_(numbers) {}
  std::string graph() {
    const std::string y = value();
    const std::string type = std::string(dtype_) + "[3, 8]";
    return "graph @g(%x: " + type + ") -> (" + type + ") {\n" + body_ + "  return " + y + "\n}\n";
  }

 private:
  std::string add(const std::string& statement) {
    const std::string name = "%v" + std::to_string(count_++);
    body_ += "  " + name + " = " + statement + "\n";
    return name;
  }
  std::string constant(const std::string& number) {
    return add(std::string("constant {value = dense<") + dtype_ + "[]: " + number + ">}");
  }
  std::string value() {
    std::string word;
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_]))) word += text_[at_++];
    if (word == "x") return "%x";
    if (word == "E") return constant("0.0009765625");
    if (word[0] == 'N') return constant(numbers_[static_cast<size_t>(word[1] - '0')]);
    std::vector<std::string> operands;
    do {
      ++at_;  // ( or ,
      if (text_[at_] == ' ') ++at_;
      operands.push_back(value());
    } while (text_[at_] == ',');
    ++at_;
    std::string statement = word;
    for (const std::string& o : operands) statement += (&o == operands.data() ? " " : ", ") + o;
    return add(statement + (word == "mean" ? " {axes = [-1], keepdims = true}" : ""));
  }

  std::string text_, body_;
  const char* dtype_;
  std::vector<std::string> numbers_;
  size_t at_ = 0;
  int count_ = 0;
};

// The number as the dtype holds it, so many units in the last place up.
double held(tsr_dtype dtype, double x, int steps) {
  char bytes[8] = {};
  store_from(dtype, bytes, 0, x);
  uint64_t code = 0;
  std::memcpy(&code, bytes, static_cast<size_t>(dtype_bits(dtype)) / 8);
  code += static_cast<uint64_t>(steps);
  std::memcpy(bytes, &code, sizeof bytes);
  return load_as<double>(dtype, bytes, 0);
}
std::string digits(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", x);
  return std::strpbrk(text, ".e") ? text : std::string(text) + ".0";
}

bool recognised(const Idiom& idiom, const char* dtype, const std::vector<std::string>& numbers) {
  const std::string text = Writer(idiom, dtype, numbers).graph();
  INFO(text);
  const auto g = parse_graph(pass_context().ops(), text, "idiom.tsr");
  run_pipeline(*g, "cse,recognise,dce");
  return print_graph(*g).find(std::string(" = ") + idiom.op + " ") != std::string::npos;
}

}  // namespace

TEST_CASE("an idiom is recognised by its numbers to the last bits of their dtype") {
  for (const auto& [name, dtype] : {std::pair{"f64", TSR_F64}, {"f32", TSR_F32}, {"f16", TSR_F16}, {"bf16", TSR_BF16}})
    for (const Idiom& idiom : kIdioms) {
      std::vector<std::string> right;
      for (const double x : idiom.numbers) right.push_back(digits(held(dtype, x, 0)));
      INFO(name << " " << idiom.text);
      CHECK(recognised(idiom, name, right));
      for (size_t i = 0; i < idiom.numbers.size(); ++i) {
        const double x = idiom.numbers[i];
        const bool exact = held(dtype, x, 0) == x && x != kRoot2 && x != kRootHalf && x != kRoot2ByPi && x != 0.044715;
        for (const int steps : {-3, -2, -1, 1, 2, 3}) {
          std::vector<std::string> numbers = right;
          numbers[i] = digits(held(dtype, x, steps));
          INFO("number " << i << ": " << numbers[i]);
          if (exact || std::abs(steps) > 2) CHECK_FALSE(recognised(idiom, name, numbers));
          if (!exact && std::abs(steps) == 1) CHECK(recognised(idiom, name, numbers));
        }
        // A number of f32 in an f64 program is another one.
        if (dtype == TSR_F64 && !exact) {
          std::vector<std::string> numbers = right;
          numbers[i] = digits(static_cast<double>(static_cast<float>(x)));
          CHECK_FALSE(recognised(idiom, name, numbers));
        }
      }
    }
}
