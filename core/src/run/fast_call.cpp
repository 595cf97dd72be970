// SPDX-License-Identifier: Apache-2.0
#include "run/fast_call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include "memory/block_pool.hpp"
#include "memory/parallel.hpp"
#include "memory/pool.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "plugin/plugin_host.hpp"
#include "run/run_state.hpp"
#include "support/error.hpp"

namespace tessera::core {

// A tsr_tensor without its data, as it stands in memory behind that. Sizes, then strides, follow.
struct TensorImage {
  uint32_t dtype, rank;
  const int64_t *sizes, *strides;
  tsr_device device;
  uint32_t flags;
};
static_assert(sizeof(tsr_tensor) == sizeof(void*) + sizeof(TensorImage));
static_assert(offsetof(tsr_tensor, dtype) == sizeof(void*) + offsetof(TensorImage, dtype));
static_assert(offsetof(tsr_tensor, rank) == sizeof(void*) + offsetof(TensorImage, rank));
static_assert(offsetof(tsr_tensor, sizes) == sizeof(void*) + offsetof(TensorImage, sizes));
static_assert(offsetof(tsr_tensor, strides) == sizeof(void*) + offsetof(TensorImage, strides));
static_assert(offsetof(tsr_tensor, device) == sizeof(void*) + offsetof(TensorImage, device));
static_assert(offsetof(tsr_tensor, flags) == sizeof(void*) + offsetof(TensorImage, flags));

namespace {

// What a call has on its stack: addresses that tensors lie at, the buffers it holds, the operands of one launch.
constexpr size_t kMaxBases = 4096, kMaxOutputs = 256, kMaxArenas = 16, kMaxOperands = 256;

// Images of all plans, each once: with many entries of a function most of their tensors are alike.
std::shared_ptr<const TensorImage> image_of(uint32_t dtype, uint32_t rank, const int64_t* sizes, const int64_t* strides,
                                            tsr_device device, uint32_t flags) {
  using Key = std::vector<int64_t>;
  struct Known {
    std::mutex mutex;
    std::map<Key, std::weak_ptr<const TensorImage>> images;
  };
  static auto* known = new Known;  // never destroyed: plans with static storage go after any destructor here
  Key key = {dtype, rank, device, flags};
  key.insert(key.end(), sizes, sizes + rank);
  key.insert(key.end(), strides, strides + rank);
  const std::lock_guard lock(known->mutex);
  std::weak_ptr<const TensorImage>& kept = known->images[key];
  if (auto there = kept.lock()) return there;
  const size_t bytes = sizeof(TensorImage) + 2 * size_t{rank} * sizeof(int64_t);
  auto* image = static_cast<TensorImage*>(allocate_lines(bytes));
  auto* numbers = reinterpret_cast<int64_t*>(image + 1);
  std::copy_n(sizes, rank, numbers);
  std::copy_n(strides, rank, numbers + rank);
  ::new (image) TensorImage{dtype, rank, numbers, numbers + rank, device, flags};
  std::shared_ptr<const TensorImage> made(image, [bytes, key](const TensorImage* i) {
    {
      const std::lock_guard guard(known->mutex);
      const auto at = known->images.find(key);
      if (at != known->images.end() && at->second.expired()) known->images.erase(at);  // else it has been made anew
    }
    free_lines(const_cast<TensorImage*>(i), bytes);
  });
  kept = made;
  return made;
}

}  // namespace

static_assert(sizeof(FastCall) == 48);

struct FastCall::Launch {
  tsr_error* (*fn)(void*, const tsr_launch*);
  void* self;
  uint16_t num_inputs, num_outputs;
  uint16_t workspace;  // base
};
struct FastCall::Cold {
  const Plan& plan;
  std::vector<std::shared_ptr<const TensorImage>> images;  // keeps them
  std::vector<const TensorImage*> inputs;                  // as the primary layout expects them
  size_t bytes;                                            // of the block
  // By output: the input in whose memory it lies, kNone: in its own. Empty: all lie in their own.
  std::vector<uint32_t> given;
  std::vector<uint8_t> is_given;  // by input
};
struct FastCall::Output {
  Device* device;
  size_t bytes;
  const TensorImage* image;
  uint32_t size_class;
  mutable uint32_t type;  // its number, or 0
};
struct FastCall::Arena {
  Device* device;
  uint64_t bytes : 48, size_class : 16;       // bytes as devices count them
  static constexpr uint32_t kLarge = 0xffff;  // in place of a class: shared by all calls
};
struct FastCall::Place {  // within an input, an output or an arena
  int64_t offset;         // bytes
  uint32_t base;
};

namespace {

bool fits(const Plan& p) {
  if (!p.primary || p.measure || p.check_nan || p.nested || !p.queues.empty()) return false;
  if (p.gives_away && !p.replaces_states) return false;
  for (const Instruction& e : p.primary->program)
    if (e.kind != Instruction::kLaunch || e.inputs.size() + e.outputs.size() > kMaxOperands) return false;
  for (const auto& o : p.primary->outputs)
    if (o.root != p.output_root(o.output) && o.root >= p.inputs.size()) return false;
  return p.primary->outputs.size() == p.output_slots.size() && p.arena_devices.size() <= kMaxArenas &&
         p.output_slots.size() <= kMaxOutputs && p.primary->program.size() <= UINT16_MAX && p.threads <= INT16_MAX;
}

// Larger ones never come from a thread's own pool.
uint32_t class_of(size_t bytes) { return bytes <= ThreadCache::kMaxBlock ? size_class_of(bytes) : kNone; }

}  // namespace

// Collects the parts of a block, then writes it. Bases are numbered: null, inputs, outputs, arenas, constants, places within
// the others.
class FastCall::Maker {
 public:
  explicit Maker(const Plan& plan) : p_(plan), l_(*plan.primary) {}

