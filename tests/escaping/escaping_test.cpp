// SPDX-License-Identifier: Apache-2.0
// An exception that leaves a function of a plugin is TSR-P046, names the plugin and the function, and takes nothing else down:
// the next call works. What cannot fail, such as giving memory back, is a warning.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tessera/embed.hpp"

#include <unistd.h>

namespace {

namespace e = tessera::embed;

// While it lives, this function of the plugin throws.
struct Escaping {
  explicit Escaping(const char* function) { setenv("ESCAPING", function, 1); }
  ~Escaping() { unsetenv("ESCAPING"); }
};

e::Context context(const std::string& more = "") {
  e::ContextOptions o;
  o.config_text =
      "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.backend.reference\", "
      "\"acme.escaping\"]\n[backends]\norder = [\"escaping\", \"reference\"]\n" +
      more;
  o.plugin_dirs = {TESSERA_PLUGIN_DIR, ESCAPING_PLUGIN_DIR};
  return e::Context(o);
}

// Keeps no executables, so that every compile and run asks the plugin again.
const e::Context& plain() {
  static const e::Context c = context("[cache]\ngraphs = false\nprofiles = false\n");
  return c;
}

template <class F>
std::string said(F&& f) {
  try {
    f();
  } catch (const e::Error& error) {
    CHECK(error.family() == TSR_BUG);
    CHECK(error.hint() == "catch it in the plugin; the wrapper of <tessera/plugin.hpp> does");
    return error.code() + " " + error.message();
  }
  return "nothing";
}

e::Tensor numbers(const std::vector<float>& x) {
  const std::vector<int64_t> sizes = {static_cast<int64_t>(x.size())};
  e::Tensor t = e::Tensor::create(TSR_F32, sizes);
  std::copy(x.begin(), x.end(), static_cast<float*>(t.data()));
  return t;
}

const char* const kNegative = "graph @g(%x: f32[4]) { %y = neg %x return %y }";
const char* const kSymbolic = "graph @g(%x: f32[s0]) { %y = neg %x return %y }";
const char* const kCounts = "graph @g(%x: f32[s0]) { %y = nonzero %x return %y }";
const char* const kBoom = "graph @g(%x: f32[4]) { %y = acme.boom %x return %y }";
const char* const kSame = "graph @g(%x: f32[4]) { %v = acme.same %x %y = neg %v return %y }";
const char* const kTwice = "graph @g(%x: f32[4]) { %y = acme.twice %x return %y }";
const char* const kStep =
    "graph @g(%x: f32[4] param) { %y = acme.boom %x %s = mul %y, %y %l = reduce_sum %s {axes = [0]} %d = grad %l, %x return %d "
    "}";
const std::string kPlugin = "TSR-P046 plugin 'acme.escaping' (Acme): an exception left ";

e::Executable compile(const char* text) { return plain().compile(plain().parse(text, "case")); }

}  // namespace

TEST_CASE("a kernel whose functions let an exception escape") {
  // By the short way of static sizes, and by the long one.
  for (const char* text : {kNegative, kSymbolic}) {
    INFO(text);
    const e::Executable x = compile(text);
    const std::vector<e::Tensor> in = {numbers({1, -2, 3, 0})};
    CHECK(static_cast<const float*>(x.run(in)[0].data())[1] == 2);
    {
      const Escaping now("launch");
      const std::string error = said([&] { (void)x.run(in); });
      CHECK(error.find(kPlugin + "launch of backend 'escaping': no licence in ") == 0);
      CHECK(error.find("neg") != std::string::npos);
    }
    CHECK(static_cast<const float*>(x.run(in)[0].data())[1] == 2);
  }
  const e::Executable counts = compile(kCounts);
  const std::vector<e::Tensor> in = {numbers({1, 0, 3})};
  CHECK(counts.run(in)[0].elements() == 2);
  {
    const Escaping now("sizes");
    CHECK(said([&] { (void)counts.run(in); }).find(kPlugin + "sizes of backend 'escaping': no licence") == 0);
  }
  CHECK(counts.run(in)[0].elements() == 2);
  for (const char* function : {"claim", "workspace"}) {
    INFO(function);
    const Escaping now(function);
    const std::string error = said([&] { (void)compile(kNegative); });
    CHECK(error.find("TSR-P046") == 0);
    CHECK(error.find(std::string("an exception left ") + function + " of backend 'escaping': no licence") != error.npos);
  }
  {  // a backend that cannot compile what it has claimed leaves it to the next one
    const Escaping now("compile");
    CHECK(static_cast<const float*>(compile(kNegative).run({{numbers({1, -2, 3, 0})}})[0].data())[1] == 2);
  }
  {  // a warning
    const Escaping now("destroy");
    (void)compile(kNegative);
  }
  CHECK(static_cast<const float*>(compile(kNegative).run({{numbers({1, -2, 3, 0})}})[0].data())[1] == 2);
}

TEST_CASE("an op whose callbacks let an exception escape") {
  const std::string plugin = "plugin 'acme.escaping': an exception left ";
  const e::Executable x = compile(kBoom);
  const std::vector<e::Tensor> in = {numbers({1, -2, 3, 0})};
  CHECK(static_cast<const float*>(x.run(in)[0].data())[1] == -2);
  {
    const Escaping now("compute");
    CHECK(said([&] { (void)x.run(in); }).find("TSR-P046 " + plugin + "compute of op 'acme.boom': no licence") == 0);
  }
  CHECK(static_cast<const float*>(x.run(in)[0].data())[1] == -2);

  const struct {
    const char *function, *op, *text;
    float second;
  } cases[] = {
      {"infer", "same", kSame, 2}, {"view", "same", kSame, 2}, {"decompose", "twice", kTwice, -4}, {"grad", "boom", kStep, -4}};
  for (const auto& c : cases) {
    INFO(c.function);
    {
      const Escaping now(c.function);
      CHECK(said([&] { (void)compile(c.text); }).find(plugin + c.function + " of op 'acme." + c.op + "': no licence") !=
            std::string::npos);
    }
    CHECK(static_cast<const float*>(compile(c.text).run(in)[0].data())[1] == c.second);
  }
}

