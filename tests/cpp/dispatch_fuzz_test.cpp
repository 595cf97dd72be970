// SPDX-License-Identifier: Apache-2.0
// Random programs, called with random arguments under random policies of guards, against the same programs run op by op on the
// reference backend. The data are small integers, so that results must be equal bit by bit: a stale entry, a wrong symbol or a
// missed guard shows as a wrong number. TESSERA_FUZZ_CALLS and TESSERA_FUZZ_SEED change how many calls each case makes, and
// which.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>
#include <random>

#include <tessera/embed.h>
#include <tessera/tessera.hpp>

using namespace tessera;

namespace {

using Random = std::mt19937_64;
int64_t pick(Random& r, int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(r); }
bool chance(Random& r, int percent) { return pick(r, 1, 100) <= percent; }

// Whether to draw from more ops, some of which break graphs, and from more policies and arguments: of the case that runs.
bool& wide_flag() {
  static bool wide = false;
  return wide;
}
bool wide() { return wide_flag(); }

// A straight line of ops over a growing list of tensors, with decisions on what host code may decide on.
struct Program {
  struct Step {
    int op;
    size_t a, b;
    int64_t k;
  };
  std::vector<Step> steps;
  static constexpr int kPlainOps = 18, kOps = 28;

  explicit Program(Random& r) {
    const int64_t n = pick(r, 1, 5);
    for (int64_t i = 0; i < n; ++i)
      steps.push_back({static_cast<int>(pick(r, 0, (wide() ? kOps : kPlainOps) - 1)), static_cast<size_t>(pick(r, 0, 100)),
                       static_cast<size_t>(pick(r, 0, 100)), pick(r, 0, 4)});
  }

  Tensor operator()(const Tensor& x, const Tensor& y, const SymFloat& c, const SymInt& n, bool flag) const {
    std::vector<Tensor> v = {x, y};
    for (const Step& s : steps) {
      const Tensor &a = v[s.a % v.size()], &b = v[s.b % v.size()];
      v.push_back(bounded(apply(s, a, b, c, n, flag)));
    }
    return v.back();
  }

  std::string text() const {
    std::string out;
    for (size_t i = 0; i < steps.size(); ++i) {
      const Step& s = steps[i];
      out += " v" + std::to_string(i + 2) + " = " + std::to_string(s.op) + "(v" + std::to_string(s.a % (i + 2)) + ", v" +
             std::to_string(s.b % (i + 2)) + ", " + std::to_string(s.k) + ");";
    }
    return out;
  }

 private:
  // Keeps numbers small, so that every sum and product is exact.
  static Tensor bounded(const Tensor& t) { return t.clamp(-50, 50); }