  Owner make() {
    for (size_t d = 0; d < l_.arena_bytes.size(); ++d) {
      arena_of_.push_back(static_cast<uint32_t>(arenas_.size()));
      const auto bytes = static_cast<size_t>(counted_bytes(static_cast<size_t>(l_.arena_bytes[d])));
      if (bytes >> 48 != 0) return nullptr;
      if (bytes > 0) arenas_.push_back({&device(p_.arena_devices[d]), bytes, class_of(bytes) & Arena::kLarge});
    }
    // Constants have to be counted before the first place has a number.
    each_operand([this](const Resolved& r) {
      if (r.place == Resolved::kFixed) fixed(r);
    });
    for (const Instruction& e : l_.program) launch(e);
    for (uint32_t i = 0; i < p_.inputs.size(); ++i)  // inputs have the first slots
      inputs_.push_back(image(i, l_.slots[i].dense ? TSR_TENSOR_CONTIGUOUS : 0u));
    outputs_.resize(p_.output_slots.size());
    for (const auto& o : l_.outputs) {
      if (o.root < p_.inputs.size()) {
        given_.resize(outputs_.size(), kNone);
        given_[o.output] = o.root;
        is_given_.resize(p_.inputs.size(), 0);
        is_given_[o.root] = 1;
      }
      const auto bytes = static_cast<size_t>(o.bytes);
      const Slot& s = p_.slots[p_.output_slots[o.output]];
      outputs_[o.output] = {&device(s.device), bytes, image(p_.output_slots[o.output], TSR_TENSOR_CONTIGUOUS), class_of(bytes),
                            0};
    }
    if (first_place() + places_.size() > kMaxBases) return nullptr;
    return write();
  }

 private:
  template <class F>
  void each_operand(F f) const {
    for (const Instruction& e : l_.program)
      for (const auto* slots : {&e.inputs, &e.outputs})
        for (const uint32_t slot : *slots)
          if (slot != kNone) f(l_.slots[slot]);
  }

