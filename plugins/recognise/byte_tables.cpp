// SPDX-License-Identifier: Apache-2.0
// Elementwise work between two tensors of bytes, as between a DequantizeLinear and the next QuantizeLinear, is a function of
// one byte. Where it takes more than one division or function, the pass computes it for all 256 bytes and picks the results
// from that table. The table is a graph of the same nodes on a constant, which constant_fold computes: the bits are those of
// the nodes.
#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include <tessera/dtypes.hpp>

#include "recognise.hpp"

namespace tessera::passes {
namespace {

constexpr int kWorthwhile = 2;  // slow nodes from byte to byte
constexpr int kMany = 1000;

bool is_byte(const sdk::Type& t) { return t.dtype() == TSR_I8 || t.dtype() == TSR_U8; }
bool same_shape(const sdk::Type& a, const sdk::Type& b) {
  return std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin(), b.sizes().end());
}

class ByteTables {
 public:
  explicit ByteTables(sdk::Graph g) : g_(g) {}

  bool sweep(tsr_id region) {
    bool changed = false;
    std::vector<sdk::Node> bytes;  // nodes whose result is a function of another byte
    for (const sdk::Node& n : g_.nodes(region)) {
      for (const tsr_id r : n.regions()) changed |= sweep(r);
      const Source s = source_of(n);
      if (!s.root) continue;
      sources_[n.result().id] = s;
      if (is_byte(n.result().type()) && s.slow >= kWorthwhile) bytes.push_back(n);
    }
    // The last ones first: what only led to them is gone then.
    for (size_t i = bytes.size(); i-- > 0;) {
      if (!bytes[i].alive() || bytes[i].result().num_uses() == 0) continue;
      replace(bytes[i]);
      changed = true;
    }
    return changed;
  }

 private:
  struct Source {
    sdk::Value root;  // the tensor of bytes, or nothing
    int slow = 0;     // nodes that are not quick, on all ways from there
  };

  // One element that depends on constants alone.
  bool is_uniform(const sdk::Value& v, int depth = 4) const {
    if (v.type().rank() > 1 || !v.type().is_static() || v.type().elements() != 1 || !v.def()) return false;
    const sdk::Node n = v.def();
    if (n.is("constant")) return true;
    if (depth == 0 || !n.regions().empty() || !g_.has_trait(n.raw().op, "pure")) return false;
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.has_operand(i) && !is_uniform(n.operand(i), depth - 1)) return false;
    return true;
  }

  Source source_of(const sdk::Node& n) const {
    Source out{g_.none()};
    if (n.num_results() != 1 || !n.regions().empty()) return out;
    if (!g_.has_trait(n.raw().op, "elementwise") || !g_.has_trait(n.raw().op, "pure")) return out;
    sdk::Value root = g_.none();
    int slow = g_.has_trait(n.raw().op, "quick") ? 0 : 1;  // what is not takes as long as picking from a table, or longer
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      if (!n.has_operand(i)) return out;
      const sdk::Value v = n.operand(i);
      if (is_uniform(v)) continue;
      const auto known = sources_.find(v.id);
      if (known == sources_.end() && !is_byte(v.type())) return out;
      const sdk::Value from = known == sources_.end() ? v : known->second.root;
      if (root && root.id != from.id) return out;
      root = from;
      if (known != sources_.end()) slow = std::min(slow + known->second.slow, kMany);
    }
    if (!root || root.type().rank() == 0 || !same_shape(root.type(), n.result().type())) return out;
    return {root, slow};
  }

  sdk::Value all_bytes(sdk::Graph::At at, const sdk::Value& root) const {
    uint8_t bytes[256];
    const bool is_signed = root.type().dtype() == TSR_I8;
    for (int i = 0; i < 256; ++i) bytes[i] = static_cast<uint8_t>(is_signed ? i - 128 : i);
    const int64_t sizes[] = {256};
    tsr_tensor t{};
    t.data = bytes, t.dtype = root.type().dtype(), t.rank = 1, t.sizes = sizes;
    const sdk::Value v = g_.constant(at, t);
    tsr_type type = *root.type().p;  // its device
    const tsr_dim dims[] = {256};
    type.rank = 1, type.sizes = dims, type.strides = nullptr;
    g_.set_type(v, type);
    return v;
  }

  // The value on the table of all bytes.
  sdk::Value on_table(sdk::Graph::At at, const sdk::Value& v, std::map<tsr_id, sdk::Value>& known) const {
    if (const auto it = known.find(v.id); it != known.end()) return it->second;
    if (is_uniform(v)) return v;
    const sdk::Node n = v.def();
    std::vector<sdk::Value> operands;
    for (uint32_t i = 0; i < n.num_operands(); ++i) operands.push_back(on_table(at, n.operand(i), known));
    const sdk::Value made = g_.create(at, std::string(n.op()).c_str(), operands, n.attrs()).result();
    known[v.id] = made;
    return made;
  }

  void replace(const sdk::Node& n) {
    const sdk::Graph::At at = sdk::Graph::before(n);
    const sdk::Value out = n.result(), root = sources_.at(out.id).root;
    std::map<tsr_id, sdk::Value> known{{root.id, all_bytes(at, root)}};
    const sdk::Value table = on_table(at, out, known);
    sdk::Value index = g_.op(at, "cast", {root}, {sdk::attr_dtype("dtype", TSR_I64)});
    if (root.type().dtype() == TSR_I8) {
      const int64_t half = 128;
      tsr_tensor t{};
      t.data = const_cast<int64_t*>(&half), t.dtype = TSR_I64;
      const sdk::Value v = g_.constant(at, t);
      tsr_type type = *root.type().p;
      type.dtype = TSR_I64, type.rank = 0, type.sizes = nullptr, type.strides = nullptr;
      g_.set_type(v, type);
      index = g_.op(at, "add", {index, v});
    }
    const sdk::Value picked = g_.op(at, "gather", {table, index}, {sdk::attr_int("axis", 0)});
    if (sdk::log_enabled("passes"))
      sdk::log("passes", "recognise: a table of bytes for " + std::to_string(sources_.at(out.id).slow) + " slow nodes before " +
                             g_.print(n));
    const std::string name(out.name());
    g_.replace_uses(out, picked);
    erase_unread(n);
    g_.set_name(picked, name.c_str());
  }

  void erase_unread(const sdk::Node& n) {
    if (!sources_.count(n.result().id) || n.result().num_uses() != 0) return;
    std::vector<sdk::Node> before;
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (const sdk::Node d = n.operand(i).def(); d && std::find(before.begin(), before.end(), d) == before.end())
        before.push_back(d);
    g_.erase(n);
    for (const sdk::Node& d : before)
      if (d.num_results() == 1) erase_unread(d);
  }

  sdk::Graph g_;
  std::map<tsr_id, Source> sources_;
};

}  // namespace

bool tabulate_bytes(sdk::Graph g) { return ByteTables(g).sweep(0); }

}  // namespace tessera::passes
