// SPDX-License-Identifier: Apache-2.0
#include "config/faults.hpp"

#include <algorithm>

namespace tessera::core {

void Faults::add(tsr_family family, std::string code, std::string message, std::string hint) {
  items_.push_back({family, std::move(code), std::move(message), std::move(hint)});
}

void Faults::add(const Faults& other) { items_.insert(items_.end(), other.items_.begin(), other.items_.end()); }

Error Faults::to_error() const {
  // Error prints "error[code] message\n  hint: ...": the first code, then everything up to the last hint is the message.
  std::string message;
  tsr_family family = TSR_USER;
  for (size_t i = 0; i < items_.size(); ++i) {
    const Fault& f = items_[i];
    if (i > 0) message += "\nerror[" + f.code + "] ";
    message += f.message;
    if (i + 1 < items_.size() && !f.hint.empty()) message += "\n  hint: " + f.hint;
    family = std::max(family, f.family);
  }
  return Error(family, items_.front().code, std::move(message), items_.back().hint);
}

void Faults::throw_if_any() const {
  if (!items_.empty()) throw to_error();
}

}  // namespace tessera::core
