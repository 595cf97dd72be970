// SPDX-License-Identifier: Apache-2.0
// Result types of cond, while_loop and scan: regions' signatures against operands and against each other. A size that only the
// run can tell (branches that differ, a carried value that changes its size, the number of turns) becomes an unbacked symbol.
// Those of a client's step are what its attributes say.
#include <algorithm>
#include <map>

#include "infer.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

std::string type_text(const Infer& in, const tsr_type& t) {
  return std::string(dtype_name(t.dtype)) + in.dims.print({t.sizes, t.rank});
}

void expect_type(const Infer& in, const std::string& what, const tsr_type& found, const tsr_type& expected) {
  bool same = found.dtype == expected.dtype && found.rank == expected.rank;
  for (uint32_t i = 0; same && i < found.rank; ++i)
    same = in.dims.assume(TSR_EQ, found.sizes[i], expected.sizes[i], "types of regions agree");
  if (!same) in.fail("TSR-I207", what, type_text(in, found), type_text(in, expected));
}

void expect_regions(const Infer& in, uint32_t count) {
  if (in.call().num_regions != count)
    in.fail("TSR-I207", "regions", std::to_string(in.call().num_regions), std::to_string(count));
}

void expect_count(const Infer& in, const std::string& what, uint32_t found, uint32_t expected) {
  if (found != expected) in.fail("TSR-I207", what, std::to_string(found), std::to_string(expected));
}

// Inputs of the region are operands from `first` on.
void expect_inputs(const Infer& in, const char* name, const tsr_signature& region, uint32_t first) {
  const std::string which = std::string("the ") + name + " region's ";
  expect_count(in, which + "inputs", region.num_inputs, in.num_operands() - first);
  for (uint32_t i = 0; i < region.num_inputs; ++i)
    expect_type(in, which + "input " + std::to_string(i), *region.inputs[i], *in.operand(first + i).p);
}

void expect_alike(const Infer& in, const std::string& what, const tsr_type& found, const tsr_type& expected) {
  if (found.dtype != expected.dtype || found.rank != expected.rank)
    in.fail("TSR-I207", what, type_text(in, found), type_text(in, expected));
}

void cond(Infer& in) {
  expect_regions(in, 2);
  const tsr_signature &yes = in.call().regions[0], &no = in.call().regions[1];
  expect_inputs(in, "then", yes, 1);
  expect_inputs(in, "else", no, 1);
  expect_count(in, "the else region's outputs", no.num_outputs, yes.num_outputs);
  for (uint32_t i = 0; i < yes.num_outputs; ++i) {
    const tsr_type &a = *yes.outputs[i], &b = *no.outputs[i];
    expect_alike(in, "the else region's output " + std::to_string(i), b, a);
    DimVector sizes(a.sizes, a.sizes + a.rank);
    for (uint32_t d = 0; d < a.rank; ++d) {
      if (in.dims.proven(TSR_EQ, a.sizes[d], b.sizes[d])) continue;
      const bool numbers = Dims::known(a.sizes[d]) && Dims::known(b.sizes[d]);
      sizes[d] = in.dims.unbacked(numbers ? std::min(a.sizes[d], b.sizes[d]) : 0,
                                  numbers ? std::max(a.sizes[d], b.sizes[d]) : INT64_MAX);
    }
    in.result(static_cast<tsr_dtype>(a.dtype), sizes);
  }
}

// The carried values of a loop. A size of the body's input that is an unbacked symbol, where the operand has another one,
// changes from turn to turn: the body may give any size there, and the size after the last turn is a new symbol. All other
// sizes stay what they are.
class Carried {
 public:
  Carried(Infer& in, uint32_t count) : in_(in), count_(count) {}

  // The region's input `i` takes carried value `i`, first from the operand, then from the turn before.
  void input(const char* region, const tsr_signature& signature, uint32_t i) {
    const tsr_type &found = *signature.inputs[i], &start = *in_.operand(i).p;
    const std::string what = std::string("the ") + region + " region's input " + std::to_string(i);
    expect_alike(in_, what, found, start);
    for (uint32_t d = 0; d < start.rank; ++d)
      if (!in_.dims.proven(TSR_EQ, found.sizes[d], start.sizes[d]) && !in_.dims.is_unbacked_symbol(found.sizes[d]) &&
          !in_.dims.assume(TSR_EQ, found.sizes[d], start.sizes[d], "types of regions agree"))
        in_.fail("TSR-I207", what, type_text(in_, found), type_text(in_, start));
  }

