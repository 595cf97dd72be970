// SPDX-License-Identifier: Apache-2.0
// What a plan demands of the inputs of a call, and the sizes that they determine.
#include <algorithm>
#include <cctype>

#include "ir/graph.hpp"
#include "memory/device.hpp"
#include "plan/plan.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

std::string expected_type(const Plan& plan, uint32_t i) {
  const InputSpec& in = plan.inputs[i];
  std::string s(dtype_name(in.dtype));
  s += '[';
  for (uint32_t k = 0; k < in.rank; ++k) s += (k ? ", " : "") + plan.graph->sizes().print(in.sizes[k]);
  return s + ']';
}

std::string found_type(const tsr_tensor& t) { return type_text(t.dtype, {t.sizes, t.rank}); }

// Where the symbols of a text come from: "; s0 is the size at index 0 of input 'x'".
std::string sources_of(const Plan& plan, std::string_view text) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string out;
  for (const InputFacts::Dim& fact : plan.facts.dims) {
    if (fact.kind != InputFacts::Dim::kSymbol) continue;
    const std::string_view name = plan.graph->sizes().symbols()[fact.symbol].name;
    bool found = false;
    for (size_t at = text.find(name); at != text.npos && !found; at = text.find(name, at + 1))
      found = (at == 0 || !is_word(text[at - 1])) && (at + name.size() == text.size() || !is_word(text[at + name.size()]));
    if (found)
      out += "; " + std::string(name) + " is the size at index " + std::to_string(fact.dim) + " of input '" +
             plan.inputs[fact.input].name + "'";
  }
  return out;
}

[[noreturn]] void size_mismatch(const Plan& plan, uint32_t i, uint32_t k, const tsr_tensor& t, int64_t expected) {
  const tsr_dim d = plan.inputs[i].sizes[k];
  std::string want = std::to_string(expected);
  if (TSR_DIM_IS_EXPR(d)) want = plan.graph->sizes().print(d) + " = " + want;
  throw user_error("TSR-T023",
                   plan.describe_input(i) + ": size mismatch at index " + std::to_string(k) + ". found " +
                       std::to_string(t.sizes[k]) + " (" + found_type(t) + "), expected " + want + " (" +
                       expected_type(plan, i) + ")" +
                       (TSR_DIM_IS_EXPR(d) ? sources_of(plan, plan.graph->sizes().print(d)) : ""),
                   "pass a tensor of that shape, or compile for this one");
}

// As the tensor has it; of a row-major one that carries none, what its sizes say.
int64_t stride_of(const tsr_tensor& t, uint32_t dim) {
  if (t.strides) return t.strides[dim];
  int64_t stride = 1;
  for (uint32_t k = dim + 1; k < t.rank; ++k) stride *= t.sizes[k];
  return stride;
}

}  // namespace

std::string Plan::describe_input(uint32_t i) const {
  const std::string name = graph->tables().name ? graph->tables().name : "";
  if (nested) return "region input '" + inputs[i].name + "'";
  const char* kind = inputs[i].kind == TSR_INPUT_PARAM ? "param" : inputs[i].kind == TSR_INPUT_STATE ? "state" : "input";
  return std::string(kind) + " '" + inputs[i].name + "' (number " + std::to_string(i) + " of graph '" + name + "')";
}

