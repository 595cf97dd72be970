// SPDX-License-Identifier: Apache-2.0
#include "tensors.hpp"

#include <cstdio>
#include <cstring>

#include "tessera/dtypes.hpp"

namespace tessera::conformance {

namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}

std::vector<int64_t> row_major(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

}  // namespace

const char* layout_name(Layout l) {
  switch (l) {
    case Layout::Dense: return "dense";
    case Layout::Transposed: return "transposed";
    case Layout::Sliced: return "sliced";
    case Layout::Repeated: return "repeated";
    case Layout::Reversed: return "reversed";
  }
  return "?";
}

e::Tensor arrange(uint32_t dtype, const std::vector<int64_t>& sizes, const std::vector<char>& dense, Layout layout) {
  const size_t rank = sizes.size();
  const int64_t n = product(sizes);
  if (is_packed(dtype) || rank == 0 || n == 0) layout = Layout::Dense;  // packed tensors have no strides
  std::vector<int64_t> strides = row_major(sizes), walk = strides;
  int64_t offset = 0, span = n;
  size_t repeated = rank;  // the axis whose index does not matter
  switch (layout) {
    case Layout::Dense: break;
    case Layout::Transposed:
      for (size_t d = 0; d < rank; ++d) strides[d] = d == 0 ? 1 : strides[d - 1] * sizes[d - 1];
      break;
    case Layout::Sliced:
      for (int64_t& s : strides) s *= 2;
      offset = 2 * sizes[rank - 1] + 1;
      span = offset + 2 * n;
      break;
    case Layout::Repeated:
      for (size_t d = 0; d < rank && repeated == rank; ++d)
        if (sizes[d] > 1) repeated = d;
      if (repeated < rank) strides[repeated] = 0;
      break;
    case Layout::Reversed:
      strides[rank - 1] = -1;
      offset = sizes[rank - 1] - 1;
      break;
  }
  const e::Tensor base = e::Tensor::create(dtype, std::vector<int64_t>{span});
  const size_t bytes = static_cast<size_t>(storage_bytes(dtype, span));
  if (bytes) std::memset(base.data(), 0, bytes);
  if (layout == Layout::Dense) {
    if (bytes) std::memcpy(base.data(), dense.data(), bytes);
  } else {
    const auto width = static_cast<int64_t>(dtype_bits(dtype) / 8);
    for (int64_t i = 0; i < n; ++i) {
      int64_t to = offset, from = 0;
      for (size_t d = 0; d < rank; ++d) {
        const int64_t k = i / walk[d] % sizes[d];
        to += k * strides[d];
        if (d != repeated) from += k * walk[d];
      }
      std::memcpy(static_cast<char*>(base.data()) + to * width, dense.data() + from * width, static_cast<size_t>(width));
    }
  }
  return base.view(offset, sizes, strides);
}

std::string print_element(const tsr_tensor& t, int64_t i) {
  char text[96];
  if (is_complex(t.dtype)) {
    const auto z = load_as<ComplexValue<double>>(t.dtype, t.data, i);
    std::snprintf(text, sizeof text, "%.17g%+.17gi", z.re, z.im);
  } else if (is_float(t.dtype)) {
    std::snprintf(text, sizeof text, "%.17g", load_as<double>(t.dtype, t.data, i));
  } else if (is_signed_int(t.dtype)) {
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(load_as<int64_t>(t.dtype, t.data, i)));
  } else {
    std::snprintf(text, sizeof text, "%llu", static_cast<unsigned long long>(load_as<uint64_t>(t.dtype, t.data, i)));
  }
  return text;
}

std::string type_text(const tsr_tensor& t) {
  std::string out = std::string(dtype_name(t.dtype)) + "[";
  for (uint32_t d = 0; d < t.rank; ++d) out += (d ? ", " : "") + std::to_string(t.sizes[d]);
  return out + "]";
}

std::string print(const tsr_tensor& t, int64_t limit) {
  std::string out = type_text(t) + " {";
  int64_t n = 1;
  for (uint32_t d = 0; d < t.rank; ++d) n *= t.sizes[d];
  for (int64_t i = 0; i < n && i < limit; ++i) out += (i ? ", " : "") + print_element(t, i);
  return out + (n > limit ? ", ...}" : "}");
}

}  // namespace tessera::conformance
