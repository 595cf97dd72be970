// SPDX-License-Identifier: Apache-2.0
#include "eager/eager.hpp"

#include <array>
#include <cstring>

#include "compile/driver.hpp"
#include "context/context.hpp"
#include "dispatch/words.hpp"
#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

struct EagerCache::Entry {
  std::unique_ptr<Executable> executable;
  std::vector<uint32_t> inputs;  // operands that are given
};

struct EagerCache::Generation {
  WordMap<Entry> map;
  std::vector<std::unique_ptr<Entry>> entries;
};

namespace {

// Shapes that never come back would fill the memory with executables: beyond this the cache starts afresh.
constexpr size_t kMaxEntries = 8192;
// Data of a tensor attribute becomes part of the key up to this size; larger ones are not cached.
constexpr int64_t kMaxKeyData = 64;

// False: this call cannot be cached.
bool make_key(WordBuffer& key, const char* op, tsr_tensor_handle* const* operands, size_t num_operands, const tsr_attr* attrs,
              size_t num_attrs) {
  key.push_text(op);
  for (size_t i = 0; i < num_operands; ++i) {
    key.reserve(2 + 2 * kMaxRank);
    if (!operands[i]) {
      key.push(~uint64_t{0});
      continue;
    }
    const tsr_tensor& t = operands[i]->desc;
    const bool dense = t.flags & TSR_TENSOR_CONTIGUOUS;
    key.push(t.dtype | uint64_t{t.rank} << 8 | uint64_t{dense} << 16 | uint64_t{t.device} << 32);
    for (uint32_t k = 0; k < t.rank; ++k) key.push(static_cast<uint64_t>(t.sizes[k]));
    if (!dense)
      for (uint32_t k = 0; k < t.rank; ++k) key.push(static_cast<uint64_t>(t.strides[k]));
  }
  for (size_t i = 0; i < num_attrs; ++i) {
    const tsr_attr& a = attrs[i];
    key.push_text(a.name);
    key.reserve(2 + a.count);
    key.push(a.kind | uint64_t{a.count} << 32);
    switch (a.kind) {
      case TSR_ATTR_INT:
      case TSR_ATTR_BOOL:
      case TSR_ATTR_DTYPE:
      case TSR_ATTR_DIM: key.push(static_cast<uint64_t>(a.i)); break;
      case TSR_ATTR_FLOAT: {
        uint64_t bits;
        std::memcpy(&bits, &a.f, sizeof bits);
        key.push(bits);
        break;
      }
      case TSR_ATTR_STRING: key.push_text(a.s); break;
      case TSR_ATTR_INTS:
      case TSR_ATTR_DIMS:
        for (uint32_t k = 0; k < a.count; ++k) key.push(static_cast<uint64_t>(a.ints[k]));
        break;
      case TSR_ATTR_FLOATS:
        for (uint32_t k = 0; k < a.count; ++k) {
          uint64_t bits;
          std::memcpy(&bits, &a.floats[k], sizeof bits);
          key.push(bits);
        }
        break;
      case TSR_ATTR_STRINGS:
        for (uint32_t k = 0; k < a.count; ++k) key.push_text(a.strings[k]);
        break;
      case TSR_ATTR_TENSOR: {
        if (!a.tensor) return false;
        const std::span<const int64_t> sizes(a.tensor->sizes, a.tensor->rank);
        const int64_t bytes = checked_bytes(a.tensor->dtype, sizes, "cpu");
        if (bytes > kMaxKeyData) return false;
        key.reserve(1 + a.tensor->rank);
        key.push(a.tensor->dtype | uint64_t{a.tensor->rank} << 8);
        for (const int64_t s : sizes) key.push(static_cast<uint64_t>(s));
        key.push_text({static_cast<const char*>(a.tensor->data), static_cast<size_t>(bytes)});
        break;
      }
      default: return false;
    }
  }
  return true;
}

}  // namespace

EagerCache::EagerCache(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  options_.backends = {&context_->fallback_backend()};
  options_.relaxed = context_->config().get_string("numerics") == "relaxed";
  options_.deterministic = context_->config().get_bool("deterministic");
  options_.unfrozen = !context_->config().get_bool("freezing");
  options_.threads = static_cast<int>(context_->config().get_int("runtime.threads"));
  // No `keep`: the executables go with this cache, which holds the context.
  generations_.push_back(std::make_unique<Generation>());
  current_.store(generations_.back().get());
}
EagerCache::~EagerCache() = default;