  size_t first_fixed() const { return 1 + p_.inputs.size() + p_.output_slots.size() + arenas_.size(); }
  size_t first_place() const { return first_fixed() + fixed_.size(); }

  uint32_t fixed(const Resolved& r) {
    void* const address = static_cast<char*>(p_.constants[r.index].data) + r.offset;
    const auto at = std::find(fixed_.begin(), fixed_.end(), address);
    const size_t index = static_cast<size_t>(at - fixed_.begin());
    if (at == fixed_.end()) fixed_.push_back(address);
    return static_cast<uint32_t>(first_fixed() + index);
  }

  // Whether there are too many to count this way is looked at in the end.
  uint16_t base(uint32_t root, int64_t offset) { return static_cast<uint16_t>(base_of(root, offset)); }
  uint32_t base_of(uint32_t root, int64_t offset) {
    const auto n = static_cast<uint32_t>(p_.inputs.size()), m = static_cast<uint32_t>(p_.output_slots.size());
    const uint32_t whole = 1 + (root < n + m ? root : n + m + arena_of_[root - p_.arena_root(0, 0)]);
    if (offset == 0) return whole;
    const auto [at, fresh] = place_of_.try_emplace({whole, offset}, static_cast<uint32_t>(places_.size()));
    if (fresh) places_.push_back({offset, whole});
    return static_cast<uint32_t>(first_place()) + at->second;
  }

  const TensorImage* image(uint32_t slot, uint32_t flags) {
    const Slot& s = p_.slots[slot];
    const Resolved& r = l_.slots[slot];
    return keep(image_of(s.dtype, s.rank, r.sizes, r.strides, s.device, flags));
  }
  const TensorImage* keep(std::shared_ptr<const TensorImage> i) {
    if (std::find(images_.begin(), images_.end(), i) == images_.end()) images_.push_back(i);
    return i.get();
  }

  void launch(const Instruction& e) {
    const Step& step = *p_.steps[e.step];
    launches_.push_back({step.kernel.launch, step.kernel.self, static_cast<uint16_t>(e.inputs.size()),
                         static_cast<uint16_t>(e.outputs.size()),
                         e.workspace_root == kNone ? uint16_t{0} : base(e.workspace_root, e.workspace_offset)});
    for (const auto* slots : {&e.inputs, &e.outputs})
      for (const uint32_t slot : *slots) {
        if (slot == kNone) {
          operands_.push_back(keep(image_of(0, 0, nullptr, nullptr, 0, TSR_TENSOR_ABSENT)));
          bases_.push_back(0);
          continue;
        }
        const Resolved& r = l_.slots[slot];
        operands_.push_back(image(slot, r.dense ? TSR_TENSOR_CONTIGUOUS : 0u));
        bases_.push_back(static_cast<uint16_t>(r.place == Resolved::kFixed  ? fixed(r)
                                               : r.place == Resolved::kRoot ? base(r.index, r.offset)
                                                                            : 0));
      }
  }

