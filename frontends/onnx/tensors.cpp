// SPDX-License-Identifier: Apache-2.0
#include "tensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "errors.hpp"
#include "tessera/dtypes.hpp"
#include "wire.hpp"

namespace tessera::onnx {
namespace {

namespace fs = std::filesystem;

constexpr size_t kForget = size_t{1} << 20;  // parts of a mapping this large leave memory once they have been copied

void keep(sdk::Graph g, std::shared_ptr<const void> owner) {
  auto* box = new std::shared_ptr<const void>(std::move(owner));
  sdk::check(g.api().keep(
      g.handle(), [](void* p) { delete static_cast<std::shared_ptr<const void>*>(p); }, box));
}

size_t alignment(tsr_dtype dtype) {
  const auto bytes = static_cast<size_t>(dtype_bits(dtype) / 8);
  return bytes == 0 ? 1 : is_complex(dtype) ? bytes / 2 : bytes;
}

void copy_bytes(void* to, std::string_view from) {
  constexpr size_t kPart = size_t{1} << 20;
  const auto parts = static_cast<int64_t>((from.size() + kPart - 1) / kPart);
  sdk::parallel(parts, 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::string_view part = from.substr(static_cast<size_t>(i) * kPart, kPart);
      std::memcpy(static_cast<char*>(to) + static_cast<size_t>(i) * kPart, part.data(), part.size());
    }
  });
}

std::string shape_text(const std::vector<int64_t>& dims) {
  std::string s = "[";
  for (size_t i = 0; i < dims.size(); ++i) s += (i ? ", " : "") + std::to_string(dims[i]);
  return s + "]";
}

}  // namespace

tsr_dtype dtype_of(DataType type) {
  switch (type) {
    case DataType::Float: return TSR_F32;
    case DataType::Uint8: return TSR_U8;
    case DataType::Int8: return TSR_I8;
    case DataType::Uint16: return TSR_U16;
    case DataType::Int16: return TSR_I16;
    case DataType::Int32: return TSR_I32;
    case DataType::Int64: return TSR_I64;
    case DataType::Bool: return TSR_BOOL;
    case DataType::Float16: return TSR_F16;
    case DataType::Double: return TSR_F64;
    case DataType::Uint32: return TSR_U32;
    case DataType::Uint64: return TSR_U64;
    case DataType::Complex64: return TSR_C64;
    case DataType::Complex128: return TSR_C128;
    case DataType::Bfloat16: return TSR_BF16;
    case DataType::Float8e4m3fn: return TSR_F8E4M3FN;
    case DataType::Float8e4m3fnuz: return TSR_F8E4M3FNUZ;
    case DataType::Float8e5m2: return TSR_F8E5M2;
    case DataType::Float8e5m2fnuz: return TSR_F8E5M2FNUZ;
    case DataType::Uint4: return TSR_U4;
    case DataType::Int4: return TSR_I4;
    case DataType::Float4e2m1: return TSR_F4E2M1;
    case DataType::Float8e8m0: return TSR_F8E8M0;
    case DataType::Uint2: return TSR_U2;
    case DataType::Int2: return TSR_I2;
    default: return TSR_DTYPE_INVALID;
  }
}

std::string type_name(DataType type) {
  if (type == DataType::String) return "string";
  if (type == DataType::Float6e2m3) return "float6e2m3";
  if (type == DataType::Float6e3m2) return "float6e3m2";
  const tsr_dtype d = dtype_of(type);
  return d == TSR_DTYPE_INVALID ? "type number " + std::to_string(static_cast<int32_t>(type)) : std::string(dtype_name(d));
}

int64_t HostTensor::elements() const {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}

// ------------------------------------------------------------------------------------------------------------- mappings

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path, std::string* why) {
  const auto failed = [&](const char* what) -> std::shared_ptr<MappedFile> {
    if (why) *why = std::string(what) + ": " + std::strerror(errno);
    return nullptr;
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block the open
  if (fd < 0) return failed("cannot open");
  struct Close {
    int fd;
    ~Close() {
      if (fd >= 0) ::close(fd);
    }
  } close{fd};
  struct stat info {};
  if (::fstat(fd, &info) != 0) return failed("cannot stat");
  if (!S_ISREG(info.st_mode)) {
    if (why) *why = "not a regular file";
    return nullptr;
  }
  if (info.st_size == 0) return std::shared_ptr<MappedFile>(new MappedFile("", 0, -1));
  void* p = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) return failed("cannot map");
  close.fd = -1;
  return std::shared_ptr<MappedFile>(new MappedFile(static_cast<const char*>(p), static_cast<size_t>(info.st_size), fd));
}