  // The results of the loop, for a body whose outputs begin with the carried values.
  void results(const tsr_signature& body) {
    for (uint32_t i = 0; i < count_; ++i) {
      const tsr_type &start = *in_.operand(i).p, &taken = *body.inputs[i], &given = *body.outputs[i];
      const std::string what = "the body region's output " + std::to_string(i);
      expect_alike(in_, what, given, start);
      DimVector sizes(start.sizes, start.sizes + start.rank);
      for (uint32_t d = 0; d < start.rank; ++d) {
        const bool changes =
            in_.dims.is_unbacked_symbol(taken.sizes[d]) && !in_.dims.proven(TSR_EQ, taken.sizes[d], start.sizes[d]);
        if (changes) {
          sizes[d] = in_.dims.unbacked(0, INT64_MAX);
          changing_.push_back(taken.sizes[d]);
        } else if (!in_.dims.assume(TSR_EQ, given.sizes[d], start.sizes[d], "types of regions agree")) {
          in_.fail("TSR-I207", what, type_text(in_, given),
                   type_text(in_, start) + ", or an unbacked symbol as that size of the body's input");
        }
      }
      in_.result(static_cast<tsr_dtype>(start.dtype), sizes);
    }
  }

  // What the body gives beside the carried values, one slice per turn along a new first dimension.
  void stacked(const tsr_signature& body, tsr_dim length) {
    for (uint32_t i = count_; i < body.num_outputs; ++i) {
      const tsr_type& out = *body.outputs[i];
      DimVector shape = {length};
      for (const tsr_dim size : std::span(out.sizes, out.rank))
        shape.push_back(is_inner(size) ? in_.dims.unbacked(0, INT64_MAX) : size);
      in_.result(static_cast<tsr_dtype>(out.dtype), shape);
    }
  }

 private:
  // Whether only the body knows a size of its outputs. (A symbol that one of its nodes defines may stand for itself outside.)
  bool is_inner(tsr_dim size) const {
    if (in_.dims.is_unbacked_symbol(size)) return std::find(changing_.begin(), changing_.end(), size) != changing_.end();
    std::vector<uint32_t> inner = in_.dims.unbacked_symbols(size);
    for (uint32_t i = 0; i < in_.num_operands() && !inner.empty(); ++i)
      for (const tsr_dim d : in_.sizes(i))
        for (const uint32_t outer : in_.dims.unbacked_symbols(d)) std::erase(inner, outer);
    return !inner.empty();
  }

  Infer& in_;
  uint32_t count_;
  DimVector changing_;  // symbols of the body that have another value in each turn
};

uint32_t count_attr(const Infer& in, const char* name, int64_t most) {
  const int64_t n = in.integer(name);
  if (n < 0 || n > most)
    in.fail("TSR-I205", "attribute '" + std::string(name) + "'", std::to_string(n), "0 to " + std::to_string(most));
  return static_cast<uint32_t>(n);
}

void while_loop(Infer& in) {
  expect_regions(in, 2);
  const uint32_t carried = count_attr(in, "carried", in.num_operands());
  const tsr_signature &condition = in.call().regions[0], &body = in.call().regions[1];
  expect_count(in, "the condition region's inputs", condition.num_inputs, in.num_operands());
  expect_count(in, "the body region's inputs", body.num_inputs, in.num_operands());
  Carried values(in, carried);
  for (uint32_t i = 0; i < in.num_operands(); ++i) {
    const std::string input = "region's input " + std::to_string(i);
    if (i < carried) {
      values.input("condition", condition, i);
      values.input("body", body, i);
    } else {
      expect_type(in, "the condition " + input, *condition.inputs[i], *in.operand(i).p);
      expect_type(in, "the body " + input, *body.inputs[i], *in.operand(i).p);
    }
  }
  expect_count(in, "the condition region's outputs", condition.num_outputs, 1);
  if (condition.outputs[0]->dtype != TSR_BOOL || condition.outputs[0]->rank != 0)
    in.fail("TSR-I207", "the condition region's output", type_text(in, *condition.outputs[0]), "bool[]");
  if (body.num_outputs < carried)
    in.fail("TSR-I207", "the body region's outputs", std::to_string(body.num_outputs),
            "at least the " + std::to_string(carried) + " carried");
  values.results(body);
  if (body.num_outputs > carried) values.stacked(body, in.dims.unbacked(0, INT64_MAX));  // one number of turns for all
}

void scan(Infer& in) {
  expect_regions(in, 1);
  const uint32_t carried = count_attr(in, "carried", in.num_operands());
  const uint32_t scanned = count_attr(in, "scanned", in.num_operands() - carried);
  const tsr_dim length = in.integer("length");
  if (in.dims.compare(TSR_LT, length, 0) == TSR_TRUE)
    in.fail("TSR-I208", "attribute 'length'", in.dims.print(length), "0 or more");
  const tsr_signature& body = in.call().regions[0];
  expect_count(in, "the region's inputs", body.num_inputs, in.num_operands());
  Carried values(in, carried);
  for (uint32_t i = 0; i < in.num_operands(); ++i) {
    if (i < carried) {
      values.input("body", body, i);
      continue;
    }
    tsr_type want = *in.operand(i).p;
    if (i < carried + scanned) {
      const std::string name = "args[" + std::to_string(i) + "]";
      in.expect_rank(i, name, 1, INT64_MAX);
      in.expect_equal(name + ", axis 0", want.sizes[0], length, "a scanned tensor has a slice per turn");
      --want.rank;
      ++want.sizes;
    }
    expect_type(in, "the region's input " + std::to_string(i), *body.inputs[i], want);
  }
  if (body.num_outputs < carried)
    in.fail("TSR-I207", "the region's outputs", std::to_string(body.num_outputs),
            "at least the " + std::to_string(carried) + " carried");
  values.results(body);
  values.stacked(body, length);
}

