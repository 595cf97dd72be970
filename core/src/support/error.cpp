// SPDX-License-Identifier: Apache-2.0
#include "support/error.hpp"

#include <new>

#include "tessera/closest.hpp"

// The object behind tsr_error*: the host makes and frees it.
struct tsr_error {
  tsr_family family;
  std::string code, message, hint;
};

namespace tessera::core {
namespace {

tsr_error& out_of_memory() {
  static tsr_error e{TSR_ENVIRONMENT, "TSR-R001", "out of memory", ""};
  return e;
}

tsr_error* make(tsr_family family, std::string_view code, std::string_view message, std::string_view hint) noexcept {
  try {
    return new tsr_error{family, std::string(code), std::string(message), std::string(hint)};
  } catch (...) {
    return &out_of_memory();
  }
}

}  // namespace

Error::Error(tsr_family family, std::string code, std::string message, std::string hint)
    : family_(family), code_(std::move(code)), message_(std::move(message)), hint_(std::move(hint)) {
  text_ = "error[" + code_ + "] " + message_;
  if (!hint_.empty()) text_ += "\n  hint: " + hint_;
}

tsr_error* to_c(const Error& e) noexcept { return make(e.family(), e.code(), e.message(), e.hint()); }

tsr_error* current_exception_to_c() noexcept {
  try {
    throw;
  } catch (const Error& e) {
    return to_c(e);
  } catch (const std::bad_alloc&) {
    return &out_of_memory();
  } catch (const std::exception& e) {
    return make(TSR_BUG, "TSR-B000", e.what(), "this is a bug in Tessera: please report it");
  } catch (...) {
    return make(TSR_BUG, "TSR-B000", "unknown exception", "this is a bug in Tessera: please report it");
  }
}

void throw_if(tsr_error* e) {
  if (!e) return;
  Error out(e->family, e->code, e->message, e->hint);
  host_core().error_free(e);
  throw out;
}

void throw_if(tsr_error* e, std::string_view plugin_id, std::string_view vendor) {
  if (!e) return;
  std::string message = e->message;
  // Only a bug is blamed on somebody: a user's mistake stays the user's, whichever library noticed it.
  if (e->family == TSR_BUG) message = "plugin '" + std::string(plugin_id) + "' (" + std::string(vendor) + "): " + message;
  Error out(e->family, e->code, std::move(message), e->hint);
  host_core().error_free(e);
  throw out;
}

// The error functions of tsr_host_core; api/host_table.cpp puts the table together.
namespace abi {
tsr_error* error_create(uint32_t family, const char* code, const char* message, const char* hint) {
  const bool known = family >= TSR_USER && family <= TSR_BUG;
  return make(known ? static_cast<tsr_family>(family) : TSR_BUG, code ? code : "TSR-B000", message ? message : "",
              hint ? hint : "");
}
const char* error_code(const tsr_error* e) { return e->code.c_str(); }
const char* error_message(const tsr_error* e) { return e->message.c_str(); }
const char* error_hint(const tsr_error* e) { return e->hint.empty() ? nullptr : e->hint.c_str(); }
uint32_t error_family(const tsr_error* e) { return e->family; }
void error_free(tsr_error* e) {
  if (e != &out_of_memory()) delete e;
}
}  // namespace abi

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* best = closest_word(word, candidates);
  return best ? *best : std::string();
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string c = closest(word, candidates);
  return c.empty() ? "" : "; did you mean '" + c + "'?";
}

}  // namespace tessera::core