MappedFile::~MappedFile() {
  if (length_) ::munmap(const_cast<char*>(data_), length_);
  if (fd_ >= 0) ::close(fd_);
}

void MappedFile::name_source(sdk::Graph g, std::string_view part, const void* copy) const {
  const tsr_graph_api& api = g.api();
  if (fd_ < 0 || part.empty() || !TSR_HAS(&api, tsr_graph_api, constant_source) || !api.constant_source) return;
  sdk::check(
      api.constant_source(g.handle(), copy ? copy : part.data(), part.size(), fd_, static_cast<uint64_t>(part.data() - data_)));
}

void MappedFile::forget(std::string_view part) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

// -------------------------------------------------------------------------------------------------------------- tensors

Tensors::Tensors(sdk::Graph graph, std::string path, std::shared_ptr<MappedFile> file)
    : graph_(graph), path_(std::move(path)), file_(std::move(file)) {
  if (!file_) return;
  keep(graph_, file_);
  file_->name_source(graph_, file_->bytes());
}

void* Tensors::allocate(size_t bytes) {
  // Filling weights costs more in page faults than in copying, unless pages are large. What is left behind the last of those
  // has small ones.
  constexpr size_t kLargePage = size_t{2} << 20;
  const size_t align = bytes >= kLargePage ? kLargePage : 64;
  void* p = std::aligned_alloc(align, (std::max<size_t>(bytes, 1) + align - 1) / align * align);
  if (!p)
    throw sdk::Error(TSR_ENVIRONMENT, "TSR-R001",
                     path_ + ": out of memory for a constant of " + std::to_string(bytes) + " bytes");
  keep(graph_, std::shared_ptr<const void>(p, [](const void* q) { std::free(const_cast<void*>(q)); }));
  if (align == kLargePage)
    ::madvise(p, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);  // advice: where it is refused, nothing is lost
  return p;
}

HostTensor Tensors::declare(const TensorProto& t, const std::string& what) const {
  HostTensor out;
  out.dtype = dtype_of(t.type);
  if (out.dtype == TSR_DTYPE_INVALID)
    fail(t.type == DataType::Undefined ? kTensor : kType,
         path_ + ": " + what + " has the element type " + type_name(t.type) + ", which tensors here do not have");
  if (t.dims.size() > 64)
    fail(kTensor, path_ + ": " + what + " has " + std::to_string(t.dims.size()) + " dimensions; at most 64");
  int64_t n = 1;
  for (const int64_t d : t.dims)
    if (d < 0 || __builtin_mul_overflow(n, d, &n) || n > INT64_MAX / 128)
      fail(kTensor,
           path_ + ": " + what + " has the shape " + shape_text(t.dims) + "; expected sizes of 0 or more that fit 64 bits",
           "the file is damaged, or was written by a faulty exporter");
  out.sizes = t.dims;
  out.bytes = static_cast<size_t>(storage_bytes(out.dtype, n));
  return out;
}

HostTensor Tensors::load(const TensorProto& t, const std::string& what) {
  HostTensor out = declare(t, what);
  if (!t.external && !t.has_raw) {
    decode(t, out, what);
    return out;
  }
  const View v = t.external ? external(t, out.bytes, what) : View{t.raw, file_.get()};
  if (v.bytes.size() != out.bytes)
    fail(kTensor,
         path_ + ": " + what + " holds " + std::to_string(v.bytes.size()) + " bytes of data; its shape " + shape_text(t.dims) +
             " of " + type_name(t.type) + " takes " + std::to_string(out.bytes),
         "the file is truncated or damaged: export the model again");
  if (v.file && reinterpret_cast<uintptr_t>(v.bytes.data()) % alignment(out.dtype) == 0) {
    out.data = v.bytes.data();
    return out;
  }
  void* copy = allocate(out.bytes);
  if (v.file) v.file->name_source(graph_, v.bytes, copy);
  copy_bytes(copy, v.bytes);
  if (v.file && out.bytes >= kForget) v.file->forget(v.bytes);
  out.data = copy;
  return out;
}