  static Tensor apply(const Step& s, const Tensor& a, const Tensor& b, const SymFloat& c, const SymInt& n, bool flag) {
    switch (s.op) {
      case 0: return a + b;
      case 1: return a * b;
      case 2: return a - b;
      case 3: return a + c;
      case 4: return a * c - c;
      case 5: return a * n;
      case 6: return a.dim() > 0 ? a.slice(0, 0, n) : a;
      case 7: return a.dim() > 0 ? a.sum({0}, s.k % 2 == 0) : a;
      case 8: return a.reshape({a.numel()});
      case 9: return a.dim() == 2 ? a.transpose(0, 1) : a;
      case 10: return a.dim() > 0 ? cat({a, a}, a.dim() - 1) : a;
      case 11: return a.dim() > 0 && a.size(0) > s.k ? a + 1 : a - 1;
      case 12: return c > static_cast<double>(s.k) ? a : -a;
      case 13: return n == s.k ? a * 2 : a;
      case 14: return a.is_contiguous() ? a + 3 : a;
      case 15: return flag ? maximum(a, b) : a;
      case 16: return a.dim() > 0 ? a * static_cast<int64_t>(a.size(a.dim() - 1)) : a;
      case 17: return a.dim() > 0 && b.dim() > 0 && a.size(0) == b.size(0) ? a + b.sum() : a;
      case 18:  // a stride of a dimension that is not walked along may be anything
        return a.dim() == 2 && a.size(0) > 1 && a.size(1) > 1 ? a * a.strides()[0] : a;
      case 19: return a.sum() > s.k ? a + 1 : a * 2;  // breaks the graph
      case 20: return a.dim() > 0 && a.size(0) > b.numel() ? a.flip({0}) : a + b.numel();
      case 21: return a.dim() == 2 && b.dim() == 2 ? a.matmul(b) : a;
      case 22: return a.dim() > 0 ? a.narrow(0, 0, a.size(0) / 2) : a;
      case 23: return a.dim() > 0 && a.size(0) % 2 == 0 ? a.reshape({2, -1}) : a;
      case 24: return a.dim() > 0 ? a.cumsum(0) + zeros({a.size(0)}).sum() : a;
      case 25: return a.masked_select(a > b).sum() + a;
      case 26: return c * 2.0 < 5.0 ? a + c * c : a - n;
      default: return a.dim() > 0 ? a.slice(0, n / 2, n) : a;
    }
  }
};

struct Subject {
  Program program;
  std::string policy;
  Compiled<Tensor(const Tensor&, const Tensor&, SymFloat, SymInt, bool)> compiled;
  // The same of tensors alone, which takes the fast way to a hit, with these numbers baked in.
  Compiled<Tensor(const Tensor&, const Tensor&)> of_tensors;
  double c;
  int64_t n;
  bool flag;
};

Subject make(Random& r, bool served_otherwise) {
  const Program program(r);
  CompileOptions o;
  o.dynamic = static_cast<Dynamic>(pick(r, -1, 1));
  const auto flip = [&](const char* key, const char* value, int percent) {
    if (chance(r, percent)) o.options.push_back(std::string("guards.") + key + "=" + value);
  };
  flip("specialize_float", "true", 40);
  flip("specialize_int", "true", 20);
  flip("specialize_one", "false", 30);
  flip("specialize_zero", "false", 30);
  flip("duck_shaping", "false", 30);
  flip("assume_static_by_default", "false", 20);
  flip("automatic_dynamic", "false", 10);
  if (wide()) flip("automatic_dynamic_as", "unbacked", 20);
  if (served_otherwise) {
    flip("max_entries", "2", 40);
    flip("max_bytes", "40000", 20);
    flip("suppress_errors", "true", 30);
  }
  o.options.push_back("guards.recompile_limit=" + std::to_string(chance(r, 30) ? 3 : 200));
  o.options.push_back("guards.accumulated_recompile_limit=1000000");
  std::string policy = "dynamic " + std::to_string(static_cast<int>(o.dynamic));
  for (const std::string& option : o.options) policy += " " + option;
  const auto of_all = [program](const Tensor& x, const Tensor& y, SymFloat c, SymInt n, bool flag) {
    return program(x, y, c, n, flag);
  };
  const double fixed_c = static_cast<double>(program.steps[0].a % 8) - 2;
  const int64_t fixed_n = program.steps[0].k;
  const bool fixed_flag = program.steps[0].b % 2 == 0;
  const auto of_tensors = [=](const Tensor& x, const Tensor& y) { return program(x, y, fixed_c, fixed_n, fixed_flag); };
  return {program, policy, compile(of_all, o), compile(of_tensors, o), fixed_c, fixed_n, fixed_flag};
}

// A tensor of small integers, dense or not; `storage` keeps its memory.
Tensor tensor(Random& r, std::vector<std::vector<float>>& storage) {
  static constexpr int64_t kSizes[] = {0, 1, 1, 2, 3, 3, 4, 5};
  std::vector<int64_t> sizes;
  for (int64_t i = pick(r, 0, 9) == 0 ? 0 : pick(r, 1, 2); i > 0; --i) sizes.push_back(kSizes[pick(r, 0, 7)]);
  storage.emplace_back(256);
  for (float& f : storage.back()) f = static_cast<float>(pick(r, -3, 3));
  std::vector<int64_t> strides;
  if (sizes.size() == 2 && chance(r, 30)) strides = {sizes[1] + pick(r, 1, 3), 1};
  if (sizes.size() == 2 && strides.empty() && chance(r, 15)) strides = {1, std::max<int64_t>(sizes[0], 1)};
  Tensor t = from_blob(storage.back().data(), sizes, f32, strides);
  if (sizes.empty() || !chance(r, 10)) return t;
  const int64_t dim = pick(r, 0, static_cast<int64_t>(sizes.size()) - 1);
  const int64_t min = wide() ? pick(r, 0, 2) : 0, max = wide() && chance(r, 50) ? pick(r, 4, 6) : INT64_MAX;
  switch (pick(r, 0, 2)) {
    case 0: mark_dynamic(t, dim, min, max); break;
    case 1: mark_static(t, dim); break;
    default: mark_unbacked(t, dim, min, max);
  }
  return t;
}

struct Outcome {
  std::string error, message;  // its code; empty: none
  std::vector<int64_t> sizes;
  std::vector<float> values;
  bool operator==(const Outcome& o) const { return error == o.error && sizes == o.sizes && values == o.values; }
};
template <class F>
Outcome outcome(F&& f) {
  Outcome o;
  try {
    const Tensor t = f();
    o.sizes = t.sizes();
    o.values = t.template to_vector<float>();
  } catch (const UserError& e) {
    o.error = e.code();
    o.message = e.what();
  }
  return o;
}
std::string text(const Outcome& o) {
  std::string s = (o.error.empty() ? "" : o.message) + " [";
  for (const int64_t d : o.sizes) s += std::to_string(d) + ",";
  s += "]:";
  for (const float f : o.values) s += " " + std::to_string(f);
  return s;
}

std::string text(const char* name, const Tensor& t) {
  std::string s = std::string(name) + " [";
  for (const int64_t d : t.sizes()) s += std::to_string(d) + ",";
  s += "; ";
  for (const int64_t d : t.strides()) s += std::to_string(d) + ",";
  return s + "]" + (t.handle()->marks ? " marked " : " ");
}

int64_t setting(const char* name, int64_t otherwise) {
  const char* s = std::getenv(name);
  return s && *s ? std::atoll(s) : otherwise;
}

// `served_otherwise`: by stance, by entries that come and go, after errors. `of_tensors`: nothing but tensors are arguments.
void random_calls(bool wide_set, int64_t fewest, bool served_otherwise = false, bool of_tensors = false) {
  wide_flag() = wide_set;
  const int64_t calls = setting("TESSERA_FUZZ_CALLS", fewest), seed = setting("TESSERA_FUZZ_SEED", 1);
  Random r(static_cast<uint64_t>(seed));
  const char* source = std::getenv("TESSERA_SOURCE_DIR");
  const Context reference(std::string(source ? source : ".") + "/configs/reference.toml");
  std::vector<Subject> subjects;
  int64_t refused = 0;
  for (int64_t call = 0; call < calls; ++call) {
    if (call % 40 == 0) {
      if (subjects.size() >= 16) subjects.erase(subjects.begin());
      subjects.push_back(make(r, served_otherwise));
    }
    const Subject& s = subjects[static_cast<size_t>(pick(r, 0, static_cast<int64_t>(subjects.size()) - 1))];
    std::vector<std::vector<float>> storage;
    const Tensor x = tensor(r, storage), y = wide() && chance(r, 10) ? x : tensor(r, storage);
    const double c = of_tensors ? s.c : static_cast<double>(pick(r, -2, 5));
    const int64_t n = of_tensors ? s.n : pick(r, wide() ? -1 : 0, 5);
    const bool flag = of_tensors ? s.flag : chance(r, 50);
    Stance served = stance();
    if (served_otherwise && chance(r, 30)) {
      static constexpr Stance kStances[] = {Stance::force_eager, Stance::eager_on_recompile, Stance::eager_then_compile,
                                            Stance::aot_eager_then_compile};
      served = kStances[pick(r, 0, 3)];
    }
    const bool recompiles = served_otherwise && chance(r, 2), resets = served_otherwise && chance(r, 1);
    const auto call_it = [&] {
      const StanceScope scope(served);
      if (recompiles) s.compiled.recompile(), s.of_tensors.recompile();
      if (resets) s.compiled.reset(), s.of_tensors.reset();
      return outcome([&] { return of_tensors ? s.of_tensors(x, y) : s.compiled(x, y, c, n, flag); });
    };
    const Outcome got = call_it();
    // What a mark asks for may be impossible for the program.
    if (!got.error.empty() && (x.handle()->marks != 0 || y.handle()->marks != 0)) {
      ++refused;
      continue;
    }
    const Outcome want = outcome([&] {
      const ContextScope scope(reference);
      return s.program(x, y, c, n, flag);
    });
    if (want.error.empty() ? got == want : !got.error.empty()) continue;
    FAIL_CHECK("call " << call << " of seed " << seed << ", " << s.policy << "\n  program" << s.program.text() << "\n  "
                       << text("x", x) << text("y", y) << "c " << c << " n " << n << " flag " << flag << "\n  got  "
                       << text(got) << "\n  want " << text(want) << "\n  entries "
                       << (of_tensors ? s.of_tensors.describe() : s.compiled.describe()).substr(0, 4000));
    break;
  }
  CHECK(refused < calls / 4);
}

}  // namespace

TEST_CASE("random calls over random policies equal the reference") { random_calls(false, 2000); }

TEST_CASE("so do those with graph breaks, marks and inputs that are one tensor") { random_calls(true, 1000); }

TEST_CASE("calls of tensors alone equal the reference") {
  random_calls(false, 1000, false, true);
  random_calls(true, 1000, true, true);
}

TEST_CASE("and those that no compiled code serves, or whose entries come and go") { random_calls(true, 1000, true); }
