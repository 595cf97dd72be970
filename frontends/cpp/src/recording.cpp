// SPDX-License-Identifier: Apache-2.0
#include "recording.hpp"

#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "runtime.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/grad.hpp"
#include "tessera/ops.hpp"
#include "tessera/policy.hpp"
#include "trace.hpp"

namespace tessera {

namespace detail {

constinit std::atomic<bool> g_gradients_wanted{false};

namespace {

struct RecordedCall {
  uint64_t sequence;
  struct Result {
    DType dtype;
    std::vector<int64_t> sizes;
    tsr_device device;
  };
  std::vector<Result> results;  // those of floating-point dtypes
  std::vector<Tensor> wanted;   // outlives `saved`, which may hold the same tensors: their records go when we let go of them
  std::shared_ptr<Saved> saved;
};

struct Record {
  std::shared_ptr<RecordedCall> call;  // null: of a tensor that wants a gradient
  size_t result = 0;
  Tensor gradient;
};

struct Records {
  std::mutex lock;
  std::unordered_map<uint32_t, Record> all;
  uint32_t next = 1;  // times two
  uint64_t calls = 0;
};
Records& records() {
  static auto* const r = new Records;  // tensors with static storage may outlive every destructor
  return *r;
}

uint32_t add(Record record, bool of_result) {
  Records& r = records();
  const std::lock_guard hold(r.lock);
  if (r.next == UINT32_MAX / 2)
    throw EnvironmentError("TSR-F065", "2^31 tensors have had a gradient recorded: there is no number left for another",
                           "start the program again from its checkpoint");
  const uint32_t number = 2 * r.next++ + (of_result ? 1 : 0);
  r.all.emplace(number, std::move(record));
  return number;
}

// The record of a tensor: its call and the number of the result. Null: it is none's result.
std::pair<std::shared_ptr<RecordedCall>, size_t> call_of(uint32_t number) {
  Records& r = records();
  const std::lock_guard hold(r.lock);
  const auto at = r.all.find(number);
  if (at == r.all.end()) return {};
  return {at->second.call, at->second.result};
}

void add_gradient(const Tensor& to, const Tensor& gradient) {
  Records& r = records();
  Tensor sum;
  {
    const std::lock_guard hold(r.lock);
    sum = r.all.at(to.handle()->requires_grad).gradient;
  }
  sum = sum.defined() ? sum + gradient : gradient;
  const std::lock_guard hold(r.lock);
  std::swap(r.all.at(to.handle()->requires_grad).gradient, sum);
}

}  // namespace

namespace {
// What a thread lets go of, while it does: a record may be the last to hold the call before, and that the one before it.
constinit thread_local std::vector<Record>* t_going = nullptr;
}  // namespace

void forget_gradient(uint32_t number) noexcept {
  Records& r = records();
  Record gone;
  {
    const std::lock_guard hold(r.lock);
    const auto at = r.all.find(number);
    if (at == r.all.end()) return;
    gone = std::move(at->second);
    r.all.erase(at);
  }
  if (t_going) {
    try {
      t_going->push_back(std::move(gone));
    } catch (const std::bad_alloc&) {}  // then it goes here and now
    return;
  }
  std::vector<Record> going;
  t_going = &going;
  gone = Record();
  while (!going.empty()) {
    const Record last = std::move(going.back());
    going.pop_back();
  }
  t_going = nullptr;
}

uint32_t wanted_record(tsr_tensor_handle& h) {
  if (h.requires_grad == 1 && is_float(h.desc.dtype)) h.requires_grad = add({}, false);
  return h.requires_grad;
}

std::vector<Tensor> record_call(std::shared_ptr<Saved> saved, std::vector<Tensor> wanted, const std::vector<Tensor>& results) {
  auto call = std::make_shared<RecordedCall>();
  {
    Records& r = records();
    const std::lock_guard hold(r.lock);
    call->sequence = ++r.calls;
  }
  call->wanted = std::move(wanted);
  call->saved = std::move(saved);
  std::vector<Tensor> out;
  for (const Tensor& t : results) {
    if (!is_float(static_cast<uint32_t>(t.dtype()))) {
      out.push_back(t);
      continue;
    }
    // A handle of its own: that of the result may be kept for the backward half, or be one of the arguments.
    Tensor own = t.detach();
    call->results.push_back({t.dtype(), t.sizes(), t.device().id()});
    own.handle()->requires_grad = add({call, call->results.size() - 1, {}}, true);
    out.push_back(std::move(own));
  }
  return out;
}

}  // namespace detail

using detail::fail;

Tensor& Tensor::requires_grad_(bool on) {
  if (is_traced())
    fail("TSR-F063", "requires_grad_ of a tensor that is being traced", "call it on the tensor before it is passed");
  tsr_tensor_handle& h = *handle();
  if (!on) {
    if (h.requires_grad > 1) detail::forget_gradient(std::exchange(h.requires_grad, 0u));
    h.requires_grad = 0;
    return *this;
  }
  if (!is_float(h.desc.dtype))
    fail("TSR-F050", "requires_grad_ of a tensor of dtype " + std::string(name(dtype())) + ", expected a floating-point dtype");
  detail::g_gradients_wanted.store(true, std::memory_order_relaxed);
  if (h.requires_grad == 0) h.requires_grad = detail::add({}, false);
  return *this;
}

Tensor Tensor::grad() const {
  if (is_traced() || !defined()) return {};
  detail::Records& r = detail::records();
  const std::lock_guard hold(r.lock);
  const auto at = r.all.find(handle()->requires_grad);
  return at == r.all.end() ? Tensor() : at->second.gradient;
}

void Tensor::zero_grad() const {
  if (is_traced() || !defined()) return;
  detail::Records& r = detail::records();
  Tensor gone;
  const std::lock_guard hold(r.lock);
  if (const auto at = r.all.find(handle()->requires_grad); at != r.all.end()) std::swap(gone, at->second.gradient);
}

namespace {
void expect_writable(const Tensor& t, const char* what) {
  if (t.is_traced())
    detail::fail("TSR-F063", std::string(what) + " of a tensor that is being traced",
                 "in a compiled function assign the tensor: x = values");
}
}  // namespace

const Tensor& Tensor::copy_(const Tensor& values) const {
  expect_writable(*this, "copy_");
  expect_writable(values, "copy_ from the values");
  detail::check(detail::api().tensor_write(handle(), values.handle()));
  return *this;
}
const Tensor& Tensor::fill_(Scalar value) const {
  expect_writable(*this, "fill_");
  const std::vector<int64_t> now = sizes();
  return copy_(full(Shape(now.begin(), now.end()), std::move(value), dtype()));
}
const Tensor& Tensor::zero_() const { return fill_(0); }
void Tensor::mark_written() const {
  expect_writable(*this, "mark_written");
  detail::api().tensor_written(handle());
}

Tensor Tensor::detach() const {
  if (is_traced()) return stop_gradient(*this);
  const tsr_tensor& d = handle()->desc;
  tsr_tensor_handle* out = nullptr;
  detail::check(detail::api().tensor_view(handle(), 0, d.rank, d.sizes, d.strides, &out));
  out->requires_grad = 0;
  return adopt(out);
}

void Tensor::backward() const { backward(Tensor()); }

void Tensor::backward(const Tensor& seed) const {
  using detail::RecordedCall;
  if (is_traced())
    fail("TSR-F063", "backward() of a tensor that is being traced",
         "in a compiled function gradients are asked for by grad(loss, wanted)");
  const auto [call, result] = detail::call_of(handle()->requires_grad);
  if (!call)
    fail("TSR-F063",
         "backward() of a tensor of which nothing is recorded: a view, a tensor that was computed outside of compiled "
         "functions, or the result of a call without an argument that requires gradients",
         "compute it in a function given to tessera::compile, call that with gradients on, and requires_grad_() the arguments");
  const NoGradGuard off;
  const auto fits = [&](const Tensor& t) { return t.dtype() == dtype() && t.sizes() == sizes(); };
  if (seed.defined() && (seed.is_traced() || !fits(seed)))
    fail("TSR-F050", "backward(): the seed is not of the type of the tensor");
  if (!seed.defined() && static_cast<int64_t>(numel()) != 1)
    fail("TSR-F050", "backward() of a tensor of " + std::to_string(static_cast<int64_t>(numel())) + " elements without a seed",
         "give a seed of its type, or take the sum or the mean in the compiled function");
  // Calls from the last to the first: all that came after one have been gone through when it is its turn.
  struct Waiting {
    std::shared_ptr<RecordedCall> call;
    std::vector<Tensor> cotangents;
  };
  std::map<uint64_t, Waiting, std::greater<>> waiting;
  const auto give = [&](const std::shared_ptr<RecordedCall>& to, size_t i, const Tensor& cotangent) {
    Waiting& w = waiting[to->sequence];
    w.call = to;
    w.cotangents.resize(to->results.size());
    Tensor& sum = w.cotangents[i];
    sum = sum.defined() ? sum + cotangent : cotangent;
  };
  give(call, result, seed.defined() ? seed : ones_like(*this).to(device()));
  while (!waiting.empty()) {
    Waiting now = std::move(waiting.begin()->second);
    waiting.erase(waiting.begin());
    for (size_t i = 0; i < now.cotangents.size(); ++i) {
      const RecordedCall::Result& type = now.call->results[i];
      if (!now.cotangents[i].defined())
        now.cotangents[i] = zeros(Shape(type.sizes.begin(), type.sizes.end()), type.dtype).to(Device(type.device));
    }
    // The first one is a cotangent itself, which makes the others a backward half whatever they depend on.
    const std::vector<Tensor> gradients = detail::run_backward(*now.call->saved, now.cotangents);
    for (size_t i = 0; i < now.call->wanted.size(); ++i) {
      const Tensor& wanted = now.call->wanted[i];
      const uint32_t number = wanted.handle()->requires_grad;
      if (const auto [before, index] = detail::call_of(number); before)
        give(before, index, gradients[i + 1]);
      else if (number > 1)
        detail::add_gradient(wanted, gradients[i + 1]);
    }
  }
}

}  // namespace tessera
