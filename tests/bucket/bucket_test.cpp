// SPDX-License-Identifier: Apache-2.0
// The pass bucket through compiled functions: the same results as the reference backend gives without it, bit for bit on
// integer-valued data, at sizes on and beside every edge of a bucket; and as few entries as there are buckets.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include <tessera/embed.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

constexpr const char* kConfig = R"(
name = "bucketed"
[plugins]
load = ["tessera.opset.standard", "tessera.frontend.text", "tessera.frontend.cpp", "tessera.pass.bucket", "tessera.pass.canonicalize",
        "tessera.pass.cse", "tessera.pass.dce", "tessera.backend.eager", "tessera.backend.reference", "tessera.store.disk"]
[pipeline]
passes = ["canonicalize", "bucket", "cse", "dce"]
[backends]
order = ["eager"]
[guards]
recompile_limit = 1000
[bucket]
buckets = ["4", "8", "16"]
)";

const Context& bucketed() {
  static const Context context = Context::from_text(kConfig);
  return context;
}

using Function = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>;

auto compiled(const Function& f, std::vector<std::string> options = {}, const std::string& backend = {}) {
  return compile(f, {.backend = backend,
                     .options = std::move(options),
                     .name = "fn",
                     .args = {"x", "y", "w", "tokens"},
                     .context = bucketed()});
}

// Integers of -3..3, and tokens of 0..6.
struct Arguments {
  Tensor x, y, w, tokens;
};
Arguments arguments(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto floats = [&](int64_t rows) {
    std::vector<float> v(static_cast<size_t>(rows * 4));
    for (float& f : v) f = static_cast<float>(static_cast<int64_t>(random() % 7) - 3);
    return tensor(v).reshape({rows, 4});
  };
  std::vector<int64_t> t(static_cast<size_t>(n));
  for (int64_t& i : t) i = static_cast<int64_t>(random() % 7);
  return {floats(n), floats(n), floats(4), tensor(t).reshape({n})};
}

// "" or how two results differ; NaNs are equal, zeros of both signs are not.
std::string difference(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) return "sizes";
  const std::vector<double> u = a.to(f64).to_vector<double>(), v = b.to(f64).to_vector<double>();
  for (size_t i = 0; i < u.size(); ++i)
    if (std::memcmp(&u[i], &v[i], sizeof u[i]) != 0 && !(std::isnan(u[i]) && std::isnan(v[i])))
      return "element " + std::to_string(i) + ": " + std::to_string(u[i]) + ", expected " + std::to_string(v[i]);
  return {};
}

size_t entries(const std::string& description) { return Json::parse(description)["entries"].size(); }
bool uses_buckets(const std::string& description) { return description.find("<= 8") != std::string::npos; }

// Sizes at, below and above every edge, small ones and ones beyond the largest bucket, in an order of their own.
std::vector<int64_t> edges(uint64_t seed) {
  std::vector<int64_t> sizes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 40};
  std::mt19937_64 random(seed);
  std::shuffle(sizes.begin(), sizes.end(), random);
  return sizes;
}

struct Checked {
  size_t entries;
  bool bucketed;
};
// `marked`: sizes of 2 and more are marked dynamic, so that each input has a symbol of its own. Else what varies becomes a
// symbol, one for sizes that are equal.
Checked check(const Function& f, uint64_t seed, std::vector<std::string> options = {}, bool marked = true) {
  const auto padded = compiled(f, std::move(options));
  const auto plain = compiled(f, {"bucket.buckets=[]"}, "reference");
  for (const int64_t n : edges(seed)) {
    Arguments a = arguments(n, seed * 100 + static_cast<uint64_t>(n));
    if (marked && n >= 2)
      for (Tensor* t : {&a.x, &a.y, &a.tokens}) mark_dynamic(*t, 0);
    INFO("seed " << seed << ", size " << n);
    Tensor expected;
    std::string fault;  // some ops refuse empty tensors: then both do
    try {
      expected = plain(a.x, a.y, a.w, a.tokens);
    } catch (const UserError& e) {
      fault = e.code();
    }
    if (!fault.empty()) {
      CHECK_THROWS_WITH(padded(a.x, a.y, a.w, a.tokens), Contains(fault));
      continue;
    }
    const Tensor found = padded(a.x, a.y, a.w, a.tokens);
    CHECK(difference(found, expected) == "");
  }
  const std::string d = padded.describe();
  CHECK_FALSE(uses_buckets(plain.describe()));
  return {entries(d), uses_buckets(d)};
}

