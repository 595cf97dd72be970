// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "api/api.hpp"
#include "compile/services.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/verifier.hpp"
#include "pass/pass_manager.hpp"
#include "pass/pipeline.hpp"
#include "trace/trace.hpp"
#include "trace/trace_graph.hpp"

namespace tessera::core::api {

namespace {

// A model file. Large ones are mapped, so that a frontend which reads parts of it brings only those into memory.
class ModelFile {
 public:
  explicit ModelFile(const std::string& path) {
    std::error_code code;
    if (std::filesystem::is_directory(path, code))
      throw user_error("TSR-R030", path + " is a directory; expected a model file", "name the file itself");
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      throw user_error("TSR-R030", "cannot read " + path + ": " + std::strerror(errno), "check the path and its permissions");
    struct Close {
      int fd;
      ~Close() { ::close(fd); }
    } const close{fd};
    struct stat info {};
    if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= kMapped) {
      length_ = static_cast<size_t>(info.st_size);
      mapping_ = ::mmap(nullptr, length_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (mapping_ != MAP_FAILED) return;
      mapping_ = nullptr;
    }
    char buffer[1 << 16];
    for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) != 0;) {
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw environment_error("TSR-R030", "cannot read " + path + ": " + std::strerror(errno));
      bytes_.append(buffer, static_cast<size_t>(n));
    }
  }
  ModelFile(const ModelFile&) = delete;
  ~ModelFile() {
    if (mapping_) ::munmap(mapping_, length_);
  }
  std::string_view bytes() const { return mapping_ ? std::string_view(static_cast<const char*>(mapping_), length_) : bytes_; }

 private:
  static constexpr off_t kMapped = off_t{1} << 20;
  void* mapping_ = nullptr;
  size_t length_ = 0;
  std::string bytes_;
};

// A graph that outlives its context handle: it borrows the records.
tsr_graph* hand_out(std::unique_ptr<Graph> g, const std::shared_ptr<const Context>& context) {
  if (!g->in_transaction()) g->begin("import");
  g->name_outputs();  // as the model says: whatever passes make of the values
  g->commit();
  g->keep(context);
  verify(*g);
  g->reset_scratch();
  return g.release()->handle();
}

tsr_error* load_bound(tsr_context* c, const char* path, const tsr_binding* bindings, size_t count, size_t stride,
                      tsr_graph** out) noexcept {
  return guarded([&] {
    required(out, "the graph to be returned");
    const auto& context = required(c, "context").context;
    const std::string name = &required(path, "the path");
    const ModelFile file(name);
    const std::string_view bytes = file.bytes();
    const Factory& frontend = context->frontend_for(name, bytes.substr(0, 4096));
    auto g = std::make_unique<Graph>(context->ops(), std::filesystem::path(name).stem().string());
    std::vector<Graph::Binding> bound;
    for (size_t i = 0; i < count; ++i) {
      const tsr_binding& b = *TSR_AT(tsr_binding, bindings, stride, i);
      bound.push_back({&required(b.name, "the name of a binding"), required(b.value, "the value of a binding"), false});
    }
    g->set_bindings(std::move(bound));
    const CompileOptions options = compile_options(context, context->config(), nullptr);
    const ServiceScope scope(options);
    frontend.check(frontend.as<tsr_frontend>().import(frontend.self, bytes.data(), bytes.size(), name.c_str(), g->handle()));
    for (const Graph::Binding& b : g->bindings())
      if (!b.asked)
        throw user_error("TSR-E013", name + ": no input '" + b.name + "' whose value can be fixed",
                         "name an input of the model; frontend '" + frontend.name + "' reads this file");
    g->set_bindings({});
    *out = hand_out(std::move(g), context);
  });
}

tsr_error* load(tsr_context* c, const char* path, tsr_graph** out) noexcept { return load_bound(c, path, nullptr, 0, 0, out); }

