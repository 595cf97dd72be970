// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "api/api.hpp"
#include "compile/services.hpp"
#include "dispatch/import_model.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/verifier.hpp"
#include "memory/tensor.hpp"
#include "pass/pass_manager.hpp"
#include "pass/pipeline.hpp"
#include "trace/trace.hpp"
#include "trace/trace_graph.hpp"

namespace tessera::core::api {

namespace {

using Json = nlohmann::ordered_json;

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

std::vector<ModelArgument> arguments_of(const tsr_binding* bindings, size_t count, size_t stride, bool with_value) {
  std::vector<ModelArgument> out;
  for (size_t i = 0; i < count; ++i) {
    const tsr_binding& b = *TSR_AT(tsr_binding, bindings, stride, i);
    const tsr_tensor& t = required(b.value, "the value of a binding");
    if (with_value && !t.data && num_elements({t.sizes, t.rank}) > 0) refuse_null("the data of a binding");
    out.push_back({&required(b.name, "the name of a binding"), t});
  }
  return out;
}

tsr_error* load_bound(tsr_context* c, const char* path, const tsr_binding* bindings, size_t count, size_t stride,
                      tsr_graph** out) noexcept {
  return guarded([&] {
    required(out, "the graph to be returned");
    *out = import_model(required(c, "context").context, &required(path, "the path"), {},
                        arguments_of(bindings, count, stride, true), WhenLacking::kThrow)
               .graph.release()
               ->handle();
  });
}

tsr_error* load_for(tsr_context* c, const char* path, const tsr_binding* arguments, size_t count, size_t stride,
                    tsr_graph** out, tsr_graph** inputs, char** report) noexcept {
  return guarded([&] {
    required(out, "the graph to be returned") = nullptr;
    required(inputs, "the inputs to be returned") = nullptr;
    ImportedModel m = import_model(required(c, "context").context, &required(path, "the path"),
                                   arguments_of(arguments, count, stride, false), {}, WhenLacking::kReturn);
    if (report) {
      Json fixed = Json::array();
      for (const FixedInput& f : m.fixed) {
        Json sizes = Json::array();
        for (const tsr_dim d : f.sizes) sizes.push_back(d == -1 ? Json() : Json(d));
        fixed.push_back({{"input", f.name}, {"value", f.value}, {"sizes", f.value ? Json() : sizes}});
      }
      Json missing = Json::array();
      for (const ImportedModel::Missing& x : m.missing) missing.push_back({{"input", x.input}, {"what", x.what}});
      Json assumed = Json::array();
      for (const Assumption& a : m.graph ? assumed_of_inputs(*m.graph) : std::vector<Assumption>()) {
        static constexpr const char* kText[] = {"==", "!=", "<", "<=", ">", ">=", "divisible by"};
        assumed.push_back({{"relation", kText[a.relation]}, {"a", a.a}, {"b", a.b}});
      }
      *report = to_c_string(Json{{"fixed", fixed}, {"missing", missing}, {"open", m.open}, {"assumed", assumed}}.dump(
          -1, ' ', false, Json::error_handler_t::replace));
    }
    if (m.graph) *out = m.graph.release()->handle();
    if (m.inputs) *inputs = m.inputs.release()->handle();
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
      const TracePhase phase("passes");
      return run_passes(graph, passes, pass_options_of(context->config()));
    });
    if (report) *report = to_c_string(timing_json(r));
  });
}

}  // namespace

void graph_functions(tsr_api& t) {
  t.graph_load = load;
  t.graph_load_bound = load_bound;
  t.graph_load_for = load_for;
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
