// SPDX-License-Identifier: Apache-2.0
// The embedding API for C++20: owning handles and exceptions over the table of embed.h, header-only.
//
//   namespace e = tessera::embed;
//   e::Context context({.config_path = "default"});
//   e::Graph graph = context.load("model.tsr");
//   context.run_passes(graph);
//   e::Executable model = context.compile(std::move(graph));
//   std::vector<e::Tensor> outputs = model.run({x, w});
//
// Every function that can fail throws Error. Thread-safety is that of embed.h: contexts, executables and tensors may be used
// from many threads at once, a graph by one at a time. JSON documents are returned as text; their keys: docs/json.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/embed.h"

namespace tessera::embed {

// what() is "error[CODE] message", with the hint on a line of its own.
class Error : public std::runtime_error {
 public:
  Error(tsr_family family, std::string code, std::string message, std::string hint = {})
      : std::runtime_error("error[" + code + "] " + message + (hint.empty() ? "" : "\n  hint: " + hint)),
        family_(family),
        code_(std::move(code)),
        message_(std::move(message)),
        hint_(std::move(hint)) {}
  [[nodiscard]] tsr_family family() const noexcept { return family_; }
  [[nodiscard]] const std::string& code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const std::string& hint() const noexcept { return hint_; }  // may be empty

 private:
  tsr_family family_;
  std::string code_, message_, hint_;
};

// The library's table. Throws when the library is of another major version than these headers.
inline const tsr_api& api() {
  static const tsr_api* const table = tsr_get_api(TSR_ABI_MAJOR);
  if (!table)
    throw Error(TSR_ENVIRONMENT, "TSR-E001", "libtessera does not serve ABI version " + std::to_string(TSR_ABI_MAJOR),
                "use the library that was installed with these headers");
  return *table;
}

// Throws what `e` reports and frees it; returns when it is null.
inline void check(tsr_error* e) {
  if (!e) return;
  const tsr_host_core& host = *api().host->core;
  const char* hint = host.error_hint(e);
  Error out(static_cast<tsr_family>(host.error_family(e)), host.error_code(e), host.error_message(e), hint ? hint : "");
  api().error_free(e);
  throw out;
}

// f() for a caller behind the C boundary: null, or what it threw.
template <class F>
tsr_error* guarded(F&& f) noexcept {
  const tsr_host_core& host = *api().host->core;
  try {
    f();
    return nullptr;
  } catch (const Error& e) {
    return host.error_create(e.family(), e.code().c_str(), e.message().c_str(), e.hint().empty() ? nullptr : e.hint().c_str());
  } catch (const std::bad_alloc&) {
    return host.error_create(TSR_ENVIRONMENT, "TSR-R001", "out of memory in a callback of the client", nullptr);
  } catch (const std::exception& e) {
    return host.error_create(TSR_BUG, "TSR-E017", e.what(), nullptr);
  } catch (...) {
    return host.error_create(TSR_BUG, "TSR-E017", "a callback of the client threw something that is no std::exception",
                             nullptr);
  }
}

// Takes over a string of the library.
inline std::string take(char* text) {
  if (!text) return {};
  const std::unique_ptr<char, void (*)(char*)> owner(text, api().string_free);
  return text;
}

template <class Function, class... Args>
std::string text_of(Function function, Args... args) {
  char* out = nullptr;
  check(function(args..., &out));
  return take(out);
}

// A text for the C table, where it ends at its first zero byte. One that has a zero byte inside is refused (TSR-E015): cut off
// there it would be another text. `what` names it in the message.
inline const char* c_text(const std::string& text, const char* what) {
  const size_t zero = text.find('\0');
  if (zero == text.npos) return text.c_str();
  throw Error(TSR_USER, "TSR-E015",
              std::string(what) + ": found a zero byte at index " + std::to_string(zero) + " of '" + text.substr(0, zero) +
                  "'..., expected text without one",
              "leave it out: names, paths and config values are texts");
}

inline tsr_device device(const std::string& name) { return api().host->core->device_id(c_text(name, "the name of a device")); }
inline std::string device_name(tsr_device id) { return api().host->core->device_name(id); }

// ------------------------------------------------------------------------------------------------------------ tensors

// A counted reference to a tensor; null by default. Copies share the data.
class Tensor {
 public:
  Tensor() = default;
  static Tensor adopt(tsr_tensor_handle* handle) noexcept {  // takes over one reference
    Tensor t;
    t.handle_ = handle;
    return t;
  }
  // Uninitialised, dense row-major.
  static Tensor create(uint32_t dtype, std::span<const int64_t> sizes, tsr_device where = 0) {
    tsr_tensor_handle* h = nullptr;
    check(api().tensor_create(dtype, static_cast<uint32_t>(sizes.size()), sizes.data(), where, &h));
    return adopt(h);
  }
  Tensor(const Tensor& o) noexcept : handle_(o.handle_) {
    if (handle_) api().tensor_retain(handle_);
  }
  Tensor(Tensor&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Tensor& operator=(Tensor o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_) api().tensor_release(handle_);
  }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

