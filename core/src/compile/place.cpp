// SPDX-License-Identifier: Apache-2.0
#include "compile/place.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "memory/device.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// Values that depend on no input: they may be computed anywhere.
void find_movable(const Graph& g, tsr_id region, std::vector<char>* movable_values) {
  for (tsr_id n = g.region(region).first; n != TSR_NONE; n = g.node(n).next) {
    const tsr_node& x = g.node(n);
    for (uint32_t i = 0; i < x.num_regions; ++i) find_movable(g, x.regions[i], movable_values);
    const OpRecord& record = g.record_of(n);
    bool movable =
        (record.has(kPure) || record.has(kConstant) || record.has(kView)) && !record.has(kTransfer) && x.num_regions == 0;
    for (uint32_t i = 0; i < x.num_operands; ++i)
      movable = movable && (x.operands[i] == TSR_NONE || (*movable_values)[x.operands[i]]);
    for (uint32_t i = 0; i < x.num_results; ++i)
      (*movable_values)[x.results[i]] = movable && g.value(x.results[i]).type->device == kCpu;
  }
}

// Moves a graph of the host to a device: copies of its inputs come first, those of its outputs last.
class Mover {
 public:
  Mover(Graph& g, tsr_device device) : g_(g), device_(device), movable_(g.num_values(), 0) { find_movable(g, 0, &movable_); }

  // Outputs end on `outputs_on`. Input k lies on the device already where `there` says so; empty: all of them cross.
  void run(std::span<const char> there, tsr_device outputs_on) {
    const tsr_region& body = g_.region(0);
    const std::vector<tsr_id> inputs(body.inputs, body.inputs + body.num_inputs);
    drop_transfers(0);
    region(0);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const tsr_id v = inputs[i];
      if (i < there.size() && there[i]) {
        retype(v);
        continue;
      }
      const std::span<const tsr_use> all = g_.uses(v);
      const std::vector<tsr_use> uses(all.begin(), all.end());
      tsr_id moved = TSR_NONE;
      for (const tsr_use& u : uses) {
        if (u.node == TSR_NONE) continue;
        if (moved == TSR_NONE) moved = cross(v, device_, 0, g_.region(0).first);
        g_.set_operand(u.node, u.operand, moved);
      }
    }
    outputs(0, outputs_on);
  }

 private:
  tsr_id cross(tsr_id value, tsr_device to, tsr_id region, tsr_id before) {
    tsr_attr device{};
    device.name = "device";
    device.kind = TSR_ATTR_STRING;
    device.s = core::device(to).name().c_str();
    NodeSpec spec;
    spec.op = "to_device";
    spec.operands = {value};
    spec.attrs = {device};
    return g_.node(g_.create_node(spec, region, before)).results[0];
  }

  // Copies from the host to the host.
  void drop_transfers(tsr_id r) {
    for (tsr_id n = g_.region(r).first, next = TSR_NONE; n != TSR_NONE; n = next) {
      next = g_.node(n).next;
      for (uint32_t i = 0; i < g_.node(n).num_regions; ++i) drop_transfers(g_.node(n).regions[i]);
      if (!g_.record_of(n).has(kTransfer)) continue;
      g_.replace_uses(g_.node(n).results[0], g_.node(n).operands[0]);
      g_.erase_node(n);
    }
  }

  void retype(tsr_id v) {
    tsr_type t = *g_.value(v).type;
    t.device = device_;
    g_.set_type(v, t);
  }

  void region(tsr_id r) {
    for (tsr_id n = g_.region(r).first; n != TSR_NONE; n = g_.node(n).next) {
      const bool regions = g_.node(n).num_regions > 0;
      for (uint32_t i = 0; i < g_.node(n).num_regions; ++i) {
        const tsr_id inner = g_.node(n).regions[i];
        for (uint32_t k = 0; k < g_.region(inner).num_inputs; ++k) retype(g_.region(inner).inputs[k]);
        region(inner);
        outputs(inner, device_);
      }
      // What a region takes has the type of the region's input.
      for (uint32_t i = 0; regions && i < g_.node(n).num_operands; ++i) {
        const tsr_id v = g_.node(n).operands[i];
        if (v != TSR_NONE && v < movable_.size() && movable_[v]) g_.set_operand(n, i, cross(v, device_, r, n));
      }
      for (uint32_t i = 0; i < g_.node(n).num_results; ++i)
        if (const tsr_id v = g_.node(n).results[i]; !movable_[v]) retype(v);
    }
  }

  // The outputs of a region, as they lie on a device.
  void outputs(tsr_id r, tsr_device where) {
    std::vector<tsr_id> all(g_.region(r).outputs, g_.region(r).outputs + g_.region(r).num_outputs);
    for (size_t i = 0; i < all.size(); ++i) {
      if (g_.value(all[i]).type->device == where) continue;
      const tsr_id old = all[i], moved = cross(old, where, r, TSR_NONE);
      std::replace(all.begin(), all.end(), old, moved);
    }
    g_.set_outputs(r, all);
  }

  Graph& g_;
  const tsr_device device_;
  std::vector<char> movable_;
};

