// SPDX-License-Identifier: Apache-2.0
// What a backend's prepare() has written, until compile() takes it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "tessera/plugin.hpp"

namespace tessera::kit {

// Thread-safe.
template <class Written>
class PreparedKernels {
 public:
  void keep(const sdk::Compile& c, std::unique_ptr<Written> kernel) {
    std::lock_guard lock(mutex_);
    if (kernels_.size() >= kMost) kernels_.clear();  // of plans that were given up
    kernels_.insert_or_assign(request_of(c), std::move(kernel));
  }

  // Null where prepare() has written none for this request.
  std::unique_ptr<Written> take(const sdk::Compile& c) {
    std::lock_guard lock(mutex_);
    auto kept = kernels_.extract(request_of(c));
    return kept ? std::move(kept.mapped()) : nullptr;
  }

 private:
  // What prepare() and compile() agree on: graph, node and context.
  using Request = std::tuple<const void*, tsr_id, const void*>;
  static Request request_of(const sdk::Compile& c) { return {c.p->graph, c.p->node, c.p->ctx}; }

  static constexpr size_t kMost = 4096;
  std::mutex mutex_;
  std::map<Request, std::unique_ptr<Written>> kernels_;
};

}  // namespace tessera::kit
