// SPDX-License-Identifier: Apache-2.0
#include "test_opset.hpp"

#include <algorithm>
#include <vector>

#include "ir/graph.hpp"
#include "support/error.hpp"

namespace tessera::test {
namespace {

using core::Graph;
using core::Sizes;

constexpr const char* kRecords = R"tops(
// Constants and shapes
op constant() {value: tensor} -> (?[?])
  traits: pure constant
  doc: "A tensor that is part of the graph."
op full(%value: T[]) {shape: dims} -> (T[$shape])  where T: any  traits: pure
op iota() {shape: dims, axis: int, dtype: dtype} -> ($dtype[$shape])  traits: pure
op dim_value() {value: dim} -> (i64[])  traits: pure
op reshape(%x: T[?]) {shape: dims} -> (T[$shape])  where T: any  traits: pure
op transpose(%x: T[*S]) {perm: ints} -> (T[permute(S, $perm)])  where T: any  traits: pure view
op concat2(%a: T[*A], %b: T[*B]) {axis: int} -> (T[concat(A, B, $axis)])  where T: any  traits: pure
op stack(%xs...: T[*S]) {axis: int = 0} -> (T[?])  where T: any  traits: pure
op split(%x: T[?]) {sizes: dims, axis: int} -> (T[?])  where T: any  traits: pure
op nonzero(%x: T[?]) -> (i64[?])  where T: any  traits: pure unbacked
op sort(%x: T[*S]) {axis: int = -1, descending: bool = false} -> (%values: T[*S], %indices: i64[*S])  where T: {real, bool}  traits: pure

// Elementwise
op neg(%x: T[*S]) -> (T[*S])
  where T: number
  traits: pure elementwise involution
  grad { %g = neg %dout
         return %g }
op exp(%x: T[*S]) -> (T[*S])
  where T: {float, complex}
  traits: pure elementwise
  grad { %g = mul %dout, %out
         return %g }
op abs(%x: T[*S]) -> (real(T)[*S])  where T: number  traits: pure elementwise
op polar(%r: real(T)[*S], %like: T[*S]) -> (T[*S])  where T: complex  traits: pure elementwise
op complex(%re: T[*A], %im: T[*B]) -> (complex(T)[broadcast(A, B)])  where T: {f32, f64}  traits: pure elementwise
op add(%a: T[*A], %b: T[*B]) -> (T[broadcast(A, B)])  where T: number  traits: pure elementwise commutative
op sub(%a: T[*A], %b: T[*B]) -> (T[broadcast(A, B)])  where T: number  traits: pure elementwise
op mul(%a: T[*A], %b: T[*B]) -> (T[broadcast(A, B)])
  where T: number
  traits: pure elementwise commutative
  grad {
    %da = mul %dout, %b
    %db = mul %dout, %a
    return %da, %db
  }
op div(%a: T[*A], %b: T[*B]) -> (T[broadcast(A, B)])  where T: number  traits: pure elementwise
op lt(%a: T[*A], %b: T[*B]) -> (bool[broadcast(A, B)])  where T: {real, bool}  traits: pure elementwise
op select(%cond: bool[*C], %a: T[*A], %b: T[*B]) -> (T[broadcast(C, A, B)])  where T: any  traits: pure elementwise
op clamp(%x: T[*S], %lo?: T[*L], %hi?: T[*H]) -> (T[broadcast(S, L, H)])  where T: real  traits: pure elementwise
op cast(%x: T[*S]) {dtype: dtype} -> ($dtype[*S])  where T: any  traits: pure elementwise
op bits_of(%x: T[*S]) {dtype: dtype = invalid} -> (T[*S])  where T: any  traits: pure

// Reductions and contractions
op reduce_sum(%x: T[*S]) {axes: ints, keepdims: bool = false} -> (T[reduce(S, $axes, $keepdims)])  where T: number  traits: pure reduction
op reduce_max(%x: T[*S]) {axes: ints, keepdims: bool = false} -> (T[reduce(S, $axes, $keepdims)])  where T: {real, bool}  traits: pure reduction
op linear(%x: T[*B, K], %weight: T[N, K], %bias?: T[N]) -> (T[*B, N])  where T: number  traits: pure
op embedding(%weight: T[V, D], %indices: I[*S]) -> (T[*S, D])  where T: any, I: index  traits: pure
op random_bits(%state: u64[2]) {shape: dims} -> (%bits: u32[$shape], %next: u64[2])  traits: pure random

// Composites
op softmax(%x: T[*S]) {axis: int = -1} -> (T[*S])
  where T: float
  traits: composite pure
  doc: "exp(x) over its sum along `axis`, with the maximum taken off first."
  decompose {
    %c = cast %x {dtype = accumulate(T)}
    %m = reduce_max %c {axes = [$axis], keepdims = true}
    %s = sub %c, %m
    %e = exp %s
    %d = reduce_sum %e {axes = [$axis], keepdims = true}
    %q = div %e, %d
    %y = cast %q {dtype = T}
    return %y
  }
op mean_last(%x: T[*S, N]) {bias: float = 0.5} -> (%mean: T[*S], %count: i64[])
  where T: {f32, f64}
  traits: composite pure
  decompose {
    %sum = reduce_sum %x {axes = range(rank(%x) - 1, rank(%x))}
    %m = div %sum, size(%x, -1)
    %b = add %m, $bias
    %half = mul %b, 0.5
    %y = add %half, %half
    %n = dim_value {value = size(%x, -1)}
    return %y, %n
  }
op zeros_like(%x: T[*S]) -> (T[*S])
  where T: any
  traits: composite pure
  decompose { %y = full 0 {shape = shape(%x)} return %y }
op annotate(%x: T[*S]) {i: int = 3, f: float = 0.5, b: bool = false, s: str = "none", choice: str = "a" in ["a", "b"], d: dtype = f32,
                        n: dim = 4, is: ints = [1], fs: floats = [], ns: dims = [], ss: strs = [], t: tensor} -> (T[*S])
  where T: any
  traits: pure
  doc: "One attribute of every kind."
op consume(%x: T[?]) -> ()  where T: any  doc: "An effect without results."
op cond(%pred: bool[], %args...: ?[?]) -> (?[?])  traits: control
op while_loop(%args...: ?[?]) {carried: int} -> (?[?])  traits: control
)tops";

[[noreturn]] void refuse(const std::string& what) { throw core::user_error("TSR-I090", what); }

int64_t axis_of(const tsr_call* c, const char* name, uint32_t rank) {
  for (uint32_t i = 0; i < c->num_attrs; ++i)
    if (std::string_view(c->attrs[i].name) == name) {
      const int64_t a = c->attrs[i].i, r = rank;
      if (a < -r || a >= r) refuse(std::string(name) + " is out of range");
      return a < 0 ? a + r : a;
    }
  refuse("no attribute " + std::string(name));
}

tsr_dim* dims(const tsr_call* c, size_t n) { return static_cast<tsr_dim*>(Graph::from(c->graph).scratch(n * sizeof(tsr_dim))); }

using Types = std::vector<tsr_type>;

Types infer_stack(const tsr_call* c) {
  tsr_type t = *c->operands[0];
  const int64_t axis = axis_of(c, "axis", t.rank + 1);
  tsr_dim* sizes = dims(c, t.rank + 1);
  for (uint32_t k = 0, from = 0; k <= t.rank; ++k) sizes[k] = k == axis ? c->num_operands : t.sizes[from++];
  t.sizes = sizes;
  ++t.rank;
  t.strides = nullptr;
  return {t};
}

Types infer_split(const tsr_call* c) {
  const tsr_type& x = *c->operands[0];
  const int64_t axis = axis_of(c, "axis", x.rank);
  const tsr_attr* sizes = nullptr;
  for (uint32_t i = 0; i < c->num_attrs; ++i)
    if (c->attrs[i].kind == TSR_ATTR_DIMS) sizes = &c->attrs[i];
  Sizes& s = Graph::from(c->graph).sizes();
  tsr_dim total = 0;
  for (uint32_t i = 0; i < sizes->count; ++i) total = s.add(total, sizes->ints[i]);
  if (s.compare(TSR_EQ, total, x.sizes[axis]) == TSR_FALSE) refuse("split: the sizes do not add up");
  s.require(TSR_EQ, total, x.sizes[axis], "split: the sizes add up to the dimension");
  Types out;
  for (uint32_t i = 0; i < sizes->count; ++i) {
    tsr_type t = x;
    tsr_dim* copy = dims(c, x.rank);
    std::copy(x.sizes, x.sizes + x.rank, copy);
    copy[axis] = sizes->ints[i];
    t.sizes = copy;
    t.strides = nullptr;
    out.push_back(t);
  }
  return out;
}

Types infer_nonzero(const tsr_call* c) {
  tsr_type t{};
  t.dtype = TSR_I64;
  t.rank = 2;
  tsr_dim* sizes = dims(c, 2);
  sizes[0] = Graph::from(c->graph).sizes().fresh("u", 0, INT64_MAX, true);
  sizes[1] = c->operands[0]->rank;
  t.sizes = sizes;
  return {t};
}

bool fits(const tsr_type& a, const tsr_type& b) {
  return a.dtype == b.dtype && a.rank == b.rank && std::equal(a.sizes, a.sizes + a.rank, b.sizes);
}

Types infer_cond(const tsr_call* c) {
  if (c->num_regions != 2) refuse("cond: expected two regions");
  for (uint32_t r = 0; r < 2; ++r) {
    if (c->regions[r].num_inputs + 1 != c->num_operands) refuse("cond: a region takes other inputs than the operands");
    for (uint32_t i = 0; i < c->regions[r].num_inputs; ++i)
      if (!c->operands[i + 1] || !fits(*c->regions[r].inputs[i], *c->operands[i + 1]))
        refuse("cond: an input's type differs from its operand's");
  }
  if (c->regions[0].num_outputs != c->regions[1].num_outputs) refuse("cond: the regions return different numbers of values");
  Types out;
  for (uint32_t i = 0; i < c->regions[0].num_outputs; ++i) {
    if (!fits(*c->regions[0].outputs[i], *c->regions[1].outputs[i])) refuse("cond: the regions return different types");
    out.push_back(*c->regions[0].outputs[i]);
    out.back().strides = nullptr;
  }
  return out;
}

Types infer_while(const tsr_call* c) {
  if (c->num_regions != 2 || c->regions[0].num_outputs != 1 || c->regions[0].outputs[0]->dtype != TSR_BOOL)
    refuse("while_loop: expected a condition that returns bool[], and a body");
  const int64_t carried = c->attrs[0].i;
  if (carried < 0 || carried > c->num_operands || carried != c->regions[1].num_outputs)
    refuse("while_loop: carried does not fit");
  Types out;
  for (uint32_t i = 0; i < carried; ++i) {
    if (!fits(*c->regions[1].outputs[i], *c->operands[i])) refuse("while_loop: a carried type changes");
    out.push_back(*c->operands[i]);
    out.back().strides = nullptr;
  }
  return out;
}

tsr_error* infer(void* self, const tsr_call* call, tsr_type* results, uint32_t capacity, uint32_t* num_results) {
  try {
    const Types out = reinterpret_cast<Types (*)(const tsr_call*)>(self)(call);
    *num_results = static_cast<uint32_t>(out.size());
    if (out.size() <= capacity) std::copy(out.begin(), out.end(), results);
    return nullptr;
  } catch (...) {
    return core::current_exception_to_c();
  }
}

tsr_op_impl impl(const char* op, Types (*f)(const tsr_call*)) {
  tsr_op_impl i{};
  i.op = op;
  i.self = reinterpret_cast<void*>(f);
  i.infer = infer;
  return i;
}

}  // namespace

const core::OpRegistry& test_ops() {
  static const tsr_record_file files[] = {{"test.tops", kRecords}};
  static const tsr_op_impl impls[] = {impl("stack", infer_stack), impl("split", infer_split), impl("nonzero", infer_nonzero),
                                      impl("cond", infer_cond), impl("while_loop", infer_while)};
  static const core::OpRegistry* ops = [] {
    static core::OpRegistry registry;
    tsr_opset set{};
    set.struct_size = sizeof set;
    set.prefix = "";
    set.files = files;
    set.num_files = std::size(files);
    set.file_stride = sizeof(tsr_record_file);
    set.impls = impls;
    set.num_impls = std::size(impls);
    set.impl_stride = sizeof(tsr_op_impl);
    registry.add(set, "test.opset");
    return &registry;
  }();
  return *ops;
}

}  // namespace tessera::test
