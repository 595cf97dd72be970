// SPDX-License-Identifier: Apache-2.0
#include "cache/digest.hpp"

#include <cstdint>
#include <vector>

#include "plugin/sha256.hpp"
#include "support/error.hpp"

namespace tessera::core {

std::string content_digest(std::string_view bytes, bool parallel) {
  constexpr size_t kPart = size_t{1} << 20;
  struct Work {
    std::string_view bytes;
    std::vector<std::string> parts;
    static void run(void* ctx, int64_t begin, int64_t end) noexcept {
      auto& w = *static_cast<Work*>(ctx);
      for (int64_t i = begin; i < end; ++i)
        w.parts[static_cast<size_t>(i)] = sha256_hex(w.bytes.substr(static_cast<size_t>(i) * kPart, kPart));
    }
  } work{bytes, std::vector<std::string>((bytes.size() + kPart - 1) / kPart)};
  const auto count = static_cast<int64_t>(work.parts.size());
  if (parallel && count > 1)
    host_core().parallel(count, 1, Work::run, &work);
  else
    Work::run(&work, 0, count);
  std::string all = "content 1 " + std::to_string(bytes.size()) + "\n";
  for (const std::string& p : work.parts) all += p;
  return sha256_hex(all);
}

}  // namespace tessera::core
