// SPDX-License-Identifier: Apache-2.0
// Constants in the form that kernels read, made once and kept by the host, or by the kernel where the host cannot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "gemm/nest.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Kernels read up to so many bytes beyond what a form holds. They are zeros: what is kept must not depend on what lay there
// before.
inline constexpr int64_t kPackedSlack = 128;
inline void clear_slack(char* form, int64_t bytes) {
  const int64_t n = std::min(bytes, kPackedSlack);
  std::memset(form + bytes - n, 0, static_cast<size_t>(n));
}

class PackedConstant {
 public:
  // `bytes` bytes, 64-byte aligned, all of which `fill` writes unless the host has them: `form` names what they are made of the
  // constant `v`, see tsr_compile.rearranged. Says in the log (artifact "benchmarking") what filling took. Nothing where
  // constants are to stay as they are (tsr_compile.unfrozen): the kernel then reads `v` itself.
  void make(const tessera::sdk::Compile& c, const tessera::sdk::Value& v, const std::string& form, int64_t bytes,
            const std::function<void(char* to)>& fill);

  explicit operator bool() const { return data_ != nullptr; }
  const char* data() const { return data_; }
  int64_t bytes() const { return own_bytes_; }  // that the host does not count
  double seconds() const { return own_seconds_; }

 private:
  struct Free {
    void operator()(char* p) const;
  };
  const char* data_ = nullptr;
  std::unique_ptr<char, Free> own_;
  int64_t own_bytes_ = 0;
  double own_seconds_ = 0;
};

// Sizes and strides, for the names of forms.
template <int N>
std::string text_of(const Nest<N>& nest) {
  std::string out = "[";
  for (int d = 0; d < nest.rank; ++d) {
    out += (d ? " " : "") + std::to_string(nest.sizes[d]);
    for (int i = 0; i < N; ++i) out += ":" + std::to_string(nest.strides[i][d]);
  }
  return out + "]";
}

}  // namespace cpu
