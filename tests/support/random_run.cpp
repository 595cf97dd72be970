// SPDX-License-Identifier: Apache-2.0
#include "random_run.hpp"

#include <cstdio>
#include <cstring>
#include <random>

#include "api/api.hpp"
#include "compile/driver.hpp"
#include "memory/device.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::test {

using namespace core;

std::shared_ptr<const Context> random_context(const std::string& plugins, const std::string& order, const std::string& more,
                                              const std::vector<const char*>& plugin_dirs) {
  const std::string config =
      "[plugins]\nload = [\"tessera.opset.standard\", " + plugins + "]\n[backends]\norder = [" + order + "]\n" + more;
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text = config.c_str();
  options.plugin_dirs = plugin_dirs.data();
  options.num_plugin_dirs = plugin_dirs.size();
  const std::shared_ptr<const Context> context = Context::create(&options, api::host());
  for (const Factory* f : context->plugins().all(TSR_DEVICE))
    register_devices(f->as<tsr_device_table>(), f->self, f->plugin->id, f->plugin->vendor, context);
  return context;
}

bool may_not_end(const Graph& g) {
  for (tsr_id n = 0; n < g.num_nodes(); ++n)
    if (g.node(n).alive && std::strcmp(g.node(n).op, "while_loop") == 0) return true;
  return false;
}

std::vector<TensorRef> random_inputs(const Graph& g, const std::vector<int64_t>& symbols, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TensorRef> out;
  for (uint32_t i = 0; i < g.region(0).num_inputs; ++i) {
    const tsr_type& t = *g.value(g.region(0).inputs[i]).type;
    std::vector<int64_t> sizes;
    for (uint32_t k = 0; k < t.rank; ++k) sizes.push_back(g.sizes().evaluate(t.sizes[k], symbols));
    out.emplace_back(tensor_create(t.dtype, sizes, 0));
    const tsr_tensor& d = out.back()->desc;
    const int64_t n = num_elements({d.sizes, d.rank});
    for (int64_t k = 0; k < n; ++k) {
      const double x = is_float(t.dtype) ? static_cast<double>(static_cast<int64_t>(random() % 2001) - 1000) / 128
                                         : static_cast<double>(random() % 5);
      store_from(t.dtype, d.data, k, random() % 16 == 0 && is_float(t.dtype) ? -0.0 : x);
    }
  }
  return out;
}

std::unique_ptr<Executable> compile(const std::shared_ptr<const Context>& context, const Graph& g) {
  return compile_graph(g.clone(), api::compile_options(context, context->config(), nullptr));
}

Outcome run(const Executable& e, const std::vector<TensorRef>& inputs) {
  Outcome out;
  try {
    std::vector<tsr_tensor_handle*> handles, results(e.num_outputs(), nullptr);
    for (const TensorRef& t : inputs) handles.push_back(t.get());
    e.run(handles, results);
    for (tsr_tensor_handle* r : results) out.outputs.emplace_back(r);
  } catch (const Error& error) {
    if (error.family() == TSR_BUG) throw;
    out.error = error.code() + " " + error.message();
  }
  return out;
}

std::string first_difference(const tsr_tensor& x, const tsr_tensor& y, bool bitwise) {
  if (is_packed(x.dtype) || is_complex(x.dtype)) return "";
  const int64_t n = num_elements({x.sizes, x.rank});
  if (n != num_elements({y.sizes, y.rank})) return "the sizes differ";
  const auto width = static_cast<size_t>(dtype_bits(x.dtype)) / 8;
  for (int64_t k = 0; k < n; ++k) {
    if (std::memcmp(static_cast<const char*>(x.data) + static_cast<size_t>(k) * width,
                    static_cast<const char*>(y.data) + static_cast<size_t>(k) * width, width) == 0)
      continue;
    const double p = load_as<double>(x.dtype, x.data, k), q = load_as<double>(x.dtype, y.data, k);
    if (is_float(x.dtype) && ((p != p && q != q) || (!bitwise && p == q))) continue;
    char text[120];
    std::snprintf(text, sizeof text, "element %lld: %.17g and %.17g", static_cast<long long>(k), p, q);
    return text;
  }
  return "";
}

}  // namespace tessera::test
