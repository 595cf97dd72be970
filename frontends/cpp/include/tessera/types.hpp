// SPDX-License-Identifier: Apache-2.0
// Element types, devices, symbolic sizes, errors and contexts of the C++ frontend.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/abi.h"
#include "tessera/sym.hpp"

struct tsr_context;  // embed.h

namespace tessera {

// ------------------------------------------------------------------------------------------------------------- errors

// Everything that fails throws a subclass of this. what() is "error[CODE] message" with the hint on a second line.
class Error : public std::runtime_error {
 public:
  Error(std::string code, std::string message, std::string hint);
  const std::string& code() const { return code_; }  // "TSR-I201"; stable
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }  // what to do; may be empty

 private:
  std::string code_, message_, hint_;
};
class UserError : public Error {
  using Error::Error;
};  // the caller's mistake
class EnvironmentError : public Error {
  using Error::Error;
};  // the machine's fault at run time
class BugError : public Error {
  using Error::Error;
};  // Tessera's or a plugin's

// ------------------------------------------------------------------------------------------------------- dtype, device

enum class DType : uint32_t {
  f64 = TSR_F64,
  f32 = TSR_F32,
  f16 = TSR_F16,
  bf16 = TSR_BF16,
  f8e4m3fn = TSR_F8E4M3FN,
  f8e4m3fnuz = TSR_F8E4M3FNUZ,
  f8e5m2 = TSR_F8E5M2,
  f8e5m2fnuz = TSR_F8E5M2FNUZ,
  f8e8m0 = TSR_F8E8M0,
  f4e2m1 = TSR_F4E2M1,
  i2 = TSR_I2,
  i4 = TSR_I4,
  i8 = TSR_I8,
  i16 = TSR_I16,
  i32 = TSR_I32,
  i64 = TSR_I64,
  u2 = TSR_U2,
  u4 = TSR_U4,
  u8 = TSR_U8,
  u16 = TSR_U16,
  u32 = TSR_U32,
  u64 = TSR_U64,
  boolean = TSR_BOOL,
  c64 = TSR_C64,
  c128 = TSR_C128
};
inline constexpr DType f64 = DType::f64, f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16, i8 = DType::i8,
                       i16 = DType::i16, i32 = DType::i32, i64 = DType::i64, u8 = DType::u8, u16 = DType::u16, u32 = DType::u32,
                       u64 = DType::u64, boolean = DType::boolean, c64 = DType::c64, c128 = DType::c128;
std::string_view name(DType);

class Device {
 public:
  Device() = default;        // "cpu"
  Device(const char* name);  // "null:1"; throws UserError when no loaded plugin offers it
  explicit Device(tsr_device id) : id_(id) {}
  tsr_device id() const { return id_; }
  std::string name() const;
  bool operator==(const Device&) const = default;

 private:
  tsr_device id_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------- sizes

using Shape = std::vector<SymInt>;
using Axes = std::vector<int64_t>;

// ------------------------------------------------------------------------------------------------------------- context

// A config with its plugins. Copies share it. Without one, functions use Context::current().
class Context {
 public:
  // "configs/eager.toml", with overrides such as "runtime.threads=1". Throws with every fault of the config and its plugins.
  explicit Context(const std::string& config_path, const std::vector<std::string>& overrides = {});
  static Context from_text(const std::string& toml, const std::vector<std::string>& overrides = {});
  // The innermost ContextScope of this thread, else the process-wide one: TESSERA_CONFIG or the default config, loaded on first
  // use.
  static const Context& current();
  tsr_context* handle() const { return handle_.get(); }

 private:
  explicit Context(std::shared_ptr<tsr_context> h) : handle_(std::move(h)) {}
  std::shared_ptr<tsr_context> handle_;
};

// Makes a context current on this thread.
class ContextScope {
 public:
  explicit ContextScope(const Context& c);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;

 private:
  const Context* previous_;
};

}  // namespace tessera
