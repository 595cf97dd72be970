// SPDX-License-Identifier: Apache-2.0
// Keys of dispatch: short arrays of 64-bit words, a hash over them, and an insert-only hash table that is read without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::core {

// Words on the stack for calls of ordinary width; more go to the heap.
class WordBuffer {
 public:
  WordBuffer() : data_(stack_), end_(stack_), limit_(stack_ + kStack) {}
  WordBuffer(const WordBuffer&) = delete;
  // Makes room for n more words; push without a check up to that.
  void reserve(size_t n) {
    if (static_cast<size_t>(limit_ - end_) < n) [[unlikely]]
      grow(n);
  }
  void push(uint64_t w) { *end_++ = w; }
  // To write reserved words through a pointer that lives in a register: begin there, then say where the words end.
  uint64_t* end() { return end_; }
  void set_end(uint64_t* end) { end_ = end; }
  void clear() { end_ = data_; }
  void push_text(std::string_view s) {
    reserve(2 + s.size() / 8);
    push(s.size());
    for (size_t i = 0; i < s.size(); i += 8) {
      uint64_t w = 0;
      std::memcpy(&w, s.data() + i, s.size() - i < 8 ? s.size() - i : 8);
      push(w);
    }
  }
  const uint64_t* data() const { return data_; }
  size_t size() const { return static_cast<size_t>(end_ - data_); }

 private:
  static constexpr size_t kStack = 512;
  void grow(size_t n) {
    const size_t used = size();
    const size_t capacity = 2 * (used + n);
    auto larger = std::make_unique<uint64_t[]>(capacity);
    std::memcpy(larger.get(), data_, used * sizeof(uint64_t));
    heap_ = std::move(larger);
    data_ = heap_.get();
    end_ = data_ + used;
    limit_ = data_ + capacity;
  }
  uint64_t stack_[kStack];
  std::unique_ptr<uint64_t[]> heap_;
  uint64_t *data_, *end_, *limit_;
};

// The sum of one 128-bit product per pair of words, each pair under another key (NH, of UMAC: RFC 4418), then a mixing step
// (wyhash's). The products do not wait for each other. Equal keys are compared in full afterwards, so that a collision costs
// time only.
inline uint64_t hash_words(const uint64_t* w, size_t n) noexcept {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  using Wide = unsigned __int128;
  Wide sum = n;
  uint64_t key = 0xBF58476D1CE4E5B9u;
  const uint64_t* const end = w + (n & ~size_t{1});
  for (; w != end; w += 2, key += kStep) sum += static_cast<Wide>(w[0] + key) * (w[1] - key);
  if (n & 1) sum += static_cast<Wide>(w[0] + key) * ~key;
  const Wide mixed = static_cast<Wide>(static_cast<uint64_t>(sum) ^ static_cast<uint64_t>(sum >> 64)) * 0x94D049BB133111EBu;
  return static_cast<uint64_t>(mixed) ^ static_cast<uint64_t>(mixed >> 64);
}

// Maps keys to values that live elsewhere. find() takes no lock and may run while another thread inserts; inserts exclude each
// other by a lock of the caller. Nothing is ever removed; outgrown tables are kept until the map goes, because a reader
// may be in one.
template <class T>
class WordMap {
 public:
  WordMap() {
    tables_.push_back(std::make_unique<Table>(8));
    current_.store(tables_.back().get(), std::memory_order_release);
  }

  T* find(uint64_t hash, const uint64_t* words, size_t n) const noexcept {
    const Table* t = current_.load(std::memory_order_acquire);
    for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
      const Slot& slot = t->slots[i];
      const Node* node = slot.node.load(std::memory_order_acquire);
      if (!node) return nullptr;
      if (slot.hash != hash) continue;  // written before the node was published
      if (node->size == n && (n == 0 || std::memcmp(node->words(), words, n * sizeof(uint64_t)) == 0)) return node->value;
    }
  }
  void insert(uint64_t hash, const uint64_t* words, size_t n, T* value) {
    if ((nodes_.size() + 1) * 2 > tables_.back()->mask + 1) {
      auto larger = std::make_unique<Table>((tables_.back()->mask + 1) * 2);
      for (const auto& node : nodes_) place(*larger, node.get());
      tables_.push_back(std::move(larger));
      current_.store(tables_.back().get(), std::memory_order_release);
    }
    nodes_.emplace_back(static_cast<Node*>(::operator new(sizeof(Node) + n * sizeof(uint64_t))));
    Node* node = new (nodes_.back().get()) Node{hash, n, value};
    if (n > 0) std::memcpy(node + 1, words, n * sizeof(uint64_t));  // of no words, `words` may be null
    place(*tables_.back(), node);
  }
  size_t size() const { return nodes_.size(); }

 private:
  struct Node {  // the words follow
    uint64_t hash;
    size_t size;
    T* value;
    const uint64_t* words() const { return reinterpret_cast<const uint64_t*>(this + 1); }
  };
  struct FreeNode {
    void operator()(Node* n) const { ::operator delete(n); }
  };
  struct Slot {
    std::atomic<const Node*> node{nullptr};
    uint64_t hash = 0;
  };
  struct Table {
    explicit Table(size_t capacity) : mask(capacity - 1), slots(std::make_unique<Slot[]>(capacity)) {}
    size_t mask;
    std::unique_ptr<Slot[]> slots;
  };
  static void place(Table& t, const Node* node) {
    size_t i = node->hash & t.mask;
    while (t.slots[i].node.load(std::memory_order_relaxed)) i = (i + 1) & t.mask;
    t.slots[i].hash = node->hash;
    t.slots[i].node.store(node, std::memory_order_release);
  }
  std::atomic<const Table*> current_{nullptr};
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::unique_ptr<Node, FreeNode>> nodes_;
};

}  // namespace tessera::core
