// SPDX-License-Identifier: Apache-2.0
// Making callables and calling them. Misses: miss.cpp.
#include "dispatch/callable.hpp"

#include <algorithm>
#include <cstring>

#include "api/api.hpp"
#include "context/context.hpp"
#include "support/error.hpp"

namespace tessera::core {

Callable::Callable(std::shared_ptr<const Context> context, const tsr_callable_desc& given) : context_(std::move(context)) {
  // The prefix that the client knew of.
  std::memcpy(&desc_, &given, std::min(given.struct_size, sizeof desc_));
  if (!desc_.invoke) throw user_error("TSR-E002", "callable_create: the description has no invoke function");
  std::vector<std::string> overrides;
  for (size_t i = 0; i < desc_.num_options; ++i) overrides.emplace_back(desc_.options[i]);
  config_ = desc_.mode || !overrides.empty()
                ? context_->config().derive(
                      desc_.mode && *desc_.mode ? std::optional<std::string_view>(desc_.mode) : std::nullopt, overrides)
                : context_->config();
  options_ = api::compile_options(context_, config_, desc_.backend);
  options_.keep = nullptr;  // entries go with this callable, which holds the context
  passes_ = context_->pipeline(config_);
  // auto compiles for the sizes at hand, unless the config makes sizes symbols at the first capture.
  dynamic_ = desc_.dynamic == 1 ||
             (desc_.dynamic < 0 &&
              (config_.get_string("guards.dynamic") == "true" ||
               (config_.get_string("guards.dynamic") == "auto" && !config_.get_bool("guards.assume_static_by_default"))));
  frame_ = std::make_unique<Frame>(
      desc_.name && *desc_.name ? desc_.name : "fn", desc_.loc.file ? desc_.loc.file : "<unknown>", desc_.loc.line,
      Frame::Limits{config_.get_int("guards.recompile_limit"), config_.get_int("guards.accumulated_recompile_limit")});
  desc_.name = frame_->name().c_str();
  desc_.loc.file = frame_->file().c_str();
  desc_.backend = desc_.mode = nullptr;
  desc_.options = nullptr;
  desc_.num_options = 0;
  reset();
}

Callable::~Callable() {
  tables_.clear();
  if (desc_.structure_free)
    for (const auto& [thread, structure] : transient_)
      if (structure) desc_.structure_free(structure);
}

void Callable::reset() {
  const std::lock_guard lock(mutex_);
  frame_->reset();
  misses_ = 0;
  tables_.push_back(std::make_unique<EntryTable>());
  table_.store(tables_.back().get(), std::memory_order_release);
}

void Callable::check_capacity(size_t outputs, size_t capacity) const {
  if (outputs > capacity)
    throw user_error("TSR-E003", "'" + frame_->name() + "' returns " + std::to_string(outputs) +
                                     " tensors, there is room for " + std::to_string(capacity));
}

void Entry::run(const tsr_arg* args, tsr_tensor_handle** outputs) const {
  const uint32_t n = num_inputs;
  tsr_tensor_handle* stack[64];
  std::vector<tsr_tensor_handle*> heap;
  tsr_tensor_handle** in = stack;
  if (n > 64) {
    heap.resize(n);
    in = heap.data();
  }
  const uint32_t* from = n <= kInline ? leaves : inputs.data();
  for (uint32_t i = 0; i < n; ++i) in[i] = args[from[i]].tensor;
  if (fast)
    calls.run(*plan, in, outputs);
  else
    executable->run_trusted(in, outputs);
}

void Callable::call(const tsr_arg* args, size_t count, tsr_tensor_handle** outputs, size_t capacity, size_t* num_outputs,
                    void** structure) {
  const EntryTable& table = *table_.load(std::memory_order_acquire);
  const Entry* e = table.find(args, count);
  if (!e) [[unlikely]] {
    e = miss(args, count);
    if (!e) return run_uncached(args, count, outputs, capacity, num_outputs, structure);
  }
  if (e->num_outputs > capacity) [[unlikely]]
    check_capacity(e->num_outputs, capacity);
  e->run(args, outputs);
  *num_outputs = e->num_outputs;
  if (structure) *structure = e->structure;
  table.used(*e);
}

std::string Callable::path_of(const tsr_arg* args, size_t count, size_t index) const {
  char buf[512];
  buf[0] = 0;
  if (desc_.path) desc_.path(desc_.self, args, count, index, buf, sizeof buf);
  buf[sizeof buf - 1] = 0;
  return buf[0] ? std::string(buf) : "arg" + std::to_string(index);
}

}  // namespace tessera::core