  Owner write() {
    size_t end = sizeof(FastCall);
    const auto reserve = [&](const auto& items) {
      const size_t begin = (end + 7) / 8 * 8;
      end = begin + items.size() * sizeof(items[0]);
      return static_cast<uint32_t>(begin);
    };
    const std::vector<int64_t> dims(p_.program.num_slots(), 0);  // nothing depends on them here
    const uint32_t outputs_at = reserve(outputs_), arenas_at = reserve(arenas_), fixed_at = reserve(fixed_),
                   places_at = reserve(places_), launches_at = reserve(launches_), operands_at = reserve(operands_),
                   bases_at = reserve(bases_), dims_at = reserve(dims);
    if (end > UINT32_MAX || p_.inputs.size() > UINT16_MAX) return nullptr;
    auto cold = std::unique_ptr<const Cold>(
        new Cold{p_, std::move(images_), std::move(inputs_), end, std::move(given_), std::move(is_given_)});
    char* block = static_cast<char*>(allocate_lines(end));
    auto* f = ::new (block) FastCall;
    f->cold_ = cold.release();
    f->num_launches_ = static_cast<uint16_t>(launches_.size());
    f->num_inputs_ = static_cast<uint16_t>(p_.inputs.size());
    f->num_outputs_ = static_cast<uint16_t>(outputs_.size());
    f->num_arenas_ = static_cast<uint16_t>(arenas_.size());
    f->num_fixed_ = static_cast<uint16_t>(fixed_.size());
    f->num_places_ = static_cast<uint16_t>(places_.size());
    f->threads_ = static_cast<int16_t>(p_.threads);
    f->arenas_ = static_cast<uint16_t>(arenas_at);
    f->launches_ = launches_at;
    f->operands_ = operands_at;
    f->bases_ = bases_at;
    f->fixed_ = fixed_at;
    f->places_ = places_at;
    f->dims_ = dims_at;
    const auto put = [&](const auto& items, uint32_t where) {
      using T = typename std::decay_t<decltype(items)>::value_type;
      std::uninitialized_copy(items.begin(), items.end(), reinterpret_cast<T*>(block + where));
    };
    put(launches_, launches_at);
    put(operands_, operands_at);
    put(bases_, bases_at);
    put(outputs_, outputs_at);
    put(arenas_, arenas_at);
    put(fixed_, fixed_at);
    put(places_, places_at);
    put(dims, dims_at);
    return Owner(f);
  }

  const Plan& p_;
  const SectionLayout& l_;
  std::vector<uint32_t> arena_of_;
  std::vector<Launch> launches_;
  std::vector<const TensorImage*> operands_;
  std::vector<uint16_t> bases_;  // of operands
  std::vector<Output> outputs_;
  std::vector<Arena> arenas_;
  std::vector<void*> fixed_;
  std::vector<Place> places_;
  std::map<std::pair<uint32_t, int64_t>, uint32_t> place_of_;
  std::vector<std::shared_ptr<const TensorImage>> images_;
  std::vector<const TensorImage*> inputs_;
  std::vector<uint32_t> given_;
  std::vector<uint8_t> is_given_;
};

FastCall::Owner FastCall::make(const Plan& plan) { return fits(plan) ? Maker(plan).make() : nullptr; }

bool FastCall::gives_away() const { return !cold_->given.empty(); }

bool FastCall::runs_on_few_bases() const {
  return 1u + num_inputs_ + num_outputs_ + num_arenas_ + num_fixed_ + num_places_ <= kFewBases;
}

void FastCall::number_outputs(uint32_t (*number_of)(const tsr_tensor&)) const {
  for (const Output *o = at<Output>(sizeof(FastCall)), *end = o + num_outputs_; o != end; ++o) {
    tsr_tensor t;
    t.data = nullptr;
    std::memcpy(&t.dtype, o->image, sizeof *o->image);
    __atomic_store_n(&o->type, number_of(t), __ATOMIC_RELAXED);
  }
}

void FastCall::Free::operator()(const FastCall* f) const noexcept {
  const std::unique_ptr<const Cold> cold(f->cold_);
  free_lines(const_cast<FastCall*>(f), cold->bytes);
}

namespace {

// A tensor over the whole of `b`, whose reference it takes; on failure, too.
inline Tensor* make_tensor(ThreadCache* cache, Buffer* b, const TensorImage& image, uint32_t type) {
  BufferRef owned(b);
  const uint32_t rank = image.rank;
  auto* t = static_cast<Tensor*>(allocate_handle_block(sizeof(Tensor) + 2 * rank * sizeof(int64_t), cache));
  int64_t* const dims = t->dims();
  t->desc.data = b->data;
  t->desc.dtype = image.dtype;
  t->desc.rank = rank;
  t->desc.sizes = dims;
  t->desc.strides = dims + rank;
  t->desc.device = image.device;
  t->desc.flags = image.flags;
  for (uint32_t k = 0; k < rank; ++k)
    std::memcpy(dims + 2 * k, image.sizes + 2 * k, 2 * sizeof(int64_t));  // strides follow sizes
  t->refcount = 1;
  t->requires_grad = t->marks = 0;
  t->type = type;
  t->buffer = owned.take();
  return t;
}

}  // namespace

// What a call has taken before it runs. Whatever happens, it lets go of the arenas, and when a kernel fails of the outputs.
struct FastCall::Held {
  tsr_tensor_handle** const outputs;
  uint32_t num_outputs = 0, num_arenas = 0;
  // Small arenas are blocks of the thread's own pool, with the low bit set when they had to be counted; large ones are shared
  // by all calls.
  uintptr_t arenas[kMaxArenas];

