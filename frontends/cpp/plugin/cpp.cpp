// SPDX-License-Identifier: Apache-2.0
// Captures C++ functions. The client library (tessera/tessera.hpp) supplies the callable; running it once over the recorder's
// inputs records its graph.
#include <iterator>
#include <tessera/plugin.hpp>

#include "cpp_records.hpp"
#include "custom_gradient.hpp"

namespace tessera::frontends {
namespace {

class Cpp final : public sdk::Frontend {
  const char* description() const override { return "C++ functions over tessera::Tensor, captured by running them once"; }
  bool can_capture() const override { return true; }
  void capture(tsr_recorder* recorder, const tsr_callable& callable) override {
    sdk::check(callable.invoke(callable.self, recorder));
  }
};

// ---- cpp.host_call

// The results as the attribute lists them: dtype, rank, sizes.
template <class F>
uint32_t each_result(const tsr_attr& results, F&& f) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < results.count;) {
    const bool complete = i + 2 <= results.count && results.ints[i] > TSR_DTYPE_INVALID && results.ints[i] < TSR_DTYPE_COUNT &&
                          results.ints[i + 1] >= 0 && results.ints[i + 1] <= results.count - i - 2;
    if (!complete)
      throw sdk::Error(TSR_USER, "TSR-I025", "cpp.host_call: 'results' is not a list of dtype, rank and sizes",
                       "record the op through tessera::host_call or tessera::allow_in_graph");
    const auto rank = static_cast<uint32_t>(results.ints[i + 1]);
    f(n++, static_cast<uint32_t>(results.ints[i]), rank, results.ints + i + 2);
    i += 2 + rank;
  }
  return n;
}

tsr_error* infer(void*, const tsr_call* call, tsr_type* results, uint32_t capacity, uint32_t* num_results) noexcept {
  return sdk::guarded([&] {
    const tsr_attr& list = *sdk::need_attr(call->attrs, call->num_attrs, "results", call->op).p;
    const auto set = [&](uint32_t i, uint32_t dtype, uint32_t rank, const int64_t* sizes) {
      if (i >= capacity) throw sdk::Error(TSR_USER, "TSR-I025", "cpp.host_call: too many results");
      tsr_type& t = results[i];
      t = {};
      t.dtype = dtype;
      t.rank = rank;
      auto* copy = static_cast<tsr_dim*>(sdk::host().graph->scratch(call->graph, sizeof(tsr_dim) * (rank + 1)));
      for (uint32_t d = 0; d < rank; ++d) copy[d] = sizes[d];
      t.sizes = copy;
    };
    *num_results = each_result(list, set);
    if (*num_results == 0) {
      set(0, TSR_U8, 0, nullptr);
      *num_results = 1;
    }
  });
}

tsr_error* compute(void*, const tsr_call* call, const tsr_tensor* in, uint32_t num_in, const tsr_tensor* out,
                   uint32_t num_out) noexcept {
  tsr_error* failed = nullptr;
  tsr_error* misused = sdk::guarded([&] {
    const int64_t function = sdk::need_attr(call->attrs, call->num_attrs, "callback", call->op).p->i;
    const tsr_attr& list = *sdk::need_attr(call->attrs, call->num_attrs, "results", call->op).p;
    const bool token = list.count == 0;
    if (token && num_out == 1) *static_cast<uint8_t*>(out[0].data) = 0;
    failed = sdk::host().core->host_call(function, in, num_in, out, token ? 0 : num_out);
  });
  return misused ? misused : failed;
}

tsr_op_impl host_call() {
  tsr_op_impl i{};
  i.op = "host_call";
  i.infer = infer;
  i.compute = compute;
  return i;
}
const tsr_op_impl kImpls[] = {host_call(), custom_gradient()};

tsr_opset opset() {
  tsr_opset s{};
  s.struct_size = sizeof s;
  s.prefix = "cpp";
  s.files = cpp_records;
  s.num_files = std::size(cpp_records);
  s.file_stride = sizeof cpp_records[0];
  s.impls = kImpls;
  s.num_impls = std::size(kImpls);
  s.impl_stride = sizeof kImpls[0];
  return s;
}
const tsr_opset kOpset = opset();

}  // namespace
}  // namespace tessera::frontends

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_frontend("cpp", std::make_unique<tessera::frontends::Cpp>());
  plugin.add_raw(TSR_OPSET, "cpp", &tessera::frontends::kOpset, nullptr);
}