// Paths are relative to the model's folder and stay in it, links included: a model from elsewhere must not read other files.
Tensors::View Tensors::external(const TensorProto& t, size_t bytes, const std::string& what) {
  std::string location;
  uint64_t offset = 0;
  uint64_t length = bytes;
  const auto number = [&](std::string_view key, std::string_view text) {
    uint64_t v = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
    if (error != std::errc() || end != text.data() + text.size())
      fail(kExternal, path_ + ": " + what + ": external data with the " + std::string(key) + " '" + std::string(text) +
                          "'; expected a number");
    return v;
  };
  for (const auto& [key, value] : t.external_data) {
    if (key == "location") location = value;
    if (key == "offset") offset = number(key, value);
    if (key == "length") length = number(key, value);
  }
  const auto refuse = [&](const std::string& why, const std::string& hint) {
    fail(kExternal, path_ + ": " + what + ": external data in '" + location + "': " + why, hint);
  };
  const fs::path relative(location);
  bool leaves = location.empty() || location.find('\0') != std::string::npos || relative.is_absolute();
  for (const fs::path& part : relative) leaves = leaves || part == "..";
  if (leaves)
    refuse("the path leaves the model's folder", "external data lies beside the model: expected a relative path without '..'");
  auto found = files_.find(location);
  if (found == files_.end()) {
    std::error_code code;
    const fs::path folder = fs::weakly_canonical(fs::absolute(path_).parent_path(), code);
    const fs::path file = fs::weakly_canonical(folder / relative, code);
    const auto [rest, unused] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
    if (code || rest != folder.end()) refuse("a link leads out of the model's folder", "copy the file beside the model");
    std::string why;
    auto mapped = MappedFile::open(file.string(), &why);
    if (!mapped) refuse(why, "put the file beside the model, under this name");
    keep(graph_, mapped);
    mapped->name_source(graph_, mapped->bytes());
    found = files_.emplace(location, std::move(mapped)).first;
  }
  const std::string_view all = found->second->bytes();
  if (offset > all.size() || length > all.size() - offset)
    refuse("bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " + std::to_string(length) +
               " of a file of " + std::to_string(all.size()),
           "the file is truncated, or belongs to another model");
  return {all.substr(offset, length), found->second.get()};
}

// Data in the typed fields. A claim of more elements than there are bytes in the file allocates nothing.
void Tensors::decode(const TensorProto& t, HostTensor& out, const std::string& what) {
  const bool packed = is_packed(out.dtype);
  const size_t width = packed ? 1 : static_cast<size_t>(dtype_bits(out.dtype) / 8);
  const size_t expected = out.bytes / width;
  const size_t parts = is_complex(out.dtype) ? 2 : 1;  // numbers per element in float_data and double_data
  char* data = nullptr;
  size_t count = 0;
  const auto put = [&](const auto& number, size_t bytes) {
    if (!data) {
      if (expected > t.message.size())
        fail(kTensor, path_ + ": " + what + " of shape " + shape_text(t.dims) + " takes " + std::to_string(expected) +
                          " elements; the file cannot hold so many");
      data = static_cast<char*>(allocate(out.bytes));
    }
    if ((count + 1) * bytes > out.bytes) {
      ++count;
      return;
    }
    std::memcpy(data + count++ * bytes, &number, bytes);
  };
  for (Fields f(t.message); f.next();) switch (f.number()) {
      case 4:
        if (out.dtype == TSR_F32 || out.dtype == TSR_C64) each_fixed<float>(f, [&](float v) { put(v, sizeof v); });
        break;
      case 5:
        if (width <= 4 && out.dtype != TSR_F32 && out.dtype != TSR_U32) each_varint(f, [&](uint64_t v) { put(v, width); });
        break;
      case 7:
        if (out.dtype == TSR_I64) each_varint(f, [&](uint64_t v) { put(v, 8); });
        break;
      case 10:
        if (out.dtype == TSR_F64 || out.dtype == TSR_C128) each_fixed<double>(f, [&](double v) { put(v, sizeof v); });
        break;
      case 11:
        if (out.dtype == TSR_U64 || out.dtype == TSR_U32) each_varint(f, [&](uint64_t v) { put(v, width); });
        break;
      default: break;
    }
  if (count != expected * parts)
    fail(kTensor, path_ + ": " + what + " holds " + std::to_string(count) + " numbers; its shape " + shape_text(t.dims) +
                      " of " + type_name(t.type) + " takes " + std::to_string(expected * parts));
  out.data = data ? data : allocate(0);
}

}  // namespace tessera::onnx
