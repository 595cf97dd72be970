// SPDX-License-Identifier: Apache-2.0
#include "simt_kernel.hpp"

#include <algorithm>

#include "tessera/kit/saved.hpp"

namespace tessera::kit {
namespace {

constexpr int64_t kAlign = 64;         // of each workspace
constexpr const char* kFormat = " 3";  // of saved kernels

// Elements from the first one of a strided tensor to the last.
int64_t reach(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t.rank; ++d) {
    if (t.sizes[d] == 0) return 0;
    n += (t.sizes[d] - 1) * std::max<int64_t>(t.strides[d], 0);
  }
  return n;
}

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

SimtKernel::Variant SimtKernel::variant(Program p, const std::vector<GpuLaunch>& launches, size_t first_entry,
                                        const std::vector<uint32_t>& results) {
  Variant v;
  const auto size = [&](Expr e) {
    const auto n = p.pool.as_number(e);
    return n ? Size{*n, kNone} : Size{0, e};
  };
  uint32_t inputs = 0, outputs = 0;
  for (const ProgramBuffer& b : p.buffers) {
    if (b.memory > Memory::Workspace) continue;
    Pointer x;
    x.kind = b.memory == Memory::Workspace ? Pointer::Workspace : b.access == Access::In ? Pointer::Input : Pointer::Output;
    x.number = x.kind == Pointer::Input ? inputs++ : x.kind == Pointer::Output ? results[outputs++] : 0;
    x.element = static_cast<uint32_t>(type_bytes(b.type));
    x.elements = size(b.extent);
    v.pointers.push_back(x);
  }
  // Numbers of pointers: buffers of the program that are no shared memory and no registers, which may come in between.
  std::vector<uint32_t> number(p.buffers.size(), kNone);
  uint32_t next = 0;
  for (size_t b = 0; b < p.buffers.size(); ++b)
    if (p.buffers[b].memory <= Memory::Workspace) number[b] = next++;
  for (size_t l = 0; l < launches.size(); ++l) {
    const GpuLaunch& from = launches[l];
    Launch x;
    x.entry = first_entry + l;
    for (const uint32_t b : from.buffers) x.pointers.push_back(number[b]);
    x.symbols = from.symbols;
    x.checks = from.faults;
    x.blocks = size(from.shape.blocks);
    x.threads = from.shape.threads;
    x.shared_bytes = from.shape.shared_bytes;
    x.dynamic_shared = from.dynamic_shared;
    v.launches.push_back(std::move(x));
  }
  for (const Program::Require& r : p.require) v.require.emplace_back(size(r.size), r.most);
  v.pool = std::move(p.pool);
  return v;
}

SimtKernel::SimtKernel(std::shared_ptr<SimtTarget> target, std::shared_ptr<SimtBuilt> built, uint32_t index, Plan plan)
    : target_(std::move(target)),
      built_(std::move(built)),
      index_(index),
      module_(built_->module(*target_, index)),
      plan_(std::move(plan)) {
  for (const Variant& v : plan_.variants)
    if (v.pointers.size() > kMaxPointers || plan_.symbols.size() + plan_.strides.size() > kMaxSizes)
      throw sdk::Error(TSR_BUG, "TSR-B005",
                       std::string(target_->device()) + " was given a region of more operands than it claims");
}

SimtKernel::Sizes SimtKernel::sizes_of(const int64_t* dims) const {
  Sizes s{};
  for (const sdk::LaunchDim& d : plan_.symbols) s.symbols[s.count++] = d.get(dims);
  return s;
}

bool SimtKernel::add_strides(const tsr_launch& l, Sizes& s) const {
  bool vectors = true;
  for (const OperandStride& o : plan_.strides) {
    const tsr_tensor& t = l.inputs[o.operand];
    const int64_t stride = t.strides[o.dimension];
    const bool last = o.dimension + 1 == t.rank;
    vectors = vectors && (last ? stride == 1 : stride % kStrideMultiple == 0 || t.sizes[o.dimension] == 1);
    s.symbols[s.count++] = stride;
  }
  return vectors;
}

uint64_t SimtKernel::strided_inputs() const {
  uint64_t bits = 0;
  for (const OperandStride& o : plan_.strides) bits |= uint64_t{1} << o.operand;
  return bits;
}
bool SimtKernel::strided(const Pointer& p) const {
  return p.kind == Pointer::Input && std::any_of(plan_.strides.begin(), plan_.strides.end(),
                                                 [&](const OperandStride& o) { return o.operand == plan_.operands[p.number]; });
}

int64_t SimtKernel::value(const Variant& v, const Size& s, const Sizes& sizes) {
  if (s.e == kNone) return s.number;
  IndexEnv env;
  env.symbols = {sizes.symbols, sizes.count};
  return v.pool.evaluate(s.e, env);
}

const SimtKernel::Variant& SimtKernel::variant_for(const Sizes& sizes) const {
  for (const Variant& v : plan_.variants) {
    bool right = true;
    for (const auto& [size, most] : v.require) right = right && value(v, size, sizes) <= most;
    if (right) return v;
  }
  throw sdk::Error(TSR_USER, "TSR-K032",
                   "kernel '" + plan_.name + "' reduces at most " + std::to_string(plan_.variants.back().require[0].second) +
                       " elements, and this call has more",
                   "reduce in two steps");
}

bool SimtKernel::has_workspace() const {
  for (const Variant& v : plan_.variants)
    for (const Pointer& p : v.pointers)
      if (p.kind == Pointer::Workspace) return true;
  return false;
}

bool SimtKernel::checks_data() const {
  for (const Variant& v : plan_.variants)
    for (const Launch& l : v.launches)
      if (l.checks) return true;
  return false;
}

int64_t SimtKernel::workspace(const int64_t* dims) {
  const Sizes sizes = sizes_of(dims);
  const Variant& v = variant_for(sizes);
  int64_t bytes = 0;
  for (const Pointer& p : v.pointers)
    if (p.kind == Pointer::Workspace) bytes += aligned(value(v, p.elements, sizes) * p.element);
  return bytes;
}

void SimtKernel::each_call(const tsr_launch& l, const EachLaunch& f) const {
  Sizes sizes = sizes_of(l.dims);
  const bool vectors = add_strides(l, sizes);
  const Variant& v = plan_.strides.empty() ? variant_for(sizes) : plan_.variants[vectors ? 0 : 1];
  void* all[kMaxPointers];
  int64_t bytes[kMaxPointers];
  char* space = static_cast<char*>(l.workspace);
  for (size_t i = 0; i < v.pointers.size(); ++i) {
    const Pointer& p = v.pointers[i];
    bytes[i] = (strided(p) ? reach(l.inputs[plan_.operands[p.number]]) : value(v, p.elements, sizes)) * p.element;
    switch (p.kind) {
      case Pointer::Input: all[i] = l.inputs[plan_.operands[p.number]].data; break;
      case Pointer::Output: all[i] = l.outputs[p.number].data; break;
      case Pointer::Workspace:
        all[i] = space;
        space += aligned(bytes[i]);
        break;
    }
  }
  void* pointers[kMaxPointers];
  int64_t lengths[kMaxPointers], numbers[kMaxSizes];
  void* arguments[kMaxPointers + kMaxSizes + 2];
  SimtCall call;
  call.index = index_;
  call.stream = l.stream;
  call.fault = TSR_HAS(&l, tsr_launch, site) ? l.fault : nullptr;
  call.site = TSR_HAS(&l, tsr_launch, site) ? l.site : 0;
  call.module = &module_;
  for (const Launch& x : v.launches) {
    call.blocks = value(v, x.blocks, sizes);
    if (call.blocks <= 0) continue;  // nothing to compute
    size_t n = 0;
    for (size_t i = 0; i < x.pointers.size(); ++i) {
      pointers[i] = all[x.pointers[i]];
      lengths[i] = bytes[x.pointers[i]];
      arguments[n++] = &pointers[i];
    }
    for (size_t i = 0; i < x.symbols.size(); ++i) {
      numbers[i] = sizes.symbols[x.symbols[i]];
      arguments[n++] = &numbers[i];
    }
    if (x.checks) {
      arguments[n++] = &call.fault;
      arguments[n++] = &call.site;
    }
    call.function = module_->function(x.entry);
    call.entry = built_->entries[x.entry].c_str();
    call.threads = x.threads;
    call.shared_bytes = x.shared_bytes;
    call.dynamic_shared = x.dynamic_shared;
    call.pointers = {pointers, x.pointers.size()};
    call.bytes = {lengths, x.pointers.size()};
    call.sizes = {numbers, x.symbols.size()};
    call.checks = x.checks;
    call.arguments = arguments;
    f(call, v, x);
  }
}

void SimtKernel::launch(const tsr_launch& l) {
  each_call(l, [&](const SimtCall& call, const Variant&, const Launch&) { target_->launch(call); });
}

void SimtKernel::describe_calls(const tsr_launch& l, const sdk::EachCall& each) {
  const bool by_dims =
      std::any_of(plan_.symbols.begin(), plan_.symbols.end(), [](const sdk::LaunchDim& d) { return d.slot >= 0; });
  uint64_t bytes[kMaxPointers + kMaxSizes + 2];
  tsr_argument layout[kMaxPointers + kMaxSizes + 2];
  each_call(l, [&](const SimtCall& call, const Variant& v, const Launch& x) {
    size_t n = 0;
    const auto add = [&](uint32_t kind, uint32_t number, uint64_t value, int64_t displacement) {
      layout[n] = {kind, number, static_cast<uint32_t>(n * sizeof(uint64_t)), sizeof(uint64_t), displacement};
      bytes[n++] = value;
    };
    for (size_t i = 0; i < x.pointers.size(); ++i) {
      const Pointer& p = v.pointers[x.pointers[i]];
      const auto at = reinterpret_cast<uint64_t>(call.pointers[i]);
      switch (p.kind) {
        case Pointer::Input: add(TSR_ARGUMENT_INPUT, plan_.operands[p.number], at, 0); break;
        case Pointer::Output: add(TSR_ARGUMENT_OUTPUT, p.number, at, 0); break;
        case Pointer::Workspace:
          add(TSR_ARGUMENT_WORKSPACE, 0, at, static_cast<char*>(call.pointers[i]) - static_cast<char*>(l.workspace));
          break;
      }
    }
    for (size_t i = 0; i < x.symbols.size(); ++i) {
      const auto value = static_cast<uint64_t>(call.sizes[i]);
      if (x.symbols[i] >= plan_.symbols.size()) {  // a stride: described anew where it differs
        add(TSR_ARGUMENT_FIXED, 0, value, 0);
        continue;
      }
      const sdk::LaunchDim& d = plan_.symbols[x.symbols[i]];
      d.slot < 0 ? add(TSR_ARGUMENT_FIXED, 0, value, 0) : add(TSR_ARGUMENT_DIM, static_cast<uint32_t>(d.slot), value, 0);
    }
    if (x.checks) {
      add(TSR_ARGUMENT_FAULT, 0, reinterpret_cast<uint64_t>(call.fault), 0);
      add(TSR_ARGUMENT_SITE, 0, call.site, 0);
    }
    tsr_device_call out{};
    out.struct_size = sizeof out;
    out.kind = TSR_CALL_KERNEL;
    out.by_dims = by_dims;
    out.name = call.entry;
    out.function = call.function;
    out.grid[0] = static_cast<uint32_t>(call.blocks);
    out.block[0] = static_cast<uint32_t>(call.threads);
    out.grid[1] = out.grid[2] = out.block[1] = out.block[2] = 1;
    out.shared_bytes = static_cast<uint32_t>(target_->launch_shared(call));
    out.arguments = bytes;
    out.argument_bytes = n * sizeof(uint64_t);
    out.layout = layout;
    out.num_arguments = n;
    out.argument_stride = sizeof(tsr_argument);
    each(out);
  });
}

// ---- saved: what was built, which other kernels share, then the plan with its sizes as numbers, then the plan's length

std::string SimtKernel::serialize() const {
  const Sizes none{};
  SavedWriter w;
  w.text(std::string(target_->device()) + kFormat);
  w.text(target_->compiler());
  w.number<uint32_t>(index_);
  w.number<uint64_t>(built_->entries.size());
  for (const std::string& e : built_->entries) w.text(e);
  w.text(plan_.name);
  w.numbers(plan_.operands);
  w.numbers(plan_.strides);
  w.number(plan_.in_place);
  std::vector<const Variant*> variants;
  if (plan_.strides.empty())
    variants.push_back(&variant_for(none));
  else
    for (const Variant& v : plan_.variants) variants.push_back(&v);
  for (const Variant* v : variants) {
    w.number<uint64_t>(v->pointers.size());
    for (const Pointer& p : v->pointers) {
      w.number(p.kind);
      w.number(p.number);
      w.number(p.element);
      w.number(strided(p) ? 0 : value(*v, p.elements, none));
    }
    w.number<uint64_t>(v->launches.size());
    for (const Launch& x : v->launches) {
      w.number(x.entry);
      w.numbers(x.pointers);
      w.numbers(x.symbols);
      w.number(x.checks);
      w.number(value(*v, x.blocks, none));
      w.number(x.threads);
      w.number(x.shared_bytes);
      w.number(x.dynamic_shared);
    }
  }
  return join_saved(built_->bytes, w.take());
}

std::unique_ptr<SimtKernel> SimtKernel::restore(std::shared_ptr<SimtTarget> target, std::string_view bytes) {
  const SavedParts parts = split_saved(bytes);
  SavedReader in(parts.rest);
  if (in.text() != std::string(target->device()) + kFormat || in.text() != target->compiler()) SavedReader::fail();
  const auto index = in.number<uint32_t>();
  auto built = std::make_shared<SimtBuilt>();
  built->bytes = parts.object;
  for (uint64_t n = in.number<uint64_t>(); n > 0; --n) built->entries.emplace_back(in.text());
  Plan plan;
  plan.name = in.text();
  plan.operands = in.numbers<uint32_t>();
  plan.strides = in.numbers<OperandStride>();
  plan.in_place = in.number<int32_t>();
  const auto variant = [&] {
    Variant v;
    for (uint64_t n = in.number<uint64_t>(); n > 0; --n) {
      Pointer p;
      p.kind = in.number<Pointer::Kind>();
      p.number = in.number<uint32_t>();
      p.element = in.number<uint32_t>();
      p.elements.number = in.number<int64_t>();
      if (p.kind > Pointer::Workspace || (p.kind == Pointer::Input && p.number >= plan.operands.size())) SavedReader::fail();
      v.pointers.push_back(p);
    }
    for (uint64_t n = in.number<uint64_t>(); n > 0; --n) {
      Launch x;
      x.entry = in.number<uint64_t>();
      x.pointers = in.numbers<uint32_t>();
      x.symbols = in.numbers<uint32_t>();
      x.checks = in.number<bool>();
      x.blocks.number = in.number<int64_t>();
      x.threads = in.number<int64_t>();
      x.shared_bytes = in.number<int64_t>();
      x.dynamic_shared = in.number<int64_t>();
      if (x.entry >= built->entries.size() || x.pointers.size() > v.pointers.size()) SavedReader::fail();
      for (const uint32_t p : x.pointers)
        if (p >= v.pointers.size()) SavedReader::fail();
      for (const uint32_t s : x.symbols)
        if (s >= plan.strides.size()) SavedReader::fail();
      v.launches.push_back(std::move(x));
    }
    plan.variants.push_back(std::move(v));
  };
  variant();
  if (!plan.strides.empty()) variant();
  in.end();
  return std::make_unique<SimtKernel>(std::move(target), std::move(built), index, std::move(plan));
}

}  // namespace tessera::kit
