// SPDX-License-Identifier: Apache-2.0
#include "strided.hpp"

#include <algorithm>
#include <cstring>

#include "gemm/nest.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

template <int Bytes>
void copy_run(const char* from, int64_t step, int64_t n, char* to) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * Bytes, from + i * step, Bytes);
}

}  // namespace

int64_t dense_bytes(uint32_t dtype, int64_t elements) { return (tessera::storage_bytes(dtype, elements) + 63) / 64 * 64; }

bool may_be_strided(const sdk::Graph& g, const sdk::Value& v) {
  const sdk::Node def = v.def();
  return !def || g.has_trait(def.raw().op, "view");
}

void copy_dense(const tsr_tensor& t, void* to) {
  const int64_t width = tessera::dtype_bits(t.dtype) / 8;
  Nest<1> nest;
  for (uint32_t d = 0; d < t.rank; ++d) nest.push(t.sizes[d], {t.strides[d]});
  const int64_t total = nest.total();
  if (total == 0) return;
  const int64_t inner = nest.rank == 0 ? 1 : nest.sizes[nest.rank - 1],
                step = nest.rank == 0 ? 1 : nest.strides[0][nest.rank - 1];
  sdk::parallel(total / inner, std::max<int64_t>(1, 16384 / inner), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t at[1];
      nest.at(i * inner, at);
      const char* from = static_cast<const char*>(t.data) + at[0] * width;
      char* out = static_cast<char*>(to) + i * inner * width;
      if (step == 1)
        std::memcpy(out, from, static_cast<size_t>(inner * width));
      else if (width == 1)
        copy_run<1>(from, step, inner, out);
      else if (width == 2)
        copy_run<2>(from, 2 * step, inner, out);
      else if (width == 4)
        copy_run<4>(from, 4 * step, inner, out);
      else if (width == 8)
        copy_run<8>(from, 8 * step, inner, out);
      else
        copy_run<16>(from, 16 * step, inner, out);
    }
  });
}

}  // namespace cpu
