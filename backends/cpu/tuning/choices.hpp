// SPDX-License-Identifier: Apache-2.0
// What measuring decided, problem by problem: once for this process, and for later ones where there is a cache on disk.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/isa.hpp"
#include "jit/object_cache.hpp"

namespace cpu {

class Choices {
 public:
  // `directory`: of the cache, empty for none. Problems are told apart by this machine, `isa` and the number of threads too.
  Choices(std::string directory, const Isa& isa);

  // The choice that was kept; nothing: none was. Thread-safe.
  std::optional<std::string> find(std::string_view problem) const;
  // Keeps it, unless somebody was faster: returns what holds from now on. Thread-safe.
  std::string keep(std::string_view problem, std::string_view choice) const;

 private:
  std::string key(std::string_view problem) const;

  ObjectCache disk_;
  std::string isa_;
};

}  // namespace cpu
