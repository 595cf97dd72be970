// SPDX-License-Identifier: Apache-2.0
// Vectors and scalars in and out of tensors, beside what run_model.hpp has.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "run_model.hpp"

namespace tessera::onnx_test {

namespace e = tessera::embed;
namespace fs = std::filesystem;

inline e::Tensor floats(const std::vector<float>& v) { return tensor_of(TSR_F32, {static_cast<int64_t>(v.size())}, v); }
inline e::Tensor ints(const std::vector<int64_t>& v) { return tensor_of(TSR_I64, {static_cast<int64_t>(v.size())}, v); }
inline e::Tensor scalar(int64_t v) { return tensor_of<int64_t>(TSR_I64, {}, {v}); }

template <class T>
std::vector<T> values_of(const e::Tensor& t) {
  const e::Tensor dense = t.copy_to(0);
  const auto* p = static_cast<const T*>(dense.data());
  return {p, p + dense.elements()};
}

}  // namespace tessera::onnx_test