const std::vector<std::string> kReorder = {"bucket.reorder_sums=true"};

}  // namespace

TEST_CASE("a model from a file is compiled for the bucket of its hint, and refuses other sizes without a compile") {
  embed::ContextOptions options;
  options.config_text = kConfig;
  const embed::Context context(options);
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tessera_bucket_" + std::to_string(getpid()) + ".tsr");
  std::ofstream(path)
      << "graph @g(%x: f32[s0, 3]) -> (f32[s0, 3]) symbols { s0: 2..64 hint 5 } { %y = exp %x %z = cumsum %y {axis = 0} "
         "return %z }";
  const embed::Model f(context, path.string());
  const auto rows = [&](int64_t n) {
    return f(std::vector{embed::Tensor::create(TSR_F32, std::vector<int64_t>{n, 3})})[0].elements();
  };
  CHECK(rows(6) == 18);
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(rows(9), Contains("TSR-T026") && Contains("bucket 5..8"));
  CHECK(rows(7) == 21);
  CHECK(Json::parse(f.describe())["misses"] == 1);
  std::filesystem::remove(path);
}

TEST_CASE("one entry serves a bucket, and the results are the same") {
  // 0 and 1 are numbers; then 2..4, 5..8, 9..16, and what is larger than every bucket.
  const auto six = [](const Checked& c) {
    CHECK(c.bucketed);
    CHECK(c.entries == 6);
  };
  six(check([](const Tensor& x, const Tensor& y, const Tensor& w, const Tensor&) { return (x * 2 + y).matmul(w).relu(); }, 1));
  six(check([](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.amax({0}) - x.amin({1}).amin({0}); },
            2));
  const Checked arg = check([](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.argmax(0); }, 3);
  CHECK(arg.bucketed);
  CHECK(arg.entries == 5);  // there is no greatest of no elements
  six(check([](const Tensor&, const Tensor&, const Tensor&, const Tensor& t) { return t.sum() + t.cumsum(0); }, 4));
  six(check([](const Tensor& x, const Tensor&, const Tensor& w,
               const Tensor& t) { return F::embedding((t - floor_divide(t, full({1}, 4, i64)) * 4), w) + x; },
            5));
  six(check([](const Tensor& x, const Tensor& y, const Tensor&, const Tensor&) { return x.transpose(0, 1).matmul(y); }, 6));
  six(check([](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.reshape({-1}) * 3; }, 7));
  six(check([](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.sum({0}) + x.mean({1}).sum(); }, 8,
            kReorder));
  six(check([](const Tensor&, const Tensor&, const Tensor&, const Tensor& t) { return floor_divide(t + 5, t + 1); }, 9));
}

