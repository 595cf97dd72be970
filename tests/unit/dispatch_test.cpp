// SPDX-License-Identifier: Apache-2.0
// Dispatch: what hits, what misses and why, limits, threads. Callables are made through the embedding API's own objects, over a
// context of the built plugins; the function under test records ops by hand.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/api.hpp"
#include "capture/recorder.hpp"
#include "dispatch/words.hpp"
#include "fake_backend.hpp"
#include "host_support.hpp"
#include "log/log.hpp"
#include "tessera/embed.h"

namespace dispatch_test {

using namespace tessera::core;
using namespace tessera::test;

using Values = std::vector<double>;

namespace {

const tsr_api& api_table() { return *tsr_get_api(TSR_ABI_MAJOR); }

void check(tsr_error* e) { throw_if(e); }

tsr_context* make_context(const char* backends, const char* more = "") {
  std::string config =
      "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.backend.reference\", \"tessera.backend.null\"]\n"
      "[backends]\norder = ";
  config.append(backends).append("\n").append(more);
  const std::string dir = build_dir() + "/lib/tessera/plugins";
  const char* dirs[] = {dir.c_str()};
  tsr_context_options o{};
  o.struct_size = sizeof o;
  o.config_text = config.c_str();
  o.plugin_dirs = dirs;
  o.num_plugin_dirs = 1;
  tsr_context* c = nullptr;
  check(api_table().context_create(&o, &c));
  return c;
}

tsr_context* shared_context() {
  static tsr_context* c = make_context("[\"reference\"]");
  return c;
}

// Calls a function over recorded values; counts captures.
class Function {
 public:
  using Body = std::function<std::vector<tsr_id>(tsr_recorder*, const std::vector<tsr_id>&)>;
  Body body;
  std::vector<std::string> names;
  bool observes = true;
  std::atomic<int> captures{0};
  std::atomic<int> structures{0};
  tsr_callable_handle* handle = nullptr;

  Function(Body b, std::vector<std::string> n, int dynamic = 0, std::vector<std::string> options = {},
           tsr_context* context = nullptr, const char* name = "fn")
      : body(std::move(b)), names(std::move(n)) {
    std::vector<const char*> overrides;
    for (const std::string& o : options) overrides.push_back(o.c_str());
    tsr_callable_desc d{};
    d.struct_size = sizeof d;
    d.name = name;
    d.loc = {"model.cpp", 12, 3};
    d.self = this;
    d.invoke = [](void* self, tsr_recorder* r, const tsr_arg*, size_t, void** structure) noexcept {
      return static_cast<Function*>(self)->invoke(r, structure);
    };
    d.structure_free = [](void* s) noexcept { --static_cast<Function*>(s)->structures; };
    d.path = [](void* self, const tsr_arg*, size_t, size_t i, char* buf, size_t n) noexcept {
      const auto& f = *static_cast<Function*>(self);
      std::snprintf(buf, n, "%s", i < f.names.size() ? f.names[i].c_str() : "");
    };
    d.dynamic = dynamic;
    d.options = overrides.data();
    d.num_options = overrides.size();
    check(api_table().callable_create(context ? context : shared_context(), &d, &handle));
  }
  ~Function() {
    api_table().callable_destroy(handle);
    CHECK(structures == 0);
  }

  std::vector<TensorRef> operator()(const std::vector<tsr_arg>& args) {
    tsr_tensor_handle* out[8] = {};
    size_t n = 0;
    void* structure = nullptr;
    check(api_table().call(handle, args.data(), args.size(), out, 8, &n, &structure));
    REQUIRE(structure == this);
    std::vector<TensorRef> results;
    for (size_t i = 0; i < n; ++i) results.emplace_back(out[i]);
    return results;
  }
  nlohmann::json describe() {
    char* text = nullptr;
    check(api_table().callable_describe(handle, &text));
    auto j = nlohmann::json::parse(text);
    api_table().string_free(text);
    return j;
  }

