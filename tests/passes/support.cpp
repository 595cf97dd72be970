// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "api/api.hpp"
#include "compile/driver.hpp"
#include "compile/services.hpp"
#include "ir/printer.hpp"
#include "pass/pipeline.hpp"
#include "places.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::test {

using namespace core;

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/tests/passes"))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

const Context& pass_context() {
  static const std::shared_ptr<const Context> context = [] {
    std::string config = "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.backend.reference\"";
    for (const std::string& name : pass_names()) config += ", \"tessera.pass." + name + "\"";
    config += "]\n[backends]\norder = [\"reference\"]\n";
    const std::string dir = build_dir() + "/lib/tessera/plugins";
    const char* dirs[] = {dir.c_str()};
    tsr_context_options options{};
    options.struct_size = sizeof options;
    options.config_text = config.c_str();
    options.plugin_dirs = dirs;
    options.num_plugin_dirs = 1;
    return Context::create(&options, api::host());
  }();
  return *context;
}

namespace {
CompileOptions reference() {
  CompileOptions o;
  o.backends = pass_context().backends_in_order();
  return o;
}
}  // namespace

PassReport run_pipeline(Graph& graph, const std::string& pipeline) {
  const CompileOptions options = reference();
  const ServiceScope scope(options);
  PassOptions o;
  o.verify = VerifyWhen::kEach;
  o.reproducer = Reproducer::kNone;
  return run_passes(graph, bind_pipeline(pass_context(), pipeline), o);
}

std::vector<int64_t> small_symbols(const Graph& graph) {
  std::vector<int64_t> values;
  for (const tsr_symbol& s : graph.sizes().symbols()) values.push_back(std::min(std::max<int64_t>(s.min, 3), s.max));
  return values;
}

namespace {

void fill(tsr_tensor_handle& t, std::mt19937_64& random) {
  const uint32_t dtype = t.desc.dtype;
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  static const double kSpecial[] = {0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 0.5, 2.0, 1e-40, -3.0};
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto real = [&] {
    return below(3) ? static_cast<double>(static_cast<int64_t>(below(2001)) - 1000) / 128
                    : kSpecial[below(std::size(kSpecial))];
  };
  const int64_t n = num_elements({t.desc.sizes, t.desc.rank});
  for (int64_t i = 0; i < n; ++i) {
    if (is_complex(dtype)) {
      const uint32_t part = dtype == TSR_C64 ? TSR_F32 : TSR_F64;
      store_from(part, t.desc.data, 2 * i, real());
      store_from(part, t.desc.data, 2 * i + 1, real());
    } else if (is_float(dtype)) {
      store_from(dtype, t.desc.data, i, real());
    } else if (is_bool(dtype)) {
      store_from(dtype, t.desc.data, i, static_cast<double>(below(2)));
    } else if (below(8)) {
      store_from(dtype, t.desc.data, i, static_cast<double>(below(4)));
    } else {
      store_from(dtype, t.desc.data, i,
                 is_signed_int(dtype) ? -static_cast<double>(below(128)) : static_cast<double>(below(128)));
    }
  }
}

std::vector<TensorRef> random_inputs(const Graph& g, const std::vector<int64_t>& symbols, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TensorRef> inputs;
  for (uint32_t i = 0; i < g.region(0).num_inputs; ++i) {
    const tsr_type& t = *g.value(g.region(0).inputs[i]).type;
    std::vector<int64_t> sizes, strides;
    int64_t low = 0, high = 0;
    for (uint32_t k = 0; k < t.rank; ++k) {
      sizes.push_back(g.sizes().evaluate(t.sizes[k], symbols));
      if (!t.strides) continue;
      strides.push_back(g.sizes().evaluate(t.strides[k], symbols));
      if (sizes[k] > 0) (strides[k] < 0 ? low : high) += (sizes[k] - 1) * strides[k];
    }
    if (!t.strides) {
      inputs.emplace_back(tensor_create(t.dtype, sizes, 0));
      fill(*inputs.back().get(), random);
      continue;
    }
    const int64_t span[] = {high - low + 1};
    TensorRef base(tensor_create(t.dtype, span, 0));
    fill(*base.get(), random);
    inputs.emplace_back(tensor_view(*base, -low, sizes, strides.data()));
  }
  return inputs;
}

}  // namespace

Outcome run_on_reference(const Graph& g, const std::vector<int64_t>& symbols, uint64_t seed) {
  Outcome out;
  try {
    const auto executable = compile_graph(g.clone(), reference());
    const std::vector<TensorRef> inputs = random_inputs(g, symbols, seed);  // made anew, for states are written in place
    std::vector<tsr_tensor_handle*> handles;
    for (const TensorRef& t : inputs) handles.push_back(t.get());
    std::vector<tsr_tensor_handle*> results(executable->num_outputs(), nullptr);
    executable->run(handles, results);
    for (tsr_tensor_handle* r : results) {
      const TensorRef owner(r);
      out.outputs.emplace_back(tensor_copy(*owner, 0));  // dense
    }
  } catch (const Error& e) {
    out.error = e.code() + " " + e.message();
  }
  return out;
}

std::string bit_difference(const Outcome& a, const Outcome& b) {
  if (a.error != b.error) return "one ended with '" + a.error + "', the other with '" + b.error + "'";
  if (a.outputs.size() != b.outputs.size()) return "the numbers of outputs differ";
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    const tsr_tensor &x = a.outputs[i]->desc, &y = b.outputs[i]->desc;
    const std::string where = "output " + std::to_string(i);
    const std::string tx = type_text(x.dtype, {x.sizes, x.rank}), ty = type_text(y.dtype, {y.sizes, y.rank});
    if (tx != ty) return where + " is " + tx + " and " + ty;
    int64_t n = num_elements({x.sizes, x.rank});
    const auto bytes = static_cast<size_t>(tensor_bytes(static_cast<tsr_dtype>(x.dtype), n));
    if (bytes == 0 || std::memcmp(x.data, y.data, bytes) == 0) continue;
    uint32_t part = x.dtype;
    if (is_complex(part)) {
      part = part == TSR_C64 ? TSR_F32 : TSR_F64;
      n *= 2;
    }
    const auto width = static_cast<size_t>(dtype_bits(part)) / 8;
    for (int64_t k = 0; k < n; ++k) {
      if (is_float(part) && std::isnan(load_as<double>(part, x.data, k)) && std::isnan(load_as<double>(part, y.data, k)))
        continue;
      const bool same = width == 0 ? load_as<double>(part, x.data, k) == load_as<double>(part, y.data, k)
                                   : std::memcmp(static_cast<const char*>(x.data) + static_cast<size_t>(k) * width,
                                                 static_cast<const char*>(y.data) + static_cast<size_t>(k) * width, width) == 0;
      if (!same)
        return where + " (" + tx + ") differs at " + std::to_string(k) + ": " +
               std::to_string(load_as<double>(part, x.data, k)) + " and " + std::to_string(load_as<double>(part, y.data, k));
    }
  }
  return "";
}

}  // namespace tessera::test