// Sizes that only the step can tell are new symbols: -1 is the first of them, -2 the second.
void client_step(Infer& in) {
  if (in.integer("step") < 0) in.fail("TSR-I205", "attribute 'step'", std::to_string(in.integer("step")), "0 or more");
  const sdk::Attr dtypes = in.attr("dtypes");
  const std::span<const int64_t> ranks = in.ints("ranks"), sizes = in.ints("sizes");
  in.expect_length("ranks", dtypes.p->count);
  int64_t dims = 0;
  for (const int64_t r : ranks) {
    if (r < 0 || r > 64) in.fail("TSR-I205", "attribute 'ranks'", std::to_string(r), "0 to 64");
    dims += r;
  }
  in.expect_length("sizes", static_cast<size_t>(dims));
  std::map<tsr_dim, tsr_dim> told;  // by the number that stands for a size
  const tsr_dim* next = sizes.data();
  for (uint32_t i = 0; i < ranks.size(); ++i) {
    const std::string_view name = dtypes.p->strings[i];
    uint32_t dtype = TSR_DTYPE_INVALID;
    for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d)
      if (dtype_name(d) == name) dtype = d;
    if (dtype == TSR_DTYPE_INVALID) in.fail("TSR-I205", "attribute 'dtypes'", std::string(name), "names of dtypes");
    DimVector shape;
    for (int64_t k = 0; k < ranks[i]; ++k, ++next) {
      const bool unknown = Dims::known(*next) && *next < 0;
      if (unknown && *next < -dims) in.fail("TSR-I205", "attribute 'sizes'", std::to_string(*next), "sizes, or -1, -2, ...");
      if (unknown && !told.count(*next)) told[*next] = in.dims.unbacked(0, INT64_MAX);
      shape.push_back(unknown ? told[*next] : *next);
    }
    in.result(static_cast<tsr_dtype>(dtype), shape);
  }
  const std::string device(in.attr("device").as_string());
  if (device.empty()) return;
  const tsr_device home = sdk::host().core->device_id(device.c_str());
  if (home == TSR_NONE)
    in.fail("TSR-T030", "attribute 'device'", "'" + device + "'", "'cpu', or a kind and a number such as 'null:0'");
  in.results_on(home);
}

void fused(Infer& in) {
  expect_regions(in, 1);
  const tsr_signature& body = in.call().regions[0];
  expect_inputs(in, "fused", body, 0);
  for (uint32_t i = 0; i < body.num_outputs; ++i)
    in.result(static_cast<tsr_dtype>(body.outputs[i]->dtype), {body.outputs[i]->sizes, body.outputs[i]->rank});
}

void grad(Infer& in) {
  const uint32_t outputs = count_attr(in, "outputs", in.num_operands());
  const bool seeded = in.flag("seeded");
  const uint32_t first_wanted = seeded ? 2 * outputs : outputs;
  if (outputs == 0) in.fail("TSR-A003", "attribute 'outputs'", "0", "1 or more");
  if (first_wanted >= in.num_operands())
    in.fail("TSR-A003", "args", std::to_string(in.num_operands()),
            "at least " + std::to_string(first_wanted + 1) + ": outputs, " + (seeded ? "seeds, " : "") +
                "and what to differentiate with respect to");
  for (uint32_t i = 0; i < in.num_operands(); ++i)
    if (!is_float(in.dtype(i)))
      in.fail("TSR-A003", "args[" + std::to_string(i) + "]", type_text(in, *in.operand(i).p),
              "a floating-point tensor: nothing else has a gradient");
  for (uint32_t i = 0; i < outputs; ++i) {
    const std::string name = "args[" + std::to_string(i) + "]";
    if (seeded) {
      expect_type(in, "the seed of " + name, *in.operand(outputs + i).p, *in.operand(i).p);
      continue;
    }
    for (const tsr_dim d : in.sizes(i)) in.expect_equal(name + " without a seed", d, 1, "a gradient starts from one number");
  }
  for (uint32_t i = first_wanted; i < in.num_operands(); ++i) in.result(in.dtype(i), in.sizes(i));
}

}  // namespace

void add_infer_control(Table& t) {
  t.infer("cond", cond);
  t.infer("while_loop", while_loop);
  t.infer("scan", scan);
  t.infer("client_step", client_step);
  t.infer("client_effect", client_step);
  t.infer("fused", fused);
  t.infer("grad", grad);
}

}  // namespace tessera::opset
