// SPDX-License-Identifier: Apache-2.0
#include "ir/graph_api.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "ir/graph.hpp"
#include "ir/graph_services.hpp"
#include "ir/import_call.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "ir/rewrite.hpp"
#include "log/log.hpp"
#include "support/error.hpp"

namespace tessera::core {
namespace {

Graph& of(tsr_graph* g) { return Graph::from(g); }
const Graph& of(const tsr_graph* g) { return Graph::from(g); }

NodeSpec to_spec(const tsr_node_desc& d) {
  NodeSpec s;
  s.op = d.op ? d.op : "";
  s.operands.assign(d.operands, d.operands + d.num_operands);
  s.attrs.assign(d.attrs, d.attrs + d.num_attrs);
  s.regions.assign(d.regions, d.regions + d.num_regions);
  if (d.result_types) {
    s.typed = true;
    for (uint32_t i = 0; i < d.num_results; ++i) s.result_types.push_back(*d.result_types[i]);
  }
  s.loc = d.loc;
  if (d.result_name) s.result_names.emplace_back(d.result_name);
  if (TSR_HAS(&d, tsr_node_desc, marks)) s.marks = d.marks & TSR_MARK_ALL;
  return s;
}

// Handles come from plugins.
void check_dims(const Graph& g, std::initializer_list<tsr_dim> dims) {
  for (const tsr_dim d : dims)
    if (TSR_DIM_IS_EXPR(d) && TSR_DIM_EXPR_ID(d) >= g.sizes().exprs().size())
      throw bug("TSR-B012",
                "size handle " + std::to_string(TSR_DIM_EXPR_ID(d)) + " is not of graph '" + std::string(g.tables().name) + "'",
                "handles are valid in the graph that made them, until its transaction is rolled back");
}

const char* scratch_text(Graph& g, const std::string& s) {
  char* p = static_cast<char*>(g.scratch(s.size() + 1));
  std::memcpy(p, s.c_str(), s.size() + 1);
  return p;
}

const tsr_graph_api kApi = {
    .struct_size = sizeof(tsr_graph_api),
    .tables = [](const tsr_graph* g) noexcept { return &of(g).tables(); },
    .op_traits = [](const tsr_graph* g, const char* op) noexcept -> const char* {
      const OpRecord* r = of(g).ops().find(op);
      return r ? r->trait_text.c_str() : nullptr;
    },
    .uses = [](const tsr_graph* g, tsr_id v, uint32_t* count) noexcept -> const tsr_use* {
      *count = 0;
      if (v >= of(g).num_values()) return nullptr;
      const auto u = of(g).uses(v);
      *count = static_cast<uint32_t>(u.size());
      return u.data();
    },
    .dim =
        [](tsr_graph* g, tsr_dim_op op, tsr_dim a, tsr_dim b, tsr_dim* out) noexcept {
          return guarded([&] {
            check_dims(of(g), {a, b});
            *out = of(g).sizes().make(op, a, b);
            of(g).tables();
          });
        },
    .dim_compare =
        [](const tsr_graph* g, tsr_relation r, tsr_dim a, tsr_dim b) noexcept {
          try {
            check_dims(of(g), {a, b});
            return of(g).sizes().compare(r, a, b);
          } catch (...) {
            return TSR_UNKNOWN;
          }
        },
    .dim_require =
        [](tsr_graph* g, tsr_relation r, tsr_dim a, tsr_dim b, const char* why) noexcept {
          return guarded([&] {
            check_dims(of(g), {a, b});
            of(g).sizes().require(r, a, b, why ? why : "");
          });
        },
    .symbol_create =
        [](tsr_graph* g, const char* prefix, int64_t min, int64_t max, int unbacked) noexcept {
          const tsr_dim d = of(g).sizes().fresh(prefix, min, max, unbacked != 0);
          of(g).tables();
          return d;
        },
    .scratch = [](tsr_graph* g, size_t bytes) noexcept { return of(g).scratch(bytes); },
    .node_create =
        [](tsr_graph* g, const tsr_node_desc* d, tsr_id region, tsr_id before, tsr_id* node) noexcept {
          return guarded([&] {
            *node = of(g).create_node(to_spec(*d), region, before);
            of(g).tables();
          });
        },
    .node_erase = [](tsr_graph* g, tsr_id n) noexcept { return guarded([&] { of(g).erase_node(n); }); },
    .node_move = [](tsr_graph* g, tsr_id n, tsr_id before) noexcept { return guarded([&] { of(g).move_node(n, before); }); },
    .set_operand = [](tsr_graph* g, tsr_id n, uint32_t i,
                      tsr_id v) noexcept { return guarded([&] { of(g).set_operand(n, i, v); }); },
    .set_attr = [](tsr_graph* g, tsr_id n, const tsr_attr* a) noexcept { return guarded([&] { of(g).set_attr(n, *a); }); },
    .replace_uses = [](tsr_graph* g, tsr_id a, tsr_id b) noexcept { return guarded([&] { of(g).replace_uses(a, b); }); },
    .set_type = [](tsr_graph* g, tsr_id v, const tsr_type* t) noexcept { return guarded([&] { of(g).set_type(v, *t); }); },
    .set_name = [](tsr_graph* g, tsr_id v, const char* name) noexcept { return guarded([&] { of(g).set_name(v, name); }); },
    .region_create =
        [](tsr_graph* g, const tsr_type* const* types, uint32_t n, tsr_id* region) noexcept {
          return guarded([&] {
            std::vector<tsr_type> copies;
            for (uint32_t i = 0; i < n; ++i) copies.push_back(*types[i]);
            *region = of(g).create_region(copies);
            of(g).tables();
          });
        },
    .region_set_outputs = [](tsr_graph* g, tsr_id r, const tsr_id* v,
                             uint32_t n) noexcept { return guarded([&] {
                                                      of(g).set_outputs(r, {v, n});
                                                    }); },
    .input_create =
        [](tsr_graph* g, const char* name, const tsr_type* t, uint32_t kind, const char* key, tsr_id* v) noexcept {
          return guarded([&] {
            if (kind < TSR_INPUT_ARG || kind > TSR_INPUT_STATE)
              throw bug("TSR-B009", "input '" + std::string(name ? name : "") + "' has kind " + std::to_string(kind) +
                                        "; expected arg, param or state");
            *v = of(g).create_input(name ? name : "", *t, static_cast<tsr_input_kind>(kind), key);
            of(g).tables();
          });
        },
    .input_set_state = [](tsr_graph* g, tsr_id v, uint32_t writeback,
                          int donated) noexcept { return guarded([&] { of(g).set_state(v, writeback, donated != 0); }); },
    .decompose =
        [](tsr_graph* g, tsr_id n) noexcept {
          return guarded([&] {
            Graph& graph = of(g);
            if (n >= graph.num_nodes() || !graph.node(n).alive)
              throw bug("TSR-B001", "no live node with id " + std::to_string(n));
            const auto made_from = static_cast<tsr_id>(graph.num_values());
            graph.replace_node(n, build_decomposition(graph, n), made_from);
            graph.tables();
          });
        },
    .rewrite =
        [](tsr_graph* g, const tsr_pattern* patterns, size_t count, size_t stride, int* changed) noexcept {
          return guarded([&] {
            std::vector<const tsr_pattern*> list;
            for (size_t i = 0; i < count; ++i) list.push_back(TSR_AT(tsr_pattern, patterns, stride, i));
            *changed = rewrite(of(g), list) ? 1 : 0;
          });
        },
    .evaluate =
        [](tsr_graph* g, tsr_id n, tsr_tensor* out, uint32_t count) noexcept {
          return guarded([&] {
            if (n >= of(g).num_nodes() || !of(g).node(n).alive)
              throw bug("TSR-B001", "no live node with id " + std::to_string(n));
            evaluate_node(of(g), n, {out, count});
          });
        },
    .print = [](tsr_graph* g, tsr_id n) noexcept -> const char* {
      try {
        return scratch_text(of(g), n == TSR_NONE ? print_graph(of(g), 0) : print_node(of(g), n));
      } catch (const std::exception&) {
        return "<graph cannot be printed>";
      }
    },
    .estimate =
        [](tsr_graph* g, int64_t* bytes, double* seconds) noexcept {
          return guarded([&] {
            const Estimate e = estimate(of(g));
            if (bytes) *bytes = e.peak_bytes;
            if (seconds) *seconds = e.seconds;
          });
        },
    .parse =
        [](tsr_graph* g, const char* text, size_t length, const char* file) noexcept {
          return guarded([&] {
            parse_into(of(g), {text, length}, file ? file : "<text>");
            of(g).tables();
          });
        },
    .keep =
        [](tsr_graph* g, void (*release)(void* ctx), void* ctx) noexcept {
          return guarded([&] {
            of(g).keep(std::shared_ptr<const void>(ctx, [release](const void* p) {
              if (release) release(const_cast<void*>(p));
            }));
          });
        },
    .bound_input = [](tsr_graph* g, const char* name) noexcept -> const tsr_tensor* {
      ImportCall* const call = of(g).import_call();
      return call && name ? call->value_of(name) : nullptr;
    },
    .backend_of = [](tsr_graph* g, tsr_id n, uint64_t* capabilities) noexcept -> const char* {
      try {
        return backend_of(of(g), n, capabilities);
      } catch (const Error& e) {  // of a claim; who assigns the node will hear it again
        log_warning(e.what());
        return nullptr;
      } catch (...) {
        return nullptr;  // out of memory
      }
    },
    .constant_source = [](tsr_graph* g, const void* data, size_t length, int fd,
                          uint64_t offset) noexcept { return guarded([&] { of(g).sources().add(data, length, fd, offset); }); },
    .outputs_set_names = [](tsr_graph* g, const char* const* names,
                            uint32_t count) noexcept { return guarded([&] {
                                                         of(g).set_output_names({names, count});
                                                       }); },
    .need_input =
        [](tsr_graph* g, const char* name, uint32_t what) noexcept {
          if (ImportCall* const call = of(g).import_call(); call && name) call->needed_inputs.emplace(name, what);
        },
    .need_size =
        [](tsr_graph* g, tsr_dim size) noexcept {
          if (ImportCall* const call = of(g).import_call()) of(g).sizes().collect_symbols(size, call->needed_symbols);
        },
    .bound_type = [](tsr_graph* g, const char* name) noexcept -> const tsr_type* {
      ImportCall* const call = of(g).import_call();
      return call && name ? call->type_of(name) : nullptr;
    },
    .assumptions = [](const tsr_graph* g) noexcept { return Graph::from(g).sizes().assumptions().size(); },
    .forget_assumptions =
        [](tsr_graph* g, size_t count) noexcept {
          Sizes::Checkpoint now = of(g).sizes().checkpoint();  // expressions and symbols stay: types may name them
          now.assumptions = std::min(now.assumptions, count);
          of(g).sizes().restore(now);
        },
    .set_marks = [](tsr_graph* g, tsr_id n, uint32_t marks) noexcept { return guarded([&] { of(g).set_marks(n, marks); }); },
};

}  // namespace

const tsr_graph_api& graph_api() { return kApi; }

}  // namespace tessera::core
