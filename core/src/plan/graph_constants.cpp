// SPDX-License-Identifier: Apache-2.0
#include "plan/graph_constants.hpp"

#include <cstring>

#include "cache/blob.hpp"
#include "cache/digest.hpp"
#include "cache/entry.hpp"
#include "ir/graph.hpp"
#include "plan/constant_forms.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

enum Place : uint8_t { kCaptured = 0, kInline = 1, kBlob = 2 };
constexpr size_t kInlineBytes = 64 << 10;

size_t bytes_of(const tsr_tensor& t) {
  int64_t elements = 1;
  for (uint32_t d = 0; d < t.rank; ++d) elements *= t.sizes[d];
  return static_cast<size_t>(storage_bytes(t.dtype, elements));
}

}  // namespace

GraphConstants::GraphConstants(const Graph& graph) {
  for (tsr_id n = 0; n < graph.num_nodes(); ++n) {
    const tsr_node& node = graph.node(n);
    if (!node.alive) continue;
    for (uint32_t i = 0; i < node.num_attrs; ++i)
      if (node.attrs[i].kind == TSR_ATTR_TENSOR) add(graph, *node.attrs[i].tensor);
  }
}

void GraphConstants::add(const Graph& graph, const tsr_tensor& t) {
  const size_t bytes = bytes_of(t);
  if (bytes < kNamedConstantBytes) return;
  // Of what lies in a file nothing is read here: its first byte may be a page that comes from the disk.
  if (!graph.sources().find(t.data, bytes) && is_splat(t)) return;
  if (numbers_.try_emplace({t.data, t.dtype, bytes}, items_.size()).second) items_.push_back({t.data, t.dtype, bytes});
}

std::vector<std::string_view> GraphConstants::views() const {
  std::vector<std::string_view> out;
  out.reserve(items_.size());
  for (const Item& i : items_) out.push_back(i.view());
  return out;
}

bool GraphConstants::print(std::string& out, const tsr_tensor& t) const {
  const auto at = numbers_.find({t.data, t.dtype, bytes_of(t)});
  if (at == numbers_.end()) return false;
  out += std::to_string(at->second);
  return true;
}

const void* GraphConstants::find(uint64_t number, uint32_t dtype, int64_t bytes) const {
  if (number >= items_.size()) return nullptr;
  const Item& i = items_[static_cast<size_t>(number)];
  return i.dtype == dtype && i.bytes == static_cast<size_t>(bytes) ? i.data : nullptr;
}

bool ConstantContents::print(std::string& out, const tsr_tensor& t) const {
  const auto at = constants_.numbers_.find({t.data, t.dtype, bytes_of(t)});
  if (at == constants_.numbers_.end()) return false;
  out += digests_[at->second];
  return true;
}

std::string encode_constants(const GraphConstants& constants, const Graph& graph, ConstantForms* forms) {
  ByteWriter out;
  out.u32(static_cast<uint32_t>(constants.items().size()));
  for (const GraphConstants::Item& i : constants.items()) {
    const std::string digest = forms ? forms->digest(i.view()) : content_digest(i.view(), false);
    out.u32(i.dtype);
    out.u64(i.bytes);
    out.bytes(digest);
    if (forms && forms->captured(digest, i.bytes)) {
      out.u8(kCaptured);
    } else if (i.bytes <= kInlineBytes || !forms || !forms->keeps_blobs()) {
      out.u8(kInline);
      out.bytes(i.view());
    } else {
      out.u8(kBlob);
      forms->keep(digest, i.view(), graph.owner_of(i.data));
    }
  }
  return out.take();
}

std::string decode_constants(std::string_view section, ConstantForms* forms, RestoredConstants* out) {
  constexpr const char* kMalformed = "its constants are malformed";
  constexpr size_t kDigest = 64;
  ByteReader in(section);
  uint32_t count = 0;
  if (!in.u32(&count)) return kMalformed;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t dtype = 0;
    uint64_t bytes = 0;
    uint8_t place = 0;
    std::string_view digest, inlined;
    if (!in.u32(&dtype) || !in.u64(&bytes) || !in.bytes(kDigest, &digest) || !is_cache_key(digest) || !in.u8(&place))
      return kMalformed;
    const void* data = nullptr;
    if (place == kInline) {
      if (!in.bytes(bytes, &inlined)) return kMalformed;
      const std::shared_ptr<Blob> copy = Blob::allocate(inlined.size());
      std::memcpy(copy->fill(), inlined.data(), inlined.size());
      data = copy->data();
      out->owners.push_back(copy);
    } else if (place == kCaptured) {
      data = forms ? forms->captured(std::string(digest), static_cast<size_t>(bytes)) : nullptr;
      if (!data) return "it names a constant that its graph has not";
    } else if (place == kBlob) {
      const std::shared_ptr<const Blob> blob = forms ? forms->kept(std::string(digest), static_cast<size_t>(bytes)) : nullptr;
      if (!blob) return "a constant of it is no longer in the cache";
      data = blob->data();
      out->owners.push_back(blob);
    } else {
      return kMalformed;
    }
    out->items.push_back({data, dtype, static_cast<size_t>(bytes)});
    if (forms) forms->know(out->items.back().view(), digest);
  }
  return in.done() ? "" : kMalformed;
}

const void* RestoredConstants::find(uint64_t number, uint32_t dtype, int64_t bytes) const {
  if (number >= items.size()) return nullptr;
  const GraphConstants::Item& i = items[static_cast<size_t>(number)];
  return i.dtype == dtype && i.bytes == static_cast<size_t>(bytes) ? i.data : nullptr;
}

}  // namespace tessera::core
