// SPDX-License-Identifier: Apache-2.0
#include "compile/place.hpp"

#include <string>
#include <vector>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "runtime/device.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

class Placer {
 public:
  explicit Placer(Graph& g) : g_(g), movable_(g.num_values(), 0) {}

  void run() {
    find_movable(0);
    move_to_readers(0);
    check(0);
  }

 private:
  // Values that depend on no input: they may be computed anywhere.
  void find_movable(tsr_id region) {
    for (tsr_id n = g_.region(region).first; n != TSR_NONE; n = g_.node(n).next) {
      const tsr_node& x = g_.node(n);
      for (uint32_t i = 0; i < x.num_regions; ++i) find_movable(x.regions[i]);
      const OpRecord& record = g_.record_of(n);
      bool movable =
          (record.has(kPure) || record.has(kConstant) || record.has(kView)) && !record.has(kTransfer) && x.num_regions == 0;
      for (uint32_t i = 0; i < x.num_operands; ++i) movable = movable && (x.operands[i] == TSR_NONE || movable_[x.operands[i]]);
      for (uint32_t i = 0; i < x.num_results; ++i)
        movable_[x.results[i]] = movable && g_.value(x.results[i]).type->device == kCpu;
    }
  }

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

bool names_devices(const Graph& g) {
  for (tsr_id v = 0; v < g.num_values(); ++v)
    if (g.value(v).alive && g.value(v).type->device != kCpu) return true;
  return false;
}

void place_on_devices(Graph& g) {
  if (!names_devices(g)) return;
  g.begin("place");
  try {
    Placer(g).run();
    g.commit();
  } catch (...) {
    if (g.in_transaction()) g.rollback();
    throw;
  }
}

}  // namespace tessera::core
