// SPDX-License-Identifier: Apache-2.0
// cond, while_loop and scan: traced into regions; outside a trace the functions simply run.
#include <algorithm>

#include "attrs.hpp"
#include "trace.hpp"

namespace tessera::detail {

namespace {

std::vector<Tensor> call(RegionCallback f, const std::vector<Tensor>& in) {
  std::vector<Tensor> out;
  f.fn(f.ctx, in, out);
  return out;
}

// In the trace, as the op will see them: concrete tensors become constants.
std::vector<Tensor> traced(const std::vector<Tensor>& ts) {
  std::vector<Tensor> out;
  for (const Tensor& t : ts)
    out.push_back(t.is_traced() ? t : make_traced(current_trace_shared(), value_of(*current_trace(), t)));
  return out;
}
std::vector<tsr_type> types(const std::vector<Tensor>& ts) {
  std::vector<tsr_type> out;
  for (const Tensor& t : ts) out.push_back(type_of(*t.traced()));
  return out;
}
void append(std::vector<Tensor>& to, const std::vector<Tensor>& from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

tsr_id trace_region(RegionCallback f, const std::vector<tsr_type>& types) {
  const std::shared_ptr<Trace> trace = current_trace_shared();
  std::vector<const tsr_type*> pointers;
  for (const tsr_type& t : types) pointers.push_back(&t);
  tsr_id region = TSR_NONE;
  check(graph_api().region_create(trace->graph, pointers.data(), static_cast<uint32_t>(pointers.size()), &region));

  struct Inside {  // nodes go to the region until this ends; constants lifted outside are not visible in it
    Trace& t;
    tsr_id outer;
    std::unordered_map<const void*, tsr_id> lifted;
    Inside(Trace& trace, tsr_id r) : t(trace), outer(trace.region) {
      t.region = r;
      lifted.swap(t.lifted);
    }
    ~Inside() {
      t.region = outer;
      lifted.swap(t.lifted);
    }
  } inside(*trace, region);

  std::vector<Tensor> in;
  for (uint32_t i = 0; i < types.size(); ++i) {
    const tsr_tables& tables = *graph_api().tables(trace->graph);
    in.push_back(make_traced(trace, TSR_AT(tsr_region, tables.regions, tables.region_stride, region)->inputs[i]));
  }
  std::vector<tsr_id> out;
  for (const Tensor& t : call(f, in)) {
    if (!t.defined())
      fail("TSR-F004", "a function given to cond, while_loop, scan or custom_gradient returns an undefined tensor");
    out.push_back(value_of(*trace, t));
  }
  check(graph_api().region_set_outputs(trace->graph, region, out.data(), static_cast<uint32_t>(out.size())));
  return region;
}

std::vector<Tensor> cond(const Tensor& pred, RegionCallback a, RegionCallback b, const std::vector<Tensor>& args) {
  if (!current_trace()) return call(pred.item<bool>() ? a : b, args);
  const std::vector<Tensor> in = traced(args);
  const tsr_id regions[] = {trace_region(a, types(in)), trace_region(b, types(in))};
  std::vector<Tensor> operands{pred}, out;
  append(operands, in);
  run_op("cond", operands, {}, out, regions);
  return out;
}

std::vector<Tensor> while_loop(RegionCallback c, RegionCallback b, const std::vector<Tensor>& init,
                               const std::vector<Tensor>& invariant) {
  std::vector<Tensor> args = init;
  append(args, invariant);
  if (!current_trace()) {
    while (call(c, args).at(0).item<bool>()) {
      std::vector<Tensor> next = call(b, args);
      if (next.size() != init.size())
        fail("TSR-F029", "while_loop: the body returns " + std::to_string(next.size()) + " tensors, expected " +
                             std::to_string(init.size()));
      std::move(next.begin(), next.end(), args.begin());
    }
    args.resize(init.size());
    return args;
  }
  args = traced(args);
  const tsr_id regions[] = {trace_region(c, types(args)), trace_region(b, types(args))};
  const tsr_attr attrs[] = {int_attr("carried", static_cast<int64_t>(init.size()))};
  std::vector<Tensor> out;
  run_op("while_loop", args, attrs, out, regions);
  return out;
}

std::vector<Tensor> scan(RegionCallback b, const std::vector<Tensor>& init, const std::vector<Tensor>& xs,
                         const std::vector<Tensor>& invariant, bool reverse) {
  if (xs.empty()) fail("TSR-F030", "scan: nothing to scan over", "give at least one tensor in xs, or use while_loop");
  const SymInt length = xs[0].size(0);
  if (!current_trace()) {
    std::vector<Tensor> carried = init;
    std::vector<std::vector<Tensor>> stacks;
    const int64_t n = length;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = reverse ? n - 1 - k : k;
      std::vector<Tensor> in = carried;
      for (const Tensor& x : xs) in.push_back(x.select(0, i));
      append(in, invariant);
      std::vector<Tensor> out = call(b, in);
      carried.assign(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(init.size()));
      stacks.resize(out.size() - init.size());
      for (size_t s = 0; s < stacks.size(); ++s) stacks[s].push_back(out[init.size() + s]);
    }
    for (auto& s : stacks) {
      if (reverse) std::reverse(s.begin(), s.end());
      carried.push_back(stack(s, 0));
    }
    return carried;
  }
  std::vector<Tensor> args = traced(init), scanned = traced(xs), rest = traced(invariant);
  std::vector<tsr_type> in = types(args);
  for (const Tensor& x : scanned) {  // a slice drops the first dimension
    tsr_type t = type_of(*x.traced());
    if (t.rank == 0) fail("TSR-F030", "scan: a 0-d tensor cannot be scanned over");
    --t.rank;
    ++t.sizes;
    t.strides = nullptr;
    in.push_back(t);
  }
  for (const tsr_type& t : types(rest)) in.push_back(t);
  const tsr_id regions[] = {trace_region(b, in)};
  append(args, scanned);
  append(args, rest);
  const tsr_attr attrs[] = {int_attr("carried", static_cast<int64_t>(init.size())),
                            int_attr("scanned", static_cast<int64_t>(xs.size())), bool_attr("reverse", reverse),
                            dim_attr("length", length)};
  std::vector<Tensor> out;
  run_op("scan", args, attrs, out, regions);
  return out;
}

}  // namespace tessera::detail
