// SPDX-License-Identifier: Apache-2.0
// Making callables and calling them. Misses: miss.cpp.
#include "dispatch/callable.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "compile/config_options.hpp"
#include "context/context.hpp"
#include "dispatch/model_source.hpp"
#include "dispatch/path_capture.hpp"
#include "dispatch/stance.hpp"
#include "log/log.hpp"
#include "run/saved_values.hpp"
#include "support/error.hpp"
#include "support/required.hpp"

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
  for (const std::string& notice : idle_settings(config_)) log_notice(notice);
  options_ = compile_options(context_, config_, desc_.backend);
  options_.keep = nullptr;  // entries go with this callable, which holds the context
  options_.replaces_states = true;
  passes_ = context_->pipeline(config_);
  policy_ = GuardPolicy::of(config_, desc_.dynamic);
  rules_ = RecompileRules::of(config_);
  table_limits_ = {config_.get_int("guards.max_entries"), config_.get_int("guards.max_bytes")};
  suppress_errors_ = config_.get_bool("guards.suppress_errors");
  fallback_when_busy_ = config_.get_string("guards.on_busy") == "fallback";
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

Callable::Callable(std::shared_ptr<const Context> context, std::unique_ptr<ModelSource> model)
    : Callable(std::move(context), model->description()) {
  model_ = std::move(model);
  options_.replaces_states = false;  // its states are the caller's tensors
}

Callable::~Callable() {
  tables_.clear();
  if (desc_.structure_free)
    for (const auto& [thread, structure] : transient_)
      if (structure) desc_.structure_free(structure);
}

namespace {
// A number of a call as the tensor that a graph takes it as (scalar_inputs.hpp), for longer than the call.
TensorRef kept_number(const tsr_arg& a) {
  const bool integer = a.kind == TSR_ARG_SYM_INT;
  auto number = std::make_unique<double>(a.f);
  const int64_t size = a.i, stride = 1;
  tsr_tensor t{};
  t.data = number.get();
  t.dtype = integer ? TSR_U8 : TSR_F64;
  t.rank = integer ? 1 : 0;
  t.sizes = &size;
  t.strides = &stride;
  t.flags = TSR_TENSOR_CONTIGUOUS;
  TensorRef out(tensor_wrap(
      t, [](void* p) { delete static_cast<double*>(p); }, number.get()));
  number.release();
  return out;
}
}  // namespace

std::unique_ptr<SavedValues> Callable::save(const void* structure, const tsr_arg* args, size_t count,
                                            tsr_tensor_handle* const* outputs, size_t num_outputs) {
  if (!structure) return nullptr;
  const std::lock_guard lock(capture_lock_);
  for (size_t k = tables_.size(); k-- > 0;)
    for (const auto& e : tables_[k]->entries()) {
      if (e->structure != structure || !e->executable || !e->executable->backward) continue;
      std::vector<tsr_tensor_handle*> inputs;
      if (num_outputs != e->executable->num_outputs()) break;
      std::vector<TensorRef> numbers;
      for (const uint32_t i : e->inputs) {
        if (i >= count) return nullptr;
        if (args[i].kind != TSR_ARG_TENSOR) numbers.push_back(kept_number(args[i]));
        inputs.push_back(args[i].kind == TSR_ARG_TENSOR ? args[i].tensor : numbers.back().get());
      }
      return std::make_unique<SavedValues>(e->executable, inputs, std::span<tsr_tensor_handle* const>(outputs, num_outputs));
    }
  return nullptr;
}

void Callable::reset() {
  const std::lock_guard lock(capture_lock_);
  frame_->reset();
  misses_ = 0;
  failures_ = 0;
  warned_suppressed_ = first_call_gone_ = false;
  profile_.clear();
  for (const auto& paths : paths_)  // of older ones too: a capture may have gone on in them after a reset
    for (const auto& f : paths->frames) f->frame->reset();
  recompile();
}

void Callable::recompile() {
  const std::lock_guard lock(capture_lock_);
  paths_.push_back(std::make_unique<Paths>());
  tables_.push_back(std::make_unique<EntryTable>(table_limits_));
  table_.store(tables_.back().get(), std::memory_order_release);
  publish();
}

void Callable::stance_changed() { publish(); }

void Callable::publish() {
  static const auto* const nothing = new EntryTable;  // callables with static storage go after any destructor here
  const std::lock_guard lock(publishing_);
  const EntryTable* now = table_.load(std::memory_order_acquire);
  front_.store(now->evicts() || stance() == Stance::kForceEager ? nothing : now, std::memory_order_release);
}

namespace {
// Owns the callables: a reset of all may still hold one that its client has dropped meanwhile.
struct Registry {
  std::mutex mutex;
  std::map<Callable*, std::shared_ptr<Callable>> live;
};
Registry& registry() {
  static auto* r = new Registry;  // callables with static storage go after any destructor here
  return *r;
}
}  // namespace

