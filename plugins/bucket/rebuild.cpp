// SPDX-License-Identifier: Apache-2.0
#include "rebuild.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <tessera/dtypes.hpp>

namespace tessera::bucket {

namespace t = tessera::sdk;

namespace {

class Builder {
 public:
  Builder(t::Graph g, const Proof& proof, Sizes& sizes) : g_(g), proof_(proof), sizes_(sizes) {}

  std::string run() {
    try {
      build();
      return {};
    } catch (const t::Error& e) {
      // What was made is read by nobody yet.
      for (auto n = made_.rbegin(); n != made_.rend(); ++n) g_.erase(*n);
      return std::string("it cannot be built: ") + e.what();
    }
  }

 private:
  void build() {
    for (const Step& s : proof_.steps) step(s);
    std::vector<tsr_id> outputs(g_.outputs().begin(), g_.outputs().end());
    for (tsr_id& v : outputs) {
      const t::Value original = g_.value(v);
      if (!sizes_.mentions(original) || !original.def()) continue;
      v = beginning(original, padded_.at(original.id)).id;
      names_.emplace_back(v, original.name());
    }
    // From here on nothing fails.
    t::check(g_.api().region_set_outputs(g_.handle(), 0, outputs.data(), static_cast<uint32_t>(outputs.size())));
    for (const Step& s : proof_.steps) {
      for (uint32_t i = 0; i < s.node.num_results(); ++i) {
        const t::Value original = s.node.result(i);
        if (sizes_.mentions(original) || original.num_uses() == 0)
          continue;  // the same value, whose readers know nothing of sizes
        names_.emplace_back(padded_.at(original.id).id, original.name());
        g_.replace_uses(original, padded_.at(original.id));
      }
    }
    for (auto s = proof_.steps.rbegin(); s != proof_.steps.rend(); ++s) {
      bool read = false;
      for (uint32_t i = 0; i < s->node.num_results(); ++i) read = read || s->node.result(i).num_uses() > 0;
      if (!read) g_.erase(s->node);
    }
    for (const auto& [value, name] : names_) g_.set_name(g_.value(value), name.c_str());
  }

  void step(const Step& s) {
    const t::Node n = s.node;
    at_ = t::Graph::before(n);
    std::vector<t::Value> operands;
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      if (!n.has_operand(i)) {
        operands.push_back(g_.none());
        continue;
      }
      const Fill f = i < s.fills.size() ? s.fills[i] : Fill::kAnything;
      operands.push_back(f == Fill::kAnything || !sizes_.mentions(n.operand(i)) ? padded(n.operand(i))
                                                                                : filled(n.operand(i), f));
    }
    if (s.kind == Step::kMean) return mean(n, operands[0]);
    std::vector<tsr_attr> attrs(n.attrs().begin(), n.attrs().end());
    std::vector<std::vector<tsr_dim>> dims(attrs.size());  // attributes borrow them
    for (size_t i = 0; i < attrs.size() && s.kind == Step::kPadded; ++i) {
      tsr_attr& a = attrs[i];
      if (a.kind == TSR_ATTR_DIM) a.i = sizes_.padded(a.i);
      if (a.kind != TSR_ATTR_DIMS) continue;
      dims[i] = sizes_.padded({a.ints, a.count});
      a.ints = dims[i].data();
    }
    const t::Node made = create(n.raw().op, operands, attrs);
    for (uint32_t i = 0; i < n.num_results(); ++i) {
      const auto to = made.result(i).type().sizes();
      const std::vector<tsr_dim> expected = sizes_.padded(n.result(i).type().sizes());
      if (!std::equal(to.begin(), to.end(), expected.begin(), expected.end()))
        throw t::Error(TSR_BUG, "TSR-B002", "op '" + std::string(n.op()) + "' on padded operands gives " + g_.print(made));
      padded_.insert_or_assign(n.result(i).id, made.result(i));
    }
  }

  // The sum over the bucket, divided by the number that there is.
  void mean(const t::Node& n, const t::Value& x) {
    const t::Attr axes = n.attr("axes");
    tsr_dim count = 1;
    for (const int64_t a : axes.as_ints()) count = g_.mul(count, n.operand(0).type().size(a));
    const t::Value total =
        create("reduce_sum", {x},
               {t::attr_ints("axes", axes.as_ints()), t::attr_bool("keepdims", n.attr("keepdims").as_bool())})
            .result();
    const t::Value number = create("dim_value", {}, {t::attr_dim("value", count)}).result();
    const t::Value divisor = create("cast", {number}, {t::attr_dtype("dtype", n.operand(0).type().dtype())}).result();
    padded_.insert_or_assign(n.result().id, create("div", {total, divisor}, {}).result());
  }

