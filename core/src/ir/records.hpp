// SPDX-License-Identifier: Apache-2.0
// Op records: the parsed form of .tops files, and the registry that a context holds. Grammar: docs/ir.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

enum Trait : uint32_t {
  kPure = 1u << 0,
  kElementwise = 1u << 1,
  kCommutative = 1u << 2,
  kIdempotent = 1u << 3,
  kInvolution = 1u << 4,
  kReduction = 1u << 5,
  kView = 1u << 6,
  kComposite = 1u << 7,
  kRandom = 1u << 8,
  kControl = 1u << 9,
  kUnbacked = 1u << 10,
  kConstant = 1u << 11,
  kAutograd = 1u << 12,    // expanded or removed by the autograd stage: no backend meets it
  kTransfer = 1u << 13,    // its result lies on the device that its attribute `device` names; the host moves it there
  kQuick = 1u << 14,       // takes an instruction or two per element
  kRearranges = 1u << 15,  // elements of its results are elements of its operands, or a fill value
};

// One item of a shape pattern: M | *S | 4 | $attr | f(args) | ?
struct ShapeItem {
  enum Kind { kDim, kRun, kNumber, kAttr, kCall, kUnknown } kind;
  std::string name;  // of the dim, run, attribute or function
  int64_t number = 0;
  uint32_t slot = 0;                // index in the record's dim_names, run_names or attrs; a call: ShapeFunction
  std::vector<std::string> args;    // of a call: run names, or "$attr"
  std::vector<uint32_t> arg_slots;  // where they are: in run_names or attrs
};
enum ShapeFunction : uint32_t { kBroadcast, kReduce, kPermute, kConcat };

// A dtype position: variable | concrete | $attr | real(T) | complex(T) | ?
struct DtypePattern {
  enum Kind { kVariable, kConcrete, kAttr, kRealOf, kComplexOf, kUnknown } kind;
  std::string name;
  tsr_dtype dtype = TSR_DTYPE_INVALID;
  uint32_t slot = 0;  // index in the record's dtype_names or attrs
};

struct OperandDecl {
  std::string name;
  bool optional = false, variadic = false;
  DtypePattern dtype;
  std::vector<ShapeItem> shape;
};

struct ResultDecl {
  std::string name;  // "out" when the record gives none
  DtypePattern dtype;
  std::vector<ShapeItem> shape;
};

struct AttrDecl {
  std::string name;
  uint32_t kind;  // tsr_attr_kind
  bool required = true;
  tsr_attr fallback{};  // the default; pointers into the record's storage
  std::vector<std::string> choices;
};

struct Body;  // a decompose or grad body as parsed (records_parser.cpp)

struct OpRecord {
  std::string name;  // with its prefix
  std::string doc, numerics;
  uint32_t traits = 0;     // Trait bits
  std::string trait_text;  // "pure elementwise"
  std::vector<OperandDecl> operands;
  std::vector<AttrDecl> attrs;  // sorted by name
  std::vector<ResultDecl> results;
  std::map<std::string, uint64_t> dtype_sets;  // variable -> bit set of tsr_dtype
  // What the patterns bind, in order of appearance; at most kMaxNames of each.
  std::vector<std::string> dtype_names, dim_names, run_names;
  std::vector<uint64_t> dtype_masks;  // dtype_sets, indexed as dtype_names
  std::shared_ptr<const Body> decompose_body, grad_body;
  const tsr_op_impl* impl = nullptr;  // C++ callbacks, or null
  std::string plugin;                 // id of the plugin that brought it
  std::string file;
  uint32_t line = 0;
  std::string signature;  // the record's first line as printed in the op reference
  uint32_t index = 0;     // tsr_node.op_index

  static constexpr size_t kMaxNames = 32;

  bool has(Trait t) const { return (traits & t) != 0; }
  bool can_decompose() const { return decompose_body || (impl && impl->decompose); }
  const AttrDecl* attr(std::string_view name) const;
  std::vector<std::unique_ptr<std::vector<char>>> storage;  // backs attribute defaults
};

class OpRegistry {
 public:
  OpRegistry();
  ~OpRegistry();
  // Parses the set's records and binds its callbacks. Throws TSR-O errors (with a caret) for a malformed record, a duplicate
  // op, a callback without a record, an op that can neither decompose nor compute and is not a primitive of the standard set.
  void add(const tsr_opset& set, const std::string& plugin);
  const OpRecord* find(std::string_view op) const;  // null: unknown
  const OpRecord& get(std::string_view op) const;   // throws TSR-O001 with a suggestion
  std::vector<const OpRecord*> all() const;         // sorted by name

 private:
  std::map<std::string, std::unique_ptr<OpRecord>, std::less<>> records_;
  std::unordered_map<std::string_view, const OpRecord*> fast_;
};

// Checks an application of `record` against it and infers the result types: operand count, dtypes and shape patterns,
// attributes (`attrs` sorted, defaults already filled in), then the pattern or the C++ callback. Size arrays of the
// results live in graph scratch memory. Throws TSR-I errors that name the operand or attribute, found and expected.
std::vector<tsr_type> infer(Graph& graph, const OpRecord& record, const tsr_call& call);

// Sorts, checks kinds and choices, fills in defaults. Throws TSR-I02x. Arrays stay borrowed from `given`.
std::vector<tsr_attr> complete_attrs(const OpRecord& record, std::span<const tsr_attr> given);

// Builds the decomposition of `node` before it, through the record's body or callback, and returns the replacement of each
// result.
std::vector<tsr_id> build_decomposition(Graph& graph, tsr_id node);

std::string print_attr_value(const Graph& graph, const tsr_attr& attr);

}  // namespace tessera::core