tsr_error* parse(tsr_context* c, const char* text, size_t length, const char* file, tsr_graph** out) noexcept {
  return guarded([&] {
    required(out, "the graph to be returned");
    const auto& context = required(c, "context").context;
    if (length > 0) required(text, "the text");
    *out = hand_out(parse_graph(context->ops(), {text, length}, file ? file : "<text>"), context);
  });
}

tsr_error* build(tsr_context* c, const char* name, tsr_error* (*fill)(void*, tsr_graph*), void* self,
                 tsr_graph** out) noexcept {
  return guarded([&] {
    required(out, "the graph to be returned");
    const auto& context = required(c, "context").context;
    if (!fill) refuse_null("the callback that builds");
    auto g = std::make_unique<Graph>(context->ops(), name ? name : "graph");
    const CompileOptions options = compile_options(context, context->config(), nullptr);
    const ServiceScope scope(options);
    throw_if(fill(self, g->handle()));
    *out = hand_out(std::move(g), context);
  });
}

tsr_error* symbol(tsr_graph* g, const char* name, int64_t min, int64_t max, int64_t hint, tsr_dim* out) noexcept {
  return guarded([&] {
    Graph& graph = Graph::from(&required(g, "graph"));
    const std::string text = &required(name, "the name of a symbol");
    const auto letter = [](char ch) { return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_'; };
    for (size_t i = 0; i < text.size() || i == 0; ++i)
      if (text.empty() || !(letter(text[i]) || (i > 0 && text[i] >= '0' && text[i] <= '9')))
        throw user_error("TSR-S006", "'" + text + "' is no name for a symbol", "use letters, digits and '_'");
    if (min > max)
      throw user_error("TSR-S006",
                       "symbol '" + text + "': the range " + std::to_string(min) + ".." + std::to_string(max) + " is empty");
    required(out, "the size to be returned") = graph.sizes().symbol(text, min, max, false, hint);
    graph.tables();
  });
}

tsr_error* clone(tsr_graph* g, tsr_graph** out) noexcept {
  return guarded([&] {
    auto copy = Graph::from(&required(g, "graph")).clone();
    if (copy->in_transaction()) copy->commit();
    required(out, "the graph to be returned") = copy.release()->handle();
  });
}

tsr_error* print(tsr_graph* g, uint32_t flags, char** text) noexcept {
  return guarded(
      [&] { required(text, "the text to be returned") = to_c_string(print_graph(Graph::from(&required(g, "graph")), flags)); });
}

tsr_error* run_pipeline(tsr_context* c, tsr_graph* g, const char* pipeline, char** report) noexcept {
  return guarded([&] {
    const auto& context = required(c, "context").context;
    Graph& graph = Graph::from(&required(g, "graph"));
    const std::vector<BoundPass> passes = pipeline ? bind_pipeline(*context, pipeline) : context->pipeline(context->config());
    const CompileOptions options = compile_options(context, context->config(), nullptr);
    const ServiceScope scope(options);
    const PassReport r = traced_compile({"passes", graph.tables().name, {}, {}}, [&] {
      if (trace_details()) trace_graph(graph, "input");
      return run_passes(graph, passes, pass_options_of(context->config()));
    });
    if (report) *report = to_c_string(timing_json(r));
  });
}

}  // namespace

void graph_functions(tsr_api& t) {
  t.graph_load = load;
  t.graph_load_bound = load_bound;
  t.graph_parse = parse;
  t.graph_build = build;
  t.graph_symbol = symbol;
  t.graph_clone = clone;
  t.graph_destroy = [](tsr_graph* g) noexcept {
    if (g) delete &Graph::from(g);
  };
  t.graph_print = print;
  t.graph_verify = [](tsr_graph* g) noexcept { return guarded([&] { verify(Graph::from(&required(g, "graph"))); }); };
  t.graph_tables = [](const tsr_graph* g) noexcept -> const tsr_tables* { return g ? &Graph::from(g).tables() : nullptr; };
  t.graph_run_passes = run_pipeline;
}

}  // namespace tessera::core::api
