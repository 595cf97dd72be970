// SPDX-License-Identifier: Apache-2.0
// Gradients of every differentiable op against central differences in f64, on the inputs of the golden values.
//
// Each golden graph with f64 results gets seeds, drawn at random, and a `grad` node; d/dx sum(seed * result) is compared with
// (L(x + h) - L(x - h)) / 2h. Graphs of f32 are read as f64, and inputs that are not finite are replaced. Where two step sizes
// disagree, or the slopes on either side, the function has a kink near x, and nothing is compared. Of every op something must
// have been compared.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "npz/elements.hpp"
#include "npz/npz.hpp"
#include "runner.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

struct Case {
  std::string name, op, inputs, body;  // `inputs` is the text between the parentheses
  std::vector<std::string> returned;
};

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream in(path);
  std::vector<Case> out;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("graph @")) {
      const size_t open = line.find('('), close = line.rfind(") {");
      out.push_back({line.substr(7, open - 7), "", line.substr(open + 1, close - open - 1), "", {}});
    } else if (line.starts_with("  return ")) {
      std::istringstream words(line.substr(9));
      for (std::string w; words >> w;) out.back().returned.push_back(w.ends_with(',') ? w.substr(0, w.size() - 1) : w);
    } else if (line.starts_with("  %")) {
      std::istringstream words(line.substr(line.find('=') + 1));
      std::string op;
      words >> op;
      out.back().op = op;
      out.back().body += line + "\n";
    }
  }
  return out;
}

std::string type_text(const tsr_tensor& t) {
  std::string s = std::string(dtype_name(t.dtype)) + "[";
  for (uint32_t i = 0; i < t.rank; ++i) s += (i ? ", " : "") + std::to_string(t.sizes[i]);
  return s + "]";
}

std::vector<double> values_of(const e::Tensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.elements(); ++i)
    out.push_back(load_as<double>(t.dtype(), static_cast<const char*>(t.desc().data), i));
  return out;
}

e::Tensor tensor_of(const e::Tensor& like, const std::vector<double>& values) {
  const tsr_tensor& t = like.desc();
  std::vector<char> dense(std::max<size_t>(1, values.size() * sizeof(double)));
  for (size_t i = 0; i < values.size(); ++i) store_from(t.dtype, dense.data(), static_cast<int64_t>(i), values[i]);
  return arrange(t.dtype, {t.sizes, t.sizes + t.rank}, dense, Layout::Dense);
}

void replace_all(std::string& s, std::string_view from, std::string_view to) {
  for (size_t at = s.find(from); at != s.npos; at = s.find(from, at + to.size())) s.replace(at, from.size(), to);
}

