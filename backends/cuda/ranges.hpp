// SPDX-License-Identifier: Apache-2.0
// Ranges of NVTX around launches, for profilers: the library that profilers listen to is opened at run time.
#pragma once

#include <memory>
#include <string>

#include "tessera/plugin.hpp"

namespace tessera::cuda {

class Ranges {
 public:
  // `wanted`: "": where a profiler that runs this process asks for ranges; "on": always; "off": never; else the library or its
  // folder. Null: nobody gets ranges.
  static std::unique_ptr<Ranges> open(const std::string& wanted);

  // The kernel with a range around each launch, which names the kernel and the node that it computes.
  std::unique_ptr<sdk::Kernel> around(std::unique_ptr<sdk::Kernel> kernel, sdk::Node node) const;
  // Of a kernel out of the cache, which knows no node.
  std::unique_ptr<sdk::Kernel> around(std::unique_ptr<sdk::Kernel> kernel) const;

  using Push = int (*)(const char* name);
  using Pop = int (*)();

 private:
  Push push_ = nullptr;
  Pop pop_ = nullptr;
};

}  // namespace tessera::cuda
