// SPDX-License-Identifier: Apache-2.0
#include "cache/digest.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "plugin/sha256.hpp"
#include "support/error.hpp"

namespace tessera::core {
namespace {

constexpr size_t kPart = size_t{1} << 20;

struct Part {
  std::string_view bytes;
  std::string digest;
};

// Two neighbours by size at a time: where they have the same length, both take little longer than one. Every share has about as
// many bytes, for threads take shares as they come, and these differ in size by a factor of a million.
struct Shares {
  std::vector<Part*> by_size;
  std::vector<std::vector<size_t>> firsts;  // of each share, the first ones of its pairs
  Shares(std::vector<Part>& parts, size_t count) : firsts(count) {
    for (Part& p : parts) by_size.push_back(&p);
    std::stable_sort(by_size.begin(), by_size.end(),
                     [](const Part* a, const Part* b) { return a->bytes.size() > b->bytes.size(); });
    std::vector<size_t> bytes(count, 0);
    for (size_t i = 0; i < by_size.size(); i += 2) {
      const auto least = static_cast<size_t>(std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
      firsts[least].push_back(i);
      bytes[least] += by_size[i]->bytes.size() + 64;
    }
  }
  static void run(void* ctx, int64_t begin, int64_t end) noexcept {
    const auto& self = *static_cast<Shares*>(ctx);
    for (int64_t share = begin; share < end; ++share)
      for (const size_t i : self.firsts[static_cast<size_t>(share)]) {
        Part& a = *self.by_size[i];
        if (i + 1 == self.by_size.size()) {
          a.digest = sha256_hex(a.bytes);
          continue;
        }
        Part& b = *self.by_size[i + 1];
        std::tie(a.digest, b.digest) = sha256_hex_of_both(a.bytes, b.bytes);
      }
  }
};

}  // namespace

std::vector<std::string> content_digests(std::span<const std::string_view> all, bool parallel) {
  std::vector<Part> parts;
  for (const std::string_view bytes : all)
    for (size_t from = 0; from < bytes.size(); from += kPart) parts.push_back({bytes.substr(from, kPart), {}});
  size_t total = 0;
  for (const std::string_view bytes : all) total += bytes.size();
  const size_t threads = parallel && total > kPart ? static_cast<size_t>(std::max(1, host_core().num_threads())) : 1;
  Shares work(parts, threads);
  if (threads > 1)
    host_core().parallel(static_cast<int64_t>(threads), 1, Shares::run, &work);
  else
    Shares::run(&work, 0, 1);
  std::vector<std::string> out;
  size_t next = 0;
  for (const std::string_view bytes : all) {
    std::string whole = "content 1 " + std::to_string(bytes.size()) + "\n";
    for (size_t from = 0; from < bytes.size(); from += kPart) whole += parts[next++].digest;
    out.push_back(sha256_hex(whole));
  }
  return out;
}

std::string content_digest(std::string_view bytes, bool parallel) {
  return std::move(content_digests({&bytes, 1}, parallel).front());
}

}  // namespace tessera::core
