// SPDX-License-Identifier: Apache-2.0
#include "packed.hpp"

#include <chrono>
#include <cstdlib>
#include <new>
#include <string>

namespace cpu {

namespace sdk = tessera::sdk;

void PackedConstant::Free::operator()(char* p) const { std::free(p); }

void PackedConstant::make(const sdk::Compile& c, const sdk::Value& v, const std::string& form, int64_t bytes,
                          const std::function<void(char* to)>& fill) {
  if (c.unfrozen()) return;
  double seconds = 0;
  const auto timed = [&](char* to) {
    const auto start = std::chrono::steady_clock::now();
    clear_slack(to, bytes);
    fill(to);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (sdk::log_enabled("benchmarking"))
      sdk::log("benchmarking",
               "cpu: packed a constant of " + std::to_string(bytes) + " bytes in " + std::to_string(1e3 * seconds) + " ms");
  };
  data_ = c.rearranged(v, form, bytes, timed);
  if (data_) return;
  constexpr size_t kAlign = 64;
  const size_t size = (static_cast<size_t>(bytes) + kAlign - 1) / kAlign * kAlign;
  own_.reset(static_cast<char*>(std::aligned_alloc(kAlign, size)));
  if (!own_) throw std::bad_alloc();
  own_bytes_ = static_cast<int64_t>(size);
  timed(own_.get());
  own_seconds_ = seconds;
  data_ = own_.get();
}

}  // namespace cpu
