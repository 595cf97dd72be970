// SPDX-License-Identifier: Apache-2.0
// What measuring decided on this machine: kit::Choices, whose problems are told apart by the processor, its caches, `isa`, the
// number of threads and this build of the kernels too.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/isa.hpp"
#include "tessera/kit/choices.hpp"

namespace cpu {

class Choices {
 public:
  // `directory`: of the cache, empty for none.
  Choices(std::string directory, const Isa& isa);

  // What stands in front of every problem; ends with a new line.
  std::string holds_for() const;
  std::optional<std::string> find(std::string_view problem) const { return kept_.find(key(problem)); }
  std::string keep(std::string_view problem, std::string_view choice) const { return kept_.keep(key(problem), choice); }

 private:
  std::string key(std::string_view problem) const { return holds_for() + std::string(problem); }

  tessera::kit::Choices kept_;
  std::string isa_;
};

}  // namespace cpu
