// SPDX-License-Identifier: Apache-2.0
// The null backend and its devices: memories apart from the host's, programs that compile and run without computing.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "conformance/cases.hpp"
#include "runner.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

const e::Context& null_context() {
  static const e::Context c = [] {
    e::ContextOptions o;
    o.config_text =
        "name = \"null\"\n"
        "[plugins]\n"
        "load = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.backend.null\"]\n"
        "[backends]\n"
        "order = [\"null\"]\n";
    if (const char* build = std::getenv("TESSERA_BUILD_DIR")) o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
    return e::Context(o);
  }();
  return c;
}

e::Tensor numbers(int64_t n) {
  e::Tensor t = e::Tensor::create(TSR_F32, std::vector<int64_t>{n});
  for (int64_t i = 0; i < n; ++i) static_cast<float*>(t.data())[i] = static_cast<float>(i) + 0.5f;
  return t;
}

}  // namespace

TEST_CASE("null devices hold data and copy it") {
  null_context();
  const tsr_device first = e::device("null:0"), second = e::device("null:1");
  REQUIRE(first != second);
  const int64_t before = e::api().memory_in_use(first);
  {
    const e::Tensor host = numbers(1000), on_first = host.copy_to(first), on_second = on_first.copy_to(second),
                    back = on_second.copy_to(e::device("cpu"));
    CHECK(on_first.desc().device == first);
    CHECK(on_second.desc().device == second);
    CHECK(on_first.data() != host.data());
    CHECK(reinterpret_cast<uintptr_t>(on_first.data()) % 64 == 0);
    CHECK(std::memcmp(back.data(), host.data(), 4000) == 0);
    CHECK(e::api().memory_in_use(first) >= before + 4000);
  }
  CHECK(e::api().memory_in_use(first) == before);
}

TEST_CASE("strided views are gathered on their way to a null device") {
  null_context();
  const std::vector<int64_t> sizes = {3, 5};
  std::vector<char> bytes(60);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  const e::Tensor strided = arrange(TSR_F32, sizes, bytes, Layout::Transposed);
  const e::Tensor back = strided.copy_to(e::device("null:1")).copy_to(e::device("cpu"));
  CHECK(std::memcmp(back.data(), bytes.data(), bytes.size()) == 0);
}

TEST_CASE("a null device that does not exist, and memory that does not exist") {
  null_context();
  const auto code = [](const char* device, int64_t n) -> std::string {
    try {
      const e::Tensor t = e::Tensor::create(TSR_F32, std::vector<int64_t>{n}, e::device(device));
      return "no error";
    } catch (const e::Error& error) {
      return error.code();
    }
  };
  CHECK(code("null:1", 4) == "no error");
  CHECK(code("null:2", 4) == "TSR-R002");
  CHECK(code("null:0", int64_t{1} << 50) == "TSR-R001");
}

TEST_CASE("the null device's table: streams, events, and what it refuses") {
  // The table is asked directly, as a host would.
  const std::string path = std::string(std::getenv("TESSERA_BUILD_DIR")) + "/lib/tessera/plugins/tessera.backend.null.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library);
  const auto query = reinterpret_cast<tsr_plugin_query_fn>(dlsym(library, "tsr_plugin_query"));
  REQUIRE(query);
  const tsr_plugin_desc* const plugin = query(e::api().host);
  void* instance = nullptr;
  e::check(plugin->create(e::api().host, nullptr, &instance));
  const tsr_factory* items = nullptr;
  size_t count = 0, stride = 0;
  e::check(plugin->factories(instance, &items, &count, &stride));
  const tsr_device_table* d = nullptr;
  void* self = nullptr;
  for (size_t i = 0; i < count; ++i)
    if (const tsr_factory& f = *TSR_AT(tsr_factory, items, stride, i); f.kind == TSR_DEVICE) {
      d = static_cast<const tsr_device_table*>(f.table);
      self = f.self;
    }
  REQUIRE(d);
  CHECK(d->count == 2);

  tsr_stream *first = nullptr, *second = nullptr;
  tsr_event *begin = nullptr, *end = nullptr, *other = nullptr;
  e::check(d->stream_create(self, 0, &first));
  e::check(d->stream_create(self, 1, &second));
  e::check(d->event_create(self, 0, &begin));
  e::check(d->event_create(self, 0, &end));
  e::check(d->event_create(self, 1, &other));

  void *a = nullptr, *b = nullptr;
  e::check(d->alloc(self, 0, 4096, 256, first, &a));
  e::check(d->alloc(self, 0, 4096, 64, first, &b));
  CHECK(reinterpret_cast<uintptr_t>(a) % 256 == 0);
  std::vector<char> host(4096, 7), back(4096, 0);
  e::check(d->event_record(self, 0, begin, first));
  e::check(d->copy(self, 0, a, host.data(), 4096, TSR_COPY_TO_DEVICE, first));
  e::check(d->copy(self, 0, b, a, 4096, TSR_COPY_WITHIN, first));
  e::check(d->copy(self, 0, back.data(), b, 4096, TSR_COPY_TO_HOST, first));
  e::check(d->event_record(self, 0, end, first));
  e::check(d->event_wait(self, 1, end, second));
  e::check(d->stream_synchronize(self, 0, first));
  CHECK(back == host);
  double seconds = -1;
  e::check(d->event_elapsed(self, 0, begin, end, &seconds));
  CHECK(seconds >= 0);

  const auto code = [](tsr_error* error) -> std::string {
    if (!error) return "no error";
    const std::string c = e::api().host->core->error_code(error);
    e::api().error_free(error);
    return c;
  };
  tsr_stream* none = nullptr;
  void* nothing = nullptr;
  CHECK(code(d->event_elapsed(self, 0, begin, other, &seconds)) == "TSR-B034");  // never recorded
  CHECK(code(d->event_record(self, 0, other, first)) == "TSR-B034");             // another device's stream
  CHECK(code(d->copy(self, 0, a, b, 1, 3, first)) == "TSR-B034");
  CHECK(code(d->copy(self, 0, a, b, 1, TSR_COPY_WITHIN, second)) == "TSR-B034");
  CHECK(code(d->alloc(self, 0, 64, 48, first, &nothing)) == "TSR-B034");
  CHECK(code(d->alloc(self, 2, 64, 64, first, &nothing)) == "TSR-R002");
  CHECK(code(d->stream_create(self, 7, &none)) == "TSR-R002");
  CHECK(code(d->alloc(self, 0, 0, 64, first, &nothing)) == "no error");

  CHECK(code(d->copy(self, 0, a, b, 1, TSR_COPY_WITHIN, nullptr)) == "TSR-B034");
  e::check(d->fill(self, 0, a, 5, 4096, first));
  e::check(d->copy_peer(self, 1, back.data(), 0, a, 4096, second));
  CHECK(back == std::vector<char>(4096, 5));
  int done = 0;
  e::check(d->event_query(self, 0, end, &done));
  CHECK(done == 1);
  d->free(self, 0, a, first);
  d->free(self, 0, b, first);
  d->event_destroy(self, 0, begin);
  d->event_destroy(self, 0, end);
  d->event_destroy(self, 1, other);
  d->stream_destroy(self, 0, first);
  d->stream_destroy(self, 1, second);
  plugin->destroy(instance);
}

