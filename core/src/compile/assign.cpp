// SPDX-License-Identifier: Apache-2.0
#include "compile/assign.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "compile/inline_fused.hpp"
#include "compile/place.hpp"
#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "log/log.hpp"
#include "memory/tensor.hpp"
#include "plan/compile_options.hpp"
#include "plan/view.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

// A decomposition that leads back to its own op would never end.
constexpr int kMaxDepth = 64;

constexpr const char* kNoPromise = "does not promise the same bits on every run";

// A group draws when something in it does.
bool draws(const Graph& g, tsr_id node) {
  if (g.record_of(node).has(kRandom)) return true;
  for (uint32_t i = 0; i < g.node(node).num_regions; ++i)
    for (tsr_id n = g.region(g.node(node).regions[i]).first; n != TSR_NONE; n = g.node(n).next)
      if (draws(g, n)) return true;
  return false;
}

bool is_static(const tsr_type& t) {
  for (uint32_t i = 0; i < t.rank; ++i)
    if (TSR_DIM_IS_EXPR(t.sizes[i])) return false;
  return true;
}

bool has_fixed_attributes(const tsr_node& n) {
  for (uint32_t i = 0; i < n.num_attrs; ++i) {
    const tsr_attr& a = n.attrs[i];
    if (a.kind == TSR_ATTR_DIM && TSR_DIM_IS_EXPR(a.i)) return false;
    for (uint32_t k = 0; a.kind == TSR_ATTR_DIMS && k < a.count; ++k)
      if (TSR_DIM_IS_EXPR(a.ints[k])) return false;
  }
  return true;
}

class Assigner {
 public:
  Assigner(Graph& g, const CompileOptions& options)
      : g_(g), options_(options), hints_(hint_values(g)), names_devices_(names_devices(g)) {}

  // Leaves what every backend refuses, or asks to see in parts, as kRefused.
  std::vector<Assignment> assign() {
    region(0);
    out_.resize(g_.num_nodes());
    return std::move(out_);
  }

  // Puts the decomposition of every refused node into its place and assigns what that brings, until nothing is refused.
  void decompose_refused(std::vector<Assignment>& assignment) {
    out_ = std::move(assignment);
    decomposes_ = true;
    decompose_region(0);
    out_.resize(g_.num_nodes());
    assignment = std::move(out_);
  }

  // Whether somebody takes the node whole. *decompose: nobody, but its decomposition may do better.
  bool taken_whole(tsr_id n, bool* decompose) const {
    const OpRecord& record = g_.record_of(n);
    if (record.has(kConstant) || record.has(kControl) || record.has(kTransfer) || record.name == "fused" ||
        views_dense_memory(n, record))
      return true;
    *decompose = record.can_decompose();
    for (const Factory* backend : options_.backends) {
      if (why_not_asked(g_, n, *backend, options_)) continue;
      const char* why = nullptr;
      const auto& table = backend->as<tsr_backend>();
      const int claim = backend->call("claim", [&] { return table.claim(backend->self, g_.handle(), n, &why); });
      if (claim == TSR_CLAIM_YES) return true;
      if (claim == TSR_CLAIM_DECOMPOSE && *decompose) return false;
    }
    return !*decompose && host_computes(n, record);
  }

 private:
  // `pure` says that same inputs give same outputs; what an op without it gives, nobody promises.
  bool host_computes(tsr_id n, const OpRecord& record) const {
    if (!record.impl || !record.impl->compute) return false;
    return !options_.deterministic || record.has(kPure) || !is_read(n);
  }

  // The device of the node's results, or of its operands when it has none.
  tsr_device device_of(tsr_id n) const {
    const tsr_node& x = g_.node(n);
    if (x.num_results > 0) return g_.value(x.results[0]).type->device;
    for (uint32_t i = 0; i < x.num_operands; ++i)
      if (x.operands[i] != TSR_NONE) return g_.value(x.operands[i]).type->device;
    return kCpu;
  }

  // In a graph that names devices: whether the backend runs on another kind than the node's.
  bool is_foreign(tsr_id n, const Factory& backend) const {
    if (!names_devices_) return false;
    const tsr_backend& table = backend.as<tsr_backend>();
    if (table.capabilities & TSR_CAP_NO_COMPUTE) return false;
    return core::device(device_intern(table.device)).kind() != core::device(device_of(n)).kind();
  }

  bool is_read(tsr_id n) const {
    const tsr_node& x = g_.node(n);
    return std::any_of(x.results, x.results + x.num_results, [&](tsr_id v) { return g_.value(v).num_uses > 0; });
  }