  t::Node create(const char* op, const std::vector<t::Value>& operands, const std::vector<tsr_attr>& attrs) {
    return made_.emplace_back(g_.create(at_, op, operands, attrs));
  }

  // Its value, padded: inputs and what does not depend on the symbol are padded where they are first read.
  t::Value padded(const t::Value& v) {
    if (const auto at = padded_.find(v.id); at != padded_.end()) return at->second;
    if (!sizes_.mentions(v)) return v;
    const t::Value made = extend(v, v.type().sizes(), Fill::kZero, v.type().dtype());
    filled_.insert_or_assign({v.id, Fill::kZero}, made);
    return padded_.insert_or_assign(v.id, made).first->second;
  }

  // The padded value with `f` behind its beginning.
  t::Value filled(const t::Value& v, Fill f) {
    const t::Value whole = padded(v);
    if (const auto at = filled_.find({v.id, f}); at != filled_.end()) return at->second;
    const t::Value made = extend(beginning(v, whole), v.type().sizes(), f, v.type().dtype());
    return filled_.insert_or_assign({v.id, f}, made).first->second;
  }

  t::Value beginning(const t::Value& original, const t::Value& whole) {
    const auto sizes = original.type().sizes();
    const std::vector<tsr_dim> limits(sizes.begin(), sizes.end()), starts(sizes.size(), 0);
    const std::vector<int64_t> strides(sizes.size(), 1);
    return create("slice", {whole},
                  {t::attr_dims("starts", starts), t::attr_dims("limits", limits), t::attr_ints("strides", strides)})
        .result();
  }

  t::Value extend(const t::Value& v, std::span<const tsr_dim> from, Fill f, tsr_dtype dtype) {
    const std::vector<tsr_dim> sizes(from.begin(), from.end()), low(sizes.size(), 0);
    std::vector<tsr_dim> high;
    for (const tsr_dim d : sizes) high.push_back(g_.sub(sizes_.padded(d), d));
    return create("pad", {v, f == Fill::kZero ? g_.none() : scalar(f, dtype)},
                  {t::attr_dims("low", low), t::attr_dims("high", high)})
        .result();
  }

  t::Value scalar(Fill f, tsr_dtype dtype) {
    alignas(16) char bytes[16] = {};
    tsr_tensor c{};
    c.data = bytes;
    c.dtype = dtype;
    c.flags = TSR_TENSOR_CONTIGUOUS;
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const int bits = dtype_bits(dtype);
    const bool is_signed = dtype >= TSR_I8 && dtype <= TSR_I64;
    const bool real = dtype == TSR_F16 || dtype == TSR_BF16 || dtype == TSR_F32 || dtype == TSR_F64;
    if (real) {
      store_from<double>(dtype, bytes, 0,
                         f == Fill::kLowest    ? -kInf
                         : f == Fill::kHighest ? kInf
                         : f == Fill::kOne     ? 1.0
                                               : -0.0);
    } else if (dtype == TSR_BOOL) {
      bytes[0] = f == Fill::kHighest || f == Fill::kOne ? 1 : 0;
    } else {
      const uint64_t top = uint64_t{1} << (bits - 1), all = top | (top - 1);
      const uint64_t value = f == Fill::kOne       ? 1
                             : f == Fill::kLowest  ? (is_signed ? top : 0)
                             : f == Fill::kHighest ? (is_signed ? top - 1 : all)
                                                   : 0;
      std::memcpy(bytes, &value, static_cast<size_t>(bits) / 8);  // little-endian
    }
    return create("constant", {}, {t::attr_tensor("value", c)}).result();
  }

  t::Graph g_;
  const Proof& proof_;
  Sizes& sizes_;
  t::Graph::At at_;
  std::vector<t::Node> made_;
  std::vector<std::pair<tsr_id, std::string>> names_;   // of what takes the place of an original value
  std::map<tsr_id, t::Value> padded_;                   // by value of the original graph
  std::map<std::pair<tsr_id, Fill>, t::Value> filled_;  // the same
};

}  // namespace

std::string rebuild(t::Graph g, const Proof& proof, Sizes& sizes) { return Builder(g, proof, sizes).run(); }

}  // namespace tessera::bucket
