// SPDX-License-Identifier: Apache-2.0
// Running along a path that has been taken before: no host code, no lock.
#include <bit>
#include <cstring>

#include "dispatch/callable.hpp"
#include "dispatch/scalar_inputs.hpp"
#include "dispatch/segment.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

Continuation::~Continuation() {
  std::vector<std::unique_ptr<Child>> rest = std::move(owned);
  while (!rest.empty()) {
    const std::unique_ptr<Child> child = std::move(rest.back());
    rest.pop_back();
    for (const auto& e : child->table.entries()) {
      if (!e->then) continue;
      for (auto& grandchild : e->then->owned) rest.push_back(std::move(grandchild));
      e->then->owned.clear();
    }
  }
}

namespace {

// Tensors of up to this many bytes are compared as a whole; reading a larger one means that host code always runs.
constexpr int64_t kMaxKeyBytes = 4096;

TensorRef value_at(ValueSource s, const tsr_arg* args, const std::vector<TensorRef>& outputs) {
  if (s.kind == ValueSource::kOutput) return TensorRef::share(outputs[s.index].get());
  const tsr_arg& a = args[s.index];
  if (a.kind == TSR_ARG_TENSOR) return TensorRef::share(a.tensor);
  TensorRef number(tensor_create(TSR_F64, {}, 0));  // a symbolic float, as a tensor
  *static_cast<double*>(number->desc.data) = a.f;
  return number;
}

void append_bytes(std::vector<uint64_t>& key, const void* data, size_t length) {
  key.push_back(length);
  const size_t at = key.size();
  key.resize(at + (length + 7) / 8, 0);
  if (length) std::memcpy(key.data() + at, data, length);
}

void read(const Continuation& next, const TensorRef& value, Seen& seen) {
  const Tensor* t = value.get();
  const std::span<const int64_t> sizes(t->desc.sizes, t->desc.rank);
  if (next.read_kind >= TSR_READ_TENSOR) {
    seen.tensor = TensorRef::share(value.get());
    const int64_t bytes = checked_bytes(t->desc.dtype, sizes, "cpu");
    if (bytes > kMaxKeyBytes || next.read_kind == TSR_READ_MEMORY) {
      seen.opaque = true;
      return;
    }
    const TensorRef host(tensor_copy(*t, 0));
    seen.key.push_back(t->desc.dtype | uint64_t{t->desc.rank} << 32);
    for (const int64_t s : sizes) seen.key.push_back(static_cast<uint64_t>(s));
    append_bytes(seen.key, host->desc.data, static_cast<size_t>(bytes));
    return;
  }
  if (num_elements(sizes) != 1)
    throw user_error("TSR-F007", "a tensor of " + std::to_string(num_elements(sizes)) + " elements is read as one number",
                     "index it first");
  const TensorRef host = t->desc.device == 0 ? TensorRef() : TensorRef(tensor_copy(*t, 0));
  const tsr_tensor& d = host ? host->desc : t->desc;
  switch (next.read_kind) {
    case TSR_READ_BOOL: seen.i = load_as<double>(d.dtype, d.data, 0) != 0; break;
    case TSR_READ_INT: seen.i = load_as<int64_t>(d.dtype, d.data, 0); break;
    default: seen.f = load_as<double>(d.dtype, d.data, 0);
  }
  seen.key.push_back(next.read_kind == TSR_READ_FLOAT ? std::bit_cast<uint64_t>(seen.f) : static_cast<uint64_t>(seen.i));
}

void run_step(const Continuation& next, const tsr_arg* args, const std::vector<TensorRef>& outputs,
              std::vector<TensorRef>& results, Seen& seen) {
  constexpr uint32_t kCapacity = 256;
  std::vector<tsr_tensor_handle*> in, out(kCapacity, nullptr);
  std::vector<TensorRef> inputs;
  for (const ValueSource s : next.step_inputs) in.push_back(inputs.emplace_back(value_at(s, args, outputs)).get());
  const tsr_host_step& step = next.step->call;
  uint32_t n = 0;
  const void* key = nullptr;
  size_t length = 0;
  auto outcome = std::make_shared<Outcome>();
  outcome->free = step.outcome_free;
  throw_if(step.run(step.self, in.data(), static_cast<uint32_t>(in.size()), out.data(), kCapacity, &n, &key, &length,
                    &outcome->data));
  for (uint32_t i = 0; i < n; ++i) results.emplace_back(out[i]);
  append_bytes(seen.key, key, length);
  seen.outcome = std::move(outcome);
}

}  // namespace

