// SPDX-License-Identifier: Apache-2.0
#include "packed.hpp"

#include <chrono>
#include <cstdlib>
#include <new>
#include <string>

#include <sys/mman.h>

#include "tessera/plugin.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

void PackedConstant::Free::operator()(char* p) const { std::free(p); }

void PackedConstant::make(int64_t bytes, const std::function<void(char* to)>& fill) {
  const auto start = std::chrono::steady_clock::now();
  // Weights are read from end to end in every call: large pages spare most misses of the TLB.
  constexpr size_t kLargePage = size_t{2} << 20;
  const size_t align = bytes >= static_cast<int64_t>(4 * kLargePage) ? kLargePage : 64;
  const size_t size = (static_cast<size_t>(bytes) + align - 1) / align * align;
  data_.reset(static_cast<char*>(std::aligned_alloc(align, size)));
  if (!data_) throw std::bad_alloc();
  if (align == kLargePage) madvise(data_.get(), size, MADV_HUGEPAGE);  // advice: where it is refused, nothing is lost
  bytes_ = static_cast<int64_t>(size);
  fill(data_.get());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  seconds_ = took.count();
  if (sdk::log_enabled("benchmarking"))
    sdk::log("benchmarking",
             "cpu: packed a constant of " + std::to_string(bytes) + " bytes in " + std::to_string(1e3 * seconds_) + " ms");
}

}  // namespace cpu