class GradientCheck {
 public:
  GradientCheck(const Case& c, std::vector<e::Tensor> inputs, std::mt19937& random)
      : case_(c), inputs_(std::move(inputs)), random_(random), forward_(compile(text({}, {}), "reference")) {
    const std::vector<e::Tensor> results = forward_.run(inputs_);
    std::uniform_real_distribution<double> draw(-1, 1);
    for (size_t r = 0; r < results.size(); ++r) {
      if (results[r].dtype() != TSR_F64) continue;
      std::vector<double> seed = values_of(results[r]);
      for (double& s : seed) {
        undefined_ |= !std::isfinite(s);
        s = std::isfinite(s) ? draw(random_) : 0;
      }
      outputs_.push_back(r);
      seeds_.push_back(tensor_of(results[r], seed));
    }
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].dtype() == TSR_F64) wanted_.push_back(i);
  }
  bool has_gradient() const { return !outputs_.empty() && !wanted_.empty(); }

  // The gradients, as a case whose inputs are those of this one and then the seeds: its gradients are second derivatives.
  Case gradients() const {
    Case out = case_;
    const std::string whole = text(outputs_, wanted_);
    const size_t line = whole.rfind("\n", whole.rfind(" = grad ")) + 1;
    std::string node = whole.substr(line, whole.find('\n', line) + 1 - line);
    replace_all(node, "%seed", "%inner");
    replace_all(node, "%d", "%g");
    out.body += node;
    out.returned.clear();
    for (size_t k = 0; k < wanted_.size(); ++k) out.returned.push_back("%g" + std::to_string(k));
    for (size_t k = 0; k < seeds_.size(); ++k)
      out.inputs += ", %inner" + std::to_string(k) + ": " + type_text(seeds_[k].desc());
    return out;
  }
  std::vector<e::Tensor> inputs_and_seeds() const {
    std::vector<e::Tensor> out = inputs_;
    out.insert(out.end(), seeds_.begin(), seeds_.end());
    return out;
  }

  // "" or what is wrong. Counts elements compared.
  std::string run(const std::string& backend, size_t* compared) {
    std::vector<e::Tensor> in = inputs_;
    in.insert(in.end(), seeds_.begin(), seeds_.end());
    const std::vector<e::Tensor> gradients = compile(text(outputs_, wanted_), backend).run(in);
    std::string out;
    for (size_t k = 0; k < wanted_.size(); ++k) {
      const std::vector<double> found = values_of(gradients[k]);
      std::vector<double> x = values_of(inputs_[wanted_[k]]);
      if (found.size() != x.size()) return "a gradient of another size than its input";
      std::vector<size_t> at(x.size());
      for (size_t i = 0; i < at.size(); ++i) at[i] = i;
      std::shuffle(at.begin(), at.end(), random_);
      at.resize(std::min<size_t>(at.size(), 12));
      for (const size_t i : at) {
        if (undefined_ && !std::isfinite(found[i])) continue;  // outside of the op's domain
        const double h = 1e-5 * std::max(1.0, std::fabs(x[i]));
        const double wide = slope(wanted_[k], x, i, h), narrow = slope(wanted_[k], x, i, h / 2);
        const double scale = std::max({1.0, std::fabs(narrow)});
        if (!std::isfinite(wide) || !(std::fabs(wide - narrow) <= 1e-6 * scale)) continue;
        if (!(std::fabs(bend(wanted_[k], x, i, h)) <= 1e-2 * scale)) continue;
        ++*compared;
        if (!(std::fabs(found[i] - narrow) <= 4e-6 * scale))
          out += "input " + std::to_string(wanted_[k]) + " at " + std::to_string(i) + " (x = " + std::to_string(x[i]) +
                 "): found " + std::to_string(found[i]) + ", expected " + std::to_string(narrow) + "\n";
      }
    }
    return out;
  }

 private:
  std::string text(const std::vector<size_t>& outputs, const std::vector<size_t>& wanted) const {
    std::string inputs = case_.inputs, body = case_.body, results;
    if (wanted.empty()) {
      for (const std::string& r : case_.returned) results += (results.empty() ? "" : ", ") + r;
      return "graph @" + case_.name + "(" + inputs + ") {\n" + body + "  return " + results + "\n}\n";
    }
    std::string args, seeds;
    for (size_t k = 0; k < outputs.size(); ++k) {
      args += (k ? ", " : "") + case_.returned[outputs[k]];
      seeds += ", %seed" + std::to_string(k);
      inputs += ", %seed" + std::to_string(k) + ": " + type_text(seeds_[k].desc());
    }
    args += seeds;
    std::istringstream declared(case_.inputs);
    std::vector<std::string> names;
    for (std::string word; declared >> word;)
      if (word.starts_with('%')) names.push_back(word.substr(0, word.find(':')));
    for (size_t k = 0; k < wanted.size(); ++k) {
      args += ", " + names.at(wanted[k]);
      results += (k ? ", %d" : "%d") + std::to_string(k);
    }
    body += "  " + results + " = grad " + args + " {outputs = " + std::to_string(outputs.size()) + ", seeded = true}\n";
    return "graph @" + case_.name + "(" + inputs + ") {\n" + body + "  return " + results + "\n}\n";
  }

  double loss(const std::vector<e::Tensor>& in) const {
    const std::vector<e::Tensor> results = forward_.run(in);
    double sum = 0;
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const std::vector<double> r = values_of(results[outputs_[k]]), s = values_of(seeds_[k]);
      for (size_t i = 0; i < r.size(); ++i) sum += s[i] == 0 ? 0 : r[i] * s[i];
    }
    return sum;
  }
  double slope(size_t input, std::vector<double>& x, size_t i, double h) const {
    std::vector<e::Tensor> in = inputs_;
    const double at = x[i];
    x[i] = at + h;
    in[input] = tensor_of(inputs_[input], x);
    const double above = loss(in);
    x[i] = at - h;
    in[input] = tensor_of(inputs_[input], x);
    const double below = loss(in);
    x[i] = at;
    return (above - below) / (2 * h);
  }

  // The slope above x less the slope below it.
  double bend(size_t input, std::vector<double>& x, size_t i, double h) const {
    std::vector<e::Tensor> in = inputs_;
    const double at = x[i], here = loss(in);
    double sum = -2 * here;
    for (const double moved : {at + h, at - h}) {
      x[i] = moved;
      in[input] = tensor_of(inputs_[input], x);
      sum += loss(in);
    }
    x[i] = at;
    return sum / h;
  }

  const Case& case_;
  const std::vector<e::Tensor> inputs_;
  std::mt19937& random_;
  const e::Executable forward_;
  std::vector<size_t> outputs_, wanted_;
  std::vector<e::Tensor> seeds_;
  bool undefined_ = false;  // some results are not finite; their seeds are 0
};