  explicit Held(tsr_tensor_handle** to) : outputs(to) {}  // leaves `arenas` alone
  Held(const Held&) = delete;
  ~Held() {
    for (uint32_t i = 0; i < num_arenas; ++i) {
      const uintptr_t a = arenas[i];
      if ((a & 1) == 0) [[likely]]
        t_thread_cache->put_back(reinterpret_cast<Buffer*>(a));
      else
        give_counted(reinterpret_cast<Buffer*>(a & ~uintptr_t{1}));
    }
    for (uint32_t j = 0; j < num_outputs; ++j) [[unlikely]] tensor_release(std::exchange(outputs[j], nullptr));
  }
  void done() { num_outputs = 0; }

  [[gnu::always_inline]] void* take(ThreadCache* cache, const Output& o) {  // in every call, once for each output
    Buffer* b = nullptr;
    if (o.size_class != kNone && cache) [[likely]]
      b = cache->take(*o.device, o.size_class, o.bytes);
    if (!b) [[unlikely]]
      b = allocate_buffer(*o.device, o.bytes);
    void* const data = b->data;
    outputs[num_outputs] = make_tensor(cache, b, *o.image, __atomic_load_n(&o.type, __ATOMIC_RELAXED));
    ++num_outputs;
    return data;
  }
  void* take_over(ThreadCache* cache, const Output& o, const Tensor& input) {
    input.buffer->retain();
    outputs[num_outputs] = make_tensor(cache, input.buffer, *o.image, __atomic_load_n(&o.type, __ATOMIC_RELAXED));
    ++num_outputs;
    return input.buffer->data;
  }
  void* take(ThreadCache* cache, const Arena& a) {
    Buffer* b = a.size_class != Arena::kLarge && cache ? cache->borrow(*a.device, a.size_class, a.bytes) : nullptr;
    arenas[num_arenas] = reinterpret_cast<uintptr_t>(b);
    if (!b) [[unlikely]]
      b = take_counted(a);
    ++num_arenas;
    return b->data;
  }

