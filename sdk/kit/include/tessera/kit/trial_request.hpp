// SPDX-License-Identifier: Apache-2.0
// A request to compile a kernel that is only to be measured: sizes get slots of the measurer's own and the values of their
// hints, and no constant is rearranged by the host. It lives no longer than the request that it was made of. For one thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tessera/plugin.hpp"

namespace tessera::kit {

class TrialRequest {
 public:
  explicit TrialRequest(const sdk::Compile& real) : real_(real) {
    // Of an older host: as much as it has.
    std::memcpy(&request_, real.p, std::min(real.p->struct_size, sizeof request_));
    request_.struct_size = std::min(real.p->struct_size, sizeof request_);
    request_.ctx = this;
    request_.dim_slot = [](void* self, tsr_dim d) noexcept -> int32_t { return static_cast<TrialRequest*>(self)->slot(d); };
    request_.rearranged = nullptr;
    request_.dim_hint = nullptr;
  }
  TrialRequest(const TrialRequest&) = delete;

  const sdk::Compile& real() const { return real_; }
  const sdk::Compile& compile() const { return compile_; }
  const int64_t* dims() const { return dims_.data(); }  // for launches of what was compiled by now

 private:
  int32_t slot(tsr_dim d) noexcept {
    const auto at = std::find(slots_.begin(), slots_.end(), d);
    if (at != slots_.end()) return static_cast<int32_t>(at - slots_.begin());
    try {
      slots_.push_back(d);
      dims_.push_back(real_.hint(d));
      return static_cast<int32_t>(slots_.size()) - 1;
    } catch (...) {
      return -1;
    }
  }

  const sdk::Compile& real_;
  tsr_compile request_{};
  sdk::Compile compile_{&request_};
  std::vector<tsr_dim> slots_;
  std::vector<int64_t> dims_;
};

}  // namespace tessera::kit
