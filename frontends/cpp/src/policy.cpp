// SPDX-License-Identifier: Apache-2.0
#include "tessera/policy.hpp"

#include <string_view>

#include "runtime.hpp"

namespace tessera {

using detail::api;
using detail::check;

void reset() { api().reset(); }

void mark_dynamic(const Tensor& t, int64_t dim, int64_t min, int64_t max) {
  check(api().tensor_mark(t.handle(), dim, TSR_MARK_DYNAMIC, min, max));
}
void mark_static(const Tensor& t, int64_t dim) { check(api().tensor_mark(t.handle(), dim, TSR_MARK_STATIC, 0, INT64_MAX)); }
void mark_unbacked(const Tensor& t, int64_t dim, int64_t min, int64_t max) {
  check(api().tensor_mark(t.handle(), dim, TSR_MARK_UNBACKED, min, max));
}

namespace {
constexpr const char* kStances[] = {"default",           "force_eager",        "eager_on_recompile",
                                    "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile"};
}
Stance stance() {
  const std::string_view now = api().stance();
  for (size_t i = 0; i < std::size(kStances); ++i)
    if (now == kStances[i]) return static_cast<Stance>(i);
  return Stance::standard;
}
void set_stance(Stance s) { check(api().set_stance(kStances[static_cast<size_t>(s)])); }

bool is_grad_enabled() { return api().grad_enabled() != 0; }
GradMode::GradMode(bool on) : previous_(api().set_grad_enabled(on) != 0) {}
GradMode::~GradMode() { api().set_grad_enabled(previous_); }

Autocast::Autocast(DType dtype, bool on) : previous_(detail::t_autocast) {
  if (on && dtype != bf16 && dtype != f16)
    detail::fail("TSR-F067", "Autocast to " + std::string(name(dtype)) + ", expected bf16 or f16");
  detail::t_autocast = on ? static_cast<uint32_t>(dtype) : 0;
}
Autocast::~Autocast() { detail::t_autocast = previous_; }

}  // namespace tessera