class Placer {
 public:
  explicit Placer(Graph& g) : g_(g), movable_(g.num_values(), 0) {}

  void run() {
    find_movable(g_, 0, &movable_);
    move_to_readers(0);
    check(0);
  }

 private:
  // Backwards, so that a chain goes where its end is read. With readers on several devices it stays, and each fetches it.
  void move_to_readers(tsr_id region) {
    for (tsr_id n = g_.region(region).last; n != TSR_NONE; n = g_.node(n).prev) {
      const tsr_node& x = g_.node(n);
      for (uint32_t i = 0; i < x.num_regions; ++i) move_to_readers(x.regions[i]);
      if (x.num_results == 0 || !movable_[x.results[0]] || g_.record_of(n).has(kConstant)) continue;
      tsr_device wanted = kNoDevice;
      bool one = true;
      for (uint32_t i = 0; i < x.num_results; ++i)
        for (const tsr_use& u : g_.uses(x.results[i])) {
          if (u.node == TSR_NONE) continue;
          const tsr_node& reader = g_.node(u.node);
          const tsr_device d = g_.record_of(u.node).has(kTransfer) || reader.num_results == 0
                                   ? kNoDevice
                                   : g_.value(reader.results[0]).type->device;
          if (d == kNoDevice || d == kCpu) continue;
          one = one && (wanted == kNoDevice || wanted == d);
          wanted = d;
        }
      if (wanted == kNoDevice || !one) continue;
      for (uint32_t i = 0; i < x.num_results; ++i) {
        tsr_type t = *g_.value(x.results[i]).type;
        t.device = wanted;
        g_.set_type(x.results[i], t);
      }
    }
  }

  void check(tsr_id region) {
    for (tsr_id n = g_.region(region).first; n != TSR_NONE; n = g_.node(n).next) {
      const tsr_node& x = g_.node(n);
      for (uint32_t i = 0; i < x.num_regions; ++i) check(x.regions[i]);
      const OpRecord& record = g_.record_of(n);
      if (record.has(kTransfer) || record.has(kControl)) continue;  // those take tensors of any device
      uint32_t on_device = TSR_NONE, on_host = TSR_NONE;
      for (uint32_t i = 0; i < x.num_operands; ++i) {
        if (x.operands[i] == TSR_NONE) continue;
        const tsr_type& t = *g_.value(x.operands[i]).type;
        if (t.device != kCpu && on_device == TSR_NONE) on_device = i;
        if (t.device == kCpu && t.rank > 0 && !movable_[x.operands[i]] && on_host == TSR_NONE) on_host = i;
      }
      if (on_device == TSR_NONE || on_host == TSR_NONE) continue;
      const auto name = [&](uint32_t i) { return std::string(g_.value(x.operands[i]).name); };
      const std::string& device = core::device(g_.value(x.operands[on_device]).type->device).name();
      throw user_error(
          "TSR-I038",
          g_.describe(n) + ": operand %" + name(on_host) + " is on cpu, operand %" + name(on_device) + " on " + device,
          "move %" + name(on_host) + " with to_device {device = \"" + device + "\"}, or the other to the host");
    }
  }

  Graph& g_;
  std::vector<char> movable_;
};

}  // namespace

namespace {

// Throws TSR-R002 for a value on a device that nobody serves.
void require_devices(const Graph& g) {
  for (tsr_id v = 0; v < g.num_values(); ++v) {
    const tsr_value& x = g.value(v);
    if (!x.alive || x.type->device == kCpu || core::device(x.type->device).available()) continue;
    try {
      core::device(x.type->device).require();
    } catch (const Error& e) {
      const std::string where =
          x.def_node == TSR_NONE ? "input '" + std::string(g.input_name(v)) + "'" : g.describe(x.def_node);
      throw Error(e.family(), e.code(), "graph '" + std::string(g.tables().name) + "', " + where + ": " + e.message(),
                  e.hint());
    }
  }
}

template <class F>
void edit(Graph& g, F&& f) {
  g.begin("place");
  try {
    f();
    g.commit();
  } catch (...) {
    if (g.in_transaction()) g.rollback();
    throw;
  }
}

}  // namespace

bool names_devices(const Graph& g) {
  for (tsr_id v = 0; v < g.num_values(); ++v)
    if (g.value(v).alive && g.value(v).type->device != kCpu) return true;
  return false;
}

void place_on_devices(Graph& g, tsr_device device) {
  const bool named = names_devices(g);
  if (!named && device == kCpu) return;
  if (named) require_devices(g);
  edit(g, [&] {
    if (!named) Mover(g, device).run({}, kCpu);
    Placer(g).run();
  });
}

void move_to_device(Graph& g, tsr_device device, std::span<const char> there) {
  edit(g, [&] { Mover(g, device).run(there, device); });
}

}  // namespace tessera::core
