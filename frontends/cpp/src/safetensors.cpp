// SPDX-License-Identifier: Apache-2.0
#include "tessera/safetensors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "runtime.hpp"
#include "tessera/dtypes.hpp"

namespace tessera {

using detail::fail;

namespace {

constexpr uint64_t kLargestHeader = 100'000'000;  // the format's own limit

struct NamedDtype {
  const char* name;
  DType dtype;
};
constexpr NamedDtype kDtypes[] = {{"F64", f64},
                                  {"F32", f32},
                                  {"F16", f16},
                                  {"BF16", bf16},
                                  {"F8_E4M3", DType::f8e4m3fn},
                                  {"F8_E5M2", DType::f8e5m2},
                                  {"I64", i64},
                                  {"I32", i32},
                                  {"I16", i16},
                                  {"I8", i8},
                                  {"U64", u64},
                                  {"U32", u32},
                                  {"U16", u16},
                                  {"U8", u8},
                                  {"BOOL", boolean},
                                  {"C64", c64}};

uint64_t item_size(DType d) { return static_cast<uint64_t>(dtype_bits(static_cast<uint32_t>(d))) / 8; }

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  fail("TSR-F054", path + ": " + what, "the file is damaged or cut short, or is no safetensors file");
}
[[noreturn]] void cannot(const char* do_what, const std::string& path) {
  throw EnvironmentError("TSR-F053", std::string("cannot ") + do_what + " '" + path + "': " + std::strerror(errno),
                         "check that the folder exists, that it may be written, and that the disk is not full");
}

// A name from a file, as a message may show it: without control characters, and not without end.
std::string shown(const std::string& name) {
  std::string out;
  for (const char c : name.substr(0, 80)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return "'" + out + (name.size() > 80 ? "...'" : "'");
}

// Throws on a key that an object has twice: which of the two counts is up to the reader of the file.
nlohmann::json parse_header(const std::string& path, const char* begin, const char* end) {
  std::vector<std::set<std::string>> seen;
  const auto check = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (depth > 4) damaged(path, "the header nests deeper than a directory of tensors does");
    if (event == nlohmann::json::parse_event_t::object_start) seen.emplace_back();
    if (event == nlohmann::json::parse_event_t::object_end && !seen.empty()) seen.pop_back();
    if (event == nlohmann::json::parse_event_t::key && !seen.empty() && !seen.back().insert(parsed.get<std::string>()).second)
      damaged(path, "the header names " + shown(parsed.get<std::string>()) + " twice");
    return true;
  };
  try {
    return nlohmann::json::parse(begin, end, check);
  } catch (const nlohmann::json::exception& e) {
    damaged(path, std::string("the header is no JSON: ") + e.what());
  }
}

}  // namespace

