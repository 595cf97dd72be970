// SPDX-License-Identifier: Apache-2.0
// The one exception type of the core. Converted to tsr_error at the C boundaries and back (support/error.cpp).
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Error : public std::exception {
 public:
  // `message` says the place, what was found and what was expected; `hint` what to do about it.
  Error(tsr_family family, std::string code, std::string message, std::string hint = {});

  tsr_family family() const { return family_; }
  const std::string& code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  // "error[TSR-P001] message\n  hint: ..."
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  tsr_family family_;
  std::string code_, message_, hint_, text_;
};

inline Error user_error(std::string code, std::string message, std::string hint = {}) {
  return {TSR_USER, std::move(code), std::move(message), std::move(hint)};
}
inline Error environment_error(std::string code, std::string message, std::string hint = {}) {
  return {TSR_ENVIRONMENT, std::move(code), std::move(message), std::move(hint)};
}
inline Error bug(std::string code, std::string message, std::string hint = {}) {
  return {TSR_BUG, std::move(code), std::move(message), std::move(hint)};
}

// The C form. to_c never throws (out of memory gives a static error object).
tsr_error* to_c(const Error&) noexcept;
tsr_error* current_exception_to_c() noexcept;  // inside a catch block: any exception
// f() for a caller behind the C boundary: null, or what it threw.
template <class F>
tsr_error* guarded(F&& f) noexcept {
  try {
    f();
    return nullptr;
  } catch (...) {
    return current_exception_to_c();
  }
}
// Throws the error that `e` holds and frees it; returns when `e` is null.
void throw_if(tsr_error* e);
// As throw_if, and names the plugin: a TSR_BUG error from a callback gets "plugin 'id' (vendor): " in front.
void throw_if(tsr_error* e, std::string_view plugin_id, std::string_view vendor);

const struct tsr_host_core& host_core();  // the table handed to plugins

// The nearest of `candidates` by edit distance, or "" when none is near (distance <= max(2, length / 3)).
std::string closest(std::string_view word, const std::vector<std::string>& candidates);
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);  // "; did you mean 'x'?" or ""

}  // namespace tessera::core