 private:
  tsr_error* invoke(tsr_recorder* r, void** structure) noexcept {
    try {
      ++captures;
      const tsr_capture_api& c = capture_api();
      if (observes) c.observe(r, TSR_NONE);
      std::vector<tsr_id> in;
      for (uint32_t i = 0; i < c.num_inputs(r); ++i) in.push_back(c.input(r, i));
      const std::vector<tsr_id> out = body(r, in);
      ++structures;
      *structure = this;
      return c.set_outputs(r, out.data(), static_cast<uint32_t>(out.size()));
    } catch (...) {
      return current_exception_to_c();
    }
  }
};

tsr_id record(tsr_recorder* r, const char* op, std::vector<tsr_id> operands) {
  tsr_node_desc d{};
  d.struct_size = sizeof d;
  d.op = op;
  d.operands = operands.data();
  d.num_operands = static_cast<uint32_t>(operands.size());
  tsr_id out = TSR_NONE;
  uint32_t n = 0;
  throw_if(capture_api().op(r, &d, &out, 1, &n));
  return out;
}

const Function::Body kDouble = [](tsr_recorder* r, const std::vector<tsr_id>& in) {
  return std::vector<tsr_id>{record(r, "add", {in[0], in[0]})};
};
const Function::Body kSum = [](tsr_recorder* r, const std::vector<tsr_id>& in) {
  tsr_id sum = in[0];
  for (size_t i = 1; i < in.size(); ++i) sum = record(r, "add", {sum, in[i]});
  return std::vector<tsr_id>{sum};
};

tsr_arg arg(const TensorRef& t) {
  tsr_arg a{};
  a.tensor = t.get();
  a.kind = TSR_ARG_TENSOR;
  a.role = TSR_INPUT_ARG;
  return a;
}
tsr_arg value(uint32_t kind, int64_t i) {
  tsr_arg a{};
  a.kind = kind;
  a.i = i;
  return a;
}
tsr_arg real(double f) {
  tsr_arg a{};
  a.kind = TSR_ARG_FLOAT;
  a.f = f;
  return a;
}
tsr_arg text(uint32_t kind, std::string_view s) {  // that a zero byte follows
  tsr_arg a{};
  a.kind = kind;
  a.s = s.data();
  a.i = static_cast<int64_t>(s.size());
  return a;
}
TensorRef ones(std::vector<int64_t> sizes, uint32_t dtype = TSR_F32) {
  const Values v(static_cast<size_t>(num_elements(sizes)), 1);
  return tensor_of(v, sizes, dtype);
}

// What the artifact `recompiles` says while this lives.
struct Recompiles {
  std::string log;
  LogSink previous;
  explicit Recompiles(const char* spec = "recompiles") {
    configure_logs(spec);
    previous = set_log_sink([this](std::string_view lines) { log += lines; });
  }
  ~Recompiles() {
    set_log_sink(previous);
    configure_logs("-all");
  }
  std::string take() { return std::exchange(log, ""); }
};

std::string block(const std::vector<std::string>& reasons) {
  std::string s =
      "[recompiles] Recompiling function fn in model.cpp:12\n[recompiles]     triggered by the following guard failure(s):\n";
  for (const std::string& r : reasons) s += "[recompiles]     - " + r + "\n";
  return s;
}

}  // namespace

TEST_CASE("keys: equal words, equal hash; texts cannot run into each other") {
  WordBuffer a, b, c;
  a.push_text("ab");
  a.push_text("c");
  b.push_text("a");
  b.push_text("bc");
  c.push_text("ab");
  c.push_text("c");
  REQUIRE(hash_words(a.data(), a.size()) == hash_words(c.data(), c.size()));
  REQUIRE((a.size() != b.size() || std::memcmp(a.data(), b.data(), a.size() * 8) != 0));
  WordMap<int> map;
  std::vector<int> values(5000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int>(i);
    const uint64_t w[] = {i, i * i};
    map.insert(hash_words(w, 2) % 97, w, 2, &values[i]);  // many collisions
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t w[] = {i, i * i}, wrong[] = {i, i * i + 1};
    REQUIRE(map.find(hash_words(w, 2) % 97, w, 2) == &values[i]);
    REQUIRE(map.find(hash_words(w, 2) % 97, wrong, 2) == nullptr);
  }
  WordBuffer large;
  for (uint64_t i = 0; i < 5000; ++i) {
    large.reserve(1);
    large.push(i);
  }
  REQUIRE(large.size() == 5000);
  REQUIRE(large.data()[4999] == 4999);
}

TEST_CASE("a second call with the same arguments hits") {
  Function fn(kDouble, {"x"});
  TensorRef a = ones({3}), b = tensor_of({1, 2, 3}, {3});
  REQUIRE(values_of(*fn({arg(a)})[0]) == Values{2, 2, 2});
  REQUIRE(values_of(*fn({arg(b)})[0]) == Values{2, 4, 6});
  REQUIRE(fn.captures == 1);
  REQUIRE(fn.describe()["entries"][0]["hits"] == 2);
}

TEST_CASE("each tensor property that a graph relies on is guarded, and misses say why") {
  Recompiles log;
  const auto after = [&](const TensorRef& first, const TensorRef& second) {
    Function fn(kDouble, {"x"});
    fn({arg(first)});
    REQUIRE(log.take().empty());
    fn({arg(second)});
    REQUIRE(fn.captures == 2);
    fn({arg(first)});
    fn({arg(second)});
    REQUIRE(fn.captures == 2);
    return log.take();
  };
  REQUIRE(after(ones({3}), ones({4})) == block({"0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4"}));
  REQUIRE(after(ones({4}), ones({4}, TSR_BF16)) == block({"0/0: tensor 'x' dtype mismatch. expected Float, actual BFloat16"}));
  REQUIRE(after(ones({2, 4}), ones({2, 4, 1})) == block({"0/0: tensor 'x' rank mismatch. expected 2, actual 3"}));
  TensorRef wide = ones({4, 8}), square = ones({4, 4});
  const int64_t sizes[] = {4, 4}, strides[] = {8, 1};
  TensorRef window(tensor_view(*wide, 0, sizes, strides));
  REQUIRE(after(square, window) == block({"0/0: tensor 'x' stride mismatch at index 0. expected 4, actual 8"}));
  TensorRef grad = ones({4}), plain = ones({4});
  grad->requires_grad = 1;
  REQUIRE(after(grad, plain) == block({"0/0: tensor 'x' requires_grad mismatch. expected requires_grad=1"}));
  const auto on = [&](const char* name) {
    const int64_t n[] = {4};
    return TensorRef(tensor_create(TSR_F32, n, device_intern(name)));
  };
  REQUIRE(after(ones({4}), on("null:0")) == block({"0/0: tensor 'x' device mismatch. expected cpu, actual null:0"}));
  REQUIRE(after(on("null:0"), on("null:1")) == block({"0/0: tensor 'x' device index mismatch. expected 0, actual 1"}));
}

TEST_CASE("plain values, structure and kinds are guarded, values before tensors") {
  Recompiles log;
  TensorRef a = ones({3}), b = ones({4});
  const auto after = [&](std::vector<std::string> names, const std::vector<tsr_arg>& first,
                         const std::vector<tsr_arg>& second) {
    Function fn(kDouble, std::move(names));
    fn(first);
    fn(first);
    REQUIRE(fn.captures == 1);
    fn(second);
    REQUIRE(fn.captures == 2);
    return log.take();
  };
  REQUIRE(after({"x", "c"}, {arg(a), real(0.5)}, {arg(b), real(1.5)}) == block({"0/0: c == 0.5"}));
  REQUIRE(after({"x", "c"}, {arg(a), real(1)}, {arg(a), real(-0.0)}) == block({"0/0: c == 1.0"}));
  REQUIRE(after({"x", "k"}, {arg(a), value(TSR_ARG_INT, 1)}, {arg(a), value(TSR_ARG_INT, 2)}) == block({"0/0: k == 1"}));
  REQUIRE(after({"x", "flag"}, {arg(a), value(TSR_ARG_BOOL, 1)}, {arg(a), value(TSR_ARG_BOOL, 0)}) ==
          block({"0/0: flag == True"}));
  REQUIRE(after({"x", "mode"}, {arg(a), text(TSR_ARG_STRING, "mean")}, {arg(a), text(TSR_ARG_STRING, "sum")}) ==
          block({"0/0: mode == 'mean'"}));
  REQUIRE(after({"x", "e"}, {arg(a), value(TSR_ARG_ENUM, 3)}, {arg(a), value(TSR_ARG_ENUM, 4)}) == block({"0/0: e == 3"}));
  REQUIRE(after({"d", "d['a']"}, {text(TSR_ARG_KEYS, "a"), arg(a)}, {text(TSR_ARG_KEYS, "b"), arg(a)}) ==
          block({"0/0: list(d.keys()) == ['a']"}));
  REQUIRE(after({"xs", "xs[0]", "xs[1]"}, {value(TSR_ARG_LENGTH, 1), arg(a)}, {value(TSR_ARG_LENGTH, 2), arg(b), arg(b)}) ==
          block({"0/0: len(xs) == 1"}));
  REQUIRE(after({"x", "bias"}, {arg(a), value(TSR_ARG_NONE, 0)}, {arg(a), arg(b)}) == block({"0/0: bias is None"}));
  REQUIRE(after({"x", "bias"}, {arg(a), real(1)}, {arg(a), value(TSR_ARG_INT, 1)}) ==
          block({"0/0: type(bias) is float, actual int"}));
}

TEST_CASE("several entries: the most recently used is named first, verbose names every failure") {
  Recompiles log("recompiles,recompiles_verbose");
  Function fn(kSum, {"x", "y"});
  TensorRef t3 = ones({3}), t4 = ones({4}), t5 = ones({5});
  fn({arg(t3), arg(t3)});
  fn({arg(t4), arg(t4)});
  fn({arg(t3), arg(t3)});
  log.take();
  fn({arg(t5), arg(t5)});
  const std::string s = log.take();
  REQUIRE(s.find(block({"0/0: tensor 'x' size mismatch at index 0. expected 3, actual 5",
                        "0/1: tensor 'x' size mismatch at index 0. expected 4, actual 5"})) == 0);
  REQUIRE(s.find("[recompiles_verbose]     - 0/1: tensor 'y' size mismatch at index 0. expected 4, actual 5\n") !=
          std::string::npos);
}

TEST_CASE("strings are compared by all of their bytes, zero bytes too") {
  using namespace std::string_view_literals;
  for (const uint32_t kind : {TSR_ARG_STRING, TSR_ARG_KEYS}) {
    Function fn(kDouble, {"x", "mode"}, 0, {"guards.recompile_limit=100"});
    TensorRef x = ones({3});
    const std::string_view texts[] = {"sum\0x"sv, "sum"sv,           ""sv,         "\0"sv,        "sum\0"sv,
                                      "sum\0y"sv, "sum\0\0\0\0\0"sv, "12345678"sv, "12345678\0"sv};
    int made = 0;
    for (const std::string_view t : texts) {
      fn({arg(x), text(kind, t)});
      CHECK(fn.captures == ++made);
    }
    for (const std::string_view t : texts) fn({arg(x), text(kind, t)});
    CHECK(fn.captures == made);
    Recompiles log("recompiles");
    fn({arg(x), text(kind, "sum\0z"sv)});
    CHECK(log.take().find("12345678\\x00'") != std::string::npos);
  }
}

TEST_CASE("a text that does not end where its client says is refused, whatever is compiled already") {
  Function fn(kDouble, {"x", "mode"});
  TensorRef x = ones({3});
  tsr_arg none = text(TSR_ARG_STRING, "sum"), negative = none, null{};
  none.i = 0;  // a client that does not know of lengths
  negative.i = -1;
  null.kind = TSR_ARG_STRING;
  null.i = 3;
  const auto refused = [&](const tsr_arg& a) {
    CHECK_THROWS_WITH(fn({arg(x), a}), Catch::Contains("TSR-E016") && Catch::Contains("argument mode of 'fn'"));
  };
  refused(none);
  fn({arg(x), text(TSR_ARG_STRING, "")});
  refused(none);
  refused(negative);
  refused(null);
  CHECK(fn.captures == 1);
}

TEST_CASE("keys are shown as they are, whatever their characters") {
  Recompiles log("recompiles");
  Function fn(kDouble, {"d", "d['a']"});
  TensorRef x = ones({3});
  fn({text(TSR_ARG_KEYS, "a\\nb\n\\\\c\n"), arg(x)});
  fn({text(TSR_ARG_KEYS, "a"), arg(x)});
  CHECK(log.take().find("list(d.keys()) == ['a\\nb', '\\\\c', '']") != std::string::npos);
}

TEST_CASE("what the function does not use is not guarded") {
  Function fn(kDouble, {"x", "unused"});
  TensorRef x = ones({3}), a = ones({3}), b = ones({2, 2}, TSR_I64);
  fn({arg(x), arg(a)});
  REQUIRE(values_of(*fn({arg(x), arg(b)})[0]) == Values{2, 2, 2});
  REQUIRE(fn.captures == 1);
  // A look at the type is a use.
  Function looks(
      [](tsr_recorder* r, const std::vector<tsr_id>& in) {
        capture_api().observe(r, in[1]);
        return kDouble(r, in);
      },
      {"x", "y"});
  looks({arg(x), arg(a)});
  looks({arg(x), arg(b)});
  REQUIRE(looks.captures == 2);
  // And a client that does not say what it looks at is guarded on everything.
  Function silent(kDouble, {"x", "y"});
  silent.observes = false;
  silent({arg(x), arg(a)});
  silent({arg(x), arg(b)});
  REQUIRE(silent.captures == 2);
}

TEST_CASE("dynamic sizes: one entry for all that keep the relations seen at capture") {
  Recompiles log;
  Function fn(kSum, {"x", "y"}, 1);
  const auto call = [&](std::vector<int64_t> x, std::vector<int64_t> y) {
    TensorRef a = ones(x), b = ones(y);
    return values_of(*fn({arg(a), arg(b)})[0]);
  };
  REQUIRE(call({3, 2}, {3, 2}) == Values(6, 2));
  REQUIRE(call({5, 4}, {5, 4}) == Values(20, 2));
  REQUIRE(call({7, 9}, {7, 9}) == Values(63, 2));
  REQUIRE(fn.captures == 1);
  REQUIRE(log.take().empty());
  REQUIRE(call({1, 4}, {1, 4}) == Values(4, 2));  // 1 is special
  REQUIRE(fn.captures == 2);
  REQUIRE(log.take() == block({"0/0: tensor 'x' size mismatch at index 0. expected >= 2, actual 1"}));
  REQUIRE(call({3, 4}, {1, 4}) == Values(12, 2));  // broadcasting: another graph
  REQUIRE(fn.captures == 3);
  REQUIRE(call({6, 8}, {1, 8}) == Values(48, 2));
  REQUIRE(fn.captures == 3);
  // The square at the first capture would share one symbol; here the first entry saw 3 and 2, so a square hits it too.
  REQUIRE(call({4, 4}, {4, 4}) == Values(16, 2));
  REQUIRE(fn.captures == 3);
  Function square(kDouble, {"x"}, 1);
  TensorRef s = ones({4, 4}), r = ones({4, 5});
  square({arg(s)});
  log.take();
  square({arg(r)});
  REQUIRE(log.take() == block({"1/0: x.size(1) == x.size(0)"}));
}

TEST_CASE("past the limit calls still run, entries still hit, and there is one warning") {
  Recompiles log;
  Function fn(kDouble, {"x"}, 0, {"guards.recompile_limit=3"});
  for (int64_t n = 1; n <= 5; ++n) {
    TensorRef x = ones({n});
    REQUIRE(values_of(*fn({arg(x)})[0]) == Values(static_cast<size_t>(n), 2));
  }
  const std::string s = log.take();
  REQUIRE(fn.describe()["entries"].size() == 3);
  const std::string warning =
      "tessera hit config.recompile_limit (3)\n   function: 'fn' (model.cpp:12)\n   last reason: 0/2: tensor 'x' size mismatch "
      "at index 0. expected 3, actual 4\n";
  REQUIRE(s.find(warning) != std::string::npos);
  REQUIRE(s.find("hit config", s.find(warning) + 20) == std::string::npos);
  const int captures = fn.captures;
  TensorRef x = ones({2});
  REQUIRE(values_of(*fn({arg(x)})[0]) == Values{2, 2});
  REQUIRE(fn.captures == captures);
}

TEST_CASE("a function that is made again and again is pointed out") {
  Recompiles log("perf_hints");
  TensorRef x = ones({2});
  std::string said;
  for (int i = 0; i < 20; ++i) {
    Function fn(kDouble, {"x"}, 0, {"guards.recompile_limit=17"}, nullptr, "again");
    fn({arg(x)});
    api_table().callable_reset(fn.handle);
    fn({arg(x)});
    said += log.take();
  }
  const std::string notice =
      "17 compiled functions 'again' have been made at model.cpp:12, and each compiles for itself: make it once and keep it";
  REQUIRE(said.find(notice) != std::string::npos);
  REQUIRE(said.find("have been made", said.find(notice) + notice.size()) == std::string::npos);
}

TEST_CASE("stances, for a client that does not run its function by itself") {
  Function fn(kDouble, {"x"});
  TensorRef a = ones({3}), b = ones({4});
  struct Default {
    ~Default() { check(api_table().set_stance("default")); }
  } at_the_end;
  for (const char* stance : {"force_eager", "eager_on_recompile", "eager_then_compile", "aot_eager_then_compile"}) {
    check(api_table().set_stance(stance));
    REQUIRE(std::string(api_table().stance()) == stance);
    api_table().callable_reset(fn.handle);
    REQUIRE(values_of(*fn({arg(a)})[0]) == Values(3, 2));
    REQUIRE(fn.describe()["entries"].empty());
  }
  check(api_table().set_stance("default"));
  fn({arg(a)});
  const int captures = fn.captures;
  check(api_table().set_stance("force_eager"));
  REQUIRE(values_of(*fn({arg(a)})[0]) == Values(3, 2));
  REQUIRE(fn.captures == captures + 1);
  check(api_table().set_stance("eager_on_recompile"));
  REQUIRE(values_of(*fn({arg(a)})[0]) == Values(3, 2));
  REQUIRE(fn.captures == captures + 1);
  REQUIRE(values_of(*fn({arg(b)})[0]) == Values(4, 2));
  REQUIRE(fn.captures == captures + 2);
  REQUIRE(fn.describe()["entries"].size() == 1);
  tsr_error* e = api_table().set_stance("eager_on_recompiles");
  REQUIRE(e);
  const std::string text = api_table().host->core->error_message(e);
  api_table().error_free(e);
  REQUIRE(text.find("unknown stance 'eager_on_recompiles'; did you mean 'eager_on_recompile'?") != std::string::npos);
}

TEST_CASE("reset forgets the entries and counts frames from 0") {
  Recompiles log;
  Function fn(kDouble, {"x"});
  TensorRef a = ones({3}), b = ones({4});
  fn({arg(a)});
  api_table().callable_reset(fn.handle);
  fn({arg(b)});
  REQUIRE(fn.captures == 2);
  REQUIRE(log.take().empty());
  fn({arg(a)});
  REQUIRE(log.take() == block({"0/0: tensor 'x' size mismatch at index 0. expected 4, actual 3"}));
}

TEST_CASE("errors of the function come back, and the next call tries again") {
  bool fail = true;
  Function fn(
      [&](tsr_recorder* r, const std::vector<tsr_id>& in) {
        if (fail) throw user_error("TSR-X010", "the function does not like this");
        return kDouble(r, in);
      },
      {"x"});
  TensorRef x = ones({2});
  REQUIRE(error_of([&] { fn({arg(x)}); }) == "TSR-X010 the function does not like this");
  fail = false;
  REQUIRE(values_of(*fn({arg(x)})[0]) == Values{2, 2});
  tsr_tensor_handle* out[1];
  size_t n = 0;
  const tsr_arg a = arg(x);
  REQUIRE(error_of([&] { check(api_table().call(fn.handle, &a, 1, out, 0, &n, nullptr)); }).substr(0, 9) == "TSR-E003 ");
  tsr_arg null{};
  REQUIRE(error_of([&] { check(api_table().call(fn.handle, &null, 1, out, 1, &n, nullptr)); }).substr(0, 9) == "TSR-E002 ");
}

TEST_CASE("threads: one compiles, the others wait, nobody gets another's numbers") {
  Function fn(kDouble, {"x"}, 0, {"guards.recompile_limit=64"});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 60; ++k) {
        const auto n = static_cast<int64_t>(1 + (k * 7 + t) % 20);
        TensorRef x = tensor_of(Values(static_cast<size_t>(n), t + 1), {n});
        tsr_tensor_handle* out[1];
        size_t count = 0;
        const tsr_arg a = arg(x);
        if (tsr_error* e = api_table().call(fn.handle, &a, 1, out, 1, &count, nullptr)) {
          api_table().error_free(e);
          ++wrong;
          continue;
        }
        TensorRef y(out[0]);
        if (values_of(*y) != Values(static_cast<size_t>(n), 2 * (t + 1))) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  REQUIRE(wrong == 0);
  REQUIRE(fn.captures == 20);
}

TEST_CASE("single ops: cached by signature, right for every shape, refused with the op's own message") {
  const tsr_api& api = api_table();
  const auto op = [&](const char* name, std::vector<Tensor*> in, std::vector<tsr_attr> attrs = {}) {
    std::vector<tsr_tensor_handle*> handles(in.begin(), in.end());
    tsr_tensor_handle* out[4] = {};
    size_t n = 0;
    check(api.eager_op(shared_context(), name, handles.data(), handles.size(), attrs.data(), attrs.size(), out, 4, &n));
    REQUIRE(n == 1);
    return TensorRef(out[0]);
  };
  TensorRef a = tensor_of({1, 2, 3, 4, 5, 6}, {2, 3}), row = tensor_of({10, 20, 30}, {3});
  for (int k = 0; k < 2; ++k) {
    REQUIRE(values_of(*op("add", {a.get(), row.get()})) == Values{11, 22, 33, 14, 25, 36});
    REQUIRE(values_of(*op("add", {row.get(), row.get()})) == Values{20, 40, 60});
    const int64_t axes0[] = {0}, axes1[] = {1};
    tsr_attr axes{};
    axes.name = "axes";
    axes.kind = TSR_ATTR_INTS;
    axes.count = 1;
    axes.ints = axes0;
    REQUIRE(values_of(*op("reduce_sum", {a.get()}, {axes})) == Values{5, 7, 9});
    axes.ints = axes1;
    REQUIRE(values_of(*op("reduce_sum", {a.get()}, {axes})) == Values{6, 15});
    const int64_t sizes[] = {3, 2}, strides[] = {1, 3};
    TensorRef t(tensor_view(*a, 0, sizes, strides));
    REQUIRE(values_of(*op("neg", {t.get()})) == Values{-1, -4, -2, -5, -3, -6});
  }
  TensorRef bad = tensor_of({1, 2}, {2}), ints = tensor_of({1, 2, 3}, {3}, TSR_I64);
  REQUIRE(error_of([&] { op("add", {a.get(), bad.get()}); }).substr(0, 5) == "TSR-I");
  REQUIRE(error_of([&] { op("add", {row.get(), ints.get()}); }).substr(0, 5) == "TSR-I");
  REQUIRE(error_of([&] { op("ad", {row.get()}); }).substr(0, 8) == "TSR-O001");
  // A constant's data is part of what it is.
  for (const double v : {1.0, 2.0}) {
    TensorRef c = tensor_of({v, v}, {2});
    tsr_attr attr{};
    attr.name = "value";
    attr.kind = TSR_ATTR_TENSOR;
    attr.tensor = &c->desc;
    REQUIRE(values_of(*op("constant", {}, {attr})) == Values{v, v});
  }
}

}  // namespace dispatch_test