  void region(tsr_id r) {
    for (tsr_id n = g_.region(r).last; n != TSR_NONE;) {  // backwards: users go before what they use
      const tsr_id prev = g_.node(n).prev;
      if (is_dead(n)) g_.erase_node(n);
      n = prev;
    }
    for (tsr_id n = g_.region(r).first; n != TSR_NONE;) n = node(n);
  }

  bool is_dead(tsr_id n) const {
    const OpRecord& record = g_.record_of(n);
    if (!record.has(kPure) && !record.has(kConstant) && !record.has(kView)) return false;
    if (record.has(kUnbacked)) return false;  // its data may be unused while its sizes are not; the pass dce tells
    return !is_read(n);
  }

  void decompose_region(tsr_id r) {
    for (tsr_id n = g_.region(r).first; n != TSR_NONE;) {
      const Assignment::Kind kind = n < out_.size() ? out_[n].kind : Assignment::kNone;
      if (kind == Assignment::kRefused) {
        const tsr_id next = g_.node(n).next;
        for (tsr_id k = decompose(n); k != next;) k = node(k);
        n = next;
        continue;
      }
      if (kind == Assignment::kControl)
        for (uint32_t i = 0; i < g_.node(n).num_regions; ++i) decompose_region(g_.node(n).regions[i]);
      n = g_.node(n).next;
    }
  }

  // What nobody takes whole: in the first stage it stays, in the second its decomposition is what the walk goes on with.
  tsr_id refused(tsr_id n) { return decomposes_ ? decompose(n) : set(n, {Assignment::kRefused, nullptr}); }

  // Of a list that has a line for each backend.
  static std::string in_one_line(const std::string& refusals) {
    std::string out;
    for (size_t at = 0; at < refusals.size();) {
      const size_t end = std::min(refusals.size(), refusals.find("\n  ", at + 1));
      out += (out.empty() ? "" : "; ") + refusals.substr(at + 3, end - at - 3);
      at = end;
    }
    return out;
  }

  // Assigns `n` and returns the node to go on with: its successor, or the first node of its decomposition.
  tsr_id node(tsr_id n) {
    const OpRecord& record = g_.record_of(n);
    if (record.has(kConstant) && g_.attr(n, "value") && g_.attr(n, "value")->kind == TSR_ATTR_TENSOR)
      return set(n, {Assignment::kConstant, nullptr});
    if (record.name == "fused") return fused(n);
    if (record.has(kControl)) {
      for (uint32_t i = 0; i < g_.node(n).num_regions; ++i) region(g_.node(n).regions[i]);
      return set(n, {Assignment::kControl, nullptr});
    }
    if (views_dense_memory(n, record)) return set(n, {Assignment::kView, nullptr});
    if (record.has(kTransfer)) return set(n, {Assignment::kTransfer, nullptr});
    std::string refusals;
    bool unpromised = false;  // somebody is passed over for want of that promise
    // First those of the node's own device. A node on a device may in the end be computed on the host, not on a third device.
    for (const bool elsewhere : {false, true}) {
      if (elsewhere && record.can_decompose()) break;
      for (const Factory* backend : options_.backends) {
        if (is_foreign(n, *backend) != elsewhere) continue;
        const char* why = why_not_asked(g_, n, *backend, options_);
        if (why) {
          unpromised = unpromised || why == kNoPromise;
          refusals += "\n  " + backend->name + ": " + why;
          continue;
        }
        const tsr_backend& table = backend->as<tsr_backend>();
        if (elsewhere && std::string_view(table.device) != "cpu") {
          refusals += "\n  " + backend->name + ": runs on device '" + table.device + "', the node on '" +
                      core::device(device_of(n)).name() + "'";
          continue;
        }
        switch (backend->call("claim", [&] { return table.claim(backend->self, g_.handle(), n, &why); })) {
          case TSR_CLAIM_YES: return set(n, {Assignment::kBackend, backend, in_one_line(refusals)});
          case TSR_CLAIM_DECOMPOSE:
            if (record.can_decompose()) return refused(n);
            refusals += "\n  " + backend->name + ": asks for a decomposition, and the op has none";
            break;
          default: refusals += "\n  " + backend->name + ": " + (why && *why ? why : "refused without a reason"); break;
        }
      }
    }
    if (record.can_decompose()) return refused(n);
    if (host_computes(n, record)) return set(n, {Assignment::kHost, nullptr, in_one_line(refusals)});
    if (record.impl && record.impl->compute) {
      refusals += std::string("\n  its host kernel: ") + kNoPromise + ", since the op is not pure";
      unpromised = true;
    }
    if (unpromised)
      throw user_error(
          "TSR-R027",
          "deterministic = true, and nobody who promises the same bits on every run takes " + g_.describe(n) + ":" + refusals,
          "put a backend that promises it (TSR_CAP_DETERMINISTIC) into backends.order, or leave deterministic off");
    throw user_error("TSR-R020",
                     "no backend takes " + g_.describe(n) + ", and op '" + record.name +
                         "' has neither a decomposition nor a host kernel" +
                         (refusals.empty() ? "; no backend is configured" : ":" + refusals),
                     "add a backend that takes it; the last of backends.order should take every op");
  }

