// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <cstdlib>
#include <mutex>

#include "tessera/dtypes.hpp"

namespace tessera {

namespace {
std::string text_of(const std::string& code, const std::string& message, const std::string& hint) {
  return "error[" + code + "] " + message + (hint.empty() ? "" : "\n  hint: " + hint);
}
thread_local const Context* t_context = nullptr;

std::shared_ptr<tsr_context> create(const char* path, const char* text, const std::vector<std::string>& overrides) {
  std::vector<const char*> sets;
  for (const std::string& o : overrides) sets.push_back(detail::c_text(o, "an override"));
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_path = path;
  options.config_text = text;
  options.overrides = sets.data();
  options.num_overrides = sets.size();
  tsr_context* c = nullptr;
  detail::check(detail::api().context_create(&options, &c));
  return {c, detail::api().context_destroy};
}
}  // namespace

Error::Error(std::string code, std::string message, std::string hint)
    : std::runtime_error(text_of(code, message, hint)),
      code_(std::move(code)),
      message_(std::move(message)),
      hint_(std::move(hint)) {}

namespace detail {

constinit std::atomic<const tsr_api*> g_api{nullptr};

const tsr_api& load_api() {
  const tsr_api* const table = tsr_get_api(TSR_ABI_MAJOR);
  if (!table || table->abi_minor < TSR_ABI_MINOR)
    throw EnvironmentError("TSR-E001", "libtessera is of another version than the headers this program was built with",
                           "install matching versions of the library and its headers");
  g_api.store(table, std::memory_order_release);
  return *table;
}

void check(tsr_error* e) {
  if (!e) return;
  const tsr_host_core& c = *api().host->core;
  const std::string code = c.error_code(e), message = c.error_message(e), hint = c.error_hint(e) ? c.error_hint(e) : "";
  const uint32_t family = c.error_family(e);
  c.error_free(e);
  if (family == TSR_USER) throw UserError(code, message, hint);
  if (family == TSR_ENVIRONMENT) throw EnvironmentError(code, message, hint);
  throw BugError(code, message, hint);
}

void fail(const char* code, const std::string& message, const std::string& hint) { throw UserError(code, message, hint); }

const char* c_text(const std::string& text, const char* what) {
  const size_t zero = text.find('\0');
  if (zero != text.npos)
    fail("TSR-E015",
         std::string(what) + ": found a zero byte at index " + std::to_string(zero) + " of '" + text.substr(0, zero) +
             "'..., expected text without one",
         "leave it out: names, paths and config values are texts");
  return text.c_str();
}

tsr_error* to_c(const Error& e) {
  const uint32_t family = dynamic_cast<const UserError*>(&e)          ? TSR_USER
                          : dynamic_cast<const EnvironmentError*>(&e) ? TSR_ENVIRONMENT
                                                                      : TSR_BUG;
  return api().host->core->error_create(family, e.code().c_str(), e.message().c_str(),
                                        e.hint().empty() ? nullptr : e.hint().c_str());
}

}  // namespace detail

Context::Context(const std::string& path, const std::vector<std::string>& overrides)
    : handle_(create(detail::c_text(path, "the path of a config"), nullptr, overrides)) {}
Context Context::from_text(const std::string& toml, const std::vector<std::string>& overrides) {
  return Context(create(nullptr, detail::c_text(toml, "the text of a config"), overrides));
}

const Context& Context::current() {
  if (t_context) return *t_context;
  // Made once and never destroyed: tensors with static storage may outlive every destructor.
  static const Context* const process = [] {
    const char* path = std::getenv("TESSERA_CONFIG");
    return new Context(create(path && *path ? path : nullptr, nullptr, {}));
  }();
  return *process;
}

ContextScope::ContextScope(const Context& c) : previous_(t_context) { t_context = &c; }
ContextScope::~ContextScope() { t_context = previous_; }

std::string_view name(DType d) { return dtype_name(static_cast<uint32_t>(d)); }

Device::Device(const char* name) : id_(detail::api().host->core->device_id(name)) {}
std::string Device::name() const { return detail::api().host->core->device_name(id_); }

}  // namespace tessera
