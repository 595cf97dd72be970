// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

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

std::string read_file(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code))
    throw user_error("TSR-R030", path + " is a directory; expected a model file", "name the file itself");
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw user_error("TSR-R030", "cannot read " + path + ": " + std::strerror(errno), "check the path and its permissions");
  std::string bytes;
  in.seekg(0, std::ios::end);
  if (const auto end = in.tellg(); end > 0) bytes.resize(static_cast<size_t>(end));
  in.seekg(0);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in && !bytes.empty()) throw environment_error("TSR-R030", "cannot read " + path + ": " + std::strerror(errno));
  return bytes;
}

// A graph that outlives its context handle: it borrows the records.
tsr_graph* hand_out(std::unique_ptr<Graph> g, const std::shared_ptr<const Context>& context) {
  if (g->in_transaction()) g->commit();
  g->keep(context);
  verify(*g);
  g->reset_scratch();
  return g.release()->handle();
}

tsr_error* load(tsr_context* c, const char* path, tsr_graph** out) noexcept {
  return guarded([&] {
    required(out, "the graph to be returned");
    const auto& context = required(c, "context").context;
    const std::string name = &required(path, "the path");
    const std::string bytes = read_file(name);
    const Factory& frontend = context->frontend_for(name, std::string_view(bytes).substr(0, 4096));
    auto g = std::make_unique<Graph>(context->ops(), std::filesystem::path(name).stem().string());
    const CompileOptions options = compile_options(context, context->config(), nullptr);
    const ServiceScope scope(options);
    frontend.check(frontend.as<tsr_frontend>().import(frontend.self, bytes.data(), bytes.size(), name.c_str(), g->handle()));
    *out = hand_out(std::move(g), context);
  });
}

tsr_error* parse(tsr_context* c, const char* text, size_t length, const char* file, tsr_graph** out) noexcept {
  return guarded([&] {
    required(out, "the graph to be returned");
    const auto& context = required(c, "context").context;
    if (length > 0) required(text, "the text");
    *out = hand_out(parse_graph(context->ops(), {text, length}, file ? file : "<text>"), context);
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
  t.graph_parse = parse;
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
