// SPDX-License-Identifier: Apache-2.0
// Result types of indexing by data, sorting and searching.
#include <algorithm>

#include "infer.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

void gather(Infer& in) {
  in.expect_rank(0, "x", 1, INT64_MAX);
  const int64_t axis = in.axis("axis", in.rank(0));
  DimVector shape(in.sizes(0).begin(), in.sizes(0).end());
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, in.sizes(1).begin(), in.sizes(1).end());
  in.result(in.dtype(0), shape);
}

// indices may be smaller than x, but for `axis`.
void expect_indices_within(Infer& in, size_t axis) {
  in.expect_rank(1, "indices", in.rank(0), in.rank(0));
  for (size_t i = 0; i < in.sizes(0).size(); ++i)
    if (i != axis && !in.dims.assume(TSR_LE, in.sizes(1)[i], in.sizes(0)[i], "indices address elements of x"))
      in.fail("TSR-I202", "indices", in.dims.print(in.sizes(1)),
              "sizes at most those of x " + in.dims.print(in.sizes(0)) + " but for axis " + std::to_string(axis));
}

void take_along_axis(Infer& in) {
  in.expect_rank(0, "x", 1, INT64_MAX);
  expect_indices_within(in, static_cast<size_t>(in.axis("axis", in.rank(0))));
  in.result(in.dtype(0), in.sizes(1));
}

void scatter(Infer& in) {
  in.expect_rank(0, "x", 1, INT64_MAX);
  expect_indices_within(in, static_cast<size_t>(in.axis("axis", in.rank(0))));
  in.expect_rank(2, "updates", in.rank(1), in.rank(1));
  for (size_t i = 0; i < in.sizes(1).size(); ++i)
    in.expect_equal("updates, axis " + std::to_string(i), in.sizes(2)[i], in.sizes(1)[i], "one update per index");
  in.result(in.dtype(0), in.sizes(0));
}

// Length of the index tuples: the last size of indices.
int64_t tuple_length(Infer& in, int64_t batch_dims) {
  in.expect_rank(1, "indices", batch_dims + 1, INT64_MAX);
  const tsr_dim n = in.sizes(1).back();
  if (!Dims::known(n)) in.fail("TSR-I202", "last size of indices", in.dims.print(n), "a number");
  if (n > in.rank(0) - batch_dims)
    in.fail("TSR-I202", "last size of indices", std::to_string(n), "at most " + std::to_string(in.rank(0) - batch_dims));
  return n;
}

void gather_nd(Infer& in) {
  const int64_t batch = in.integer("batch_dims");
  if (batch < 0 || batch > in.rank(0))
    in.fail("TSR-I205", "attribute 'batch_dims'", std::to_string(batch), "0 to the rank of x");
  const int64_t n = tuple_length(in, batch);
  for (size_t i = 0; i < static_cast<size_t>(batch); ++i)
    in.expect_equal("indices, axis " + std::to_string(i), in.sizes(1)[i], in.sizes(0)[i], "batch sizes agree");
  DimVector shape(in.sizes(1).begin(), in.sizes(1).end() - 1);
  shape.insert(shape.end(), in.sizes(0).begin() + batch + n, in.sizes(0).end());
  in.result(in.dtype(0), shape);
}

void scatter_nd(Infer& in) {
  const int64_t n = tuple_length(in, 0);
  DimVector expected(in.sizes(1).begin(), in.sizes(1).end() - 1);
  expected.insert(expected.end(), in.sizes(0).begin() + n, in.sizes(0).end());
  const auto rank = static_cast<int64_t>(expected.size());
  in.expect_rank(2, "updates", rank, rank);
  for (size_t i = 0; i < expected.size(); ++i)
    in.expect_equal("updates, axis " + std::to_string(i), in.sizes(2)[i], expected[i], "one update per index tuple");
  in.result(in.dtype(0), in.sizes(0));
}

