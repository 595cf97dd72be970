// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <optional>

#include "npz/elements.hpp"
#include "npz/internal.hpp"
#include "onnx/wire.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::npz {
namespace {

// TensorProto.DataType, from UNDEFINED on (onnx.proto of onnx 1.23).
constexpr tsr_dtype kTypes[] = {
    TSR_DTYPE_INVALID, TSR_F32,    TSR_U8,         TSR_I8,  TSR_U16, TSR_I16,    TSR_I32,    TSR_I64,  TSR_DTYPE_INVALID,
    TSR_BOOL,          TSR_F16,    TSR_F64,        TSR_U32, TSR_U64, TSR_C64,    TSR_C128,   TSR_BF16, TSR_F8E4M3FN,
    TSR_F8E4M3FNUZ,    TSR_F8E5M2, TSR_F8E5M2FNUZ, TSR_U4,  TSR_I4,  TSR_F4E2M1, TSR_F8E8M0, TSR_U2,   TSR_I2};

// The numbers of the typed fields, as they lie in memory; a claim of more than the file holds takes no memory.
class Typed {
 public:
  Typed(tsr_dtype dtype, size_t bytes)
      : dtype_(dtype), width_(is_packed(dtype) ? 1 : static_cast<size_t>(dtype_bits(dtype)) / 8), most_(bytes) {}

  void read(const onnx::Fields& f) {
    const bool float32 = dtype_ == TSR_F32 || dtype_ == TSR_C64, float64 = dtype_ == TSR_F64 || dtype_ == TSR_C128;
    switch (f.number()) {
      case 4:
        if (float32) onnx::each_fixed<float>(f, [&](float v) { put(&v, sizeof v); });
        break;
      case 10:
        if (float64) onnx::each_fixed<double>(f, [&](double v) { put(&v, sizeof v); });
        break;
      case 5:
      case 7:
      case 11:
        if (!float32 && !float64) onnx::each_varint(f, [&](uint64_t v) { put(&v, width_); });
        break;
      default: break;
    }
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] size_t claimed() const { return claimed_; }  // more than bytes() where there are too many

 private:
  void put(const void* v, size_t n) {
    claimed_ += n;
    if (claimed_ > most_) return;
    const auto* p = static_cast<const std::byte*>(v);
    bytes_.insert(bytes_.end(), p, p + n);
  }
  tsr_dtype dtype_;
  size_t width_, most_, claimed_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace

Array read_tensor_proto(const std::string& path) {
  const std::unique_ptr<Source> source = open_source(path);
  std::string file(static_cast<size_t>(source->size()), '\0');
  source->read_at(0, file.data(), file.size());
  const auto fail = [&](uint64_t at, const std::string& message) {
    return Error("TSR-N011", path, {}, at, message, "expected one ONNX TensorProto, as onnx.save_tensor writes it");
  };
  try {
    int64_t type = 0;
    std::vector<int64_t> shape;
    std::optional<std::string_view> raw;
    std::string name;
    for (onnx::Fields f(file); f.next();) switch (f.number()) {
        case 1: onnx::each_varint(f, [&](uint64_t v) { shape.push_back(static_cast<int64_t>(v)); }); break;
        case 2: type = f.integer(); break;
        case 8: name = f.bytes(); break;
        case 9: raw = f.bytes(); break;
        case 14:
          if (f.integer() == 1) throw fail(0, "its data lies in another file");
          break;
        default: break;
      }
    const tsr_dtype dtype = type > 0 && type < static_cast<int64_t>(std::size(kTypes)) ? kTypes[type] : TSR_DTYPE_INVALID;
    if (dtype == TSR_DTYPE_INVALID)
      throw Error("TSR-N007", path, {}, 0, "element type number " + std::to_string(type) + " is none that tensors have",
                  "strings and sequences are no tensors here");
    int64_t count = 1;
    if (shape.size() > 64) throw fail(0, std::to_string(shape.size()) + " dimensions; at most 64");
    for (const int64_t d : shape)
      if (d < 0 || __builtin_mul_overflow(count, d, &count) || count > INT64_MAX / 128)
        throw Error("TSR-N008", path, {}, 0,
                    "a size of " + std::to_string(d) + "; expected sizes of 0 or more that fit 64 bits", "");
    const auto bytes = static_cast<size_t>(storage_bytes(dtype, count));
    Typed typed(dtype, bytes);
    if (!raw)
      for (onnx::Fields f(file); f.next();) typed.read(f);
    const size_t found = raw ? raw->size() : typed.claimed();
    if (found != bytes)
      throw Error("TSR-N008", path, {}, 0,
                  "its shape takes " + std::to_string(bytes) + " bytes of " + std::string(dtype_name(dtype)) + "; it holds " +
                      std::to_string(found),
                  "the file is damaged: write it again");
    if (name.empty()) name = std::filesystem::path(path).stem().string();
    return from_elements(std::move(name), dtype, std::move(shape),
                         raw ? static_cast<const void*>(raw->data()) : typed.bytes().data());
  } catch (const onnx::Malformed& m) {
    throw fail(static_cast<uint64_t>(m.at - file.data()), m.what);
  }
}

}  // namespace tessera::npz