Done Done::of(const std::shared_ptr<const Continuation>& then, const Seen& seen, const std::vector<TensorRef>& outputs,
              const std::vector<TensorRef>& results) {
  Done d;
  d.then = then;
  d.seen = seen.again();
  if (then->segment->effects)
    for (const TensorRef& t : outputs) d.outputs.push_back(TensorRef::share(t.get()));
  for (const TensorRef& t : results) d.results.push_back(TensorRef::share(t.get()));
  return d;
}

void run_executable(const Entry& e, const tsr_arg* args, std::vector<TensorRef>& outputs) {
  if (!e.executable) return;
  const std::vector<uint32_t>& inputs = e.inputs;
  std::vector<tsr_tensor_handle*> in(inputs.size()), out(e.executable->num_outputs(), nullptr);
  ScalarInputs scalars(static_cast<uint32_t>(inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const tsr_arg& a = args[inputs[i]];
    in[i] = a.kind == TSR_ARG_TENSOR ? a.tensor : scalars.add(a);
  }
  if (e.trusted)
    e.executable->run_trusted(in.data(), out.data());
  else
    e.executable->run(in, out, true);
  for (tsr_tensor_handle* h : out) outputs.emplace_back(h);
}

void run_segment(const Entry& e, const tsr_arg* args, std::vector<TensorRef>& outputs, std::vector<TensorRef>& results,
                 Seen& seen) {
  const Continuation& next = *e.then;
  run_executable(e, args, outputs);
  if (next.returns) return;
  read_value(next, args, outputs, seen);
  if (next.step) run_step(next, args, outputs, results, seen);
  if (seen.opaque) seen.key.clear();
}

void read_value(const Continuation& next, const tsr_arg* args, const std::vector<TensorRef>& outputs, Seen& seen) {
  if (next.read_kind != TSR_READ_NONE) read(next, value_at(next.read, args, outputs), seen);
  if (seen.opaque) seen.key.clear();
}

Values next_values(const Continuation& next, Values& before, std::vector<TensorRef>& outputs, std::vector<TensorRef>& results) {
  Values after;
  const size_t n = next.values.size();
  after.args.resize(n + results.size());
  after.owned.resize(n + results.size());
  for (size_t i = 0; i < n + results.size(); ++i) {
    tsr_arg& a = after.args[i];
    if (i < n && next.values[i].kind == ValueSource::kArgument) {  // each source stands there once
      const uint32_t from = next.values[i].index;
      a = before.args[from];
      if (from < before.owned.size()) after.owned[i] = std::move(before.owned[from]);
      continue;
    }
    a = tsr_arg{};
    a.kind = TSR_ARG_TENSOR;
    a.role = TSR_INPUT_ARG;
    after.owned[i] = std::move(i < n ? outputs[next.values[i].index] : results[i - n]);
    a.tensor = after.owned[i].get();
  }
  return after;
}

void give_results(const Continuation& next, const tsr_arg* args, const std::vector<TensorRef>& outputs,
                  tsr_tensor_handle** out) {
  for (size_t i = 0; i < next.values.size(); ++i) {
    out[i] = value_at(next.values[i], args, outputs).take();
  }
}

// ------------------------------------------------------------------------------------------------------------- a call

void Callable::run_path(const EntryTable& table, const Entry* e, const tsr_arg* args, size_t count, const Output& out) {
  Path path;
  path.table = &table;
  Values& now = path.values;
  now.args.assign(args, args + count);
  for (;;) {
    const Continuation& next = *e->then;
    const Segment& segment = *next.segment;
    std::vector<TensorRef> outputs, results;
    PathStep step;
    step.entry = e;
    run_segment(*e, now.args.data(), outputs, results, step.seen);
    segment.tick.store(segment_tick_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
    e->hits.store(e->hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (next.returns) {
      check_capacity(next.values.size(), out.capacity);
      give_results(next, now.args.data(), outputs, out.tensors);
      *out.count = next.values.size();
      if (out.structure) *out.structure = e->structure;
      return;
    }
    for (const SymbolicGuards::Place& p : e->guards.symbolic.binds)
      step.sizes.push_back(SymbolicGuards::value_at(now.args.data(), p.leaf, p.dim));
    if (next.step || segment.effects) step.done = Done::of(e->then, step.seen, outputs, results);
    now = next_values(next, now, outputs, results);
    const std::vector<uint64_t>& key = step.seen.key;
    path.position = step.seen.opaque ? nullptr : next.children.find(hash_words(key.data(), key.size()), key.data(), key.size());
    path.steps.push_back(std::move(step));
    e = path.position ? path.position->table.find(now.args.data(), now.args.size()) : nullptr;
    if (!e) {
      e = continue_path(path, args, count, out);
      if (!e) return;
    }
    path.position->table.used(*e);
  }
}

}  // namespace tessera::core
