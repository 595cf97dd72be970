// SPDX-License-Identifier: Apache-2.0
// Collects the faults of one check, so that a user sees all of them in one message instead of one per attempt.
#pragma once

#include <string>
#include <vector>

#include "support/error.hpp"

namespace tessera::core {

struct Fault {
  tsr_family family = TSR_USER;
  std::string code;     // "TSR-C002"
  std::string message;  // "configs/mine.toml:7:3: unknown key ..."
  std::string hint;
};

// Not thread-safe: one check, one thread.
class Faults {
 public:
  void add(tsr_family family, std::string code, std::string message, std::string hint = {});
  void add(const Error& e) { add(e.family(), e.code(), e.message(), e.hint()); }
  void add(const Faults& other);
  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  const std::vector<Fault>& items() const { return items_; }
  // One fault becomes that error. Several become an error with the code of the first, of the gravest family (bug, then
  // environment, then user), whose message lists them all, each with its own code and hint.
  Error to_error() const;  // requires !empty()
  void throw_if_any() const;

 private:
  std::vector<Fault> items_;
};

}  // namespace tessera::core