namespace detail {

StoredFile parse_safetensors(std::span<const std::byte> head, uint64_t size, const std::string& path) {
  if (size < 8 || head.size() < 8) damaged(path, "found " + std::to_string(size) + " bytes, expected 8 and more");
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<uint64_t>(head[i]);
  if (length > size - 8 || length > kLargestHeader || length > head.size() - 8)
    damaged(path, "found a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(size));
  const uint64_t begin = 8 + length, data = size - begin;
  const auto* text = reinterpret_cast<const char*>(head.data()) + 8;
  const nlohmann::json header = parse_header(path, text, text + length);
  if (!header.is_object()) damaged(path, "found a header that is no JSON object");

  StoredFile out;
  struct Range {
    uint64_t begin, end;
    std::string name;
  };
  std::vector<Range> ranges;
  for (const auto& [name, entry] : header.items()) {
    const auto wrong = [&](const std::string& what) { damaged(path, "tensor " + shown(name) + " " + what); };
    if (name == "__metadata__") {
      if (!entry.is_object()) damaged(path, "found __metadata__ that is no JSON object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) damaged(path, "found __metadata__ whose " + shown(key) + " is no text");
        out.metadata.emplace(key, value.get<std::string>());
      }
      continue;
    }
    const auto member = [&](const char* key) -> const nlohmann::json& {
      if (!entry.is_object() || !entry.contains(key)) wrong(std::string("has no ") + key);
      return entry.at(key);
    };
    StoredTensor t{};
    const nlohmann::json &dtype = member("dtype"), &shape = member("shape"), &offsets = member("data_offsets");
    const auto* known = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const NamedDtype& d) {
      return dtype.is_string() && dtype.get_ref<const std::string&>() == d.name;
    });
    if (known == std::end(kDtypes)) wrong("has a dtype that tensors here do not have: " + shown(dtype.dump()));
    t.dtype = known->dtype;
    t.bytes = item_size(t.dtype);
    if (!shape.is_array() || shape.size() > 64) wrong("has a shape that is no list of sizes");
    bool empty = false;
    for (const nlohmann::json& n : shape) {
      if (!n.is_number_unsigned() || n.get<uint64_t>() > INT64_MAX) wrong("has a size that is no number of 0 and more");
      t.shape.push_back(n.get<int64_t>());
      empty = empty || t.shape.back() == 0;
      if (__builtin_mul_overflow(t.bytes, n.get<uint64_t>(), &t.bytes) && !empty) wrong("has more elements than can be");
    }
    if (empty) t.bytes = 0;
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
      wrong("has data_offsets that are no two numbers");
    const auto from = offsets[0].get<uint64_t>(), to = offsets[1].get<uint64_t>();
    if (from > to || to > data)
      wrong("lies at " + std::to_string(from) + " to " + std::to_string(to) + " of " + std::to_string(data) + " bytes of data");
    if (to - from != t.bytes)
      wrong("takes " + std::to_string(t.bytes) + " bytes by its shape, " + std::to_string(to - from) + " by its offsets");
    t.offset = begin + from;
    ranges.push_back({from, to, name});
    out.tensors.emplace(name, std::move(t));
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t end = 0;
  for (const Range& r : ranges) {
    if (r.begin != end)
      damaged(path, "tensor " + shown(r.name) + " begins at " + std::to_string(r.begin) +
                        " of the data, where the one before it ends at " + std::to_string(end));
    end = r.end;
  }
  if (end != data)
    damaged(path, "the tensors end at " + std::to_string(end) + " of " + std::to_string(data) + " bytes of data");
  return out;
}

}  // namespace detail

TensorFile load_safetensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) cannot("open", path);
  const std::streamoff length = in.tellg();
  if (length < 0) cannot("read", path);
  const auto size = static_cast<uint64_t>(length);
  in.seekg(0);
  std::vector<std::byte> head(std::min<uint64_t>(size, 8));
  const auto read = [&](void* to, uint64_t bytes) {
    if (bytes && !in.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) cannot("read", path);
  };
  read(head.data(), head.size());
  if (head.size() == 8) {
    uint64_t header = 0;
    for (size_t i = 8; i-- > 0;) header = header << 8 | static_cast<uint64_t>(head[i]);
    if (header <= size - 8 && header <= kLargestHeader) {
      head.resize(8 + header);
      read(head.data() + 8, header);
    }
  }
  const detail::StoredFile stored = detail::parse_safetensors(head, size, path);
  TensorFile out;
  out.metadata = stored.metadata;
  for (const auto& [name, s] : stored.tensors) {
    const Tensor t = empty(Shape(s.shape.begin(), s.shape.end()), s.dtype);
    in.seekg(static_cast<std::streamoff>(s.offset));
    read(t.raw_data(), s.bytes);
    if (s.dtype == boolean)  // any other byte would be a bool that is neither
      for (uint64_t i = 0; i < s.bytes; ++i)
        if (static_cast<const uint8_t*>(t.raw_data())[i] > 1)
          damaged(path, "tensor " + shown(name) + " has a bool that is neither 0 nor 1");
    out.tensors.emplace(name, t);
  }
  return out;
}

