// SPDX-License-Identifier: Apache-2.0
// The payload of an entry of kind "graph". Nodes are numbered in program order, nested regions included, which a text keeps.
#include <algorithm>
#include <unordered_map>

#include "cache/entry.hpp"
#include "graph_cache/cached.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/verifier.hpp"
#include "plan/graph_constants.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

enum Tag : uint32_t { kText = 1, kAssignment = 2, kKernel = 3, kConstants = 4, kBlocks = 5 };

// Kernels are stored as lists of blocks, equal ones once: kernels that were compiled together begin with the same object.
constexpr size_t kBlock = 4096;

void append_order(const Graph& g, tsr_id region, std::vector<tsr_id>* order) {
  for (const tsr_id n : nodes_of(g, region)) {
    order->push_back(n);
    for (uint32_t i = 0; i < g.node(n).num_regions; ++i) append_order(g, g.node(n).regions[i], order);
  }
}

std::vector<tsr_id> program_order(const Graph& g) {
  std::vector<tsr_id> order;
  append_order(g, 0, &order);
  return order;
}

}  // namespace

std::string encode_graph(const Graph& graph, const std::vector<Assignment>& assignment, const SavedKernels& kernels,
                         ConstantForms* forms) {
  SectionWriter out;
  const GraphConstants constants(graph);
  out.add(kText, print_graph(graph, kPrintLocations, &constants));
  if (!constants.items().empty()) out.add(kConstants, encode_constants(constants, graph, forms));
  ByteWriter a;
  const std::vector<tsr_id> order = program_order(graph);
  for (uint32_t i = 0; i < order.size(); ++i) {
    const Assignment assigned = order[i] < assignment.size() ? assignment[order[i]] : Assignment{};
    a.u8(static_cast<uint8_t>(assigned.kind));
    if (assigned.kind == Assignment::kBackend) a.text(assigned.backend->name);
  }
  out.add(kAssignment, a.take());
  ByteWriter blocks;
  std::unordered_map<std::string_view, uint32_t> index;
  for (uint32_t i = 0; i < order.size(); ++i) {
    const auto at = kernels.bytes.find(order[i]);
    if (at == kernels.bytes.end()) continue;
    ByteWriter k;
    k.u32(i);
    k.u64(at->second.size());
    for (size_t from = 0; from < at->second.size(); from += kBlock) {
      const std::string_view block = std::string_view(at->second).substr(from, kBlock);
      const auto [known, added] = index.try_emplace(block, static_cast<uint32_t>(index.size()));
      if (added) {
        blocks.u32(static_cast<uint32_t>(block.size()));
        blocks.bytes(block);
      }
      k.u32(known->second);
    }
    out.add(kKernel, k.take());
  }
  out.add(kBlocks, blocks.take());
  return out.take();
}

std::string decode_graph(std::string_view payload, const OpRegistry& ops, const std::vector<const Factory*>& backends,
                         CachedGraph* out, ConstantForms* forms, const ReadLimits& given) {
  std::vector<Section> sections;
  if (!read_sections(payload, &sections)) return "its sections are malformed";
  const auto find = [&](uint32_t tag) {
    return std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.tag == tag; });
  };
  const auto text = find(kText), assigned = find(kAssignment);
  if (text == sections.end() || assigned == sections.end()) return "it has no graph, or no assignment of its nodes";
  RestoredConstants constants;
  ReadLimits limits = given;
  limits.constants = &constants;
  if (const auto at = find(kConstants); at != sections.end())
    if (std::string why = decode_constants(at->bytes, forms, &constants); !why.empty()) return why;
  try {
    out->graph = parse_graph(ops, text->bytes, "<cache>", limits);
    for (auto& owner : constants.owners) out->graph->keep(std::move(owner));
    verify(*out->graph);
  } catch (const Error& e) {
    return "its graph cannot be read: " + e.message();
  }
  const std::vector<tsr_id> order = program_order(*out->graph);
  out->assignment.assign(out->graph->num_nodes(), Assignment{});
  ByteReader in(assigned->bytes);
  for (const tsr_id n : order) {
    uint8_t kind = 0;
    Assignment a;
    if (!in.u8(&kind) || kind > Assignment::kConstant) return "its assignment is malformed";
    a.kind = static_cast<Assignment::Kind>(kind);
    if (a.kind == Assignment::kBackend) {
      std::string name;
      if (!in.text(&name)) return "its assignment is malformed";
      const auto at = std::find_if(backends.begin(), backends.end(), [&](const Factory* f) { return f->name == name; });
      if (at == backends.end()) return "it names the backend '" + name + "', which this config has not";
      a.backend = *at;
    }
    out->assignment[n] = a;
  }
  if (!in.done()) return "its assignment is longer than its graph";
  std::vector<std::string_view> blocks;
  if (const auto at = find(kBlocks); at != sections.end()) {
    ByteReader b(at->bytes);
    while (!b.done()) {
      uint32_t length = 0;
      blocks.emplace_back();
      if (!b.u32(&length) || length > kBlock || !b.bytes(length, &blocks.back())) return "its kernels are malformed";
    }
  }
  for (const Section& s : sections) {
    if (s.tag != kKernel) continue;
    ByteReader k(s.bytes);
    uint32_t index = 0;
    uint64_t length = 0;
    if (!k.u32(&index) || index >= order.size() || !k.u64(&length)) return "a kernel of it is malformed";
    std::string bytes;
    while (!k.done()) {
      uint32_t block = 0;
      if (!k.u32(&block) || block >= blocks.size()) return "a kernel of it is malformed";
      bytes += blocks[block];
    }
    if (bytes.size() != length) return "a kernel of it is malformed";
    out->kernels.bytes[order[index]] = std::move(bytes);
  }
  return {};
}

}  // namespace tessera::core
