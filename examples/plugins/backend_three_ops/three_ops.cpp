// SPDX-License-Identifier: Apache-2.0
// A backend that takes three ops, add, mul and relu, in f32 and i32, with broadcasting. Everything else goes to the next
// backend of the config. What it shows: claims with reasons, sizes that are only known at launch, strided operands,
// workspace-free kernels.
#include <algorithm>
#include <array>
#include <type_traits>

#include <tessera/plugin.hpp>

namespace {

namespace t = tessera::sdk;

constexpr uint32_t kMaxRank = 8;

enum class Op { kNone, kAdd, kMul, kRelu };
Op op_of(std::string_view name) {
  return name == "add" ? Op::kAdd : name == "mul" ? Op::kMul : name == "relu" ? Op::kRelu : Op::kNone;
}

// Integers wrap, as docs/ir.md demands: in C++ only unsigned ones do.
template <class T>
T apply(Op op, T a, T b) {
  using W = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  switch (op) {
    case Op::kAdd: return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
    case Op::kMul: return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
    default: return a <= T{0} ? T{0} : a;  // relu: -0 gives 0, NaN stays NaN
  }
}

// Strides of an operand along the axes of the result; 0 where it broadcasts.
std::array<int64_t, kMaxRank> aligned(const tsr_tensor& x, const tsr_tensor& out) {
  std::array<int64_t, kMaxRank> s{};
  const uint32_t lead = out.rank - x.rank;
  for (uint32_t d = 0; d < x.rank; ++d) s[lead + d] = x.sizes[d] == 1 ? 0 : x.strides[d];
  return s;
}

template <class T>
void run(Op op, const tsr_launch& l) {
  const tsr_tensor &out = l.outputs[0], &x = l.inputs[0], &y = l.inputs[l.num_inputs - 1];
  const auto sx = aligned(x, out), sy = aligned(y, out);
  const auto *a = static_cast<const T*>(x.data), *b = static_cast<const T*>(y.data);
  auto* o = static_cast<T*>(out.data);
  int64_t n = 1;
  for (uint32_t d = 0; d < out.rank; ++d) n *= out.sizes[d];
  t::parallel(n, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, at = 0, bt = 0;
      for (uint32_t d = out.rank; d-- > 0; rest /= out.sizes[d]) {
        const int64_t k = rest % out.sizes[d];
        at += k * sx[d];
        bt += k * sy[d];
      }
      o[i] = apply(op, a[at], b[bt]);
    }
  });
}

class Kernel final : public t::Kernel {
 public:
  explicit Kernel(t::Node n)
      : name_("three_ops." + std::string(n.op())), op_(op_of(n.op())), dtype_(n.result().type().dtype()) {}
  std::string name() const override { return name_; }
  void launch(const tsr_launch& l) override { dtype_ == TSR_F32 ? run<float>(op_, l) : run<int32_t>(op_, l); }

 private:
  std::string name_;
  Op op_;
  tsr_dtype dtype_;
};

class ThreeOps final : public t::Backend {
 public:
  explicit ThreeOps(int64_t max_elements) : max_elements_(max_elements) {}
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override { return TSR_CAP_STRIDED_INPUTS | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }

  t::Claim claim(t::Graph, t::Node n) override {
    if (op_of(n.op()) == Op::kNone) return t::no("three_ops takes add, mul and relu");
    const t::Type out = n.result().type();
    if (out.dtype() != TSR_F32 && out.dtype() != TSR_I32) return t::no("three_ops takes f32 and i32");
    if (out.rank() > kMaxRank) return t::no("three_ops takes at most 8 dimensions");
    // elements() is -1 while a size is symbolic; launch reads sizes from its tensors, so that is no reason to refuse.
    if (max_elements_ > 0 && out.elements() > max_elements_)
      return t::no("the result has more elements than the option max_elements allows");
    return t::yes();
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override { return std::make_unique<Kernel>(c.node()); }

 private:
  int64_t max_elements_;
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_backend("three_ops", std::make_unique<ThreeOps>(plugin.options.get_int("max_elements", 0)));
}