  [[nodiscard]] tsr_tensor_handle* handle() const noexcept { return handle_; }
  [[nodiscard]] const tsr_tensor& desc() const noexcept { return handle_->desc; }
  [[nodiscard]] void* data() const noexcept { return desc().data; }
  [[nodiscard]] uint32_t dtype() const noexcept { return desc().dtype; }
  [[nodiscard]] std::span<const int64_t> sizes() const noexcept { return {desc().sizes, desc().rank}; }
  [[nodiscard]] int64_t elements() const noexcept {
    int64_t n = 1;
    for (const int64_t s : sizes()) n *= s;
    return n;
  }

  // Shares the data; `offset` in elements from this tensor's first.
  [[nodiscard]] Tensor view(int64_t offset, std::span<const int64_t> sizes, std::span<const int64_t> strides) const {
    tsr_tensor_handle* h = nullptr;
    check(api().tensor_view(handle_, offset, static_cast<uint32_t>(sizes.size()), sizes.data(), strides.data(), &h));
    return adopt(h);
  }
  [[nodiscard]] Tensor copy_to(tsr_device where) const {  // always a dense copy
    tsr_tensor_handle* h = nullptr;
    check(api().tensor_copy(handle_, where, &h));
    return adopt(h);
  }

 private:
  tsr_tensor_handle* handle_ = nullptr;
};

// ---------------------------------------------------------------------------------------------------- graphs, executables

// What the inputs and outputs of a graph are called outside of it, in order. Names of outputs differ from each other.
inline std::vector<std::string> input_names(const tsr_tables& t) {
  const tsr_region& body = *TSR_AT(tsr_region, t.regions, t.region_stride, 0);
  std::vector<std::string> names;
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_value& v = *TSR_AT(tsr_value, t.values, t.value_stride, body.inputs[i]);
    names.emplace_back(v.key ? v.key : v.name);
  }
  return names;
}
inline std::vector<std::string> output_names(const tsr_tables& t) {
  const tsr_region& body = *TSR_AT(tsr_region, t.regions, t.region_stride, 0);
  const char* const* given = TSR_HAS(&t, tsr_tables, output_names) ? t.output_names : nullptr;
  std::vector<std::string> names;
  for (uint32_t i = 0; i < body.num_outputs; ++i)
    names.emplace_back(given && given[i] ? given[i] : TSR_AT(tsr_value, t.values, t.value_stride, body.outputs[i])->name);
  return names;
}

class Graph {
 public:
  explicit Graph(tsr_graph* handle) : handle_(handle, api().graph_destroy) {}  // takes it over
  [[nodiscard]] tsr_graph* handle() const noexcept { return handle_.get(); }
  tsr_graph* release() noexcept { return handle_.release(); }
  [[nodiscard]] const tsr_tables& tables() const { return *api().graph_tables(handle()); }
  [[nodiscard]] std::vector<std::string> input_names() const { return embed::input_names(tables()); }
  [[nodiscard]] std::vector<std::string> output_names() const { return embed::output_names(tables()); }
  [[nodiscard]] std::string print(uint32_t flags = 0) const {
    return text_of(api().graph_print, handle(), flags);
  }  // TSR_PRINT_*
  void verify() const { check(api().graph_verify(handle())); }
  [[nodiscard]] Graph clone() const {
    tsr_graph* out = nullptr;
    check(api().graph_clone(handle(), &out));
    return Graph(out);
  }

