// SPDX-License-Identifier: Apache-2.0
#include "finish.hpp"

#include <algorithm>
#include <limits>

#include "product.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

std::optional<float> literal(const sdk::Value& v) {
  const sdk::Node def = v.def();
  if (!def || !def.is("constant") || v.type().dtype() != TSR_F32) return std::nullopt;
  const tsr_tensor& t = def.attr("value").as_tensor();
  for (uint32_t d = 0; d < t.rank; ++d)
    if (t.sizes[d] != 1) return std::nullopt;
  return tessera::load_as<float>(TSR_F32, t.data, 0);
}

int input_of(const sdk::Node& fused, const sdk::Value& v) {
  const auto inputs = sdk::Graph(fused.g).inputs(fused.regions()[0]);
  const auto at = std::find(inputs.begin(), inputs.end(), v.id);
  return at == inputs.end() ? -1 : static_cast<int>(at - inputs.begin());
}

// Only dimension `axis` of a result of rank `rank`, counted from its end, is not 1.
bool along(const sdk::Type& t, const sdk::Type& result, int axis) {
  const int rank = static_cast<int>(t.rank()), of = static_cast<int>(result.rank());
  if (rank > of) return false;
  for (int d = 0; d < rank; ++d) {
    const int at = d + of - rank;
    if (t.size(d) != (at == axis ? result.size(axis) : 1)) return false;
  }
  return axis >= of - rank;
}

}  // namespace

sdk::Node anchor_of(const sdk::Node& fused) {
  sdk::Node found{fused.g, TSR_NONE};
  if (!fused.is("fused") || fused.regions().size() != 1) return found;
  for (const sdk::Node& n : sdk::Graph(fused.g).nodes(fused.regions()[0])) {
    if (!is_product(n.op()) && !n.is("conv")) continue;
    if (found) return {fused.g, TSR_NONE};
    found = n;
  }
  return found;
}

uint32_t outer_operand(const sdk::Node& fused, const sdk::Node& inner, uint32_t i) {
  return static_cast<uint32_t>(std::max(0, input_of(fused, inner.operand(i))));
}

uint32_t outer_operand(const sdk::Node& fused, const sdk::Value& v) {
  return static_cast<uint32_t>(std::max(0, input_of(fused, v)));
}

bool is_outer_operand(const sdk::Node& fused, const sdk::Node& inner, uint32_t i) {
  return input_of(fused, inner.operand(i)) >= 0;
}

bool Finish::reads_nothing() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const Step& s) { return s.mode == FinishStep::kScalar; });
}

bool Finish::sums_and_relu(int* bias, int* add, bool* relu) const {
  *bias = *add = -1, *relu = false;
  for (const Step& s : steps_) {
    const bool along = s.mode == FinishStep::kRow || s.mode == FinishStep::kColumn;
    if (s.kind == FinishStep::kAdd && along && *bias < 0 && *add < 0 && !*relu)
      *bias = static_cast<int>(s.operand);
    else if (s.kind == FinishStep::kAdd && s.mode == FinishStep::kDense && *add < 0 && !*relu)
      *add = static_cast<int>(s.operand);
    else if (s.kind == FinishStep::kRelu && !*relu)
      *relu = true;
    else
      return false;
  }
  return true;
}

std::optional<Finish> Finish::of(const sdk::Node& fused, const sdk::Node& anchor, const char** why) {
  const auto refuse = [&](const char* text) {
    *why = text;
    return std::optional<Finish>();
  };
  const sdk::Graph g(fused.g);
  const tsr_id region = fused.regions()[0];
  for (uint32_t i = 0; i < anchor.num_operands(); ++i)
    if (anchor.has_operand(i) && !is_outer_operand(fused, anchor, i)) return refuse("something precedes the product");
  const auto outputs = g.outputs(region);
  if (outputs.size() != 1) return refuse("the region has several results");
  std::optional<Finish> out = chain(fused, anchor, outputs[0], why);
  if (!out) return out;
  if (out->steps_.empty()) return refuse("nothing follows the product");
  size_t others = 0;
  for (const sdk::Node& n : g.nodes(region)) others += !n.is("constant");
  if (others != out->steps_.size() + 1) return refuse("the region holds more than a chain");
  return out;
}

