// SPDX-License-Identifier: Apache-2.0
// Straight-line bodies of records (`decompose { .. }`, `grad { .. }`): their parsed form, and building nodes from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;
class Reader;
struct OpRecord;

// A value that is known when the body is built: a literal, an attribute of the call, a fact about an operand's type.
struct BodyExpr {
  enum Kind {
    kInt,
    kFloat,
    kBool,
    kString,
    kTensor,
    kName,     // a dtype, a dtype variable of the record, inf or nan
    kAttr,     // $name
    kValue,    // %name: only as an operand or as an argument of shape, size, rank, numel, dtype
    kOmitted,  // _
    kList,     // [a, b]: an element that is itself a list is spliced in
    kCall,     // text(args): floordiv mod min max range shape size rank numel dtype real complex accumulate
    kSum,
    kDifference,
    kProduct,
  } kind = kInt;
  int64_t i = 0;
  double f = 0;
  std::string text;
  const tsr_tensor* tensor = nullptr;  // in the record's storage
  std::vector<BodyExpr> args;
};

struct BodyStatement {
  std::vector<std::string> results;
  std::string op;
  std::vector<BodyExpr> operands;
  std::vector<std::pair<std::string, BodyExpr>> attrs;
  uint32_t line = 0;
};

struct Body {
  std::vector<BodyStatement> statements;
  std::vector<BodyExpr> returns;  // kValue or kOmitted
  uint32_t line = 0;
};

// Reads `{ statements; return .. }` for `record`, whose signature is complete. Names are checked here, ops and types when a
// body is built, for the ops may come from another op set.
Body parse_body(Reader& reader, const OpRecord& record, bool grad);

// Gradient of `node`: nodes are added at the end of its region. `grad_results`: one per result, TSR_NONE for zero. Returns one
// value per operand, TSR_NONE where there is no gradient. From the record's text or its callback; TSR-O008 when it has neither.
std::vector<tsr_id> build_grad(Graph& graph, tsr_id node, std::span<const tsr_id> grad_results);

}  // namespace tessera::core