 private:
  std::unique_ptr<tsr_graph, void (*)(tsr_graph*)> handle_;
};

// A queue of one device. Destroying it waits for what is queued on it.
class Stream {
 public:
  explicit Stream(tsr_device where) : handle_(create(where), api().stream_destroy) {}
  [[nodiscard]] tsr_stream_handle* handle() const noexcept { return handle_.get(); }
  [[nodiscard]] tsr_device device() const { return api().stream_device(handle()); }
  void synchronize() const { check(api().synchronize(device(), handle())); }

 private:
  static tsr_stream_handle* create(tsr_device where) {
    tsr_stream_handle* s = nullptr;
    check(api().stream_create(where, &s));
    return s;
  }
  std::unique_ptr<tsr_stream_handle, void (*)(tsr_stream_handle*)> handle_;
};

// Tells `listener`, for a scope, how far work of seconds is: `done` of `total` units of `what` ("measuring schedules"), ended
// when they are equal. One scope in a process at a time. The listener is called on the threads that work, one call at a time,
// and must not throw and not call this library.
class ProgressScope {
 public:
  using Listener = std::function<void(std::string_view what, uint64_t done, uint64_t total)>;
  explicit ProgressScope(Listener listener) : listener_(std::move(listener)) {
    const auto tell = [](void* self, const char* what, uint64_t done, uint64_t total) {
      static_cast<const ProgressScope*>(self)->listener_(what, done, total);
    };
    api().listen_to_progress(tell, this);
  }
  ~ProgressScope() { api().listen_to_progress(nullptr, nullptr); }
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

 private:
  Listener listener_;
};

// Waits for everything that is queued on any stream of the device.
inline void synchronize(tsr_device where) { check(api().synchronize(where, nullptr)); }

// Makes a stream the calling thread's current one of its device, for a scope.
class StreamScope {
 public:
  explicit StreamScope(const Stream& s) : device_(s.device()) {
    check(api().set_current_stream(device_, s.handle(), &before_));
  }
  ~StreamScope() { api().error_free(api().set_current_stream(device_, before_, nullptr)); }
  StreamScope(const StreamScope&) = delete;

 private:
  tsr_device device_;
  tsr_stream_handle* before_ = nullptr;
};

