// SPDX-License-Identifier: Apache-2.0
// What measuring decided, problem by problem: once for this process, and for later ones where there is a cache on disk. The
// text of a problem says all that a decision depends on: what is computed, the build of the plugin, the machine. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/kit/object_cache.hpp"

namespace tessera::kit {

class Choices {
 public:
  // `directory`: of the cache, empty for none; decisions lie in its folder "tuned". `owner`: who decides, for logs: "cpu".
  Choices(std::string directory, std::string owner);

  // The choice that was kept; nothing: none was.
  std::optional<std::string> find(const std::string& problem) const;
  // Keeps it, unless somebody was faster: returns what holds from now on.
  std::string keep(const std::string& problem, std::string_view choice) const;

 private:
  ObjectCache disk_;
  std::string owner_;
};

}  // namespace tessera::kit
