// SPDX-License-Identifier: Apache-2.0
#include "ir/records.hpp"

#include <algorithm>
#include <cstring>

#include "ir/body.hpp"
#include "ir/records_parser.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

const AttrDecl* OpRecord::attr(std::string_view attr_name) const {
  const auto it =
      std::lower_bound(attrs.begin(), attrs.end(), attr_name, [](const AttrDecl& a, std::string_view n) { return a.name < n; });
  return it != attrs.end() && it->name == attr_name ? &*it : nullptr;
}

OpRegistry::OpRegistry() = default;
OpRegistry::~OpRegistry() = default;

const OpRecord* OpRegistry::find(std::string_view op) const {
  const auto it = fast_.find(op);
  return it == fast_.end() ? nullptr : it->second;
}

const OpRecord& OpRegistry::get(std::string_view op) const {
  if (const OpRecord* r = find(op)) return *r;
  std::vector<std::string> known;
  for (const auto& [name, record] : records_) known.push_back(name);
  throw user_error("TSR-O001",
                   "found the op '" + std::string(op.substr(0, 80)) + "', which no loaded op set has" +
                       did_you_mean(op.substr(0, 80), known),
                   "`tessera ops` lists the ops; an op set of your own is named under `plugins` in the config");
}

std::vector<const OpRecord*> OpRegistry::all() const {
  std::vector<const OpRecord*> out;
  for (const auto& [name, record] : records_) out.push_back(record.get());
  return out;
}

void OpRegistry::add(const tsr_opset& set, const std::string& plugin) {
  const std::string_view prefix = set.prefix ? set.prefix : "";
  const std::string hint = "the op set is that of plugin '" + plugin + "'";
  std::map<std::string, std::unique_ptr<OpRecord>, std::less<>> added;
  for (size_t i = 0; i < set.num_files; ++i) {
    const tsr_record_file& file = *TSR_AT(tsr_record_file, set.files, set.file_stride, i);
    for (auto& record : parse_records(file.text, file.name, prefix, plugin)) {
      const OpRecord* other = find(record->name);
      if (const auto it = added.find(record->name); it != added.end()) other = it->second.get();
      if (other)
        throw user_error("TSR-O003",
                         record->file + ":" + std::to_string(record->line) + ": op '" + record->name +
                             "' is already defined at " + other->file + ":" + std::to_string(other->line) + " by plugin '" +
                             other->plugin + "'",
                         hint + "; an op set with a prefix of its own cannot collide");
      added.emplace(record->name, std::move(record));
    }
  }
  for (size_t i = 0; i < set.num_impls; ++i) {
    const tsr_op_impl& impl = *TSR_AT(tsr_op_impl, set.impls, set.impl_stride, i);
    // Callbacks are named as in the record, or with the prefix.
    auto it = added.find(std::string_view(impl.op));
    if (it == added.end() && !prefix.empty()) it = added.find(std::string(prefix) + "." + impl.op);
    if (it == added.end()) {
      std::vector<std::string> known;
      for (const auto& [name, record] : added) known.push_back(name);
      throw bug("TSR-O004",
                "plugin '" + plugin + "' has callbacks for the op '" + std::string(impl.op) + "', which has no record" +
                    did_you_mean(impl.op, known),
                "add the record to its .tops files");
    }
    OpRecord& r = *it->second;
    if (r.impl) throw bug("TSR-O004", "plugin '" + plugin + "' has callbacks for the op '" + r.name + "' twice");
    const char* both = impl.decompose && r.decompose_body ? "decompose" : impl.grad && r.grad_body ? "grad" : nullptr;
    if (both)
      throw bug(
          "TSR-O006",
          r.file + ":" + std::to_string(r.line) + ": op '" + r.name + "' has a " + both + " body and a " + both + " callback",
          "keep one of them");
    r.impl = &impl;
  }
  for (const auto& [name, r] : added) {
    // The ops of the standard set are computed by every backend's fallback; others must bring their meaning with them.
    if (prefix.empty()) continue;
    const std::string place = r->file + ":" + std::to_string(r->line) + ": op '" + name + "' ";
    if (!r->can_decompose() && !(r->impl && r->impl->compute))
      throw bug("TSR-O005", place + "has neither a decomposition nor a compute callback, so no backend could run it",
                "add `decompose { .. }` to the record, or a compute callback");
    for (const ResultDecl& d : r->results) {
      const bool open =
          d.dtype.kind == DtypePattern::kUnknown || (d.shape.size() == 1 && d.shape[0].kind == ShapeItem::kUnknown);
      if (open && !r->has(kConstant) && !(r->impl && r->impl->infer))
        throw bug("TSR-O005", place + "leaves the type of result '" + d.name + "' to an infer callback and has none",
                  "write the pattern, or add the callback");
    }
  }
  for (auto& [name, record] : added) {
    OpRecord* r = record.get();
    r->index = host_core().op_index(r->name.c_str());
    fast_.emplace(r->name, r);
    records_.emplace(name, std::move(record));
  }
}

// ---------------------------------------------------------------------------------------------------------- attributes