class Executable {
 public:
  explicit Executable(tsr_executable* handle) : handle_(handle, api().executable_destroy) {}  // takes it over
  [[nodiscard]] tsr_executable* handle() const noexcept { return handle_.get(); }
  // The final graph: its inputs and outputs are those of run().
  [[nodiscard]] const tsr_tables& tables() const { return *api().executable_graph(handle()); }
  [[nodiscard]] std::vector<std::string> input_names() const { return embed::input_names(tables()); }
  [[nodiscard]] std::vector<std::string> output_names() const { return embed::output_names(tables()); }
  [[nodiscard]] std::string describe() const { return text_of(api().executable_describe, handle()); }  // JSON: "executable"
  [[nodiscard]] std::string plan() const { return text_of(api().executable_plan, handle()); }  // the step table, for people
  void write_diagram(const std::string& path) const {                                          // .dot, .svg
    check(api().executable_diagram(handle(), c_text(path, "the path of a diagram")));
  }
  [[nodiscard]] std::vector<Tensor> run(std::span<const Tensor> inputs, const tsr_run_options* options = nullptr) const {
    std::vector<tsr_tensor_handle*> in;
    in.reserve(inputs.size());
    for (const Tensor& t : inputs) in.push_back(t.handle());
    const tsr_tables& t = tables();
    std::vector<tsr_tensor_handle*> out(TSR_AT(tsr_region, t.regions, t.region_stride, 0)->num_outputs);
    check(options ? api().run_with(handle(), options, in.data(), in.size(), out.data(), out.size())
                  : api().run(handle(), in.data(), in.size(), out.data(), out.size()));
    std::vector<Tensor> results;
    results.reserve(out.size());
    for (tsr_tensor_handle* h : out) results.push_back(Tensor::adopt(h));
    return results;
  }
  // On memory of the caller. output(index, described, bytes) returns the memory of an output (tsr_raw_call.output); it may
  // throw Error.
  template <class Output>
  void run_raw(std::span<const tsr_tensor> inputs, size_t num_outputs, Output&& output) const {
    tsr_raw_call call{};
    call.struct_size = sizeof call;
    call.inputs = inputs.data();
    call.num_inputs = inputs.size();
    call.num_outputs = num_outputs;
    call.self = &output;
    call.output = [](void* self, size_t index, const tsr_tensor* described, size_t bytes, void** data) noexcept {
      return guarded([&] { *data = (*static_cast<std::remove_reference_t<Output>*>(self))(index, *described, bytes); });
    };
    check(api().run_raw(handle(), &call));
  }
  // With steps of the client: step(call) fills in call.results; it may throw Error.
  template <class Output, class Step>
  void run_raw(std::span<const tsr_tensor> inputs, size_t num_outputs, Output&& output, Step&& step) const {
    struct Client {
      std::remove_reference_t<Output>& output;
      std::remove_reference_t<Step>& step;
    } client{output, step};
    tsr_raw_call call{};
    call.struct_size = sizeof call;
    call.inputs = inputs.data();
    call.num_inputs = inputs.size();
    call.num_outputs = num_outputs;
    call.self = &client;
    call.output = [](void* self, size_t index, const tsr_tensor* described, size_t bytes, void** data) noexcept {
      return guarded([&] { *data = static_cast<Client*>(self)->output(index, *described, bytes); });
    };
    call.client_step = [](void* self, tsr_client_call* c) noexcept {
      return guarded([&] { static_cast<Client*>(self)->step(*c); });
    };
    check(api().run_raw(handle(), &call));
  }

 private:
  std::unique_ptr<tsr_executable, void (*)(tsr_executable*)> handle_;
};

// ------------------------------------------------------------------------------------------------------------ contexts

struct ContextOptions {
  std::string config_path;             // empty: the built-in default
  std::string config_text;             // used instead of a file when not empty
  std::vector<std::string> overrides;  // "runtime.threads=1"
  std::vector<std::string> plugin_dirs;
};

// The C form of ContextOptions, for as long as it and they live.
class ContextOptionsView {
 public:
  explicit ContextOptionsView(const ContextOptions& o)
      : overrides_(pointers(o.overrides, "an override")), dirs_(pointers(o.plugin_dirs, "the path of a plugin directory")) {
    c_.struct_size = sizeof c_;
    c_.config_path = o.config_path.empty() ? nullptr : c_text(o.config_path, "the path of a config");
    c_.config_text = o.config_text.empty() ? nullptr : c_text(o.config_text, "the text of a config");
    c_.overrides = overrides_.data();
    c_.num_overrides = overrides_.size();
    c_.plugin_dirs = dirs_.data();
    c_.num_plugin_dirs = dirs_.size();
  }
  ContextOptionsView(const ContextOptionsView&) = delete;
  [[nodiscard]] const tsr_context_options* get() const noexcept { return &c_; }

 private:
  static std::vector<const char*> pointers(const std::vector<std::string>& strings, const char* what) {
    std::vector<const char*> out;
    for (const std::string& s : strings) out.push_back(c_text(s, what));
    return out;
  }
  std::vector<const char*> overrides_, dirs_;
  tsr_context_options c_{};
};

// What it loads and compiles keeps the plugins alive; the context itself may go first.
class Context {
 public:
  explicit Context(const ContextOptions& options = {}) : handle_(create(options), api().context_destroy) {}
  [[nodiscard]] tsr_context* handle() const noexcept { return handle_.get(); }