TEST_CASE("every case of every op compiles and runs on null") {
  size_t ran = 0;
  std::string log;
  for (const Case& c : read_cases(std::string(std::getenv("TESSERA_SOURCE_DIR")) + "/sdk/conformance/cases")) {
    if (c.dtype != 0 && c.dtype != TSR_F32 && c.dtype != TSR_I4 && c.dtype != TSR_C64 && c.dtype != TSR_BOOL) continue;
    try {
      const e::Executable program = null_context().compile(null_context().parse(c.text(), "case"));
      std::vector<e::Tensor> in;
      for (size_t i = 0; i < c.operands.size(); ++i)
        if (!c.operands[i].omitted)
          in.push_back(arrange(c.operands[i].dtype, c.operands[i].sizes, make_values(c, i), Layout::Dense));
      const std::vector<e::Tensor> out = program.run(in);
      const tsr_tables& t = program.tables();
      const tsr_region& body = *TSR_AT(tsr_region, t.regions, t.region_stride, 0);
      for (size_t i = 0; i < out.size(); ++i) {
        const tsr_type& type = *TSR_AT(tsr_value, t.values, t.value_stride, body.outputs[i])->type;
        if (out[i].dtype() != type.dtype || out[i].sizes().size() != type.rank) log += c.where + ": result type\n";
        for (uint32_t d = 0; d < type.rank; ++d)
          if (!TSR_DIM_IS_EXPR(type.sizes[d]) && out[i].sizes()[d] != type.sizes[d]) log += c.where + ": result size\n";
      }
      ++ran;
    } catch (const std::exception& error) {
      log += c.where + ": " + error.what() + "\n" + c.text();
    }
  }
  INFO(log);
  CHECK(log.empty());
  CHECK(ran > 1000);
}

TEST_CASE("data-dependent sizes on null are an upper bound") {
  const auto sizes = [](const std::string& body, const std::vector<e::Tensor>& in) {
    const auto out = null_context().compile(null_context().parse("graph @g" + body, "case")).run(in);
    return std::vector<int64_t>(out[0].sizes().begin(), out[0].sizes().end());
  };
  const e::Tensor x = arrange(TSR_F32, {3, 4}, std::vector<char>(48), Layout::Dense);
  const e::Tensor mask = arrange(TSR_BOOL, {2, 1, 1}, std::vector<char>(2), Layout::Dense);
  CHECK(sizes("(%x: f32[3, 4]) { %r = nonzero %x return %r }", {x}) == std::vector<int64_t>{12, 2});
  CHECK(sizes("(%x: f32[3, 4], %m: bool[2, 1, 1]) { %r = masked_select %x, %m return %r }", {x, mask}) ==
        std::vector<int64_t>{24});
  CHECK(sizes("(%x: f32[3, 4]) { %a, %b, %c, %d = unique %x return %a }", {x}) == std::vector<int64_t>{12});
}

}  // namespace tessera::differential
