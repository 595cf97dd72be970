// SPDX-License-Identifier: Apache-2.0
#include "capture/recorder.hpp"

#include <algorithm>
#include <cstring>

#include "capture/breaks.hpp"
#include "ir/graph.hpp"
#include "ir/graph_api.hpp"
#include "ir/host_functions.hpp"
#include "support/error.hpp"

namespace tessera::core {

Recorder::Recorder(const OpRegistry& ops, std::string name) : graph_(std::make_unique<Graph>(ops, name)) {}
Recorder::Recorder(std::unique_ptr<Graph> begun, std::map<uint32_t, Scalar> scalars)
    : graph_(std::move(begun)), scalars_(std::move(scalars)) {
  const tsr_region& body = graph_->region(0);
  size_t tensors = body.num_inputs;
  for (const auto& [arg, s] : scalars_) tensors -= s.input != TSR_NONE;
  inputs_.assign(body.inputs, body.inputs + tensors);
  observed_.resize(inputs_.size());
}
Recorder::~Recorder() = default;

void Recorder::restart(const std::string& name) {
  graph_->restart();
  graph_->rename(name);
  inputs_.clear();
  observed_.clear();
  has_outputs_ = false;
  for (auto& [arg, s] : scalars_) {
    s.input = TSR_NONE;
    s.used = s.read = false;
    s.where.clear();
  }
}

void Recorder::add_scalar(uint32_t arg, const std::string& name, const Scalar& like) {
  Scalar& s = scalars_[arg];
  s.kind = like.kind;
  s.dim = like.dim;
  if (s.kind == TSR_SCALAR_INPUT) s.input = graph_->create_input(name, graph_->make_type(TSR_F64, {}));
  if (s.kind == TSR_SCALAR_DIM) s.input = graph_->create_input(name, graph_->make_type(TSR_U8, {&s.dim, 1}));
}

tsr_id Recorder::add_input(const std::string& name, const tsr_type& type, tsr_input_kind kind) {
  const tsr_id v = graph_->create_input(name, type, kind, kind == TSR_INPUT_ARG ? nullptr : name.c_str());
  inputs_.push_back(v);
  observed_.push_back(0);
  return v;
}

bool Recorder::used(uint32_t i) const { return !client_observes_ || observed_[i] || graph_->value(inputs_[i]).num_uses > 0; }

void Recorder::add_float(uint32_t arg, const std::string& name) {
  Scalar s;
  s.kind = TSR_SCALAR_INPUT;
  s.input = graph_->create_input(name, graph_->make_type(TSR_F64, {}));
  scalars_.emplace(arg, s);
}

void Recorder::add_symbol(uint32_t arg, const std::string& name, tsr_dim symbol) {
  Scalar s;
  s.kind = TSR_SCALAR_DIM;
  s.dim = symbol;
  s.input = graph_->create_input(name, graph_->make_type(TSR_U8, {&symbol, 1}));
  scalars_.emplace(arg, s);
}

std::unique_ptr<Graph> Recorder::take() { return std::move(graph_); }

struct CaptureFunctions {
  static void observe(Recorder& r, tsr_id value) {
    if (value == TSR_NONE) {
      r.client_observes_ = true;
      return;
    }
    const auto at =
        std::find(r.inputs_.begin(), r.inputs_.end(), value);  // inputs have the first ids: found at once, if at all
    if (at != r.inputs_.end()) r.observed_[static_cast<size_t>(at - r.inputs_.begin())] = 1;
  }
  static void scalar(const Recorder& r, uint32_t arg, tsr_scalar& out) {
    const auto at = r.scalars_.find(arg);
    if (at == r.scalars_.end())
      throw user_error("TSR-E002", "argument number " + std::to_string(arg) + " of the captured call is no symbolic number");
    const Scalar& s = at->second;
    const tsr_scalar all{out.struct_size, static_cast<uint32_t>(s.kind), s.kind == TSR_SCALAR_INPUT ? s.input : TSR_NONE,
                         s.dim};
    std::memcpy(&out, &all, std::min(out.struct_size, sizeof all));
  }
  static void scalar_used(Recorder& r, uint32_t arg, bool as_number, const char* where) {
    const auto at = r.scalars_.find(arg);
    if (at == r.scalars_.end()) return;
    Scalar& s = at->second;
    s.used = true;
    s.read = s.read || as_number;
    if (where && s.where.empty() && (as_number || s.kind == TSR_SCALAR_NUMBER)) s.where = where;
  }
  using Scalar = Recorder::Scalar;
  static void set_outputs(Recorder& r, const tsr_id* values, uint32_t count) {
    r.graph_->set_outputs(0, {values, count});
    r.has_outputs_ = true;
  }
  static void graph_break(Recorder& r, tsr_break& b) {
    if (!r.break_handler_) {
      if (b.step && b.step->destroy) b.step->destroy(b.step->self);
      const BreakReason& no = break_reason(21);
      throw user_error(break_code_text(no.code),
                       place_text(b.loc) + ": " + break_reason(b.code).title + ", where the graph cannot be broken: " + no.what,
                       no.fixes);
    }
    r.break_handler_->graph_break(r, b);
  }
  static bool taken(Recorder& r, tsr_id node) {
    Graph& g = *r.graph_;
    if (node >= g.num_nodes() || !g.node(node).alive)
      throw bug("TSR-B036", "taken: node " + std::to_string(node) + " is not one of the graph's");
    // Inside a region nothing can be broken off: there an op that nobody takes is the compiler's error.
    if (!r.node_check_ || g.node(node).parent != 0 || r.node_check_->taken(g, node)) return true;
    g.erase_node(node);
    return false;
  }
};

namespace {

tsr_error* record_op(tsr_recorder* recorder, const tsr_node_desc* desc, tsr_id* results, uint32_t capacity,
                     uint32_t* num_results) noexcept {
  Graph& g = Recorder::from(recorder).graph();
  tsr_id node = TSR_NONE;
  if (tsr_error* e = graph_api().node_create(g.handle(), desc, 0, TSR_NONE, &node)) return e;
  return guarded([&] {
    const tsr_node& n = g.node(node);
    *num_results = n.num_results;
    if (n.num_results > capacity)
      throw bug("TSR-B030", "recording " + g.describe(node) + ": " + std::to_string(n.num_results) + " results, room for " +
                                std::to_string(capacity));
    std::copy(n.results, n.results + n.num_results, results);
  });
}

}  // namespace

const tsr_capture_api& capture_api() {
  static const tsr_capture_api table = {
      .struct_size = sizeof(tsr_capture_api),
      .graph = [](tsr_recorder* r) noexcept { return Recorder::from(r).graph().handle(); },
      .op = record_op,
      .num_inputs = [](tsr_recorder* r) noexcept { return static_cast<uint32_t>(Recorder::from(r).inputs().size()); },
      .input = [](tsr_recorder* r, uint32_t index) noexcept -> tsr_id {
        const auto& inputs = Recorder::from(r).inputs();
        return index < inputs.size() ? inputs[index] : TSR_NONE;
      },
      .set_outputs =
          [](tsr_recorder* r, const tsr_id* values, uint32_t count) noexcept {
            return guarded([&] { CaptureFunctions::set_outputs(Recorder::from(r), values, count); });
          },
      .observe = [](tsr_recorder* r, tsr_id value) noexcept { CaptureFunctions::observe(Recorder::from(r), value); },
      .scalar =
          [](tsr_recorder* r, uint32_t arg, tsr_scalar* out) noexcept {
            return guarded([&] { CaptureFunctions::scalar(Recorder::from(r), arg, *out); });
          },
      .scalar_used =
          [](tsr_recorder* r, uint32_t arg, int as_number, const char* where) noexcept {
            CaptureFunctions::scalar_used(Recorder::from(r), arg, as_number != 0, where);
          },
      .graph_break =
          [](tsr_recorder* r, tsr_break* b) noexcept {
            return guarded([&] {
              if (!b) throw user_error("TSR-E002", "graph_break: a null pointer was passed as the description");
              CaptureFunctions::graph_break(Recorder::from(r), *b);
            });
          },
      .host_function =
          [](tsr_recorder* r, void* self, tsr_error* (*call)(void*, const tsr_tensor*, uint32_t, const tsr_tensor*, uint32_t),
             void (*destroy)(void*), int64_t* function) noexcept {
            return guarded([&] {
              if (!call || !function) throw user_error("TSR-E002", "host_function: a null pointer was passed");
              *function = add_host_function(Recorder::from(r).graph(), {self, call, destroy});
            });
          },
      .taken =
          [](tsr_recorder* r, tsr_id node, int* taken) noexcept {
            return guarded([&] {
              if (!taken) throw user_error("TSR-E002", "taken: a null pointer was passed for the answer");
              *taken = CaptureFunctions::taken(Recorder::from(r), node);
            });
          },
  };
  return table;
}

}  // namespace tessera::core
