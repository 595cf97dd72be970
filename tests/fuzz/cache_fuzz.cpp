// SPDX-License-Identifier: Apache-2.0
// Whatever a store may hold: entries, signed and not, bundles, and the payloads behind a sound header. What is accepted is
// whole.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "../support/test_opset.hpp"
#include "cache/cache.hpp"
#include "cache/entry.hpp"
#include "graph_cache/cached.hpp"
#include "ir/graph.hpp"

using namespace tessera::core;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const std::string key(64, 'a'), secret(32, 's');
  EntryView entry{};
  if (decode_entry(bytes, {}, &entry).empty() && (!is_cache_key(entry.key) || entry_length(bytes) != size)) std::abort();
  if (decode_entry(bytes, secret, &entry).empty()) std::abort();  // nobody guesses a signature
  read_bundle(bytes, [](std::string_view one) {
    if (one.size() < kCacheHeaderSize) std::abort();
  });
  // A fuzzer cannot guess hashes either: give its bytes a header, and go on with what stands behind it.
  const std::string whole = encode_entry(CacheKind::kGraph, key, bytes, secret);
  if (!decode_entry(whole, secret, &entry).empty() || entry.payload != bytes) std::abort();
  ReadLimits limits;
  limits.splat_bytes = 1 << 20;
  CachedGraph graph;
  if (decode_graph(bytes, tessera::test::test_ops(), {}, &graph, nullptr, limits).empty()) {
    if (!graph.graph || graph.assignment.size() < graph.graph->num_nodes()) std::abort();
    // What was accepted writes the same again.
    CachedGraph again;
    const std::string written = encode_graph(*graph.graph, graph.assignment, graph.kernels, nullptr);
    if (!decode_graph(written, tessera::test::test_ops(), {}, &again, nullptr, limits).empty()) std::abort();
  }
  return 0;
}
