// SPDX-License-Identifier: Apache-2.0
#include "evaluate.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <stdexcept>

#include "ir/body.hpp"
#include "ir/graph_api.hpp"
#include "opset.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/plugin.hpp"

namespace tessera::opset {

namespace {

const tsr_host& process_host() {
  static const tsr_host host = core::make_host(&core::host_core(), &core::graph_api(), nullptr);
  return host;
}

struct Instance {
  const tsr_plugin_desc* desc = nullptr;
  void* p = nullptr;
  ~Instance() {
    if (p) desc->destroy(p);
  }
};

const tsr_factory& reference() {
  static const tsr_factory* factory = [] {
    const char* build = std::getenv("TESSERA_BUILD_DIR");
    const std::string path = std::string(build ? build : ".") + "/lib/tessera/plugins/tessera.backend.reference.so";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    const auto query = reinterpret_cast<tsr_plugin_query_fn>(dlsym(library, "tsr_plugin_query"));
    static Instance instance;  // goes before what the library holds
    instance.desc = query(&process_host());
    static const tsr_options none{sizeof(tsr_options), nullptr, 0, sizeof(tsr_option)};
    core::throw_if(instance.desc->create(&process_host(), &none, &instance.p));
    const tsr_factory* items = nullptr;
    size_t count = 0, stride = 0;
    core::throw_if(instance.desc->factories(instance.p, &items, &count, &stride));
    return items;
  }();
  return *factory;
}

// Values of symbols, and the slots that kernels read sizes from.
struct Run {
  core::Graph& g;
  std::vector<int64_t> symbols;
  std::vector<tsr_dim> slots;

  int64_t value(tsr_dim d) const { return g.sizes().evaluate(d, symbols); }
  static int32_t slot(void* ctx, tsr_dim d) {
    if (!TSR_DIM_IS_EXPR(d)) return -1;
    auto& slots = static_cast<Run*>(ctx)->slots;
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i] == d) return static_cast<int32_t>(i);
    slots.push_back(d);
    return static_cast<int32_t>(slots.size() - 1);
  }
};

struct View {  // a tsr_tensor over an Array
  tsr_tensor t{};
  std::vector<int64_t> strides;
  explicit View(Array* a) {
    t.strides = nullptr;
    if (!a) {
      t.flags = TSR_TENSOR_ABSENT;
      return;
    }
    t.data = a->bytes.data();
    t.dtype = a->dtype;
    t.rank = static_cast<uint32_t>(a->sizes.size());
    t.sizes = a->sizes.data();
    strides.resize(a->sizes.size());
    int64_t s = 1;
    for (size_t i = strides.size(); i-- > 0;) {
      strides[i] = s;
      s *= std::max<int64_t>(a->sizes[i], 1);
    }
    t.strides = strides.data();
    t.flags = TSR_TENSOR_CONTIGUOUS;
  }
};

// One node on the reference backend.
void run_node(Run& run, tsr_id node, std::map<tsr_id, Array>& values) {
  const tsr_factory& f = reference();
  const auto& backend = *static_cast<const tsr_backend*>(f.table);
  tsr_compile c{};
  c.struct_size = sizeof c;
  c.graph = run.g.handle();
  c.node = node;
  c.dim_slot = Run::slot;
  c.ctx = &run;
  tsr_kernel kernel{};
  kernel.struct_size = sizeof kernel;
  core::throw_if(backend.compile(f.self, &c, &kernel));
  const std::shared_ptr<void> owner(kernel.self, [&](void* self) { kernel.destroy(self); });

  const tsr_node n = run.g.node(node);
  std::vector<View> in;
  for (uint32_t i = 0; i < n.num_operands; ++i)
    in.emplace_back(n.operands[i] == TSR_NONE ? nullptr : &values.at(n.operands[i]));
  std::vector<tsr_tensor> inputs, outputs;
  for (View& v : in) {
    if (!v.strides.empty()) v.t.strides = v.strides.data();
    inputs.push_back(v.t);
  }

  std::vector<int64_t> dims;
  const auto fill_dims = [&] {
    run.symbols.resize(run.g.sizes().symbols().size(), -1);
    dims.clear();
    for (tsr_dim d : run.slots) {
      // Sizes that are computed only now are not asked for before.
      std::vector<uint32_t> used;
      run.g.sizes().collect_symbols(d, used);
      bool known = true;
      for (uint32_t s : used) known = known && run.symbols[s] >= 0;
      dims.push_back(known ? run.value(d) : -1);
    }
  };
  fill_dims();

  tsr_launch l{};
  l.struct_size = sizeof l;
  l.inputs = inputs.data();
  l.num_inputs = static_cast<uint32_t>(inputs.size());
  l.dims = dims.data();
  std::vector<uint32_t> fresh;
  for (uint32_t i = 0; i < n.num_results; ++i) {
    const tsr_type& t = *run.g.value(n.results[i]).type;
    for (uint32_t k = 0; k < t.rank; ++k) {
      std::vector<uint32_t> used;
      run.g.sizes().collect_symbols(t.sizes[k], used);
      for (uint32_t s : used)
        if (run.symbols[s] < 0 && std::find(fresh.begin(), fresh.end(), s) == fresh.end()) fresh.push_back(s);
    }
  }
  if (!fresh.empty()) {
    if (!kernel.sizes) throw std::runtime_error(std::string(n.op) + ": no sizes callback");
    std::vector<int64_t> found(fresh.size());
    core::throw_if(kernel.sizes(kernel.self, &l, found.data(), static_cast<uint32_t>(found.size())));
    for (size_t i = 0; i < fresh.size(); ++i) run.symbols[fresh[i]] = found[i];
    fill_dims();
    l.dims = dims.data();
  }

  std::vector<View> out;
  for (uint32_t i = 0; i < n.num_results; ++i) {
    const tsr_type& t = *run.g.value(n.results[i]).type;
    std::vector<int64_t> sizes;
    for (uint32_t k = 0; k < t.rank; ++k) sizes.push_back(run.value(t.sizes[k]));
    values[n.results[i]] = Array::make(t.dtype, std::move(sizes));
  }
  for (uint32_t i = 0; i < n.num_results; ++i) out.emplace_back(&values.at(n.results[i]));
  for (View& v : out) {
    v.t.strides = v.strides.data();
    outputs.push_back(v.t);
  }
  std::vector<std::max_align_t> workspace;
  if (kernel.workspace)
    workspace.resize(static_cast<size_t>(kernel.workspace(kernel.self, dims.data())) / sizeof(std::max_align_t) + 8);
  l.workspace = workspace.data();
  l.outputs = outputs.data();
  l.num_outputs = static_cast<uint32_t>(outputs.size());
  core::throw_if(kernel.launch(kernel.self, &l));
}

}  // namespace