 private:
  [[gnu::noinline]] Buffer* take_counted(const Arena& a) {
    Buffer* b = a.size_class == Arena::kLarge ? take_arena(*a.device, static_cast<int64_t>(a.bytes))
                                              : allocate_buffer(*a.device, a.bytes);
    arenas[num_arenas] = reinterpret_cast<uintptr_t>(b) | 1;
    return b;
  }
  [[gnu::noinline]] static void give_counted(Buffer* b) noexcept {
    if (b->size_class < ThreadCache::kClasses)
      b->release();
    else
      give_arena(b);
  }
};

void FastCall::failed(const Launch& l, tsr_error* e) const {
  const Plan& plan = cold_->plan;
  const Step& step = *plan.steps[plan.primary->program[static_cast<size_t>(&l - at<Launch>(launches_))].step];
  try {
    if (!e) step.backend->escaped("launch");  // in a catch block
    step.backend->check(e);
  } catch (const Error& error) {
    rethrow_at(plan, step, *plan.primary, static_cast<size_t>(&l - at<Launch>(launches_)), error);
  }
}

[[gnu::always_inline]] inline void FastCall::launch(void* const* bases) const {
  tsr_tensor tensors[kMaxOperands];
  tsr_launch call;
  call.struct_size = sizeof call;
  call.inputs = tensors;
  call.dims = at<int64_t>(dims_);
  call.stream = nullptr;
  call.fault = nullptr;
  call.site = 0;
  const TensorImage* const* image = at<const TensorImage*>(operands_);
  const uint16_t* base = at<uint16_t>(bases_);
  for (const Launch *l = at<Launch>(launches_), *end = l + num_launches_; l != end; ++l) {
    const uint32_t n = uint32_t{l->num_inputs} + l->num_outputs;
    tsr_tensor* t = tensors;
#pragma GCC unroll 4
    for (uint32_t k = 0; k < n; ++k, ++t) {
      t->data = bases[base[k]];
      std::memcpy(&t->dtype, image[k], sizeof(TensorImage));
    }
    image += n;
    base += n;
    call.num_inputs = l->num_inputs;
    call.num_outputs = l->num_outputs;
    call.outputs = tensors + l->num_inputs;
    call.workspace = bases[l->workspace];
    tsr_error* e = nullptr;
    try {
      e = l->fn(l->self, &call);
    } catch (const Error&) {
      throw;
    } catch (...) {
      failed(*l, nullptr);
    }
    if (e) [[unlikely]]
      failed(*l, e);
  }
}

namespace {

// The inputs that a call gives away, to find one that it passes twice: a set of addresses, in which most calls find every one
// alone in its bit.
class GivenInputs {
 public:
  bool add(const Tensor* t) {  // false: it is there already
    uint64_t& word = bits_[bit(t) / 64];
    const uint64_t mask = uint64_t{1} << bit(t) % 64;
    if ((word & mask) != 0 && find(t)) return false;
    word |= mask;
    all_[count_++] = t;
    return true;
  }
  bool holds(const Tensor* t) const { return (bits_[bit(t) / 64] >> bit(t) % 64 & 1) != 0 && find(t); }

