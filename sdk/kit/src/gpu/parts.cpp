// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/gpu/parts.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace tessera::kit {
namespace {

using Dims = std::vector<tsr_dim>;

Dims sizes_of(sdk::Value v) {
  const auto sizes = v.type().sizes();
  return {sizes.begin(), sizes.end()};
}

// How many rows of the last dimension there are; nothing where only the run tells.
std::optional<int64_t> rows_of(const Dims& s) {
  int64_t n = 1;
  for (size_t d = 0; d + 1 < s.size(); ++d) {
    if (TSR_DIM_IS_EXPR(s[d])) return std::nullopt;
    n *= s[d];
  }
  return n;
}
// The same rows, perhaps in a view that counts them otherwise.
bool has_rows_of(const Dims& s, const Dims& shape) {
  return s == shape || (!s.empty() && s.back() == shape.back() && rows_of(s) && rows_of(s) == rows_of(shape));
}

class Cutter {
 public:
  explicit Cutter(const Piece& p) : p_(p) {
    for (size_t i = 0; i < p.nodes.size(); ++i)
      for (uint32_t r = 0; r < p.nodes[i].num_results(); ++r) node_of_[p.nodes[i].result(r).id] = i;
  }
  // Which node computes the value; nothing: none of the piece.
  std::optional<size_t> node_of(sdk::Value v) const {
    const auto at = node_of_.find(v.id);
    return at == node_of_.end() ? std::nullopt : std::optional(at->second);
  }
  // The nodes that `outputs` need, as far as `stops` does not hold for a value on the way.
  template <class F>
  std::set<size_t> needed(const std::vector<sdk::Value>& outputs, const F& stops) const {
    std::set<size_t> out;
    std::vector<size_t> stack;
    const auto need = [&](sdk::Value v) {
      const auto n = node_of(v);
      if (n && out.insert(*n).second) stack.push_back(*n);
    };
    for (const sdk::Value& v : outputs) need(v);
    while (!stack.empty()) {
      const sdk::Node n = p_.nodes[stack.back()];
      stack.pop_back();
      for (uint32_t k = 0; k < n.num_operands(); ++k)
        if (n.has_operand(k) && !stops(n.operand(k))) need(n.operand(k));
    }
    return out;
  }
  Piece piece(const std::set<size_t>& nodes, const std::vector<sdk::Value>& outputs) const {
    Piece out{p_.graph, {}, {}, outputs};
    for (const size_t i : nodes) {
      const sdk::Node n = p_.nodes[i];
      out.nodes.push_back(n);
      for (uint32_t k = 0; k < n.num_operands(); ++k) {
        if (!n.has_operand(k)) continue;
        const sdk::Value v = n.operand(k);
        const auto def = node_of(v);
        if (def && nodes.count(*def)) continue;
        if (!def && std::find(p_.inputs.begin(), p_.inputs.end(), v) == p_.inputs.end()) continue;  // a literal
        if (std::find(out.inputs.begin(), out.inputs.end(), v) == out.inputs.end()) out.inputs.push_back(v);
      }
    }
    return out;
  }

 private:
  const Piece& p_;
  std::map<tsr_id, size_t> node_of_;
};

}  // namespace

std::optional<SweepPieces> sweep_of(const Piece& piece) {
  if (piece.outputs.size() < 2) return std::nullopt;
  // The tensor: the output of the highest rank that has more than one row.
  Dims shape;
  for (const sdk::Value& v : piece.outputs)
    if (const Dims s = sizes_of(v); s.size() > shape.size() && rows_of(s) != 1) shape = s;
  if (shape.size() < 2 || shape.back() == 1) return std::nullopt;
  const Dims shorter(shape.begin(), shape.end() - 1);
  Dims one_each = shorter;
  one_each.push_back(1);
  std::vector<sdk::Value> rows, columns;
  for (const sdk::Value& v : piece.outputs) {
    const Dims s = sizes_of(v);
    if (has_rows_of(s, shape) || s == shorter || s == one_each)
      rows.push_back(v);
    else if (!s.empty() && s.back() == shape.back() && std::all_of(s.begin(), s.end() - 1, [](tsr_dim d) { return d == 1; }))
      columns.push_back(v);
    else
      return std::nullopt;
  }
  if (rows.empty() || columns.empty()) return std::nullopt;
  const Cutter cut(piece);
  const auto of_a_row = [&](sdk::Value v) {
    const Dims s = sizes_of(v);
    return cut.node_of(v) && !v.def().is("constant") && (s == one_each || s == shorter);
  };
  const std::set<size_t> below = cut.needed(columns, of_a_row);
  SweepPieces out{piece, cut.piece(below, columns), {}};
  for (const sdk::Value& v : out.columns.inputs)
    if (cut.node_of(v)) {
      out.links.push_back(v);
      if (std::find(rows.begin(), rows.end(), v) == rows.end()) rows.push_back(v);
    }
  out.rows = cut.piece(cut.needed(rows, [](sdk::Value) { return false; }), rows);
  return out;
}

std::vector<Piece> parts_of(const Piece& piece) {
  const Cutter cut(piece);
  std::vector<std::pair<std::set<size_t>, std::vector<sdk::Value>>> parts;
  for (const sdk::Value& v : piece.outputs) {
    std::set<size_t> nodes = cut.needed({v}, [](sdk::Value) { return false; });
    std::vector<sdk::Value> outputs = {v};
    // Constants may belong to several parts.
    const auto meets = [&](const std::set<size_t>& other) {
      return std::any_of(nodes.begin(), nodes.end(),
                         [&](size_t n) { return other.count(n) && !piece.nodes[n].is("constant"); });
    };
    for (size_t i = 0; i < parts.size();) {
      if (!meets(parts[i].first)) {
        ++i;
        continue;
      }
      nodes.insert(parts[i].first.begin(), parts[i].first.end());
      outputs.insert(outputs.begin(), parts[i].second.begin(), parts[i].second.end());
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
    }
    parts.emplace_back(std::move(nodes), std::move(outputs));
  }
  std::vector<Piece> out;
  for (const auto& [nodes, outputs] : parts) out.push_back(cut.piece(nodes, outputs));
  return out;
}

}  // namespace tessera::kit