const core::OpRegistry& standard_ops() {
  static const core::OpRegistry* ops = [] {
    sdk::host_slot() = &process_host();
    auto* r = new core::OpRegistry;
    r->add(*tessera_standard_opset(), "tessera.opset.standard");
    return r;
  }();
  return *ops;
}

Array Array::make(uint32_t dtype, std::vector<int64_t> sizes) {
  Array a;
  a.dtype = dtype;
  a.sizes = std::move(sizes);
  a.bytes.resize(static_cast<size_t>(std::max<int64_t>(storage_bytes(dtype, a.count()), 1)));
  return a;
}
int64_t Array::count() const {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}
double Array::get(int64_t i) const { return load_as<ComplexValue<double>>(dtype, bytes.data(), i).re; }
double Array::get_imag(int64_t i) const { return load_as<ComplexValue<double>>(dtype, bytes.data(), i).im; }
void Array::set(int64_t i, double re, double im) {
  if (is_complex(dtype))
    store_from(dtype, bytes.data(), i, ComplexValue<double>{re, im});
  else
    store_from(dtype, bytes.data(), i, re);
}

std::vector<Array> evaluate(core::Graph& g, const std::vector<Array>& inputs) {
  std::map<tsr_id, Array> values;
  Run run{g, std::vector<int64_t>(g.sizes().symbols().size(), -1), {}};
  for (uint32_t i = 0; i < g.region(0).num_inputs; ++i) {
    const tsr_id v = g.region(0).inputs[i];
    const tsr_type& t = *g.value(v).type;
    // Inputs define the symbols that stand alone in their types.
    for (uint32_t k = 0; k < t.rank; ++k)
      if (TSR_DIM_IS_EXPR(t.sizes[k])) {
        const tsr_dim_expr& e = g.sizes().exprs()[TSR_DIM_EXPR_ID(t.sizes[k])];
        if (e.op == TSR_DIM_SYMBOL) run.symbols[e.symbol] = inputs[i].sizes[k];
      }
    values[v] = inputs[i];
  }
  for (tsr_id n : core::nodes_of(g, 0)) run_node(run, n, values);
  std::vector<Array> out;
  for (uint32_t i = 0; i < g.region(0).num_outputs; ++i) out.push_back(values.at(g.region(0).outputs[i]));
  return out;
}

void decompose_all(core::Graph& g) {
  for (bool again = true; again;) {
    again = false;
    std::vector<tsr_id> nodes;
    for (tsr_id n : core::nodes_of(g, 0)) nodes.push_back(n);
    for (tsr_id n : nodes) {
      if (!g.record_of(n).has(core::kComposite)) continue;
      const std::vector<tsr_id> with = core::build_decomposition(g, n);
      for (uint32_t i = 0; i < g.node(n).num_results; ++i) g.replace_uses(g.node(n).results[i], with[i]);
      g.erase_node(n);
      again = true;
    }
  }
}

}  // namespace tessera::opset