 private:
  static size_t bit(const Tensor* t) { return (reinterpret_cast<uintptr_t>(t) >> 4) * 0x9E3779B97F4A7C15u >> 52; }
  bool find(const Tensor* t) const { return std::find(all_, all_ + count_, t) != all_ + count_; }
  uint64_t bits_[64] = {};
  const Tensor* all_[kMaxOutputs];
  size_t count_ = 0;
};

}  // namespace

template <class HandleOf>
bool FastCall::run_giving(HandleOf handle_of, tsr_tensor_handle** outputs) const {
  const std::vector<uint32_t>& given = cold_->given;
  GivenInputs all;
  for (const uint32_t i : given) {
    if (i == kNone) continue;
    const Tensor* const t = Tensor::from(handle_of(i));
    if (!may_write_over(*t) || t->desc.data != t->buffer->data || !all.add(t)) return false;
  }
  void* bases[kMaxBases];
  bases[0] = nullptr;
  void** base = bases + 1;
  for (uint32_t i = 0; i < num_inputs_; ++i) {
    const Tensor* const t = Tensor::from(handle_of(i));
    if (!cold_->is_given[i] && all.holds(t)) return false;
    *base++ = t->desc.data;
  }
  Held held(outputs);
  ThreadCache* const cache = thread_cache();
  const Output* const list = at<Output>(sizeof(FastCall));
  for (uint32_t j = 0; j < num_outputs_; ++j)
    *base++ =
        given[j] == kNone ? held.take(cache, list[j]) : held.take_over(cache, list[j], *Tensor::from(handle_of(given[j])));
  launch_on(bases, base, cache, held);
  held.done();
  return true;
}

bool FastCall::run_giving(tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) const {
  return run_giving([inputs](uint32_t i) { return inputs[i]; }, outputs);
}

bool FastCall::run_giving(const tsr_arg* args, const uint32_t* leaves, tsr_tensor_handle** outputs) const {
  return run_giving([args, leaves](uint32_t i) { return args[leaves[i]].tensor; }, outputs);
}

// The rest of a call, once inputs and outputs have their places; `base` is the one behind those.
[[gnu::always_inline]] inline void FastCall::launch_on(void** bases, void** base, ThreadCache* cache, Held& held) const {
  for (const Arena *a = at<Arena>(arenas_), *end = a + num_arenas_; a != end; ++a) *base++ = held.take(cache, *a);
  for (void *const *f = at<void*>(fixed_), *const *end = f + num_fixed_; f != end; ++f) *base++ = *f;
  for (const Place *p = at<Place>(places_), *end = p + num_places_; p != end; ++p)
    *base++ = reinterpret_cast<void*>(reinterpret_cast<intptr_t>(bases[p->base]) + p->offset);
  if (threads_ > 0)
    launch_limited(bases);
  else
    launch(bases);
}

void FastCall::run_on(void** bases, tsr_tensor_handle** outputs) const {
  Held held(outputs);
  bases[0] = nullptr;
  void** base = bases + 1 + num_inputs_;
  ThreadCache* const cache = thread_cache();
  for (const Output *o = at<Output>(sizeof(FastCall)), *end = o + num_outputs_; o != end; ++o) *base++ = held.take(cache, *o);
  launch_on(bases, base, cache, held);
  held.done();
}

namespace {

// Whether a plain tensor is as an image says, as far as its strides are used.
inline bool is_like(const tsr_tensor& t, const TensorImage& image) {
  if (t.dtype != image.dtype || t.rank != image.rank || t.device != image.device || !t.data || (t.rank > 0 && !t.sizes))
    return false;
  if (!t.strides && !(image.flags & TSR_TENSOR_CONTIGUOUS)) return false;
  for (uint32_t k = 0; k < t.rank; ++k) {
    if (t.sizes[k] != image.sizes[k]) return false;
    if (t.strides && t.sizes[k] > 1 && t.strides[k] != image.strides[k]) return false;
  }
  return true;
}

}  // namespace

bool FastCall::run_raw(const tsr_raw_call& call) const {
  if (gives_away()) return false;  // nobody says who holds these tensors
  void* bases[kMaxBases];
  bases[0] = nullptr;
  uintptr_t addresses = 0;
  for (uint32_t i = 0; i < num_inputs_; ++i) {
    if (!is_like(call.inputs[i], *cold_->inputs[i])) return false;
    bases[1 + i] = call.inputs[i].data;
    addresses |= reinterpret_cast<uintptr_t>(call.inputs[i].data);
  }
  if (cold_->plan.needs_alignment && addresses % kAlignment != 0) return false;
  const Output* const outputs = at<Output>(sizeof(FastCall));
  for (uint32_t j = 0; j < num_outputs_; ++j) {
    tsr_tensor described;
    described.data = nullptr;
    std::memcpy(&described.dtype, outputs[j].image, sizeof(TensorImage));
    bases[1 + num_inputs_ + j] = raw_output(call, j, described, outputs[j].bytes);
  }
  Held held(nullptr);
  launch_on(bases, bases + 1 + num_inputs_ + num_outputs_, thread_cache(), held);
  return true;
}

void FastCall::launch_limited(void* const* bases) const {
  const ThreadLimit limit(threads_);
  launch(bases);
}

template <class DataOf>
inline void FastCall::run_with(DataOf data_of, tsr_tensor_handle** outputs) const {
  void* bases[kMaxBases];
  for (uint32_t i = 0; i < num_inputs_; ++i) bases[1 + i] = data_of(i);
  run_on(bases, outputs);
}

void FastCall::run(tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) const {
  run_with([inputs](uint32_t i) { return inputs[i]->desc.data; }, outputs);
}

void FastCall::run(const tsr_arg* args, const uint32_t* leaves, tsr_tensor_handle** outputs) const {
  if (leaves)
    run_with([args, leaves](uint32_t i) { return args[leaves[i]].tensor->desc.data; }, outputs);
  else
    run_with([args](uint32_t i) { return args[i].tensor->desc.data; }, outputs);
}

}  // namespace tessera::core