namespace {
Callable* hold(std::shared_ptr<Callable> made) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  Callable* const callable = r.live.emplace(made.get(), made).first->first;
  callable->stance_changed();  // it may have, before this one was known
  return callable;
}
}  // namespace

Callable* make_callable(std::shared_ptr<const Context> context, const tsr_callable_desc& desc) {
  return hold(std::make_shared<Callable>(std::move(context), desc));
}

Callable* make_callable(std::shared_ptr<const Context> context, std::unique_ptr<ModelSource> model) {
  return hold(std::make_shared<Callable>(std::move(context), std::move(model)));
}

void drop_callable(Callable* callable) {
  std::shared_ptr<Callable> last;  // outlives the lock: clients free their structures when it goes
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (const auto at = r.live.find(callable); at != r.live.end()) {
    last = std::move(at->second);
    r.live.erase(at);
  }
}

namespace {
// To be used without the registry's lock: a capture that runs under a callable's lock may make callables.
std::vector<std::shared_ptr<Callable>> live_callables() {
  std::vector<std::shared_ptr<Callable>> all;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  for (const auto& [key, callable] : r.live) all.push_back(callable);
  return all;
}
}  // namespace

void reset_callables() {
  for (const auto& callable : live_callables()) callable->reset();
}

void change_stance(std::string_view name) {
  set_stance(name);
  for (const auto& callable : live_callables()) callable->stance_changed();
}

void Callable::check_capacity(size_t outputs, size_t capacity) const {
  if (outputs > capacity)
    throw user_error("TSR-E003", "'" + frame_->name() + "' returns " + std::to_string(outputs) +
                                     " tensors, there is room for " + std::to_string(capacity));
}

// In one function with all that a hit goes through but the run itself.
[[gnu::always_inline]] inline void Callable::call(const tsr_arg* args, size_t count, tsr_tensor_handle** outputs,
                                                  size_t capacity, size_t* num_outputs, void** structure) {
  const EntryTable& table = *front_.load(std::memory_order_acquire);
  PlainMemory memory;
  const FastCall* fast = nullptr;
  const Entry* const e = table.find_plain(args, count, memory, &fast);
  if (!fast || e->num_outputs > capacity) [[unlikely]]
    return call_generally(table, e, args, count, {outputs, capacity, num_outputs, structure});
  fast->run_on(memory.bases, outputs);
  *num_outputs = e->num_outputs;
  if (structure) *structure = e->structure;
  table.used(*e);
}

void Callable::call_generally(const EntryTable& front, const Entry* e, const tsr_arg* args, size_t count, const Output& out) {
  if (!e) e = front.find(args, count);
  if (!e || e->in_path) return call_slowly(front, e, args, count, out);
  check_capacity(e->num_outputs, out.capacity);
  e->run(args, out.tensors);
  *out.count = e->num_outputs;
  if (out.structure) *out.structure = e->structure;
  front.used(*e);
}

tsr_error* call_callable(tsr_callable_handle* c, const tsr_arg* args, size_t count, tsr_tensor_handle** outputs,
                         size_t capacity, size_t* num_outputs, void** structure) noexcept {
  try {  // not by guarded(): its function would be one more that the arguments go through
    reinterpret_cast<Callable&>(required(c, "callable")).call(args, count, outputs, capacity, num_outputs, structure);
    return nullptr;
  } catch (...) {
    return current_exception_to_c();
  }
}

void Callable::call_slowly(const EntryTable& front, const Entry* e, const tsr_arg* args, size_t count, const Output& out) {
  if (e) {
    front.used(*e);
    return run_path(front, e, args, count, out);
  }
  if (stance() == Stance::kForceEager) return run_uncompiled({"the stance is 'force_eager'"}, args, count, out);
  for (;;) {
    EntryTable& table = *table_.load(std::memory_order_acquire);
    const EntryTable::Reader reader(table);
    if (table.evicts()) e = table.find(args, count);
    if (!e) {
      PathCapture path(*this, args, count);
      UncompiledCall uncompiled;
      e = miss(table, args, count, path, uncompiled);
      if (uncompiled.look_again) continue;
      if (uncompiled.why) return run_uncompiled(uncompiled, args, count, out);
      if (path.done()) return path.deliver(out);
    }
    table.used(*e);
    if (e->in_path) return run_path(table, e, args, count, out);
    check_capacity(e->num_outputs, out.capacity);
    e->run(args, out.tensors);
    *out.count = e->num_outputs;
    if (out.structure) *out.structure = e->structure;
    return;
  }
}

std::string Callable::path_of(const tsr_arg* args, size_t count, size_t index) const {
  char buf[512];
  buf[0] = 0;
  if (desc_.path) desc_.path(desc_.self, args, count, index, buf, sizeof buf);
  buf[sizeof buf - 1] = 0;
  return buf[0] ? std::string(buf) : "arg" + std::to_string(index);
}

}  // namespace tessera::core
