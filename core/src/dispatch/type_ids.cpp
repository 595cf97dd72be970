// SPDX-License-Identifier: Apache-2.0
#include "dispatch/type_ids.hpp"

#include <deque>
#include <mutex>

#include "dispatch/words.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

struct Types {
  std::mutex mutex;  // of insertions
  WordMap<const uint32_t> map;
  std::deque<uint32_t> numbers;  // where the map's values live
};

// Never destroyed: tensors with static storage are arguments after any destructor here.
Types& types() {
  static auto* t = new Types;
  return *t;
}

constexpr size_t kMaxNumber = 0x7fffffff;

// A type in words.
class TypeWords {
 public:
  explicit TypeWords(const tsr_tensor& t) {
    const bool dense = (t.flags & TSR_TENSOR_CONTIGUOUS) != 0;
    size_ = 2 + size_t{t.rank} * (dense ? 1 : 2);
    data_[0] = t.dtype | uint64_t{t.rank} << 32;
    data_[1] = t.device | uint64_t{t.flags} << 32;
    for (uint32_t i = 0; i < t.rank; ++i) data_[2 + i] = static_cast<uint64_t>(t.sizes[i]);
    if (!dense)
      for (uint32_t i = 0; i < t.rank; ++i) data_[2 + t.rank + i] = static_cast<uint64_t>(t.strides[i]);
  }
  const uint64_t* data() const { return data_; }
  size_t size() const { return size_; }
  uint64_t hash() const { return hash_words(data_, size_); }

 private:
  uint64_t data_[2 + 2 * kMaxRank];
  size_t size_;
};

}  // namespace

uint32_t find_type_number(const tsr_tensor& t) noexcept {
  const TypeWords words(t);
  const uint32_t* number = types().map.find(words.hash(), words.data(), words.size());
  return number ? *number : 0;
}

uint32_t note_type_number(Tensor& t) noexcept {
  const uint32_t n = find_type_number(t.desc);
  if (n != 0) __atomic_store_n(&t.type, n, __ATOMIC_RELAXED);  // whoever else is here writes the same
  return n;
}

uint32_t give_type_number(const tsr_tensor& t) {
  Types& all = types();
  const TypeWords words(t);
  const uint64_t hash = words.hash();
  const std::lock_guard lock(all.mutex);
  if (const uint32_t* number = all.map.find(hash, words.data(), words.size())) return *number;
  if (all.numbers.size() >= kMaxNumber)
    throw environment_error("TSR-R001", "the process has compiled code for more than 2^31 types of tensors", "restart it");
  const uint32_t& number = all.numbers.emplace_back(static_cast<uint32_t>(all.numbers.size() + 1));
  all.map.insert(hash, words.data(), words.size(), &number);
  return number;
}

}  // namespace tessera::core
