// SPDX-License-Identifier: Apache-2.0
// The larger constants of a graph: keys name them by their content, entries by number.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ir/dense.hpp"
#include "tessera/abi.h"

namespace tessera::core {

class Blob;
class Cache;
class CheckedBlobs;
class ConstantForms;
class Graph;

// Smaller ones, and those of one value, are spelled in texts.
inline constexpr size_t kNamedConstantBytes = 256;

// Constants in order of appearance, each memory once. Borrows their data.
class GraphConstants final : public NamedConstants {
 public:
  explicit GraphConstants(const Graph& graph);

  struct Item {
    const void* data;
    uint32_t dtype;
    size_t bytes;
    std::string_view view() const { return {static_cast<const char*>(data), bytes}; }
  };
  const std::vector<Item>& items() const { return items_; }
  std::vector<std::string_view> views() const;

  bool print(std::string& out, const tsr_tensor& constant) const override;  // its number
  const void* find(uint64_t number, uint32_t dtype, int64_t bytes) const override;

 private:
  friend class ConstantContents;
  void add(const Graph& graph, const tsr_tensor& t);
  using Where = std::tuple<const void*, uint32_t, size_t>;
  std::vector<Item> items_;
  std::map<Where, size_t> numbers_;
};

// The same, printed as digests: for keys.
class ConstantContents final : public NamedConstants {
 public:
  ConstantContents(const GraphConstants& constants, const std::vector<std::string>& digests)
      : constants_(constants), digests_(digests) {}
  bool print(std::string& out, const tsr_tensor& constant) const override;
  const void* find(uint64_t, uint32_t, int64_t) const override { return nullptr; }

 private:
  const GraphConstants& constants_;
  const std::vector<std::string>& digests_;
};

// The constants of a compiled graph as an entry holds them: those that the captured graph has too by their digest alone, small
// ones with their bytes, others as blobs.
//   u32 count, then of each: u32 dtype | u64 bytes | digest: 64 hex digits | u8 where (0: captured, 1: bytes follow, 2: blob)
// `forms` null: all with their bytes.
std::string encode_constants(const GraphConstants& constants, const Graph& graph, ConstantForms* forms);

// What decode_constants() found.
class RestoredConstants final : public NamedConstants {
 public:
  bool print(std::string&, const tsr_tensor&) const override { return false; }
  const void* find(uint64_t number, uint32_t dtype, int64_t bytes) const override;

  std::vector<GraphConstants::Item> items;
  std::vector<std::shared_ptr<const void>> owners;  // of what the captured graph does not own
};
// "" or why it cannot be used. `forms` null: no constant is known.
std::string decode_constants(std::string_view section, ConstantForms* forms, RestoredConstants* out);

}  // namespace tessera::core
