// SPDX-License-Identifier: Apache-2.0
// Checking an application of an op against its record: operands, shape patterns, inferred result types.
#pragma once

#include <span>
#include <vector>

#include "ir/records.hpp"
#include "tessera/abi.h"

namespace tessera::core {

class Graph;
class Sizes;

// What to do with two sizes that must be equal and can be neither proved nor disproved to be.
enum class Prove {
  kAssume,  // record the equality as an assumption of the graph: a guard
  kStrict,  // refuse: whoever built the node should have recorded it
};

// As infer() of records.hpp. Errors: TSR-I030 operand count, I031 dtype, I032 shape, I033 sizes that do not fit each other,
// I034 an attribute that does not fit the shape, I035 no way to infer, I036 the callback broke its contract, I037 regions,
// I038 devices, TSR-S for size arithmetic. They name the op and the operand; whoever knows the place adds it.
std::vector<tsr_type> infer(Graph& graph, const OpRecord& record, const tsr_call& call, Prove prove);

// Throws TSR-I039 unless the stored result types are what the record gives: dtype, rank and sizes. Strides and devices are not
// compared: layout and placement are decided by passes, not by records. Results of ops whose sizes depend on data are only
// matched against the record's patterns, for inferring them again would make new symbols; those of control ops are compared
// with what their regions give, but for the names of such symbols.
void check_result_types(Graph& graph, const OpRecord& record, const tsr_call& call, std::span<const tsr_type* const> stored,
                        Prove prove);

// A tsr_call over values of a graph. Borrows the graph's tables: valid until the next edit.
class CallView {
 public:
  CallView(const Graph& graph, tsr_id node);
  CallView(const Graph& graph, const OpRecord& record, std::span<const tsr_id> operands, std::span<const tsr_attr> attrs,
           std::span<const tsr_id> regions);
  CallView(const CallView&) = delete;
  const tsr_call& call() const { return call_; }

 private:
  void fill(const Graph& graph, const char* op, std::span<const tsr_id> operands, std::span<const tsr_attr> attrs,
            std::span<const tsr_id> regions);
  tsr_call call_{};
  std::vector<const tsr_type*> types_;
  std::vector<tsr_signature> signatures_;
};

// The pattern in record syntax: "T[*S]", "f32[N, 4]".
std::string pattern_text(const DtypePattern& dtype, const std::vector<ShapeItem>& shape);

}  // namespace tessera::core
