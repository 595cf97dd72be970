// SPDX-License-Identifier: Apache-2.0
#include "draw.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/dtypes.hpp"

namespace tessera::conformance {
namespace {

using Json = nlohmann::ordered_json;

// "T" of "%a: T[*A]" in a signature; "" where it is neither a variable nor a dtype.
std::string dtype_word(const std::string& signature, const std::string& operand) {
  for (const std::string mark : {": ", "?: ", "...: "}) {
    const size_t at = signature.find("%" + operand + mark);
    if (at == signature.npos) continue;
    const size_t begin = at + 1 + operand.size() + mark.size();
    size_t end = begin;
    while (end < signature.size() && (std::isalnum(static_cast<unsigned char>(signature[end])) || signature[end] == '_')) ++end;
    return signature.substr(begin, end - begin);
  }
  return "";
}

// Texts that a required attribute may have.
std::vector<std::string> guesses(const OpRecord::Attribute& a) {
  if (!a.choices.empty()) return {"\"" + a.choices.front() + "\"", "\"" + a.choices.back() + "\""};
  if (a.kind == "int") return {"0", "1", "-1"};
  if (a.kind == "ints" || a.kind == "dims") return {"[0]", "[1]", "[]", "[1, 0]"};
  if (a.kind == "float") return {"0.5"};
  if (a.kind == "floats") return {"[0.5, 1.5]"};
  if (a.kind == "bool") return {"true", "false"};
  if (a.kind == "dtype") return {"f32"};
  if (a.kind == "dim") return {"2"};
  return {"\"\""};
}

// Shapes of operands, in the order in which they are tried: equal ones, ones that broadcast, a matrix product's.
std::vector<std::vector<std::vector<int64_t>>> shape_choices(size_t operands) {
  const std::vector<std::vector<int64_t>> all = {{3, 4}, {5}, {}, {0}, {2, 3, 5}, {1}, {7, 19}, {1, 2, 1, 5}, {2, 0, 3}};
  std::vector<std::vector<std::vector<int64_t>>> out;
  for (const auto& s : all) out.emplace_back(operands, s);
  if (operands == 2) {
    out.push_back({{2, 3}, {}});
    out.push_back({{3, 1, 4}, {2, 1}});
    out.push_back({{3, 4}, {4, 5}});
    out.push_back({{3, 4}, {4}});
  }
  if (operands >= 3)
    for (const auto& s : {std::vector<int64_t>{3, 4}, std::vector<int64_t>{2, 3, 5}}) {
      std::vector<std::vector<int64_t>> with(operands, {s.back()});
      with[0] = s;
      out.push_back(std::move(with));
    }
  return out;
}

}  // namespace

bool OpRecord::has_trait(const std::string& t) const { return std::find(traits.begin(), traits.end(), t) != traits.end(); }

std::vector<OpRecord> read_op_records(const std::string& json) {
  std::vector<OpRecord> out;
  const Json document = Json::parse(json);
  for (const Json& o : document.at("ops")) {
    OpRecord r;
    r.name = o.at("name");
    r.plugin = o.value("plugin", "");
    r.results = o.at("results").size();
    for (const Json& t : o.at("traits")) r.traits.push_back(t);
    const std::string signature = o.at("signature");
    for (const Json& x : o.at("operands"))
      r.operands.push_back({x.at("name"), dtype_word(signature, x.at("name")), x.at("optional"), x.at("variadic")});
    for (const Json& a : o.at("attributes"))
      r.attributes.push_back({a.at("name"), a.at("kind"), a.at("required"), a.at("choices")});
    for (const auto& [variable, dtypes] : o.at("where").items())
      r.where.emplace_back(variable, dtypes.get<std::vector<std::string>>());
    out.push_back(std::move(r));
  }
  return out;
}

std::vector<Case> draw_cases(const OpRecord& record, size_t per_dtype,
                             const std::function<bool(const std::string& text)>& valid) {
  std::vector<Case> out;
  if (record.has_trait("control") || record.has_trait("autograd"))
    return out;  // those with regions, and those that are expanded before
  const std::vector<std::string> first = record.where.empty() ? std::vector<std::string>{""} : record.where.front().second;
  std::vector<std::string> attribute_texts = {""};
  for (const OpRecord::Attribute& a : record.attributes) {
    if (!a.required) continue;
    std::vector<std::string> with;
    for (const std::string& before : attribute_texts)
      for (const std::string& g : guesses(a)) with.push_back(before + (before.empty() ? "" : ", ") + a.name + " = " + g);
    attribute_texts = std::move(with);
    if (attribute_texts.size() > 64) attribute_texts.resize(64);
  }
  for (const std::string& dtype : first) {
    size_t drawn = 0;
    for (const auto& shapes : shape_choices(record.operands.size())) {
      for (const std::string& attributes : attribute_texts) {
        if (drawn == per_dtype) break;
        Case c;
        c.op = record.name;
        c.where = "record of " + record.name;
        c.dtype = dtype.empty() ? 0 : uint32_t{dtype_from_name(dtype)};
        c.results = record.results;
        if (!attributes.empty()) c.attributes = "{" + attributes + "}";
        for (size_t i = 0; i < record.operands.size(); ++i) {
          const OpRecord::Operand& o = record.operands[i];
          Operand operand;
          operand.sizes = shapes[i];
          operand.dtype = uint32_t{dtype_from_name(o.dtype)};
          for (size_t v = 0; v < record.where.size(); ++v)
            if (record.where[v].first == o.dtype)
              operand.dtype = v == 0 ? c.dtype : uint32_t{dtype_from_name(record.where[v].second.back())};
          if (!operand.dtype) operand.dtype = c.dtype ? c.dtype : uint32_t{TSR_F32};
          if (is_int(operand.dtype) && record.where.size() != 1)
            operand.lo = 0, operand.hi = 1, operand.has_range = true;  // it may be an index
          c.operands.push_back(std::move(operand));
        }
        if (!valid(c.text())) continue;
        out.push_back(std::move(c));
        ++drawn;
      }
    }
  }
  return out;
}

}  // namespace tessera::conformance