std::unique_ptr<Executable> EagerCache::compile(const char* op, tsr_tensor_handle* const* operands, size_t num_operands,
                                                const tsr_attr* attrs, size_t num_attrs) const {
  auto g = std::make_unique<Graph>(context_->ops(), op);
  NodeSpec spec;
  spec.op = op;
  spec.attrs.assign(attrs, attrs + num_attrs);
  for (size_t i = 0; i < num_operands; ++i) {
    if (!operands[i]) {
      spec.operands.push_back(TSR_NONE);
      continue;
    }
    const tsr_tensor& t = operands[i]->desc;
    tsr_type type{};
    type.dtype = t.dtype;
    type.rank = t.rank;
    type.sizes = t.sizes;
    type.strides = t.flags & TSR_TENSOR_CONTIGUOUS ? nullptr : t.strides;
    type.device = t.device;
    spec.operands.push_back(g->create_input("x" + std::to_string(i), type));
  }
  const tsr_id n = g->create_node(spec);
  g->set_outputs(0, {g->node(n).results, g->node(n).num_results});
  return traced_compile({"op", op, {}, {}}, [&] { return compile_graph(std::move(g), options_); });
}

void EagerCache::run(const char* op, tsr_tensor_handle* const* operands, size_t num_operands, const tsr_attr* attrs,
                     size_t num_attrs, tsr_tensor_handle** results, size_t capacity, size_t* num_results) {
  struct Reader {  // keeps generations alive while an executable of one of them is in use
    std::atomic<int64_t>& count;
    explicit Reader(std::atomic<int64_t>& c) : count(c) { count.fetch_add(1, std::memory_order_seq_cst); }
    ~Reader() { count.fetch_sub(1, std::memory_order_release); }
  };
  const auto launch = [&](const Executable& e, const std::vector<uint32_t>* given) {
    if (e.num_outputs() > capacity)
      throw user_error("TSR-E003", "op '" + std::string(op) + "' has " + std::to_string(e.num_outputs()) +
                                       " results, there is room for " + std::to_string(capacity));
    *num_results = e.num_outputs();
    if (given && given->size() == num_operands) return e.run_trusted(operands, results);
    std::vector<tsr_tensor_handle*> in;
    for (size_t i = 0; i < num_operands; ++i)
      if (operands[i]) in.push_back(operands[i]);
    e.run_trusted(in.data(), results);
  };
  WordBuffer key;
  if (!make_key(key, op, operands, num_operands, attrs, num_attrs)) {
    const std::unique_ptr<Executable> once = compile(op, operands, num_operands, attrs, num_attrs);
    return launch(*once, nullptr);
  }
  const uint64_t hash = hash_words(key.data(), key.size());
  {
    const Reader reader(readers_);
    if (const Entry* e = current_.load(std::memory_order_seq_cst)->map.find(hash, key.data(), key.size()))
      return launch(*e->executable, &e->inputs);
  }
  auto entry = std::make_unique<Entry>();
  entry->executable = compile(op, operands, num_operands, attrs, num_attrs);
  for (uint32_t i = 0; i < num_operands; ++i)
    if (operands[i]) entry->inputs.push_back(i);
  const Reader reader(readers_);
  Entry* found = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (generations_.back()->entries.size() >= kMaxEntries) {
      generations_.push_back(std::make_unique<Generation>());
      current_.store(generations_.back().get(), std::memory_order_seq_cst);
    }
    // Only this thread reads: nobody can be in a generation that is no longer current.
    if (generations_.size() > 1 && readers_.load(std::memory_order_seq_cst) == 1)
      generations_.erase(generations_.begin(), generations_.end() - 1);
    Generation& g = *generations_.back();
    found = g.map.find(hash, key.data(), key.size());  // another thread may have been faster
    if (!found) {
      g.entries.push_back(std::move(entry));
      found = g.entries.back().get();
      g.map.insert(hash, key.data(), key.size(), found);
    }
  }
  launch(*found->executable, &found->inputs);
}

}  // namespace tessera::core