  // A fused group goes to the backend that it names. When that one is absent or refuses, its nodes stand alone again.
  tsr_id fused(tsr_id n) {
    const tsr_attr* name = g_.attr(n, "backend");
    for (const Factory* backend : options_.backends) {
      const tsr_backend& table = backend->as<tsr_backend>();
      if (!name || backend->name != name->s || !(table.capabilities & TSR_CAP_FUSION)) continue;
      const char* why = why_not_asked(g_, n, *backend, options_);
      if (!why && backend->call("claim", [&] { return table.claim(backend->self, g_.handle(), n, &why); }) == TSR_CLAIM_YES)
        return set(n, {Assignment::kBackend, backend});
      if (log_enabled(Artifact::kPerfHints))
        log_write(Artifact::kPerfHints,
                  "backend '" + backend->name + "' refuses " + g_.describe(n) + ": " + (why ? why : "no reason given"));
    }
    const tsr_id before = g_.node(n).prev, parent = g_.node(n).parent;
    inline_fused(g_, n);
    return before == TSR_NONE ? g_.region(parent).first : g_.node(before).next;
  }

  // Whether the op says "view" for a dense operand. Where sizes are symbolic it has to say so for all of them: those that are
  // asked about here need not be those of a call. At run time a strided operand for which it then says no is made dense first.
  bool views_dense_memory(tsr_id n, const OpRecord& record) const {
    const tsr_node& x = g_.node(n);
    if (!record.has(kView) || !record.impl || !record.impl->view || x.num_results != 1 || x.num_operands == 0 ||
        x.operands[0] == TSR_NONE)
      return false;
    const tsr_type& in = *g_.value(x.operands[0]).type;
    const tsr_type& out = *g_.value(x.results[0]).type;
    // A packed tensor is viewed only where the answer cannot depend on the sizes of a call.
    const bool fixed = is_static(in) && is_static(out) && has_fixed_attributes(x);
    if (is_packed(in.dtype) && !fixed) return false;
    for (uint32_t i = 0; i < out.rank; ++i)
      if (unbacked_result(n, out.sizes[i])) return false;  // its sizes are computed by a kernel
    const auto value = [&](tsr_dim d) { return std::max<int64_t>(0, hint_size(g_, d, hints_)); };
    const auto call = RuntimeCall::make(g_, n, value);
    std::vector<int64_t> sizes, strides(in.rank), out_strides(out.rank);
    for (uint32_t i = 0; i < out.rank; ++i) sizes.push_back(TSR_DIM_IS_EXPR(out.sizes[i]) ? value(out.sizes[i]) : out.sizes[i]);
    dense_strides({call->operands[0]->sizes, in.rank}, strides.data());
    int64_t offset = 0;
    const ViewAnswer answer = try_view(record, *call, strides, sizes, out.dtype, out_strides.data(), &offset);
    return answer == ViewAnswer::kAlways || (answer == ViewAnswer::kYes && fixed);
  }

  bool unbacked_result(tsr_id n, tsr_dim d) const {
    if (!g_.sizes().is_unbacked(d)) return false;
    std::vector<uint32_t> mine, theirs;
    g_.sizes().collect_symbols(d, mine);
    const tsr_node& x = g_.node(n);
    for (uint32_t i = 0; i < x.num_operands; ++i) {
      if (x.operands[i] == TSR_NONE) continue;
      const tsr_type& t = *g_.value(x.operands[i]).type;
      for (uint32_t k = 0; k < t.rank; ++k) g_.sizes().collect_symbols(t.sizes[k], theirs);
    }
    for (const uint32_t s : mine)
      if (g_.sizes().symbols()[s].unbacked && std::find(theirs.begin(), theirs.end(), s) == theirs.end()) return true;
    return false;
  }

