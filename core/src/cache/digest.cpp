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

// Two neighbours at a time: as long as they have the same length, both take little longer than one.
struct Pairs {
  std::vector<Part*> by_size;
  explicit Pairs(std::vector<Part>& parts) {
    for (Part& p : parts) by_size.push_back(&p);
    std::stable_sort(by_size.begin(), by_size.end(),
                     [](const Part* a, const Part* b) { return a->bytes.size() > b->bytes.size(); });
  }
  int64_t count() const { return static_cast<int64_t>((by_size.size() + 1) / 2); }
  static void run(void* ctx, int64_t begin, int64_t end) noexcept {
    auto& self = *static_cast<Pairs*>(ctx);
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      Part& a = *self.by_size[2 * i];
      if (2 * i + 1 == self.by_size.size()) {
        a.digest = sha256_hex(a.bytes);
        continue;
      }
      Part& b = *self.by_size[2 * i + 1];
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
  Pairs work(parts);
  if (parallel && total > kPart)
    host_core().parallel(work.count(), 1, Pairs::run, &work);
  else
    Pairs::run(&work, 0, work.count());
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