  [[nodiscard]] Graph load(const std::string& path) const {
    tsr_graph* g = nullptr;
    check(api().graph_load(handle(), c_text(path, "the path of a model"), &g));
    return Graph(g);
  }
  // Inputs of these names become constants.
  [[nodiscard]] Graph load(const std::string& path, std::span<const std::pair<std::string, Tensor>> bound) const {
    std::vector<tsr_binding> bindings;
    bindings.reserve(bound.size());
    for (const auto& [name, tensor] : bound) bindings.push_back({c_text(name, "the name of an input"), &tensor.desc()});
    tsr_graph* g = nullptr;
    check(api().graph_load_bound(handle(), c_text(path, "the path of a model"), bindings.data(), bindings.size(),
                                 sizeof(tsr_binding), &g));
    return Graph(g);
  }
  // A model for a call with these arguments: what it has to know of them is fixed in the graph. A tensor of which only the type
  // counts may be left out of `values` and stand in `types`.
  struct Loaded {
    std::unique_ptr<Graph> graph;   // null: the arguments do not say enough
    std::unique_ptr<Graph> inputs;  // then: the inputs that the file declares
    std::string report;             // JSON: "loaded"
  };
  [[nodiscard]] Loaded load_for(const std::string& path, std::span<const std::pair<std::string, Tensor>> values,
                                std::span<const std::pair<std::string, Tensor>> types = {}) const {
    std::vector<tsr_tensor> tensors;
    std::vector<tsr_binding> arguments;
    tensors.reserve(values.size() + types.size());
    for (const bool with_value : {true, false})
      for (const auto& [name, tensor] : with_value ? values : types) {
        tensors.push_back(tensor.desc());
        if (!with_value) tensors.back().data = nullptr;
        arguments.push_back({c_text(name, "the name of an input"), &tensors.back()});
      }
    tsr_graph *graph = nullptr, *inputs = nullptr;
    char* report = nullptr;
    check(api().graph_load_for(handle(), c_text(path, "the path of a model"), arguments.data(), arguments.size(),
                               sizeof(tsr_binding), &graph, &inputs, &report));
    Loaded out;
    out.report = take(report);
    if (graph) out.graph = std::make_unique<Graph>(graph);
    if (inputs) out.inputs = std::make_unique<Graph>(inputs);
    return out;
  }
  [[nodiscard]] Graph parse(std::string_view text, const std::string& name) const {  // text IR; `name` is for messages
    tsr_graph* g = nullptr;
    check(api().graph_parse(handle(), text.data(), text.size(), c_text(name, "the name of a text"), &g));
    return Graph(g);
  }
  // build(graph) fills an empty graph through api().host->graph; it may throw Error.
  template <class Build>
  [[nodiscard]] Graph build(const std::string& name, Build&& fill) const {
    tsr_graph* g = nullptr;
    check(api().graph_build(
        handle(), c_text(name, "the name of a graph"),
        [](void* self, tsr_graph* graph) noexcept {
          return guarded([&] { (*static_cast<std::remove_reference_t<Build>*>(self))(graph); });
        },
        &fill, &g));
    return Graph(g);
  }
  // The config's pipeline; returns the report (JSON: "pass report").
  std::string run_passes(Graph& graph) const { return run_pipeline(graph, nullptr); }
  std::string run_passes(Graph& graph, const std::string& pipeline) const {
    return run_pipeline(graph, c_text(pipeline, "a pipeline"));
  }
  // backends: "eager,reference"; empty: the config's order.
  [[nodiscard]] Executable compile(Graph graph, const std::string& backends = {}) const {
    tsr_executable* e = nullptr;
    const char* names = backends.empty() ? nullptr : c_text(backends, "the names of backends");
    check(api().compile(handle(), graph.release(), names, &e));
    return Executable(e);
  }
  // The config's pipeline, then its backends; a cache saves both.
  [[nodiscard]] Executable compile_model(Graph graph) const {
    tsr_executable* e = nullptr;
    check(api().compile_model(handle(), graph.release(), &e));
    return Executable(e);
  }
  // The plans that the config's partitioner chooses from for a training step (JSON: "memory plans").
  [[nodiscard]] std::string memory_plans(Graph graph) const {
    return with_text([&](char** out) { return api().memory_plans(handle(), graph.release(), out); });
  }
  [[nodiscard]] std::string explain() const { return text_of(api().config_explain, handle()); }
  [[nodiscard]] std::string options() const { return text_of(api().config_options, handle()); }
  [[nodiscard]] std::string ops() const { return text_of(api().op_list, handle()); }
  [[nodiscard]] std::string loaded() const { return text_of(api().loaded, handle()); }
  // The cache (JSON: docs/json.md). Throw TSR-K002 when this context has none.
  [[nodiscard]] std::string cache_list() const { return text_of(api().cache_list, handle()); }
  std::string cache_prune(uint64_t max_bytes) const {
    return with_text([&](char** out) { return api().cache_prune(handle(), max_bytes, out); });
  }
  std::string cache_export(const std::string& path) const {
    return with_text([&](char** out) { return api().cache_export(handle(), c_text(path, "the path of a bundle"), out); });
  }
  std::string cache_import(const std::string& path) const {
    return with_text([&](char** out) { return api().cache_import(handle(), c_text(path, "the path of a bundle"), out); });
  }
  std::string cache_verify() const { return text_of(api().cache_verify, handle()); }
  void cache_flush() const { api().cache_flush(handle()); }  // waits for what is still being written

