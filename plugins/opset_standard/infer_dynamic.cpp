// SPDX-License-Identifier: Apache-2.0
// Result types of ops whose position or sizes are data: sizes become unbacked symbols unless a hint or x fixes them.
#include <algorithm>

#include "infer.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

// starts begin at operand `first`: one 0-d index per dimension of x.
void expect_starts(Infer& in, uint32_t first) {
  const int64_t n = static_cast<int64_t>(in.num_operands()) - first;
  if (n != in.rank(0))
    in.fail("TSR-I210", "starts", std::to_string(n) + " of them", std::to_string(in.rank(0)) + ", one per dimension of x");
  for (uint32_t i = first; i < in.num_operands(); ++i) in.expect_rank(i, "starts[" + std::to_string(i - first) + "]", 0, 0);
}

void dynamic_slice(Infer& in) {
  expect_starts(in, 1);
  in.expect_length("sizes", static_cast<size_t>(in.rank(0)));
  const DimVector sizes = in.shape("sizes");
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!in.dims.assume(TSR_LE, sizes[i], in.sizes(0)[i], "a block fits into its tensor"))
      in.fail("TSR-I202", "attribute 'sizes'", in.dims.print(sizes), "at most " + in.dims.print(in.sizes(0)));
  in.result(in.dtype(0), sizes);
}

void dynamic_update_slice(Infer& in) {
  expect_starts(in, 2);
  in.expect_rank(1, "update", in.rank(0), in.rank(0));
  for (size_t i = 0; i < in.sizes(0).size(); ++i)
    if (!in.dims.assume(TSR_LE, in.sizes(1)[i], in.sizes(0)[i], "a block fits into its tensor"))
      in.fail("TSR-I202", "update", in.dims.print(in.sizes(1)), "at most " + in.dims.print(in.sizes(0)));
  in.result(in.dtype(0), in.sizes(0));
}

// `rank` sizes from the hint; -1 where it knows nothing.
DimVector hinted_shape(Infer& in) {
  const int64_t rank = in.integer("rank");
  if (rank < 0 || rank > 64) in.fail("TSR-I205", "attribute 'rank'", std::to_string(rank), "0 to 64");
  in.expect_rank(1, "shape", 1, 1);
  in.expect_equal("length of shape", in.sizes(1)[0], rank, "the shape has one entry per dimension");
  const auto hint = in.ints("hint");
  if (hint.empty()) return DimVector(static_cast<size_t>(rank), -1);
  in.expect_length("hint", static_cast<size_t>(rank));
  for (tsr_dim d : hint)
    if (d != -1 && in.dims.compare(TSR_LT, d, 0) == TSR_TRUE)
      in.fail("TSR-I205", "attribute 'hint'", in.dims.print(hint), "sizes, or -1 where they are unknown");
  return {hint.begin(), hint.end()};
}

void dynamic_reshape(Infer& in) {
  DimVector shape = hinted_shape(in);
  const auto unknown = std::count(shape.begin(), shape.end(), -1);
  tsr_dim known = 1;
  for (tsr_dim d : shape)
    if (d != -1) known = in.dims.mul(known, d);
  const tsr_dim have = in.dims.product(in.sizes(0));
  // A single gap follows from the element count, where no size can be 0.
  if (unknown == 1 && in.dims.proven(TSR_GT, known, 0)) {
    if (in.dims.compare(TSR_DIVISIBLE, have, known) == TSR_FALSE)
      in.fail("TSR-I209", "attribute 'hint'", in.dims.print(shape), "a divisor of " + in.dims.print(have) + " elements");
    *std::find(shape.begin(), shape.end(), -1) = in.dims.floordiv(have, known);
  } else if (unknown == 0 && in.dims.compare(TSR_EQ, have, known) == TSR_FALSE) {
    in.fail("TSR-I209", "attribute 'hint'", in.dims.print(shape), in.dims.print(have) + " elements");
  }
  const int64_t most = Dims::known(have) && have > 0 ? have : INT64_MAX;  // beside a 0 any size goes
  for (tsr_dim& d : shape)
    if (d == -1) d = in.dims.unbacked(0, most);
  in.result(in.dtype(0), shape);
}

void dynamic_broadcast_to(Infer& in) {
  const DimVector given = hinted_shape(in);
  const auto from = in.sizes(0);
  DimVector shape(std::max(given.size(), from.size()));
  for (size_t i = 0; i < shape.size(); ++i) {
    const tsr_dim x = i + from.size() < shape.size() ? 1 : from[i + from.size() - shape.size()];
    const tsr_dim s = i + given.size() < shape.size() ? 1 : given[i + given.size() - shape.size()];
    if (s == -1)
      // A number other than 1 decides: the shape can only hold it or 1.
      shape[i] = Dims::known(x) && x != 1 ? x : in.dims.unbacked(0, INT64_MAX);
    else if (!in.dims.broadcast(x, s, shape[i]))
      in.fail("TSR-I203", "attribute 'hint'", in.dims.print(given), "sizes that x " + in.dims.print(from) + " broadcasts with");
  }
  in.result(in.dtype(0), shape);
}

}  // namespace

void add_infer_dynamic(Table& t) {
  t.infer("dynamic_slice", dynamic_slice);
  t.infer("dynamic_update_slice", dynamic_update_slice);
  t.infer("dynamic_reshape", dynamic_reshape);
  t.infer("dynamic_broadcast_to", dynamic_broadcast_to);
}

}  // namespace tessera::opset