int64_t most(const tsr_dim count) { return Dims::known(count) ? count : INT64_MAX; }

void nonzero(Infer& in) {
  const tsr_dim shape[] = {in.dims.unbacked(0, most(in.dims.product(in.sizes(0)))), in.rank(0)};
  in.result(TSR_I64, shape);
}

void masked_select(Infer& in) {
  const tsr_dim n = in.dims.unbacked(0, most(in.dims.product(in.broadcast(in.sizes(0), in.sizes(1)))));
  in.result(in.dtype(0), {&n, 1});
}

void unique(Infer& in) {
  const tsr_dim count = in.dims.product(in.sizes(0));
  const tsr_dim n = in.dims.unbacked(in.dims.proven(TSR_GT, count, 0) ? 1 : 0, most(count));
  in.result(in.dtype(0), {&n, 1});
  in.result(TSR_I64, {&n, 1});
  in.result(TSR_I64, in.sizes(0));
  in.result(TSR_I64, {&n, 1});
}

void sort(Infer& in) {
  in.expect_rank(0, "x", 1, INT64_MAX);
  in.axis("axis", in.rank(0));
  in.result(in.dtype(0), in.sizes(0));
  in.result(TSR_I64, in.sizes(0));
}

void topk(Infer& in) {
  in.expect_rank(0, "x", 1, INT64_MAX);
  const auto axis = static_cast<size_t>(in.axis("axis", in.rank(0)));
  const tsr_dim k = in.integer("k");
  if (!in.dims.assume(TSR_GE, k, 0, "topk takes a count") ||
      !in.dims.assume(TSR_LE, k, in.sizes(0)[axis], "topk takes no more than there are"))
    in.fail("TSR-I205", "attribute 'k'", in.dims.print(k),
            "0 to the size of axis " + std::to_string(axis) + ", " + in.dims.print(in.sizes(0)[axis]));
  DimVector shape(in.sizes(0).begin(), in.sizes(0).end());
  shape[axis] = k;
  in.result(in.dtype(0), shape);
  in.result(TSR_I64, shape);
}

void searchsorted(Infer& in) {
  in.expect_rank(0, "sorted", 1, INT64_MAX);
  if (in.rank(0) > 1) {
    in.expect_rank(1, "values", in.rank(0), in.rank(0));
    for (size_t i = 0; i + 1 < in.sizes(0).size(); ++i)
      in.expect_equal("values, axis " + std::to_string(i), in.sizes(1)[i], in.sizes(0)[i], "batch sizes agree");
  }
  in.result(TSR_I64, in.sizes(1));
}

void one_hot(Infer& in) {
  const tsr_dtype dtype = in.attr("dtype").as_dtype();
  if (!is_valid_dtype(dtype)) in.fail("TSR-I206", "attribute 'dtype'", "invalid", "a dtype");
  const int64_t axis = in.axis("axis", in.rank(0) + 1);
  const tsr_dim depth = in.integer("depth");
  if (in.dims.compare(TSR_LT, depth, 0) == TSR_TRUE)
    in.fail("TSR-I208", "attribute 'depth'", in.dims.print(depth), "0 or more");
  DimVector shape(in.sizes(0).begin(), in.sizes(0).end());
  shape.insert(shape.begin() + axis, depth);
  in.result(dtype, shape);
}

}  // namespace

void add_infer_index(Table& t) {
  t.infer("gather", gather);
  t.infer("take_along_axis", take_along_axis);
  t.infer("scatter", scatter);
  t.infer("gather_nd", gather_nd);
  t.infer("scatter_nd", scatter_nd);
  t.infer("nonzero", nonzero);
  t.infer("masked_select", masked_select);
  t.infer("unique", unique);
  t.infer("sort", sort);
  t.infer("topk", topk);
  t.infer("searchsorted", searchsorted);
  t.infer("one_hot", one_hot);
}

}  // namespace tessera::opset
