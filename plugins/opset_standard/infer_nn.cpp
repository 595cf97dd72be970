// SPDX-License-Identifier: Apache-2.0
// Result types of composites, and the checks that the shape patterns of their records cannot say.
#include "infer.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

void softmax(Infer& in) {
  in.expect_rank(0, "x", 1, INT64_MAX);
  in.axis("axis", in.rank(0));
  in.result(in.dtype(0), in.sizes(0));
}

// Operands from 1 on, where given, have the shape of x from `axis` on.
void trailing_norm(Infer& in) {
  in.expect_rank(0, "x", 1, INT64_MAX);
  const int64_t axis = in.axis("axis", in.rank(0));
  const char* names[] = {"x", "weight", "bias"};
  for (uint32_t k = 1; k < in.num_operands(); ++k) {
    if (!in.has(k)) continue;
    in.expect_rank(k, names[k], in.rank(0) - axis, in.rank(0) - axis);
    for (int64_t i = axis; i < in.rank(0); ++i)
      in.expect_equal(std::string(names[k]) + ", axis " + std::to_string(i - axis), in.operand(k).size(i - axis),
                      in.operand(0).size(i), "scale and shift have the normalised shape");
  }
  in.result(in.dtype(0), in.sizes(0));
}

void group_norm(Infer& in) {
  const int64_t groups = in.integer("groups");
  if (groups < 1) in.fail("TSR-I205", "attribute 'groups'", std::to_string(groups), "at least 1");
  if (!in.dims.assume(TSR_DIVISIBLE, in.sizes(0)[1], groups, "groups divide the channels"))
    in.fail("TSR-I202", "channels of x", in.dims.print(in.sizes(0)[1]), "a multiple of groups " + std::to_string(groups));
  in.result(in.dtype(0), in.sizes(0));
}

// Queries, keys, values and mask are operands first .. first + 2 and `mask`. Returns [*B, L].
DimVector check_attention(Infer& in, uint32_t first, uint32_t mask_at) {
  const Dims& d = in.dims;
  const auto q = in.sizes(first), k = in.sizes(first + 1);
  const size_t batch = q.size() - 2;
  if (k.size() != q.size()) in.expect_rank(first + 1, "k", in.rank(first), in.rank(first));
  // All batch sizes agree but the last, where q may have a multiple.
  for (size_t i = 0; i + 1 < batch; ++i)
    in.expect_equal("k, axis " + std::to_string(i), k[i], q[i], "batch sizes of attention agree");
  if (batch > 0) {
    const tsr_dim heads = q[batch - 1], shared = k[batch - 1];
    const bool agree = heads == shared || shared == 1 ||
                       (d.compare(TSR_NE, shared, 0) != TSR_FALSE &&
                        d.assume(TSR_DIVISIBLE, heads, shared, "query heads share key heads evenly"));
    if (!agree)
      in.fail("TSR-I202", "q, axis " + std::to_string(batch - 1), d.print(heads),
              "a multiple of the key heads, " + d.print(shared));
  }
  if (in.has(mask_at)) {
    DimVector scores(q.begin(), q.end());
    scores.back() = k[k.size() - 2];
    const tsr_dtype m = in.dtype(mask_at);
    if (m != TSR_BOOL && m != in.dtype(first))
      in.fail("TSR-I206", "mask", std::string(dtype_name(m)), "bool or " + std::string(dtype_name(in.dtype(first))));
    const auto mask = in.sizes(mask_at);
    if (mask.size() > scores.size()) in.expect_rank(mask_at, "mask", 0, static_cast<int64_t>(scores.size()));
    for (size_t i = 0; i < mask.size(); ++i) {
      const tsr_dim want = scores[i + scores.size() - mask.size()];
      if (mask[i] != 1 && !d.assume(TSR_EQ, mask[i], want, "an attention mask broadcasts to the scores"))
        in.fail("TSR-I203", "mask", d.print(mask), "a shape that broadcasts to the scores " + d.print(scores));
    }
  }
  return {q.begin(), q.end() - 1};
}

