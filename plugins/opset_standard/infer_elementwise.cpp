// SPDX-License-Identifier: Apache-2.0
// Checks of casts and random ops that the dtype patterns of the records cannot say.
#include "infer.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

tsr_dtype dtype_attr(Infer& in) {
  const tsr_dtype dtype = in.attr("dtype").as_dtype();
  if (!is_valid_dtype(dtype)) in.fail("TSR-I206", "attribute 'dtype'", "invalid", "a dtype");
  return dtype;
}

void cast(Infer& in) { in.result(dtype_attr(in), in.sizes(0)); }

void bitcast(Infer& in) {
  const tsr_dtype to = dtype_attr(in), from = in.dtype(0);
  if (dtype_bits(to) != dtype_bits(from))
    in.fail("TSR-I206", "attribute 'dtype'", std::string(dtype_name(to)) + " (" + std::to_string(dtype_bits(to)) + " bits)",
            "a dtype of " + std::to_string(dtype_bits(from)) + " bits, as " + std::string(dtype_name(from)) + " has");
  in.result(to, in.sizes(0));
}

void random_result(Infer& in, tsr_dtype dtype) {
  const tsr_dim two = 2;
  in.result(dtype, in.shape("shape"));
  in.result(TSR_U64, {&two, 1});
}

void random_bits(Infer& in) { random_result(in, TSR_U32); }

void random_float(Infer& in) {
  const tsr_dtype dtype = dtype_attr(in);
  if (!is_float(dtype)) in.fail("TSR-I206", "attribute 'dtype'", std::string(dtype_name(dtype)), "a float dtype");
  random_result(in, dtype);
}

void random_int(Infer& in) {
  const tsr_dtype dtype = dtype_attr(in);
  if (!is_int(dtype)) in.fail("TSR-I206", "attribute 'dtype'", std::string(dtype_name(dtype)), "an integer dtype");
  const int64_t low = in.integer("low"), high = in.integer("high");
  if (low >= high)
    in.fail("TSR-I205", "attributes 'low' and 'high'", std::to_string(low) + " and " + std::to_string(high), "low below high");
  random_result(in, dtype);
}

}  // namespace

void add_infer_elementwise(Table& t) {
  t.infer("cast", cast);
  t.infer("bitcast", bitcast);
  t.infer("random_bits", random_bits);
  t.infer("random_uniform", random_float);
  t.infer("random_normal", random_float);
  t.infer("random_int", random_int);
}

}  // namespace tessera::opset