// Ops on floating-point numbers that have no gradient: grad through them is the error TSR-A001.
const std::set<std::string>& ops_without() {
  static const std::set<std::string> ops = {"bitcast", "digamma", "dynamic_broadcast_to", "nextafter", "unique"};
  return ops;
}

// Ops whose gradient has no gradient.
const std::set<std::string>& ops_without_second() {
  static const std::set<std::string> ops = {"lgamma"};
  return ops;
}

// `twice`: second derivatives, of these ops (all of the family where there are none).
void check_family(const std::string& family, bool twice = false, const std::set<std::string>& only = {}) {
  const std::string base = std::string(std::getenv("TESSERA_SOURCE_DIR")) + "/tests/golden/ops/" + family;
  const std::vector<npz::Array> archive = npz::read(base + ".npz");
  std::map<std::string, const npz::Array*> arrays;
  for (const npz::Array& a : archive) arrays[a.name] = &a;
  std::mt19937 random(20);
  std::map<std::string, size_t> compared;
  size_t failed = 0;
  std::string log;
  std::normal_distribution<double> draw;
  for (Case& c : read_cases(base + ".tsr")) {
    if (ops_without().count(c.op) || (!only.empty() && !only.count(c.op))) continue;
    if (twice && ops_without_second().count(c.op)) continue;
    const bool widened = c.inputs.find(": f64[") == c.inputs.npos;
    if (widened) {
      replace_all(c.inputs, "f32", "f64");
      replace_all(c.body, "f32", "f64");
    }
    if (c.inputs.find(": f64[") == c.inputs.npos) continue;
    try {
      std::vector<e::Tensor> inputs;
      std::istringstream declared(c.inputs);
      std::vector<uint32_t> dtypes;
      for (std::string word; declared >> word;)
        if (const size_t bracket = word.find('['); bracket != word.npos && !word.starts_with('%'))
          dtypes.push_back(dtype_from_name(word.substr(0, bracket)));
      for (size_t k = 0; inputs.size() < dtypes.size() && k < 16; ++k) {
        const auto a = arrays.find(c.name + "/in" + std::to_string(k));
        if (a == arrays.end()) continue;
        const uint32_t dtype = dtypes[inputs.size()];
        const uint32_t kept = widened && dtype == TSR_F64 ? static_cast<uint32_t>(TSR_F32) : dtype;  // in the archive
        const std::vector<std::byte> bytes = npz::to_elements(*a->second, kept, base + ".npz");
        std::vector<char> chars(bytes.size());
        if (!bytes.empty()) std::memcpy(chars.data(), bytes.data(), bytes.size());
        if (kept != dtype) {
          std::vector<char> wide(2 * chars.size());
          for (int64_t i = 0; i < static_cast<int64_t>(chars.size() / sizeof(float)); ++i)
            store_from(dtype, wide.data(), i, load_as<double>(kept, chars.data(), i));
          chars.swap(wide);
        }
        for (int64_t i = 0; dtype == TSR_F64 && i < static_cast<int64_t>(chars.size() / sizeof(double)); ++i)
          if (!std::isfinite(load_as<double>(dtype, chars.data(), i))) store_from(dtype, chars.data(), i, draw(random));
        inputs.push_back(arrange(dtype, a->second->shape, chars, Layout::Dense));
      }
      GradientCheck first(c, std::move(inputs), random);
      if (!first.has_gradient()) continue;
      size_t n = 0;
      std::string what;
      const auto run = [&](GradientCheck& check) {
        what = check.run("reference", &n);
        if (what.empty()) what = check.run("eager", &n);
      };
      if (twice) {
        const Case gradients = first.gradients();
        GradientCheck second(gradients, first.inputs_and_seeds(), random);
        run(second);
      } else {
        run(first);
      }
      compared[c.op] += n;
      if (what.empty()) continue;
      ++failed;
      if (failed <= 10) log += c.name + ": " + what + c.body;
    } catch (const e::Error& error) {
      // Products of complex numbers by scatter have no gradient.
      if (error.code() == "TSR-I220") continue;
      ++failed;
      if (failed <= 10) log += c.name + ": " + error.what() + "\n" + c.body;
    }
  }
  for (const auto& [op, n] : compared)
    if (n == 0) log += "no element of " + op + " could be compared\n";
  INFO(failed << " graphs failed; the first ten:\n" << log);
  CHECK(failed == 0);
  CHECK(std::none_of(compared.begin(), compared.end(), [](const auto& c) { return c.second == 0; }));
  CHECK(!compared.empty());
}