void attention(Infer& in) {
  DimVector shape = check_attention(in, 0, 3);
  shape.push_back(in.sizes(2).back());
  in.result(in.dtype(0), shape);
}

// Of what attention computes of each query beside its result.
tsr_dtype dtype_of_lse(const Infer& in) { return in.dtype(0) == TSR_F64 ? TSR_F64 : TSR_F32; }

void attention_lse(Infer& in) {
  const DimVector rows = check_attention(in, 0, 3);
  attention(in);
  in.result(dtype_of_lse(in), rows);
}

// `numbers`: operands behind the mask with one number for each query.
void attention_backward_of(Infer& in, std::initializer_list<const char*> numbers) {
  const DimVector rows = check_attention(in, 1, 4);
  uint32_t i = 5;
  for (const std::string name : numbers) {
    if (in.dtype(i) != dtype_of_lse(in))
      in.fail("TSR-I206", name, std::string(dtype_name(in.dtype(i))), std::string(dtype_name(dtype_of_lse(in))));
    in.expect_rank(i, name, static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows.size()));
    for (size_t k = 0; k < rows.size(); ++k)
      in.expect_equal(name + ", axis " + std::to_string(k), in.sizes(i)[k], rows[k], "there is one number for each query");
    ++i;
  }
  for (uint32_t k = 1; k < 4; ++k) in.result(in.dtype(k), in.sizes(k));
}
void attention_backward(Infer& in) { attention_backward_of(in, {"lse", "delta"}); }
void attention_y_backward(Infer& in) { attention_backward_of(in, {"lse"}); }

void reduced_loss(Infer& in, const DimVector& elements) {
  if (in.attr("reduction").as_string() == "none")
    in.result(in.dtype(0), elements);
  else
    in.result(in.dtype(0), {});
}

void cross_entropy(Infer& in) {
  const double smoothing = in.attr("label_smoothing").as_float();
  if (!(smoothing >= 0 && smoothing <= 1))
    in.fail("TSR-I205", "attribute 'label_smoothing'", std::to_string(smoothing), "a number in [0, 1]");
  DimVector shape(in.sizes(0).begin(), in.sizes(0).end());
  shape.erase(shape.begin() + 1);
  reduced_loss(in, shape);
}

void mse_loss(Infer& in) { reduced_loss(in, {in.sizes(0).begin(), in.sizes(0).end()}); }

void dropout(Infer& in) {
  const double p = in.attr("p").as_float();
  if (!(p >= 0 && p <= 1)) in.fail("TSR-I205", "attribute 'p'", std::to_string(p), "a number in [0, 1]");
  in.result(in.dtype(0), in.sizes(0));
  in.result(TSR_U64, in.sizes(1));
}

void interpolate(Infer& in) {
  in.expect_rank(0, "x", 3, 5);
  in.expect_length("output", static_cast<size_t>(in.rank(0)) - 2);
  DimVector shape = {in.sizes(0)[0], in.sizes(0)[1]};
  for (tsr_dim d : in.shape("output")) shape.push_back(d);
  for (size_t i = 2; i < shape.size(); ++i)
    if (!in.dims.assume(TSR_GT, in.sizes(0)[i], 0, "there is an element to sample"))
      in.fail("TSR-I208", "spatial dimension " + std::to_string(i - 2) + " of x", in.dims.print(in.sizes(0)[i]), "at least 1");
  in.result(in.dtype(0), shape);
}

}  // namespace

void add_infer_nn(Table& t) {
  t.infer("softmax", softmax);
  t.infer("log_softmax", softmax);
  t.infer("layer_norm", trailing_norm);
  t.infer("rms_norm", trailing_norm);
  t.infer("group_norm", group_norm);
  t.infer("attention", attention);
  t.infer("attention_lse", attention_lse);
  t.infer("attention_backward", attention_backward);
  t.infer("attention_y_backward", attention_y_backward);
  t.infer("cross_entropy", cross_entropy);
  t.infer("mse_loss", mse_loss);
  t.infer("dropout", dropout);
  t.infer("interpolate", interpolate);
}

}  // namespace tessera::opset
