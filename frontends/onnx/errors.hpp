// SPDX-License-Identifier: Apache-2.0
// The codes of this frontend (docs/errors.md, TSR-X), thrown as the user's mistakes unless said otherwise.
#pragma once

#include <string>

#include "tessera/plugin.hpp"

namespace tessera::onnx {

inline constexpr const char* kMalformed = "TSR-X001";    // not a model, truncated, or damaged
inline constexpr const char* kStructure = "TSR-X002";    // a part that a model must have is missing or stands twice
inline constexpr const char* kOpset = "TSR-X003";        // an operator set or version that this frontend does not know
inline constexpr const char* kTensor = "TSR-X004";       // a tensor whose data and shape disagree
inline constexpr const char* kExternal = "TSR-X005";     // external data: path refused, file missing, range outside the file
inline constexpr const char* kUndefined = "TSR-X006";    // a value that nothing before defines: missing, or a cycle
inline constexpr const char* kDuplicate = "TSR-X007";    // a value that is defined twice
inline constexpr const char* kUnknownOp = "TSR-X008";    // an operator without a translation
inline constexpr const char* kNode = "TSR-X009";         // inputs or attributes that the operator does not take
inline constexpr const char* kType = "TSR-X010";         // sequences, optionals, maps, strings, types without a dtype here
inline constexpr const char* kUnsupported = "TSR-X011";  // a form of a known operator that is not translated
inline constexpr const char* kData = "TSR-X012";         // a value that must be known when the model is imported
inline constexpr const char* kLimit = "TSR-X013";        // nesting and expansion limits
inline constexpr const char* kName = "TSR-X014";         // an input or output whose name is empty or has a zero byte

[[noreturn]] inline void fail(const char* code, const std::string& message, const std::string& hint = {}) {
  throw sdk::Error(TSR_USER, code, message, hint);
}

}  // namespace tessera::onnx
