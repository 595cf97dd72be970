// SPDX-License-Identifier: Apache-2.0
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "trace/trace_file.hpp"

namespace tessera::core {

namespace {

constexpr int kFrames = 48, kShown = 24;
constexpr size_t kNameLimit = 160;  // of a template's name, which can be pages long

std::string symbol_of(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(::abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string s = status == 0 && text ? text.get() : mangled;
  if (s.size() > kNameLimit) s.replace(kNameLimit, s.npos, "...");
  return s;
}

}  // namespace

std::string host_stack_json() {
  std::array<void*, kFrames> frames{};
  const int n = backtrace(frames.data(), kFrames);
  Dl_info self{};
  const bool known = dladdr(reinterpret_cast<void*>(&host_stack_json), &self) != 0;
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (int i = 1; i < n && out.size() < kShown; ++i) {
    Dl_info info{};
    // The return address is behind the call.
    char* const address = static_cast<char*>(frames[static_cast<size_t>(i)]) - 1;
    if (dladdr(address, &info) == 0 || !info.dli_fname) continue;
    if (known && out.empty() && info.dli_fbase == self.dli_fbase) continue;
    const char* slash = std::strrchr(info.dli_fname, '/');
    char offset[32];
    std::snprintf(offset, sizeof offset, "+0x%zx", static_cast<size_t>(address - static_cast<char*>(info.dli_fbase)));
    const std::string place = std::string(slash ? slash + 1 : info.dli_fname) + offset;
    out.push_back(info.dli_sname ? symbol_of(info.dli_sname) + " (" + place + ")" : place);
  }
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tessera::core
