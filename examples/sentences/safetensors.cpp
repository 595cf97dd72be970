// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "error.hpp"

namespace sentences {
namespace {

constexpr uint64_t kLargestHeader = 100'000'000;  // the format's own limit

uint64_t width(const std::string& dtype) {
  static const std::map<std::string, uint64_t> widths = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                                         {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U64", 8},  {"U32", 4},
                                                         {"U16", 2}, {"U8", 1},  {"BOOL", 1}};
  const auto found = widths.find(dtype);
  return found == widths.end() ? 0 : found->second;
}

}  // namespace

std::map<std::string, StoredTensor> read_safetensors(const std::string& path) {
  const auto wrong = [&](const std::string& what) {
    return Error(path + ": " + what, "the file is damaged, or is no safetensors file");
  };
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) throw Error("cannot read " + path, "the weights are missing: see examples/sentences/fetch.sh");
  const auto size = static_cast<uint64_t>(in.tellg());
  in.seekg(0);
  unsigned char prefix[8];
  if (size < 8 || !in.read(reinterpret_cast<char*>(prefix), 8)) throw wrong("shorter than the 8 bytes that it begins with");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
  if (length > size - 8 || length > kLargestHeader)
    throw wrong("a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(size));
  std::string text(length, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(length))) throw wrong("the header cannot be read");
  const uint64_t begin = 8 + length, data = size - begin;

  std::map<std::string, StoredTensor> out;
  try {
    const auto header = nlohmann::json::parse(text);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      StoredTensor t;
      t.dtype = entry.at("dtype").get<std::string>();
      t.shape = entry.at("shape").get<std::vector<int64_t>>();
      const auto range = entry.at("data_offsets").get<std::vector<uint64_t>>();
      if (range.size() != 2 || range[0] > range[1] || range[1] > data)
        throw wrong("tensor '" + name + "' lies outside of the file");
      uint64_t bytes = width(t.dtype);
      if (bytes == 0) throw wrong("tensor '" + name + "' has the dtype " + t.dtype);
      for (const int64_t n : t.shape)
        if (n < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes))
          throw wrong("tensor '" + name + "' has a shape that cannot be");
      if (bytes != range[1] - range[0])
        throw wrong("tensor '" + name + "' takes " + std::to_string(bytes) + " bytes by its shape, " +
                    std::to_string(range[1] - range[0]) + " by its range");
      t.offset = begin + range[0];
      t.bytes = bytes;
      out.emplace(name, std::move(t));
    }
  } catch (const nlohmann::json::exception& e) {
    throw wrong(std::string("the header: ") + e.what());
  }
  return out;
}

}  // namespace sentences