  tsr_id decompose(tsr_id n) {
    const int depth = depth_of(n) + 1;
    if (depth > kMaxDepth)
      throw bug("TSR-B020", "the decomposition of " + g_.describe(n) + " leads back to itself",
                "report this to the vendor of the op's plugin");
    const std::string what = g_.describe(n);
    const tsr_id before = g_.node(n).prev, parent = g_.node(n).parent, next = g_.node(n).next;
    const auto made_from = static_cast<tsr_id>(g_.num_values());
    const std::vector<tsr_id> replacements = build_decomposition(g_, n);
    if (replacements.size() != g_.node(n).num_results)
      throw bug("TSR-B021", "the decomposition of " + what + " gives " + std::to_string(replacements.size()) + " values for " +
                                std::to_string(g_.node(n).num_results) + " results");
    g_.replace_node(n, replacements, made_from);
    const tsr_id first = before == TSR_NONE ? g_.region(parent).first : g_.node(before).next;
    for (tsr_id k = first; k != next; k = g_.node(k).next) depth_[k] = depth;
    // A body may compute more than was asked for; what nobody uses is not worth a kernel.
    tsr_id start = first;
    for (tsr_id k = next == TSR_NONE ? g_.region(parent).last : g_.node(next).prev; k != before && k != TSR_NONE;) {
      const tsr_id prev = g_.node(k).prev;
      if (is_dead(k)) {
        if (k == start) start = g_.node(k).next;
        g_.erase_node(k);
      }
      k = prev;
    }
    return start;
  }

  int depth_of(tsr_id n) const {
    const auto it = depth_.find(n);
    return it == depth_.end() ? 0 : it->second;
  }

  tsr_id set(tsr_id n, Assignment a) {
    if (n >= out_.size()) out_.resize(g_.num_nodes());
    out_[n] = std::move(a);
    return g_.node(n).next;
  }

  Graph& g_;
  const CompileOptions& options_;
  std::vector<int64_t> hints_;
  const bool names_devices_;
  bool decomposes_ = false;
  std::vector<Assignment> out_;
  std::unordered_map<tsr_id, int> depth_;
};

}  // namespace

const char* why_not_asked(const Graph& graph, tsr_id node, const Factory& backend, const CompileOptions& options) {
  if (!options.failed.empty() && (options.failed.contains({&backend, node}) || options.failed.contains({&backend, TSR_NONE})))
    return "has failed to compile it";
  if (options.deterministic && !(backend.as<tsr_backend>().capabilities & TSR_CAP_DETERMINISTIC)) return kNoPromise;
  if (options.fallback_random && &backend != options.backends.back() && draws(graph, node))
    return "leaves random ops to the fallback (fallback_random = true)";
  return nullptr;
}

bool is_unassignable(const Error& error) { return error.code() == "TSR-R020" || error.code() == "TSR-R027"; }

bool assignable(Graph& graph, tsr_id node, const CompileOptions& options) {
  if (std::strcmp(graph.node(node).op, "grad") == 0) return true;  // is expanded before anything is assigned
  bool decompose = false;
  if (Assigner(graph, options).taken_whole(node, &decompose)) return true;
  if (!decompose) return false;
  const std::unique_ptr<Graph> copy = graph.clone();
  copy->begin("assign");
  copy->set_outputs(0, {copy->node(node).results, copy->node(node).num_results});
  try {
    Assigner assigner(*copy, options);
    std::vector<Assignment> assignment = assigner.assign();
    assigner.decompose_refused(assignment);
  } catch (const Error& e) {
    if (!is_unassignable(e)) throw;
    return false;
  }
  return true;
}

namespace {

// In a transaction of its own, where the caller has none.
template <class F>
void edit(Graph& graph, const char* author, F&& assign) {
  const bool nested = graph.in_transaction();
  if (!nested) graph.begin(author);
  try {
    assign();
    if (!nested) graph.commit();
  } catch (...) {
    if (!nested && graph.in_transaction()) graph.rollback();  // a commit that failed has rolled back
    throw;
  }
}

}  // namespace

std::vector<Assignment> assign_backends(Graph& graph, const CompileOptions& options) {
  std::vector<Assignment> out;
  edit(graph, "assign", [&] { out = Assigner(graph, options).assign(); });
  return out;
}

bool any_refused(const std::vector<Assignment>& assignment) {
  return std::any_of(assignment.begin(), assignment.end(), [](const Assignment& a) { return a.kind == Assignment::kRefused; });
}

void decompose_refused(Graph& graph, std::vector<Assignment>& assignment, const CompileOptions& options) {
  edit(graph, "decompose", [&] { Assigner(graph, options).decompose_refused(assignment); });
}

std::vector<Assignment> assign_again(Graph& graph, const CompileOptions& options) {
  std::vector<Assignment> out;
  edit(graph, "assign", [&] {
    Assigner assigner(graph, options);
    out = assigner.assign();
    assigner.decompose_refused(out);
  });
  return out;
}

}  // namespace tessera::core