void Plan::bind(const CallArgs& args, int64_t* dims) const {
  if (args.outer_dims) std::copy(args.outer_dims, args.outer_dims + program.num_symbols(), dims);
  if (!args.trusted)
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      const InputSpec& in = inputs[i];
      const tsr_tensor& t = *args.inputs[i];
      if (args.guarded && !in.read) continue;
      if (t.dtype != in.dtype)
        throw user_error("TSR-T021",
                         describe_input(i) + ": dtype mismatch. found " + std::string(dtype_name(t.dtype)) + ", expected " +
                             std::string(dtype_name(in.dtype)),
                         "cast it to " + std::string(dtype_name(in.dtype)));
      if (t.rank != in.rank)
        throw user_error("TSR-T022",
                         describe_input(i) + ": rank mismatch. found " + std::to_string(t.rank) + " (" + found_type(t) +
                             "), expected " + std::to_string(in.rank) + " (" + expected_type(*this, i) + ")",
                         "reshape it to rank " + std::to_string(in.rank));
      if (t.device != in.device)
        throw user_error("TSR-T024",
                         describe_input(i) + ": device mismatch. found '" + device(t.device).name() + "', expected '" +
                             device(in.device).name() + "'",
                         device(in.device).available()
                             ? "copy the tensor to '" + device(in.device).name() + "' before the call"
                             : "no loaded plugin provides '" + device(in.device).name() +
                                   "': change the device in the graph's type to '" + device(t.device).name() + "'");
      if (!in.strides.empty())
        for (uint32_t k = 0; k < in.rank; ++k)
          if (t.sizes[k] > 1 && t.strides[k] != in.strides[k])
            throw user_error("TSR-T027",
                             describe_input(i) + ": stride mismatch at index " + std::to_string(k) + ". found " +
                                 std::to_string(t.strides[k]) + ", expected " + std::to_string(in.strides[k]),
                             "pass a tensor of the layout that the graph was captured with");
    }
  bool evaluated = false;
  for (size_t f = 0; f < facts.dims.size(); ++f) {
    const InputFacts::Dim& fact = facts.dims[f];
    const tsr_tensor& t = *args.inputs[fact.input];
    const int64_t found = t.sizes[fact.dim];
    switch (fact.kind) {
      case InputFacts::Dim::kNumber:
        if (found != fact.size) size_mismatch(*this, fact.input, fact.dim, t, fact.size);
        break;
      case InputFacts::Dim::kSymbol: dims[fact.symbol] = found; break;
      case InputFacts::Dim::kStride: dims[fact.symbol] = stride_of(t, fact.dim); break;
      case InputFacts::Dim::kSolve:
        switch (graph->sizes().solve(fact.size, fact.symbol, found, {dims, program.num_symbols()}, &dims[fact.symbol])) {
          case Sizes::Solution::kFound: break;
          case Sizes::Solution::kMany:
            throw user_error("TSR-R023",
                             describe_input(fact.input) + ": " + graph->sizes().print(fact.size) + " = " +
                                 std::to_string(found) + " has no single solution",
                             "give an input a dimension of exactly that symbol");
          case Sizes::Solution::kNone:
            throw user_error("TSR-T023", describe_input(fact.input) + ": size mismatch at index " + std::to_string(fact.dim) +
                                             ". found " + std::to_string(found) + ", which no value of " +
                                             graph->sizes().print(fact.size) + " gives (" + expected_type(*this, fact.input) +
                                             ")");
        }
        break;
      case InputFacts::Dim::kCheck:
        if (!evaluated) program.evaluate(0, dims);
        evaluated = true;
        if (const int64_t expected = expected_[f].value(dims); found != expected)
          size_mismatch(*this, fact.input, fact.dim, t, expected);
        break;
    }
  }
  if (!evaluated) program.evaluate(0, dims);
  for (const uint32_t s : facts.symbols) {
    const tsr_symbol& symbol = graph->sizes().symbols()[s];
    if (dims[s] >= symbol.min && dims[s] <= symbol.max) continue;
    for (const InputFacts::Dim& fact : facts.dims)
      if (fact.kind != InputFacts::Dim::kNumber && fact.kind != InputFacts::Dim::kCheck && fact.symbol == s)
        throw user_error("TSR-T025",
                         describe_input(fact.input) + (fact.kind == InputFacts::Dim::kStride ? ": stride" : ": size") +
                             " at index " + std::to_string(fact.dim) + " is out of range. found " + symbol.name + " = " +
                             std::to_string(dims[s]) + ", expected " + std::to_string(symbol.min) + ".." +
                             (symbol.max == INT64_MAX ? "" : std::to_string(symbol.max)),
                         "pass a size in that range, or compile for this one");
  }
  check_relations(0, dims);
}

void Plan::check_relations(uint32_t section, const int64_t* dims) const {
  for (const Relation& r : relations_)
    if (r.section == section && !Sizes::holds(static_cast<tsr_relation>(r.relation), r.a.value(dims), r.b.value(dims)))
      throw user_error("TSR-T026",
                       "the sizes of this call break an assumption of graph '" + std::string(graph->tables().name) + "': " +
                           r.text + ", found " + std::to_string(r.a.value(dims)) + " and " + std::to_string(r.b.value(dims)) +
                           (r.why.empty() ? "" : " (" + r.why + ")") + sources_of(*this, r.text),
                       "pass sizes that keep it, or compile for these");
}

}  // namespace tessera::core