namespace {

std::vector<std::string> attr_names(const OpRecord& record) {
  std::vector<std::string> names;
  for (const AttrDecl& a : record.attrs) names.push_back(a.name);
  return names;
}

bool is_list(uint32_t kind) {
  return kind == TSR_ATTR_INTS || kind == TSR_ATTR_FLOATS || kind == TSR_ATTR_DIMS || kind == TSR_ATTR_STRINGS;
}

[[noreturn]] void fail(const OpRecord& record, const char* code, const std::string& what, const std::string& hint) {
  throw user_error(code, record.name + ": " + what, hint);
}

// One given value as the declaration wants it.
tsr_attr checked(const OpRecord& record, const AttrDecl& decl, tsr_attr a) {
  a.name = decl.name.c_str();
  if (a.kind != decl.kind) {
    // A plain number is a size too, and an empty list is a list of anything.
    const bool dims =
        (a.kind == TSR_ATTR_INT && decl.kind == TSR_ATTR_DIM) || (a.kind == TSR_ATTR_INTS && decl.kind == TSR_ATTR_DIMS);
    const bool empty = is_list(a.kind) && is_list(decl.kind) && a.count == 0;
    if (!dims && !empty)
      fail(record, "TSR-I023",
           "attribute '" + decl.name + "' is of kind " + std::string(attr_kind_name(a.kind)) + ", expected " +
               std::string(attr_kind_name(decl.kind)),
           record.signature);
    a.kind = decl.kind;
  }
  const auto bad = [&](const std::string& why) {
    fail(record, "TSR-I025", "attribute '" + decl.name + "' " + why, record.signature);
  };
  const auto plain = [&](int64_t v) {
    if (TSR_DIM_IS_EXPR(v)) bad("holds a symbolic size or a number below -2^63 + 2^32, expected a plain number");
  };
  switch (a.kind) {
    case TSR_ATTR_INT: plain(a.i); break;
    case TSR_ATTR_BOOL:
      if (a.i != 0 && a.i != 1) bad("is " + std::to_string(a.i) + ", expected 0 or 1");
      break;
    case TSR_ATTR_STRING:
      if (!a.s) bad("has no text");
      if (!decl.choices.empty() && std::find(decl.choices.begin(), decl.choices.end(), a.s) == decl.choices.end())
        fail(record, "TSR-I024",
             "attribute '" + decl.name + "' is \"" + std::string(a.s).substr(0, 80) + "\", expected one of: " +
                 listed(decl.choices, "none") + did_you_mean(std::string_view(a.s).substr(0, 80), decl.choices),
             "");
      break;
    case TSR_ATTR_DTYPE:
      if (!is_valid_dtype(static_cast<uint32_t>(a.i)) || a.i > TSR_DTYPE_COUNT || a.i < 0) {
        const bool allowed = a.i == TSR_DTYPE_INVALID && !decl.required && decl.fallback.i == TSR_DTYPE_INVALID;
        if (!allowed) bad("is no dtype");
      }
      break;
    case TSR_ATTR_INTS:
    case TSR_ATTR_DIMS:
      if (a.count > 0 && !a.ints) bad("has no elements behind its count");
      if (a.kind == TSR_ATTR_INTS)
        for (uint32_t i = 0; i < a.count; ++i) plain(a.ints[i]);
      break;
    case TSR_ATTR_FLOATS:
      if (a.count > 0 && !a.floats) bad("has no elements behind its count");
      break;
    case TSR_ATTR_STRINGS:
      for (uint32_t i = 0; i < a.count; ++i)
        if (!a.strings || !a.strings[i]) bad("has no elements behind its count");
      break;
    case TSR_ATTR_TENSOR: {
      if (!a.tensor || !is_valid_dtype(a.tensor->dtype) || (a.tensor->rank > 0 && !a.tensor->sizes)) bad("holds no tensor");
      int64_t n = 1;
      bool empty = false;
      for (uint32_t i = 0; i < a.tensor->rank; ++i) {
        const int64_t d = a.tensor->sizes[i];
        if (d < 0 || (d > 0 && __builtin_mul_overflow(n, d, &n))) bad("holds a tensor whose shape is negative or overflows");
        empty |= d == 0;
      }
      if (!a.tensor->data && !empty) bad("holds a tensor without data");
      break;
    }
    default: break;
  }
  return a;
}

}  // namespace

std::vector<tsr_attr> complete_attrs(const OpRecord& record, std::span<const tsr_attr> given) {
  std::vector<tsr_attr> out;
  out.reserve(record.attrs.size());
  size_t used = 0;
  for (const AttrDecl& decl : record.attrs) {
    const tsr_attr* found = nullptr;
    for (const tsr_attr& a : given) {
      if (!a.name || decl.name != a.name) continue;
      if (found) fail(record, "TSR-I021", "attribute '" + decl.name + "' is given twice", "");
      found = &a;
      ++used;
    }
    if (found)
      out.push_back(checked(record, decl, *found));
    else if (!decl.required)
      out.push_back(decl.fallback);
    else
      fail(record, "TSR-I022",
           "attribute '" + decl.name + "' of kind " + std::string(attr_kind_name(decl.kind)) + " is missing", record.signature);
  }
  if (used != given.size())
    for (const tsr_attr& a : given)
      if (!a.name || !record.attr(a.name)) {
        const std::string name = a.name ? a.name : "";
        fail(record, "TSR-I020",
             "found the attribute '" + name + "', which the op does not have" + did_you_mean(name, attr_names(record)),
             "its attributes: " + listed(attr_names(record), "none"));
      }
  return out;
}

}  // namespace tessera::core