std::optional<Finish> Finish::chain(const sdk::Node& fused, const sdk::Node& anchor, tsr_id end, const char** why) {
  const auto refuse = [&](const char* text) {
    *why = text;
    return std::optional<Finish>();
  };
  const sdk::Graph g(fused.g);
  const sdk::Type type = anchor.result().type();
  if (type.dtype() != TSR_F32) return refuse("cpu computes what follows f32 products only");
  if (type.rank() == 0) return refuse("the product has one element");

  Finish out;
  sdk::Value v = anchor.result();
  while (v.id != end) {
    const auto uses = v.uses();
    if (uses.size() != 1 || uses[0].node == TSR_NONE) return refuse("the product's result is used more than once");
    const sdk::Node n = g.node(uses[0].node);
    if (n.num_results() != 1 || n.result().type().p != type.p) return refuse("what follows changes the shape or dtype");
    Step s{};
    if (n.is("relu")) {
      s.kind = FinishStep::kRelu;
    } else if (n.is("hardswish")) {
      s.kind = FinishStep::kHardswish;
    } else if (n.is("gelu")) {
      s.kind = n.attr("approximate").as_string() == "tanh" ? FinishStep::kGeluTanh : FinishStep::kGelu;
    } else if (n.is("clamp")) {
      if (n.operand(0) != v) return refuse("the product's result is a bound");
      s.kind = FinishStep::kClamp;
      s.lo = -std::numeric_limits<float>::infinity(), s.hi = -s.lo;
      for (uint32_t i = 1; i < n.num_operands(); ++i) {
        if (!n.has_operand(i)) continue;
        const std::optional<float> bound = literal(n.operand(i));
        if (!bound || *bound != *bound) return refuse("a bound is no number");
        (i == 1 ? s.lo : s.hi) = *bound;
      }
    } else if (n.is("add") || n.is("mul")) {
      s.kind = n.is("add") ? FinishStep::kAdd : FinishStep::kMul;
      const sdk::Value u = n.operand(n.operand(0) == v ? 1 : 0);
      const int input = input_of(fused, u);
      if (const std::optional<float> x = literal(u)) {
        s.lo = *x;
      } else if (input < 0) {
        return refuse("an operand is computed in the region");
      } else {
        s.operand = static_cast<uint32_t>(input);
        const int rank = static_cast<int>(type.rank());
        if (u.type().p == type.p)
          s.mode = FinishStep::kDense;
        else if (anchor.is("conv") && along(u.type(), type, 1))
          s.mode = FinishStep::kColumn;
        else if (!anchor.is("conv") && along(u.type(), type, rank - 1))
          s.mode = FinishStep::kRow;
        else
          return refuse("an operand broadcasts along other dimensions");
        if (u.type().dtype() != TSR_F32) return refuse("an operand is not f32");
      }
    } else {
      return refuse("cpu has no step for what follows the product");
    }
    out.steps_.push_back(std::move(s));
    if (out.steps_.size() > kMaxSteps) return refuse("more than eight ops follow the product");
    v = n.result();
  }
  return out;
}

void Finish::bind(const sdk::Compile& c) {
  for (Step& s : steps_) {
    if (s.mode == FinishStep::kScalar) continue;
    const sdk::Value v = c.node().operand(s.operand);
    s.sizes = LaunchSizes(c, v.type());
    s.strided = may_be_strided(c.graph(), v);
  }
}

int64_t Finish::workspace_of(const int64_t* dims, uint64_t strided) const {
  int64_t bytes = 0;
  for (const Step& s : steps_)
    if (s.strided && is_strided(strided, s.operand)) bytes += s.sizes.bytes(dims);
  return bytes;
}

int Finish::steps(const tsr_launch& l, char* space, FinishStep* out) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    out[i] = {s.kind, s.mode, nullptr, s.lo, s.hi};
    if (s.mode == FinishStep::kScalar) continue;
    const tsr_tensor& t = l.inputs[s.operand];
    out[i].data = static_cast<const float*>(t.data);
    if (!s.strided || (t.flags & TSR_TENSOR_CONTIGUOUS)) continue;
    copy_dense(t, space);
    out[i].data = reinterpret_cast<const float*>(space);
    space += s.sizes.bytes(l.dims);
  }
  return static_cast<int>(steps_.size());
}

std::string Finish::name() const {
  static constexpr const char* kNames[] = {".add", ".mul", ".relu", ".clamp", ".hardswish", ".gelu", ".gelu_tanh"};
  std::string out;
  for (const Step& s : steps_) out += kNames[s.kind];
  return out;
}

}  // namespace cpu
