// SPDX-License-Identifier: Apache-2.0
#include "dispatch/model_source.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "compile/place.hpp"
#include "context/context.hpp"
#include "dispatch/callable_capture.hpp"
#include "ir/graph.hpp"
#include "memory/device.hpp"
#include "memory/tensor.hpp"
#include "plan/plan.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"

namespace tessera::core {

ModelSource::ModelSource(std::shared_ptr<const Context> context, std::string path)
    : context_(std::move(context)), path_(std::move(path)), name_(std::filesystem::path(path_).stem().string()) {
  ImportedModel m = import_model(context_, path_, {}, {}, WhenLacking::kReturn);
  complete_ = m.graph && !m.open;
  declared_ = std::move(m.graph ? m.graph : m.inputs);
  const tsr_region& body = std::as_const(*declared_).region(0);
  for (uint32_t i = 0; i < body.num_inputs; ++i) names_.emplace_back(declared_->input_name(body.inputs[i]));
}

ModelSource::~ModelSource() = default;

tsr_callable_desc ModelSource::description() const {
  tsr_callable_desc d{};
  d.struct_size = sizeof d;
  d.name = name_.c_str();
  d.loc.file = path_.c_str();
  d.self = const_cast<ModelSource*>(this);
  d.invoke = [](void*, tsr_recorder*, const tsr_arg*, size_t, void**) noexcept -> tsr_error* {
    return nullptr;
  };  // never asked
  d.path = [](void* self, const tsr_arg*, size_t, size_t index, char* buffer, size_t capacity) noexcept {
    const auto& names = static_cast<ModelSource*>(self)->names_;
    std::snprintf(buffer, capacity, "%s", index < names.size() ? names[index].c_str() : "");
  };
  d.dynamic = -1;
  return d;
}

std::vector<ModelArgument> ModelSource::arguments(const tsr_arg* args) const {
  std::vector<ModelArgument> out;
  for (size_t i = 0; i < names_.size(); ++i) out.push_back({names_[i], args[i].tensor->desc});
  return out;
}

bool ModelSource::has_one_graph_for(const tsr_arg* args) const {
  return complete_ && fit_of(*declared_, arguments(args)) != CallFit::kContradicts;
}

ImportedModel ModelSource::import_for(const tsr_arg* args) const {
  std::vector<ModelArgument> arguments = this->arguments(args);
  const CallFit fit = fit_of(*declared_, arguments);
  if (complete_ && fit != CallFit::kContradicts) {
    ImportedModel m;
    m.fits = fit == CallFit::kFits;
    m.graph = declared_->clone();
    if (m.graph->in_transaction()) m.graph->commit();
    return m;
  }
  std::vector<TensorRef> dense;
  for (size_t i = 0; i < names_.size(); ++i) {
    tsr_tensor& t = arguments[i].tensor;
    if (t.device == kCpu && (t.flags & TSR_TENSOR_CONTIGUOUS)) continue;
    dense.emplace_back(tensor_copy(*Tensor::from(args[i].tensor), kCpu));
    t = dense.back()->desc;
  }
  return import_model(context_, path_, arguments, {}, WhenLacking::kThrow);
}

void check_model_call(const Plan& plan, const tsr_arg* args, const std::vector<uint32_t>& inputs) {
  std::vector<const tsr_tensor*> descs;
  for (const uint32_t i : inputs) descs.push_back(&args[i].tensor->desc);
  std::vector<int64_t> dims(std::max<size_t>(1, plan.program.num_slots()), 0);
  CallArgs call{};
  call.inputs = descs.data();
  plan.bind(call, dims.data());
}

// ------------------------------------------------------------------------------------------------------------- captures

Callable::Capture Callable::describe_call(const Graph& g, const tsr_arg* args, size_t count) const {
  const std::vector<std::string>& names = model_->names();
  Capture c;
  c.observed = true;
  const tsr_region& body = g.region(0);
  for (uint32_t k = 0; k < body.num_inputs; ++k) {
    const auto at = std::find(names.begin(), names.end(), g.input_name(body.inputs[k]));
    if (at == names.end()) throw bug("TSR-B044", "model '" + frame_->name() + "' has an input that its file does not declare");
    c.leaves.push_back(static_cast<uint32_t>(at - names.begin()));
  }
  c.used.assign(c.leaves.size(), 1);
  c.by_value.assign(count, 1);
  for (const uint32_t leaf : c.leaves) c.by_value[leaf] = 0;
  for (size_t i = 0; i < count; ++i) {
    ArgPolicy& p = c.policies.emplace_back();
    p.dims.resize(args[i].tensor->desc.rank);
    p.any_strides = true;  // of tensors that are not row-major: the plan takes them as they come
  }
  return c;
}

namespace {

// A model file that names no device runs on that of the call's tensors, and its outputs end there.
void follow_tensors(Graph& g, const std::vector<std::string>& names, const tsr_arg* args) {
  if (names_devices(g)) return;
  const tsr_region& body = std::as_const(g).region(0);
  std::vector<char> there;
  std::string first;
  tsr_device wanted = kCpu;
  for (uint32_t k = 0; k < body.num_inputs; ++k) {
    const std::string name = g.input_name(body.inputs[k]);
    const auto at = std::find(names.begin(), names.end(), name);
    const tsr_device d = at == names.end() ? kCpu : args[at - names.begin()].tensor->desc.device;
    there.push_back(d != kCpu);
    if (d == kCpu || d == wanted) continue;
    if (wanted != kCpu)
      throw user_error("TSR-I038",
                       "model '" + std::string(g.tables().name) + "': input '" + first + "' is on " + device(wanted).name() +
                           ", input '" + name + "' on " + device(d).name(),
                       "pass all inputs on one device, or on the host");
    wanted = d;
    first = name;
  }
  if (wanted != kCpu) move_to_device(g, wanted, there);
}

// Whether the tensors lie where those of the call lay that the graph was made for.
bool lies_as(const Graph& made, const std::vector<uint32_t>& inputs, const tsr_arg* args) {
  for (size_t k = 0; k < inputs.size(); ++k)
    if (made.value(made.region(0).inputs[k]).type->device != args[inputs[k]].tensor->desc.device) return false;
  return true;
}

}  // namespace

Callable::Capture Callable::import_for(const tsr_arg* args, size_t count) const {
  refuse_misfit(args, count);
  ImportedModel m = model_->import_for(args);
  if (!m.fits)
    for (const auto& e : tables_.back()->entries())
      if (e->executable && made_for_fixed(*e, args)) check_model_call(*e->plan, args, e->inputs);
  follow_tensors(*m.graph, model_->names(), args);
  Capture c = describe_call(*m.graph, args, count);
  c.graph = std::move(m.graph);
  return c;
}

namespace {
// Whether the arguments have the ranks and sizes that an import has fixed where the file leaves them open. (What the file
// itself asks for is no matter of this: no other compile could take a call that lacks it.)
bool has_fixed_sizes(const Graph& made, const Graph& declared, const std::vector<uint32_t>& inputs, const tsr_arg* args) {
  for (size_t k = 0; k < inputs.size(); ++k) {
    const tsr_type &fixed = *made.value(made.region(0).inputs[k]).type,
                   &open = *declared.value(declared.region(0).inputs[inputs[k]]).type;
    const tsr_tensor& t = args[inputs[k]].tensor->desc;
    if (fixed.rank != open.rank && fixed.rank != t.rank) return false;
    for (uint32_t d = 0; d < std::min(fixed.rank, t.rank); ++d)
      if (!TSR_DIM_IS_EXPR(fixed.sizes[d]) && (fixed.rank != open.rank || TSR_DIM_IS_EXPR(open.sizes[d])) &&
          fixed.sizes[d] != t.sizes[d])
        return false;
  }
  return true;
}
}  // namespace

bool Callable::made_for_fixed(const Entry& e, const tsr_arg* args) const {
  const Guards& g = e.guards;
  for (size_t i = 0; i < g.expected.size(); ++i)
    if (g.mask.leaves[i].by_value && !g.value_holds(i, args[i])) return false;
  if (!names_devices(model_->inputs()) && !lies_as(e.executable->graph(), e.inputs, args)) return false;
  return has_fixed_sizes(e.executable->graph(), model_->inputs(), e.inputs, args);
}

bool Callable::made_for(const Entry& e, const tsr_arg* args) const {
  // What it assumes may be no assumption of another graph for these arguments: of another branch, or with numbers for sizes.
  // It is one of every graph when a pass has made it.
  return made_for_fixed(e, args) &&
         (fit_of(e.executable->graph(), model_->arguments(args)) != CallFit::kContradicts || model_->has_one_graph_for(args));
}

std::shared_ptr<Executable> Callable::made_for_values(const tsr_arg* args) const {
  for (const auto& e : tables_.back()->entries())
    if (e->executable && made_for(*e, args)) return e->executable;
  return nullptr;
}

void Callable::refuse_misfit(const tsr_arg* args, size_t count) const {
  const std::vector<std::string>& names = model_->names();
  if (count != names.size()) {
    std::string all;
    for (const std::string& n : names) all += (all.empty() ? ": " : ", ") + n;
    throw user_error("TSR-T020",
                     "model '" + frame_->name() + "' got " + std::to_string(count) + " inputs, expected " +
                         std::to_string(names.size()) + all,
                     "pass one tensor per input of the model, in its order");
  }
  for (size_t i = 0; i < count; ++i)
    if (args[i].kind != TSR_ARG_TENSOR)
      throw user_error("TSR-T020", "input '" + names[i] + "' of model '" + frame_->name() + "' is no tensor",
                       "pass a 0-d tensor for a number");
  for (const auto& e : tables_.back()->entries())
    if (e->executable && made_for(*e, args)) return check_model_call(*e->plan, args, e->inputs);
}

}  // namespace tessera::core