void check_control_flow() {
  const Case cases[] = {
      {"cond",
       "cond",
       "%x: f64[3], %w: f64[3], %p: bool[]",
       R"(  %y, %z = cond %p, %x, %w : f64[3], f64[]
    region(%a: f64[3], %b: f64[3]) {
      %m = mul %a, %b
      %s = sin %m
      %t = reduce_sum %s {axes = [0]}
      return %s, %t
    }
    region(%c: f64[3], %d: f64[3]) {
      %e = exp %c
      %u = reduce_sum %d {axes = [0]}
      return %e, %u
    }
  %r = mul %y, %z
)",
       {"%r"}},
      {"scan",  // a recurrence: of what it carries, of what it reads, and of a weight that every turn reads
       "scan",
       "%h: f64[3], %x: f64[4, 3], %w: f64[3, 3]",
       R"(  %one = constant {value = dense<i64[]: 1>}
  %n, %last, %all = scan %one, %h, %x, %w {carried = 2, scanned = 1, length = 4} : i64[], f64[3], f64[4, 3]
    region(%k: i64[], %c: f64[3], %row: f64[3], %m: f64[3, 3]) {
      %k1 = add %k, %k
      %v = matmul %c, %m
      %u = add %v, %row
      %t = tanh %u
      %f = cast %k1 {dtype = f64}
      %o = mul %t, %f
      return %k1, %t, %o
    }
)",
       {"%last", "%all"}},
      {"backwards",  // from the last slice to the first, a branch in each turn
       "scan",
       "%h: f64[2], %x: f64[5, 2], %p: bool[]",
       R"(  %last, %all = scan %h, %x, %p {carried = 1, scanned = 1, reverse = true, length = 5} : f64[2], f64[5, 2]
    region(%c: f64[2], %row: f64[2], %q: bool[]) {
      %g = cond %q, %c, %row : f64[2]
        region(%a: f64[2], %b: f64[2]) {
          %ab = mul %a, %b
          return %ab
        }
        region(%d: f64[2], %e: f64[2]) {
          %s = sub %d, %e
          return %s
        }
      %t = sin %g
      return %t, %g
    }
)",
       {"%last", "%all"}},
      {"loop",  // counts 1, 3, 5, 7: four turns
       "while_loop",
       "%x: f64[3], %w: f64[3, 3]",
       R"(  %start = constant {value = dense<i64[]: 1>}
  %n, %y = while_loop %start, %x, %w {carried = 2} : i64[], f64[3]
    region(%k0: i64[], %c0: f64[3], %m0: f64[3, 3]) {
      %limit = constant {value = dense<i64[]: 9>}
      %go = lt %k0, %limit
      return %go
    }
    region(%k: i64[], %c: f64[3], %m: f64[3, 3]) {
      %two = constant {value = dense<i64[]: 2>}
      %k1 = add %k, %two
      %v = matmul %c, %m
      %t = tanh %v
      return %k1, %t
    }
)",
       {"%y"}},
      {"down",  // from 3 down to 1, by a limit from outside; the first value of the counter is used
       "while_loop",
       "%x: f64[6]",
       R"(  %start = constant {value = dense<i32[]: 3>}
  %stop = constant {value = dense<i32[]: 1>}
  %y, %n = while_loop %x, %start, %stop {carried = 2} : f64[6], i32[]
    region(%c0: f64[6], %k0: i32[], %s0: i32[]) {
      %go = le %s0, %k0
      return %go
    }
    region(%c: f64[6], %k: i32[], %s: i32[]) {
      %one = constant {value = dense<i32[]: 1>}
      %k1 = sub %k, %one
      %f = cast %k {dtype = f64}
      %v = mul %c, %f
      %t = sin %v
      return %t, %k1
    }
)",
       {"%y"}},
  };
  std::mt19937 random(21);
  std::normal_distribution<double> draw;
  for (const Case& c : cases)
    for (const bool flag : {true, false}) {
      INFO(c.name << (flag ? ", true" : ", false"));
      std::vector<e::Tensor> inputs;
      std::istringstream declared(c.inputs);
      for (std::string word; std::getline(declared, word, '%');) {
        const size_t open = word.find('['), close = word.find(']');
        if (open == word.npos) continue;
        std::vector<int64_t> sizes;
        std::istringstream numbers(word.substr(open + 1, close - open - 1));
        for (std::string n; std::getline(numbers, n, ',');) sizes.push_back(std::stoll(n));
        if (word.find("bool") != word.npos) {
          inputs.push_back(arrange(TSR_BOOL, sizes, {static_cast<char>(flag)}, Layout::Dense));
          continue;
        }
        int64_t count = 1;
        for (const int64_t n : sizes) count *= n;
        std::vector<char> bytes(static_cast<size_t>(count) * sizeof(double));
        for (int64_t i = 0; i < count; ++i) store_from(TSR_F64, bytes.data(), i, 0.5 * draw(random));
        inputs.push_back(arrange(TSR_F64, sizes, bytes, Layout::Dense));
      }
      GradientCheck check(c, std::move(inputs), random);
      REQUIRE(check.has_gradient());
      size_t compared = 0;
      CHECK(check.run("reference", &compared) == "");
      CHECK(check.run("eager", &compared) == "");
      CHECK(compared >= 12);
    }
}

