// SPDX-License-Identifier: Apache-2.0
// Constants in the form that kernels read, made once when a graph is compiled and kept by the kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace cpu {

class PackedConstant {
 public:
  // Takes `bytes` bytes, 64-byte aligned, and has `fill` write all of them. Says in the log (artifact "benchmarking") what that took.
  void make(int64_t bytes, const std::function<void(char* to)>& fill);

  explicit operator bool() const { return data_ != nullptr; }
  const char* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  double seconds() const { return seconds_; }  // that `make` took

 private:
  struct Free {
    void operator()(char* p) const;
  };
  std::unique_ptr<char, Free> data_;
  int64_t bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace cpu
