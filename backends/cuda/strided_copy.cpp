// SPDX-License-Identifier: Apache-2.0
#include "strided_copy.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "compiler.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr int kDims = 12;

// The kernel's argument, by value. Sizes of dimensions that are not there are 1.
struct Shape {
  int64_t elements;
  int64_t sizes[kDims], to[kDims], from[kDims];  // innermost first; strides in elements
  int64_t rank;
};

constexpr char kText[] = R"(
struct Shape { long long elements; long long sizes[12], to[12], from[12]; long long rank; };
struct Wide { unsigned long long a, b; };
template <class I, class T> __device__ __forceinline__ void copy_at(T* to, const T* from, const Shape& s, I i) {
  long long x = 0, y = 0;
  for (int d = 0; d < s.rank; ++d) {
    const I n = (I)s.sizes[d], q = d + 1 < s.rank ? i / n : 0, r = i - q * n;
    x += r * s.to[d];
    y += r * s.from[d];
    i = q;
  }
  to[x] = from[y];
}
template <class T> __device__ __forceinline__ void copy(T* to, const T* from, const Shape& s) {
  const long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= s.elements) return;
  if (s.elements <= 0xffffffffll)  // divisions of 64 bits take as long as the copy
    copy_at<unsigned>(to, from, s, (unsigned)i);
  else
    copy_at<long long>(to, from, s, i);
}
extern "C" __global__ void __launch_bounds__(256) copy_1(unsigned char* to, const unsigned char* from, const Shape s) {
  copy(to, from, s);
}
extern "C" __global__ void __launch_bounds__(256) copy_2(unsigned short* to, const unsigned short* from, const Shape s) {
  copy(to, from, s);
}
extern "C" __global__ void __launch_bounds__(256) copy_4(unsigned* to, const unsigned* from, const Shape s) {
  copy(to, from, s);
}
extern "C" __global__ void __launch_bounds__(256) copy_8(unsigned long long* to, const unsigned long long* from, const Shape s) {
  copy(to, from, s);
}
extern "C" __global__ void __launch_bounds__(256) copy_16(Wide* to, const Wide* from, const Shape s) {
  copy(to, from, s);
}
)";

struct Dim {
  int64_t size, to, from;
};

// Rows that run on in both tensors move in elements of up to 16 bytes, as far as addresses, strides and their length allow;
// `dims` then counts in these. Returns the bytes of one.
int64_t widen(std::vector<Dim>& dims, int64_t item, const void* to, const void* from) {
  if (dims.empty() || dims[0].to != 1 || dims[0].from != 1) return item;
  const auto fits = [&](int64_t bytes) {
    const int64_t n = bytes / item;
    return reinterpret_cast<uintptr_t>(to) % static_cast<uintptr_t>(bytes) == 0 &&
           reinterpret_cast<uintptr_t>(from) % static_cast<uintptr_t>(bytes) == 0 && dims[0].size % n == 0 &&
           std::all_of(dims.begin() + 1, dims.end(), [&](const Dim& d) { return d.to % n == 0 && d.from % n == 0; });
  };
  int64_t bytes = 16;
  while (bytes > item && !fits(bytes)) bytes /= 2;
  dims[0].size /= bytes / item;
  for (size_t i = 1; i < dims.size(); ++i) dims[i].to /= bytes / item, dims[i].from /= bytes / item;
  return bytes;
}

// Of a device, by name: found once, since copies stand in the way of launches.
CUfunction copy_function(Gpu& gpu, Compiler& compiler, const std::string& name) {
  static std::mutex mutex;
  static auto* kept = new std::map<std::pair<Gpu*, std::string>, CUfunction>;  // never destroyed, as modules
  std::lock_guard lock(mutex);
  CUfunction& f = (*kept)[{&gpu, name}];
  if (!f) f = load_function(gpu, compiler.kept(kText, gpu.architecture()), name).handle;
  return f;
}

}  // namespace

void strided_copy(Gpu& gpu, Compiler& compiler, const tsr_tensor& dst, const tsr_tensor& src, tsr_stream* stream) {
  const int64_t item = dtype_bits(static_cast<tsr_dtype>(dst.dtype)) / 8;
  std::vector<Dim> dims;
  int64_t elements = 1;
  for (uint32_t i = 0; i < dst.rank; ++i) {
    elements *= dst.sizes[i];
    if (dst.sizes[i] != 1) dims.push_back({dst.sizes[i], dst.strides[i], src.strides[i]});
  }
  if (elements == 0) return;
  // Innermost first by the destination, dimensions that run on in both tensors as one: most copies have two or three left.
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return std::llabs(a.to) < std::llabs(b.to); });
  std::vector<Dim> merged;
  for (const Dim& d : dims) {
    if (!merged.empty() && d.to == merged.back().to * merged.back().size && d.from == merged.back().from * merged.back().size)
      merged.back().size *= d.size;
    else
      merged.push_back(d);
  }
  if (merged.size() > kDims)
    throw t::Error(TSR_ENVIRONMENT, "TSR-H010",
                   "a copy between tensors of " + std::to_string(dst.rank) + " dimensions, " + std::to_string(merged.size()) +
                       " of which cannot be taken as one, on '" + gpu.name() + "': expected at most " + std::to_string(kDims),
                   "make one of the tensors row-major");
  const int64_t wide = widen(merged, item, dst.data, src.data);
  Shape shape{};
  shape.elements = elements = elements / (wide / item);
  shape.rank = static_cast<int64_t>(merged.size());
  for (size_t i = 0; i < merged.size(); ++i)
    shape.sizes[i] = merged[i].size, shape.to[i] = merged[i].to, shape.from[i] = merged[i].from;
  const std::string name = "copy_" + std::to_string(wide);
  const CUfunction function = copy_function(gpu, compiler, name);
  const void *to = dst.data, *from = src.data;
  void* const arguments[] = {&to, &from, &shape};
  launch(gpu, function, name.c_str(), static_cast<unsigned>((elements + 255) / 256), 256, 0, stream, arguments);
}

}  // namespace tessera::cuda