TEST_CASE("a partitioner whose functions let an exception escape, and what an op costs") {
  const e::Context c =
      context("[cache]\ngraphs = false\nprofiles = false\n[partitioner]\nname = \"escaping\"\ncosts = \"predicted\"\n");
  const auto plans = [&] { return c.memory_plans(c.parse(kStep, "case")); };
  const auto step = [&] {
    return static_cast<const float*>(c.compile(c.parse(kStep, "case")).run({{numbers({1, -2, 3, 0})}})[0].data())[1];
  };
  for (const char* function : {"front", "partition"}) {
    INFO(function);
    const Escaping now(function);
    const bool front = std::string(function) == "front";
    CHECK(said([&] { front ? (void)plans() : (void)step(); }) == kPlugin + function + " of partitioner 'escaping': no licence");
  }
  {
    const Escaping now("cost");
    CHECK(said([&] { (void)plans(); }).find("an exception left cost of op 'acme.boom': no licence") != std::string::npos);
  }
  CHECK(plans().find("peak_bytes") != std::string::npos);
  CHECK(step() == -4);
}

TEST_CASE("a frontend whose probe lets an exception escape") {
  const struct File {
    const std::string path = std::filesystem::temp_directory_path() / ("tessera-probe-" + std::to_string(getpid()) + ".tsr");
    File() { std::ofstream(path) << kNegative; }
    ~File() { std::remove(path.c_str()); }
  } file;
  {
    const Escaping now("probe");
    CHECK(said([&] { (void)plain().load(file.path); }) == kPlugin + "probe of frontend 'escaping': no licence");
  }
  CHECK(plain().load(file.path).handle() != nullptr);
}

TEST_CASE("a frontend whose capture lets an exception escape") {
  const auto function = [](const e::Context& c) {
    tsr_callable_desc d{};
    d.struct_size = sizeof d;
    d.name = "negative";
    d.loc = {"model.cpp", 12, 3};
    d.invoke = [](void* self, tsr_recorder* r, const tsr_arg*, size_t, void** structure) noexcept -> tsr_error* {
      const tsr_capture_api& capture = *e::api().host->capture;
      const tsr_id x = capture.input(r, 0);
      tsr_node_desc n{};
      n.struct_size = sizeof n;
      n.op = "neg";
      n.operands = &x;
      n.num_operands = 1;
      tsr_id y = TSR_NONE;
      uint32_t results = 0;
      *structure = self;
      if (tsr_error* error = capture.op(r, &n, &y, 1, &results)) return error;
      return capture.set_outputs(r, &y, 1);
    };
    d.structure_free = [](void*) noexcept {};
    d.path = [](void*, const tsr_arg*, size_t, size_t, char* buf, size_t n) noexcept {
      if (n > 0) *buf = 0;
    };
    tsr_callable_handle* out = nullptr;
    e::check(e::api().callable_create(c.handle(), &d, &out));
    return std::unique_ptr<tsr_callable_handle, void (*)(tsr_callable_handle*)>(out, e::api().callable_destroy);
  };
  const auto callable = function(plain());
  const e::Tensor x = numbers({1, -2});
  const auto call = [&] {
    tsr_arg arg{};
    arg.kind = TSR_ARG_TENSOR;
    arg.tensor = x.handle();
    tsr_tensor_handle* out = nullptr;
    size_t n = 0;
    void* structure = nullptr;
    e::check(e::api().call(callable.get(), &arg, 1, &out, 1, &n, &structure));
    return static_cast<const float*>(e::Tensor::adopt(out).data())[1];
  };
  {
    const Escaping now("capture");
    CHECK(said(call).find(kPlugin + "capture of frontend 'escaping': no licence") == 0);
  }
  CHECK(call() == 2);
}

TEST_CASE("a store whose functions let an exception escape is as one that fails: nothing is cached, and the program runs") {
  const std::vector<e::Tensor> in = {numbers({1, -2, 3, 0})};
  const auto compiles = [&](const e::Context& c) {
    const e::Executable x = c.compile_model(c.parse(kNegative, "case"));
    c.cache_flush();
    return static_cast<const float*>(x.run(in)[0].data())[1];
  };
  for (const char* function : {"info", "get", "put"}) {
    INFO(function);
    const Escaping now(function);
    CHECK(compiles(context()) == 2);
  }
  const e::Context c = context();
  CHECK(compiles(c) == 2);
  CHECK(said([&] {
          const Escaping now("list");
          (void)c.cache_list();
        }) == kPlugin + "list of store 'escaping': no licence");
  REQUIRE(c.cache_list().find("\"key\"") != std::string::npos);  // else there is nothing to remove
  CHECK(said([&] {
          const Escaping now("remove");
          (void)c.cache_prune(0);
        }) == kPlugin + "remove of store 'escaping': no licence");
}

TEST_CASE("a device whose functions let an exception escape") {
  (void)plain();
  const tsr_device device = e::device("escaping:0");
  const e::Tensor x = numbers({1, -2, 3, 0});
  for (const char* function : {"alloc", "copy"}) {
    INFO(function);
    const Escaping now(function);
    CHECK(said([&] { (void)x.copy_to(device); }) == kPlugin + function + " of device 'escaping:0': no licence");
  }
  const e::Tensor there = x.copy_to(device);
  CHECK(static_cast<const float*>(there.copy_to(0).data())[1] == -2);
}
