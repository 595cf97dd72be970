// SPDX-License-Identifier: Apache-2.0
#include "api/op_list.hpp"

#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

using Json = nlohmann::ordered_json;

const char* attr_kind_name(uint32_t kind) {
  switch (kind) {
    case TSR_ATTR_INT: return "int";
    case TSR_ATTR_FLOAT: return "float";
    case TSR_ATTR_BOOL: return "bool";
    case TSR_ATTR_STRING: return "str";
    case TSR_ATTR_DTYPE: return "dtype";
    case TSR_ATTR_DIM: return "dim";
    case TSR_ATTR_INTS: return "ints";
    case TSR_ATTR_FLOATS: return "floats";
    case TSR_ATTR_DIMS: return "dims";
    case TSR_ATTR_STRINGS: return "strs";
    case TSR_ATTR_TENSOR: return "tensor";
    default: return "?";
  }
}

Json describe(const OpRecord& r) {
  Json where = Json::object();
  for (const auto& [variable, bits] : r.dtype_sets) {
    Json names = Json::array();
    for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d)
      if (bits >> d & 1) names.push_back(dtype_name(d));
    where[variable] = std::move(names);
  }
  Json traits = Json::array(), operands = Json::array(), results = Json::array(), attributes = Json::array();
  std::istringstream words(r.trait_text);
  for (std::string word; words >> word;) traits.push_back(word);
  for (const OperandDecl& o : r.operands)
    operands.push_back({{"name", o.name}, {"optional", o.optional}, {"variadic", o.variadic}});
  for (const ResultDecl& d : r.results) results.push_back({{"name", d.name}});
  for (const AttrDecl& a : r.attrs) {
    Json fallback = nullptr;
    if (!a.required) {
      std::string text;
      append_attr(text, nullptr, a.fallback);
      fallback = text;
    }
    attributes.push_back({{"name", a.name},
                          {"kind", attr_kind_name(a.kind)},
                          {"required", a.required},
                          {"default", fallback},
                          {"choices", a.choices}});
  }
  return {{"name", r.name},
          {"signature", r.signature},
          {"where", std::move(where)},
          {"doc", r.doc},
          {"numerics", r.numerics},
          {"traits", std::move(traits)},
          {"operands", std::move(operands)},
          {"results", std::move(results)},
          {"attributes", std::move(attributes)},
          {"decomposes", r.can_decompose()},
          {"gradient", r.grad_body != nullptr || (r.impl && r.impl->grad)},
          {"plugin", r.plugin},
          {"file", r.file},
          {"line", r.line}};
}

}  // namespace

std::string op_list_json(const OpRegistry& ops) {
  Json list = Json::array();
  for (const OpRecord* r : ops.all()) list.push_back(describe(*r));
  return Json{{"ops", std::move(list)}}.dump();
}

}  // namespace tessera::core