// Where central differences say nothing: equal operands, and one that is no number. What PyTorch 2.11's autograd gives.
void check_shares(const std::string& op, const std::vector<double>& of_a, const std::vector<double>& of_b) {
  INFO(op);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string inputs = "%a: f64[6], %b: f64[6], %seed: f64[6]";
  const std::string text = "graph @shares(" + inputs + ") {\n  %y = " + op +
                           " %a, %b\n  %da, %db = grad %y, %seed, %a, %b {outputs = 1, seeded = true}\n  return %da, %db\n}\n";
  const e::Tensor like = arrange(TSR_F64, {6}, std::vector<char>(6 * sizeof(double)), Layout::Dense);
  const std::vector<e::Tensor> in = {tensor_of(like, {2, 1, 2, nan, 2, nan}), tensor_of(like, {2, 2, 1, 2, nan, nan}),
                                     tensor_of(like, {1, 2, 3, 4, 5, 6})};
  for (const char* backend : {"reference", "eager"}) {
    INFO(backend);
    const std::vector<e::Tensor> found = compile(text, backend).run(in);
    CHECK(values_of(found[0]) == of_a);
    CHECK(values_of(found[1]) == of_b);
  }
}

}  // namespace

TEST_CASE("gradients: equal operands and operands that are no numbers") {
  check_shares("fmax", {1, 0, 3, 0, 5, 6}, {0, 2, 0, 4, 0, 0});
  check_shares("fmin", {1, 2, 0, 0, 5, 6}, {0, 0, 3, 4, 0, 0});
  check_shares("maximum", {0.5, 0, 3, 4, 5, 6}, {0.5, 2, 0, 4, 5, 6});
  check_shares("minimum", {0.5, 2, 0, 4, 5, 6}, {0.5, 0, 3, 4, 5, 6});
}
TEST_CASE("gradients: elementwise") { check_family("elementwise"); }
TEST_CASE("gradients: selection") { check_family("compare"); }
TEST_CASE("gradients: data movement") { check_family("shape"); }
TEST_CASE("gradients: indexing") { check_family("index"); }
TEST_CASE("gradients: sorting") { check_family("order"); }
TEST_CASE("gradients: reductions and scans") { check_family("reduce"); }
TEST_CASE("gradients: contractions and convolution") { check_family("contraction"); }
TEST_CASE("gradients: neural networks") { check_family("nn"); }
TEST_CASE("second derivatives: elementwise") { check_family("elementwise", true); }
TEST_CASE("second derivatives: products, norms and attention") {
  check_family("contraction", true, {"dot_general", "matmul", "linear"});
  check_family("nn", true,
               {"attention", "layer_norm", "rms_norm", "group_norm", "batch_norm", "softmax", "log_softmax", "gelu", "silu"});
}
TEST_CASE("gradients: control flow") { check_control_flow(); }

}  // namespace tessera::differential