TEST_CASE("where nothing is proved, the graph stays as it was, and one line says why") {
  char folder[] = "/tmp/tessera-bucket-XXXXXX";
  REQUIRE(mkdtemp(folder));
  const std::filesystem::path log = std::filesystem::path(folder) / "log";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "TESSERA_LOGS=perf_hints '" + self + "' '[bucket-child]' > '" + log.string() + "' 2>&1";
  const int status = std::system(command.c_str());
  std::ifstream in(log);
  const std::string said((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  INFO(said);
  CHECK(status == 0);
  std::filesystem::remove_all(folder);
  const auto line = [&](const std::string& op, const std::string& why) {
    std::istringstream lines(said);
    bool found = false;
    for (std::string l; std::getline(lines, l);)
      found = found || (l.find("is not padded: op '" + op + "'") != std::string::npos &&
                        l.find("bucket_test.cpp:") != std::string::npos && l.find(why) != std::string::npos);
    CHECK(found);
  };
  line("reduce_sum", "adds or multiplies floats along the padded dimension");
  line("flip", "reverses the padded dimension");
  line("sort", "needs all elements along the padded dimension");
  line("reshape", "merges the padded dimension with one before it");
  CHECK_THAT(said, Contains("it is 40, more than the largest bucket"));
}

TEST_CASE("a process of its own for the test above", "[.][bucket-child]") {
  const auto three = [](const Function& f, uint64_t seed) {  // 0, 1, and all others
    const Checked c = check(f, seed);
    CHECK_FALSE(c.bucketed);
    CHECK(c.entries == 3);
  };
  three([](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.sum(); }, 11);
  three([](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.flip({0}) + 1; }, 12);
  three([](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return std::get<0>(x.sort(0)) * 2; }, 13);
  three([](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.transpose(0, 1).reshape({-1}) + 1; }, 14);
  check([](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x + 1; }, 15);
}

// ------------------------------------------------------------------------------------------------------- random programs

namespace {

// A program drawn from a seed, of operations that are exact on small integers: values are clamped to -8..8 on the way.
Function random_program(uint64_t seed) {
  return [seed](const Tensor& x, const Tensor& y, const Tensor& w, const Tensor& tokens) {
    std::mt19937_64 random(seed);
    std::vector<Tensor> rows = {x, y}, vectors = {tokens.to(f32)};  // [n, 4], [n]
    const auto pick = [&](const std::vector<Tensor>& from) { return from[random() % from.size()]; };
    const size_t steps = 2 + random() % 7;
    for (size_t k = 0; k < steps; ++k) {
      const Tensor a = pick(rows), b = pick(rows), v = pick(vectors);
      switch (random() % 20) {
        case 0: rows.push_back((a + b).clamp(-8, 8)); break;
        case 1: rows.push_back((a * b).clamp(-8, 8)); break;
        case 2: rows.push_back(a.relu() - b.abs()); break;
        case 3: rows.push_back(a.matmul(w).clamp(-8, 8)); break;
        case 4: rows.push_back(where(a > b, a, b - 1)); break;
        case 5: rows.push_back((a - a.amax({0}, true)).clamp(-8, 8)); break;
        case 6: rows.push_back((a + v.unsqueeze(1)).clamp(-8, 8)); break;
        case 7: vectors.push_back(a.amax({1})); break;
        case 8: vectors.push_back(a.sum({1}).clamp(-8, 8)); break;
        case 9: vectors.push_back(a.argmin(1).to(f32)); break;
        case 10: rows.push_back((a + (b.sum({0}) + w.sum({0})).clamp(-8, 8))); break;
        case 11:
          rows.push_back(a.transpose(0, 1).matmul(b).clamp(-2, 2).matmul(w.transpose(0, 1)).clamp(-8, 8).amin({0}) + a);
          break;
        case 12: rows.push_back(a.reshape({-1, 2, 2}).flip({1}).reshape({-1, 4})); break;
        case 13: rows.push_back(F::embedding((tokens - floor_divide(tokens, full({1}, 4, i64)) * 4), w) + a); break;
        case 14: rows.push_back(a.cumsum(0).clamp(-8, 8)); break;
        case 15: vectors.push_back(v.cumsum(0).clamp(-8, 8)); break;
        case 16: rows.push_back(cat({a.index({Slice(), Slice(0, 2)}), b.index({Slice(), Slice(2, 4)})}, 1)); break;
        case 17: rows.push_back(a * (b == b.amax({0})).to(f32)); break;
        case 18: vectors.push_back((v - v.sum()).clamp(-8, 8)); break;
        default: rows.push_back(random() % 4 ? b.clamp(-2, 2) : b.flip({0})); break;
      }
    }
    switch (random() % 4) {
      case 0: return rows.back().sum({0});
      case 1: return vectors.back() + rows.back().amax({1});
      case 2: return rows.back().amin({0}) + rows[rows.size() / 2].amax({0});
      default: return rows.back();
    }
  };
}

}  // namespace

TEST_CASE("random programs give the same with buckets as the reference backend without") {
  const char* asked = std::getenv("TESSERA_FUZZ_PROGRAMS");
  const uint64_t programs = asked ? std::strtoull(asked, nullptr, 10) : 40;
  uint64_t padded = 0;
  for (uint64_t seed = 1; seed <= programs; ++seed)
    padded += check(random_program(seed), seed, kReorder, seed % 2 == 0).bucketed;
  CHECK(padded * 10 >= programs * 6);  // else the test would say little
}
