// The kernels of @NAME@. One that launches on hardware stands here too; it gets its stream in tsr_launch.
#include <cstdint>
#include <string_view>

namespace @VENDOR@_@NAME@ {

namespace {

template <class F>
void loop(const float* a, const float* b, float* out, int64_t begin, int64_t end, F f) {
  for (int64_t i = begin; i < end; ++i) out[i] = f(a[i], b[i]);
}
void add(const float* a, const float* b, float* out, int64_t begin, int64_t end) {
  loop(a, b, out, begin, end, [](float x, float y) { return x + y; });
}
void mul(const float* a, const float* b, float* out, int64_t begin, int64_t end) {
  loop(a, b, out, begin, end, [](float x, float y) { return x * y; });
}

}  // namespace

using Loop = void (*)(const float*, const float*, float*, int64_t, int64_t);
Loop find_loop(std::string_view op) {
  if (op == "add") return add;
  if (op == "mul") return mul;
  return nullptr;
}

}  // namespace @VENDOR@_@NAME@
