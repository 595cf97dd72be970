// SPDX-License-Identifier: Apache-2.0
// acme.relu6: the record stands in acme.tops, here is its kernel for host memory. With it the op runs under every backend that
// does not know it: the host calls the kernel between that backend's own.
#include <tessera/dtypes.hpp>
#include <tessera/plugin.hpp>

#include "acme_records.hpp"

namespace {

namespace t = tessera::sdk;

// Element i in row-major order of a tensor with any strides.
int64_t offset(const tsr_tensor& x, int64_t i) {
  int64_t at = 0;
  for (uint32_t d = x.rank; d-- > 0; i /= x.sizes[d]) at += i % x.sizes[d] * x.strides[d];
  return at;
}

// The comparisons are false for NaN, which is passed on.
double relu6(double x) { return x < 0 ? 0 : x > 6 ? 6 : x; }

tsr_error* compute(void*, const tsr_call*, const tsr_tensor* in, uint32_t, const tsr_tensor* out, uint32_t) noexcept {
  return t::guarded([&] {
    const tsr_tensor &x = in[0], &y = out[0];
    int64_t n = 1;
    for (uint32_t d = 0; d < y.rank; ++d) n *= y.sizes[d];
    const auto range = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        tessera::store_from(y.dtype, y.data, i, relu6(tessera::load_as<double>(x.dtype, x.data, offset(x, i))));
    };
    // Two elements of a packed type share a byte, which only one thread may write.
    if (tessera::is_packed(y.dtype))
      range(0, n);
    else
      t::parallel(n, 4096, range);
  });
}

tsr_op_impl relu6_impl() {
  tsr_op_impl i{};
  i.op = "relu6";
  i.compute = compute;
  return i;
}
const tsr_op_impl impls[] = {relu6_impl()};

tsr_opset acme() {
  tsr_opset s{};
  s.struct_size = sizeof s;
  s.prefix = "acme";
  s.files = acme_records;
  s.num_files = std::size(acme_records);
  s.file_stride = sizeof acme_records[0];
  s.impls = impls;
  s.num_impls = std::size(impls);
  s.impl_stride = sizeof impls[0];
  return s;
}
const tsr_opset table = acme();

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) { plugin.add_raw(TSR_OPSET, "acme", &table, nullptr); }