 private:
  static tsr_context* create(const ContextOptions& options) {
    tsr_context* c = nullptr;
    check(api().context_create(ContextOptionsView(options).get(), &c));
    return c;
  }
  template <class F>
  static std::string with_text(F&& f) {
    char* out = nullptr;
    check(f(&out));
    return take(out);
  }
  std::string run_pipeline(Graph& graph, const char* pipeline) const {
    char* report = nullptr;
    check(api().graph_run_passes(handle(), graph.handle(), pipeline, &report));
    return take(report);
  }
  std::unique_ptr<tsr_context, void (*)(tsr_context*)> handle_;
};

// A model file as a function of tensors, compiled at the first call and again where a call needs it: see tsr_api.callable_load.
// May be called by many threads at once.
class Model {
 public:
  Model(const Context& context, const std::string& path) {
    tsr_callable_handle* callable = nullptr;
    tsr_graph* inputs = nullptr;
    check(api().callable_load(context.handle(), c_text(path, "the path of a model"), &callable, &inputs));
    handle_.reset(callable);
    inputs_ = std::make_unique<Graph>(inputs);
  }
  [[nodiscard]] tsr_callable_handle* handle() const noexcept { return handle_.get(); }
  [[nodiscard]] const tsr_tables& inputs() const { return inputs_->tables(); }  // as the file declares them
  [[nodiscard]] std::string describe() const { return text_of(api().callable_describe, handle()); }  // JSON: "callable"
  [[nodiscard]] std::vector<Tensor> operator()(std::span<const Tensor> arguments) const {
    std::vector<tsr_arg> args(arguments.size());
    for (size_t i = 0; i < args.size(); ++i) {
      args[i].tensor = arguments[i].handle();
      args[i].kind = TSR_ARG_TENSOR;
    }
    std::vector<tsr_tensor_handle*> out(64);
    size_t count = 0;
    for (;;) {
      tsr_error* const e = api().call(handle(), args.data(), args.size(), out.data(), out.size(), &count, nullptr);
      if (e && out.size() < kMostOutputs && std::string_view(api().host->core->error_code(e)) == "TSR-E003") {
        api().error_free(e);  // more outputs than there was room for; nothing has run
        out.resize(out.size() * 8);
        continue;
      }
      check(e);
      break;
    }
    std::vector<Tensor> results;
    results.reserve(count);
    for (size_t i = 0; i < count; ++i) results.push_back(Tensor::adopt(out[i]));
    return results;
  }

 private:
  static constexpr size_t kMostOutputs = 1 << 20;
  std::unique_ptr<tsr_callable_handle, void (*)(tsr_callable_handle*)> handle_{nullptr, api().callable_destroy};
  std::unique_ptr<Graph> inputs_;
};

}  // namespace tessera::embed