namespace {

// Writes pieces to `path` by way of a temporary file, which is on the disk before it takes the name.
void write_pieces(const std::string& path, const std::function<void(const std::function<void(const void*, size_t)>&)>& pieces) {
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) cannot("write", temporary);
  const auto give_up = [&] {
    const int error = errno;
    ::close(file);
    ::unlink(temporary.c_str());
    errno = error;
    cannot("write", path);
  };
  pieces([&](const void* data, size_t bytes) {
    const auto* p = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(file, p, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) give_up();
      p += n;
      bytes -= static_cast<size_t>(n);
    }
  });
  if (::fsync(file) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) give_up();
  ::close(file);
  // The name is on the disk when the folder is.
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  if (const int f = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); f >= 0) {
    ::fsync(f);
    ::close(f);
  }
}

}  // namespace

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  write_pieces(path, [&](const auto& write) { write(bytes.data(), bytes.size()); });
}

void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<std::pair<const std::string*, Tensor>> dense;
  for (const auto& [name, t] : tensors) {
    if (!t.defined() || t.is_traced())
      fail("TSR-F055", "save_safetensors: tensor " + shown(name) + " is undefined, or is being traced");
    if (name == "__metadata__") fail("TSR-F055", "save_safetensors: a tensor cannot be named '__metadata__'");
    dense.emplace_back(&name, t.to(Device()).contiguous());
  }
  // By falling width of their elements, as the format's own writer does, so that each one is aligned.
  std::stable_sort(dense.begin(), dense.end(),
                   [](const auto& a, const auto& b) { return item_size(a.second.dtype()) > item_size(b.second.dtype()); });
  uint64_t at = 0;
  for (const auto& [name, t] : dense) {
    const auto* known =
        std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const NamedDtype& d) { return d.dtype == t.dtype(); });
    if (known == std::end(kDtypes))
      fail("TSR-F055",
           "save_safetensors: tensor " + shown(*name) + " has the dtype " + std::string(tessera::name(t.dtype())) +
               ", which safetensors files do not have",
           "convert it with .to(dtype) first");
    const uint64_t bytes = item_size(t.dtype()) * static_cast<uint64_t>(static_cast<int64_t>(t.numel()));
    header[*name] = {{"dtype", known->name}, {"shape", t.sizes()}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& e) {
    fail("TSR-F055", std::string("save_safetensors: a name or a text is not UTF-8: ") + e.what());
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  unsigned char length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  write_pieces(path, [&](const auto& write) {
    write(length, sizeof length);
    write(text.data(), text.size());
    for (const auto& [name, t] : dense)
      write(t.raw_data(), item_size(t.dtype()) * static_cast<uint64_t>(static_cast<int64_t>(t.numel())));
  });
}

void Checkpoint::put(const std::string& prefix, nn::ModuleBase& module) {
  for (const auto& [name, t] : module.state_dict()) tensors[prefix + "." + name] = t;
}

void Checkpoint::get(const std::string& prefix, nn::ModuleBase& module) const {
  std::map<std::string, Tensor> state;
  for (auto at = tensors.lower_bound(prefix + "."); at != tensors.end() && at->first.starts_with(prefix + "."); ++at)
    state.emplace(at->first.substr(prefix.size() + 1), at->second);
  module.load_state_dict(state);
}

const std::string& Checkpoint::text(const std::string& key) const {
  if (const auto at = metadata.find(key); at != metadata.end()) return at->second;
  fail("TSR-F056", "the checkpoint has no text '" + key + "'",
       "it was written by another program or by another version of this one");
}

const Tensor& Checkpoint::tensor(const std::string& key) const {
  if (const auto at = tensors.find(key); at != tensors.end()) return at->second;
  fail("TSR-F056", "the checkpoint has no tensor '" + key + "'",
       "it was written by another program or by another version of this one");
}

}  // namespace tessera
