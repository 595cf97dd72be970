// The op @VENDOR@.@NAME@: its record, and its kernel for host memory. Replace both by yours.
#include <tessera/dtypes.hpp>
#include <tessera/plugin.hpp>

namespace {

namespace t = tessera::sdk;

// What parser, printer, verifier, op reference and autograd know of the op. Syntax: "Op records" in docs/ir.md. An op with a
// `decompose { }` body needs no kernel at all: it runs wherever the ops of that body run.
constexpr tsr_record_file records[] = {{"@NAME@.tops", R"(
op @NAME@(%x: T[*S]) -> (T[*S])
  where T: {f64, f32, f16, bf16}
  traits: pure elementwise
  doc: "Square of x."
  numerics: "One rounding, of the exact square."
  grad {
    %twice = add %x, %x
    %dx = mul %dout, %twice
    return %dx
  }
)"}};

int64_t elements(const tsr_tensor& x) {
  int64_t n = 1;
  for (uint32_t d = 0; d < x.rank; ++d) n *= x.sizes[d];
  return n;
}

// Where element i in row-major order lies: inputs may have any strides.
int64_t offset(const tsr_tensor& x, int64_t i) {
  int64_t at = 0;
  for (uint32_t d = x.rank; d-- > 0; i /= x.sizes[d]) at += i % x.sizes[d] * x.strides[d];
  return at;
}

// The exact square of anything narrower than f64 is an f64, so that the store rounds once.
tsr_error* compute(void*, const tsr_call*, const tsr_tensor* in, uint32_t, const tsr_tensor* out, uint32_t) noexcept {
  return t::guarded([&] {
    const tsr_tensor &x = in[0], &y = out[0];
    t::parallel(elements(y), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double v = tessera::load_as<double>(x.dtype, x.data, offset(x, i));
        tessera::store_from(y.dtype, y.data, i, v * v);
      }
    });
  });
}

tsr_op_impl impl() {
  tsr_op_impl i{};
  i.op = "@NAME@";
  i.compute = compute;
  return i;
}
const tsr_op_impl impls[] = {impl()};

tsr_opset opset() {
  tsr_opset s{};
  s.struct_size = sizeof s;
  s.prefix = "@VENDOR@";  // the op is called @VENDOR@.@NAME@
  s.files = records;
  s.num_files = std::size(records);
  s.file_stride = sizeof records[0];
  s.impls = impls;
  s.num_impls = std::size(impls);
  s.impl_stride = sizeof impls[0];
  return s;
}
const tsr_opset table = opset();

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) { plugin.add_raw(TSR_OPSET, "@VENDOR@_@NAME@", &table, nullptr); }
