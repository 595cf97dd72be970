// SPDX-License-Identifier: Apache-2.0
#include "ir/records_parser.hpp"

#include <algorithm>
#include <bit>
#include <memory_resource>
#include <set>

#include "ir/body.hpp"
#include "ir/reader.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {
namespace {

constexpr std::pair<std::string_view, Trait> kTraits[] = {{"pure", kPure},
                                                          {"elementwise", kElementwise},
                                                          {"commutative", kCommutative},
                                                          {"idempotent", kIdempotent},
                                                          {"involution", kInvolution},
                                                          {"reduction", kReduction},
                                                          {"view", kView},
                                                          {"composite", kComposite},
                                                          {"random", kRandom},
                                                          {"control", kControl},
                                                          {"unbacked", kUnbacked},
                                                          {"constant", kConstant},
                                                          {"autograd", kAutograd},
                                                          {"transfer", kTransfer},
                                                          {"quick", kQuick},
                                                          {"rearranges", kRearranges}};

constexpr std::pair<std::string_view, uint32_t> kKinds[] = {
    {"int", TSR_ATTR_INT},     {"float", TSR_ATTR_FLOAT},  {"bool", TSR_ATTR_BOOL},    {"str", TSR_ATTR_STRING},
    {"dtype", TSR_ATTR_DTYPE}, {"dim", TSR_ATTR_DIM},      {"ints", TSR_ATTR_INTS},    {"floats", TSR_ATTR_FLOATS},
    {"dims", TSR_ATTR_DIMS},   {"strs", TSR_ATTR_STRINGS}, {"tensor", TSR_ATTR_TENSOR}};

constexpr std::string_view kClauses[] = {"where", "traits", "doc", "numerics", "decompose", "grad"};

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& [name, value] : table) names.emplace_back(name);
  return names;
}

uint64_t class_mask(std::string_view name) {
  uint64_t mask = 0;
  for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d) {
    const bool real = is_float(d) || is_int(d);
    const bool in = name == "any"       ? true
                    : name == "number"  ? real || is_complex(d)
                    : name == "real"    ? real
                    : name == "float"   ? is_float(d)
                    : name == "int"     ? is_int(d)
                    : name == "sint"    ? is_signed_int(d)
                    : name == "uint"    ? is_unsigned_int(d)
                    : name == "bool"    ? is_bool(d)
                    : name == "complex" ? is_complex(d)
                    : name == "index"   ? d == TSR_I32 || d == TSR_I64
                                        : false;
    if (in) mask |= uint64_t{1} << d;
  }
  return mask;
}

// Defaults and body constants live as long as their record.
class RecordMemory final : public std::pmr::memory_resource {
 public:
  explicit RecordMemory(OpRecord& record) : record_(record) {}

 private:
  void* do_allocate(size_t bytes, size_t align) override {
    auto block = std::make_unique<std::vector<char>>(bytes + align);
    void* p = block->data();
    size_t room = block->size();
    record_.storage.push_back(std::move(block));
    return std::align(align, bytes, p, room);
  }
  void do_deallocate(void*, size_t, size_t) override {}
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  OpRecord& record_;
};

// Blanks and comments of the source folded into single spaces.
std::string fold(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '/' && i + 1 < s.size() && s[i + 1] == '/') {
      i = std::min(s.find('\n', i), s.size());
    } else if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r' && s[i] != '\n') {
      out += s[i];
      continue;
    }
    if (!out.empty() && out.back() != ' ') out += ' ';
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

class RecordsParser {
 public:
  RecordsParser(std::string_view text, std::string_view file, std::string_view prefix, const std::string& plugin)
      : in_(text, file, file_memory_, nullptr, {}, true), prefix_(prefix), plugin_(plugin) {}

  std::vector<std::unique_ptr<OpRecord>> run() {
    while (in_.peek().kind != Tok::kEnd) {
      r_ = std::make_unique<OpRecord>();
      RecordMemory memory(*r_);
      in_.set_memory(memory);
      record();
      out_.push_back(std::move(r_));
      in_.set_memory(file_memory_);
    }
    return std::move(out_);
  }

 private:
  using Mark = Lexer::Mark;

  [[noreturn]] void contradiction(size_t offset, const std::string& what, const std::string& hint = {}) const {
    in_.source().fail("TSR-O006", offset, "op " + r_->name + ": " + what, hint);
  }

  void record() {
    const Token op = in_.peek();
    in_.expect_word("op");
    const Token name = in_.expect(Tok::kIdent, "the op's name");
    if (prefix_.empty())
      r_->name = name.text;
    else
      (r_->name = prefix_) += "." + std::string(name.text);
    r_->plugin = plugin_;
    r_->file = in_.source().file;
    r_->line = op.line;
    operands();
    if (in_.at("{")) attributes();
    in_.expect("->");
    const size_t end = results();
    std::string where;
    clauses(where);
    r_->signature = fold(in_.source().text.substr(op.offset, end - op.offset)) + (where.empty() ? "" : " " + where);
    resolve(name.offset);
    if (decompose_.kind == Tok::kPunct) body(decompose_, false);
    if (grad_.kind == Tok::kPunct) body(grad_, true);
    decompose_ = grad_ = Token{};
  }

  // ----------------------------------------------------------------------------------------------------- signature
  void operands() {
    places_.clear();
    in_.expect("(");
    if (!in_.at(")")) do {
        const Token t = in_.expect(Tok::kValue, "an operand: %name: dtype[shape]");
        OperandDecl d;
        d.name = in_.name(t);
        for (const OperandDecl& other : r_->operands) {
          if (other.name == d.name) contradiction(t.offset, "operand %" + d.name + " is declared twice");
          if (other.variadic)
            contradiction(t.offset, "operand %" + d.name + " follows a variadic operand, which must be the last");
        }
        if (in_.accept("?"))
          d.optional = true;
        else if (in_.accept("..."))
          d.variadic = true;
        in_.expect(":");
        d.dtype = dtype_pattern();
        d.shape = shape_pattern(false);
        places_.push_back(t.offset);
        r_->operands.push_back(std::move(d));
      } while (in_.accept(","));
    in_.expect(")");
  }

  size_t results() {
    in_.expect("(");
    if (!in_.at(")")) do {
        ResultDecl d;
        const Token t = in_.peek();
        if (t.kind == Tok::kValue) {
          d.name = in_.name(in_.next());
          in_.expect(":");
        } else {
          d.name = "out";
        }
        for (const ResultDecl& other : r_->results)
          if (other.name == d.name)
            contradiction(t.offset, "two results are called '" + d.name + "'", "name them: -> (%a: .., %b: ..)");
        for (const OperandDecl& other : r_->operands)
          if (other.name == d.name) contradiction(t.offset, "an operand and a result are called '" + d.name + "'");
        d.dtype = dtype_pattern();
        d.shape = shape_pattern(true);
        places_.push_back(t.offset);
        r_->results.push_back(std::move(d));
      } while (in_.accept(","));
    const size_t end = in_.peek().end;
    in_.expect(")");
    return end;
  }

  DtypePattern dtype_pattern() {
    DtypePattern p;
    const Token t = in_.next();
    p.name = t.text;
    if (t.kind == Tok::kPunct && t.punct == punct("?")) {
      p.kind = DtypePattern::kUnknown;
    } else if (t.kind == Tok::kAttr) {
      p.kind = DtypePattern::kAttr;
    } else if (t.kind == Tok::kIdent && in_.at("(")) {
      if (t.text != "real" && t.text != "complex") in_.unexpected(t, "real(T) or complex(T)");
      p.kind = t.text == "real" ? DtypePattern::kRealOf : DtypePattern::kComplexOf;
      in_.expect("(");
      p.name = in_.expect(Tok::kIdent, "a dtype variable").text;
      in_.expect(")");
    } else if (t.kind == Tok::kIdent) {
      p.dtype = dtype_from_name(t.text);
      p.kind = p.dtype == TSR_DTYPE_INVALID ? DtypePattern::kVariable : DtypePattern::kConcrete;
    } else {
      in_.unexpected(t, "a dtype, a dtype variable, $attribute, real(T), complex(T) or ?");
    }
    return p;
  }

  std::vector<ShapeItem> shape_pattern(bool result) {
    std::vector<ShapeItem> items;
    in_.expect("[");
    size_t runs = 0;
    if (!in_.at("]")) do {
        ShapeItem item{};
        const Mark start = in_.mark();
        const Token t = in_.next();
        item.name = t.text;
        if (t.kind == Tok::kPunct && t.punct == punct("?")) {
          item.kind = ShapeItem::kUnknown;
          if (!items.empty() || !in_.at("]")) in_.unexpected(t, "'?' alone between the brackets");
        } else if (t.kind == Tok::kPunct && t.punct == punct("*")) {
          item.kind = ShapeItem::kRun;
          item.name = in_.expect(Tok::kIdent, "the name of a run of sizes").text;
          ++runs;
        } else if (t.kind == Tok::kInt) {
          item.kind = ShapeItem::kNumber;
          in_.reset(start);
          item.number = in_.integer();
        } else if (t.kind == Tok::kAttr) {
          item.kind = ShapeItem::kAttr;
          ++runs;
        } else if (t.kind == Tok::kIdent && in_.at("(") && result) {
          item.kind = ShapeItem::kCall;
          call(item, t);
        } else if (t.kind == Tok::kIdent) {
          item.kind = ShapeItem::kDim;
        } else {
          in_.unexpected(t, "a size: a name, *name, a number, $attribute, ? or a function");
        }
        if (!result && runs > 1) contradiction(t.offset, "an operand's shape has two parts of unknown length");
        items.push_back(std::move(item));
      } while (in_.accept(","));
    in_.expect("]");
    return items;
  }

  void call(ShapeItem& item, const Token& t) {
    static constexpr std::pair<std::string_view, ShapeFunction> kFunctions[] = {
        {"broadcast", kBroadcast}, {"reduce", kReduce}, {"permute", kPermute}, {"concat", kConcat}};
    const auto* f = std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](auto& k) { return k.first == t.text; });
    if (f == std::end(kFunctions)) in_.unexpected(t, "broadcast, reduce, permute or concat");
    item.slot = f->second;
    in_.expect("(");
    do {
      const Token arg = in_.next();
      if (arg.kind != Tok::kIdent && arg.kind != Tok::kAttr) in_.unexpected(arg, "the name of a run of sizes, or $attribute");
      item.args.push_back((arg.kind == Tok::kAttr ? "$" : "") + std::string(arg.text));
    } while (in_.accept(","));
    in_.expect(")");
    // Which arguments are attributes: none, the second and third, the second, the last.
    const size_t n = item.args.size();
    bool ok = item.slot == kBroadcast ? n >= 2
              : item.slot == kReduce  ? n == 2 || n == 3
              : item.slot == kPermute ? n == 2
                                      : n >= 3;
    for (size_t i = 0; i < n; ++i) {
      const bool attr = item.slot == kReduce || item.slot == kPermute ? i > 0 : item.slot == kConcat && i + 1 == n;
      ok &= attr == (item.args[i][0] == '$');
    }
    if (!ok)
      contradiction(t.offset, "found other arguments than '" + item.name + "' takes",
                    "broadcast(A, B, ..), reduce(S, $axes, $keepdims), permute(S, $perm), concat(A, B, .., $axis)");
  }

  void attributes() {
    in_.expect("{");
    if (!in_.at("}")) do {
        const Token t = in_.expect(Tok::kIdent, "an attribute: name: kind");
        AttrDecl a;
        a.name = t.text;
        for (const AttrDecl& other : r_->attrs)
          if (other.name == a.name) contradiction(t.offset, "attribute '" + a.name + "' is declared twice");
        in_.expect(":");
        const Token kind = in_.expect(Tok::kIdent, "the attribute's kind");
        const auto* k = std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto& e) { return e.first == kind.text; });
        if (k == std::end(kKinds))
          in_.unexpected(kind, "int, float, bool, str, dtype, dim, ints, floats, dims, strs or tensor" +
                                   did_you_mean(kind.text, names_of(kKinds)));
        a.kind = k->second;
        if (in_.at("=")) {
          const Token equals = in_.next();
          if (a.kind == TSR_ATTR_TENSOR) contradiction(equals.offset, "a tensor attribute has no default");
          a.required = false;
          a.fallback = in_.attr(a.kind);
        }
        if (in_.at_word("in")) {
          const Token in = in_.next();
          if (a.kind != TSR_ATTR_STRING) contradiction(in.offset, "only a str attribute has choices");
          in_.expect("[");
          do a.choices.push_back(in_.unescape(in_.expect(Tok::kString, "a choice, as a string")));
          while (in_.accept(","));
          in_.expect("]");
          if (!a.required && std::find(a.choices.begin(), a.choices.end(), a.fallback.s) == a.choices.end())
            contradiction(t.offset, "the default of '" + a.name + "' is not among its choices");
        }
        r_->attrs.push_back(std::move(a));
      } while (in_.accept(","));
    in_.expect("}");
    std::sort(r_->attrs.begin(), r_->attrs.end(), [](const AttrDecl& a, const AttrDecl& b) { return a.name < b.name; });
    for (AttrDecl& a : r_->attrs)
      if (!a.required) a.fallback.name = in_.copy(a.name);
  }

  // ------------------------------------------------------------------------------------------------------- clauses
  void clauses(std::string& where_text) {
    std::set<std::string_view> seen;
    while (in_.peek().kind == Tok::kIdent && !in_.at_word("op")) {
      const Token t = in_.next();
      if (std::find(std::begin(kClauses), std::end(kClauses), t.text) == std::end(kClauses))
        in_.unexpected(t, "where, traits, doc, numerics, decompose, grad or the next op");
      if (!seen.insert(t.text).second) contradiction(t.offset, "there are two '" + std::string(t.text) + "' clauses");
      if (t.text == "where") {
        const size_t end = where();
        where_text = fold(in_.source().text.substr(t.offset, end - t.offset));
      } else if (t.text == "decompose" || t.text == "grad") {
        // Read later: a body may use names that a following clause declares.
        (t.text == "decompose" ? decompose_ : grad_) = in_.peek();
        (t.text == "decompose" ? decompose_mark_ : grad_mark_) = in_.mark();
        skip_block();
      } else {
        in_.expect(":");
        if (t.text == "traits")
          traits();
        else
          (t.text == "doc" ? r_->doc : r_->numerics) = sentences();
      }
    }
    if (in_.peek().kind != Tok::kEnd && !in_.at_word("op")) in_.unexpected("a clause, the next op or the end of the text");
  }

  std::string sentences() {
    std::string s = in_.unescape(in_.expect(Tok::kString, "a string"));
    while (in_.peek().kind == Tok::kString) s += " " + in_.unescape(in_.next());
    return s;
  }

  void traits() {
    bool any = false;
    while (in_.peek().kind == Tok::kIdent && !in_.at_word("op")) {
      const Token t = in_.peek();
      const auto* k = std::find_if(std::begin(kTraits), std::end(kTraits), [&](auto& e) { return e.first == t.text; });
      if (k == std::end(kTraits)) {
        if (std::find(std::begin(kClauses), std::end(kClauses), t.text) != std::end(kClauses)) break;
        in_.unexpected("a trait" + did_you_mean(t.text, names_of(kTraits)));
      }
      in_.next();
      in_.accept(",");
      r_->traits |= k->second;
      r_->trait_text += (any ? " " : "") + std::string(t.text);
      any = true;
    }
    if (!any) in_.unexpected("a trait");
  }

  size_t where() {
    size_t end;
    do {
      const Token t = in_.expect(Tok::kIdent, "a dtype variable");
      in_.expect(":");
      uint64_t mask = 0;
      auto member = [&] {
        end = in_.peek().end;
        const Token c = in_.expect(Tok::kIdent, "a class of dtypes, a dtype, or a list of them");
        uint64_t m = class_mask(c.text);
        if (m == 0)
          if (const tsr_dtype d = dtype_from_name(c.text)) m = uint64_t{1} << d;
        if (m == 0) in_.unexpected(c, "any, number, real, float, int, sint, uint, bool, complex, index or a dtype");
        mask |= m;
      };
      if (in_.accept("{")) {
        do member();
        while (in_.accept(","));
        end = in_.peek().end;
        in_.expect("}");
      } else {
        member();
      }
      if (!r_->dtype_sets.emplace(std::string(t.text), mask).second)
        contradiction(t.offset, "the dtype variable " + std::string(t.text) + " is declared twice");
    } while (in_.accept(","));
    return end;
  }

  void skip_block() {
    const size_t open = in_.peek().offset;
    in_.expect("{");
    for (uint32_t depth = 1; depth > 0; in_.next()) {
      if (in_.peek().kind == Tok::kEnd) in_.source().fail("TSR-I003", open, "found '{' without its '}'");
      if (in_.at("{")) ++depth;
      if (in_.at("}")) --depth;
    }
  }

  void body(const Token& open, bool grad) {
    const auto end = in_.mark();
    in_.reset(grad ? grad_mark_ : decompose_mark_);
    auto b = std::make_shared<Body>(parse_body(in_, *r_, grad));
    b->line = open.line;
    (grad ? r_->grad_body : r_->decompose_body) = std::move(b);
    in_.reset(end);
  }

  // ---------------------------------------------------------------------------- names of the patterns become slots
  uint32_t attr_slot(std::string_view name, uint32_t kind, size_t place) {
    for (uint32_t i = 0; i < r_->attrs.size(); ++i) {
      if (r_->attrs[i].name != name) continue;
      if (r_->attrs[i].kind != kind)
        contradiction(place, "$" + std::string(name) + " must be a " + std::string(attr_kind_name(kind)) + " attribute here");
      return i;
    }
    contradiction(place, "$" + std::string(name) + " is no attribute of the op");
  }

  uint32_t slot(std::vector<std::string>& names, const std::string& name, bool bind, size_t place, const char* what) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it != names.end()) return static_cast<uint32_t>(it - names.begin());
    if (!bind) contradiction(place, std::string(what) + " " + name + " is bound by no operand");
    if (names.size() == OpRecord::kMaxNames) contradiction(place, "too many names in the patterns");
    names.push_back(name);
    return static_cast<uint32_t>(names.size() - 1);
  }

  void resolve_dtype(DtypePattern& p, bool bind, size_t place) {
    if (p.kind == DtypePattern::kAttr) p.slot = attr_slot(p.name, TSR_ATTR_DTYPE, place);
    if (p.kind != DtypePattern::kVariable && p.kind != DtypePattern::kRealOf && p.kind != DtypePattern::kComplexOf) return;
    if (!r_->dtype_sets.count(p.name)) {
      std::vector<std::string> known;
      for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d) known.emplace_back(dtype_name(d));
      contradiction(place,
                    "'" + p.name + "' is neither a dtype nor a variable of the where clause" +
                        (p.name.size() > 1 ? did_you_mean(p.name, known) : ""),
                    "add it: where " + p.name + ": any");
    }
    p.slot = slot(r_->dtype_names, p.name, bind && p.kind == DtypePattern::kVariable, place, "the dtype");
  }

  void resolve_shape(std::vector<ShapeItem>& shape, bool bind, size_t place) {
    for (ShapeItem& item : shape) {
      switch (item.kind) {
        case ShapeItem::kDim: item.slot = slot(r_->dim_names, item.name, bind, place, "the size"); break;
        case ShapeItem::kRun: item.slot = slot(r_->run_names, item.name, bind, place, "the run of sizes"); break;
        case ShapeItem::kAttr: item.slot = attr_slot(item.name, TSR_ATTR_DIMS, place); break;
        case ShapeItem::kCall:
          for (size_t i = 0; i < item.args.size(); ++i) {
            const std::string& arg = item.args[i];
            if (arg[0] != '$') {
              item.arg_slots.push_back(slot(r_->run_names, arg, false, place, "the run of sizes"));
            } else {
              const uint32_t kind = item.slot == kConcat             ? TSR_ATTR_INT
                                    : item.slot == kReduce && i == 2 ? TSR_ATTR_BOOL
                                                                     : TSR_ATTR_INTS;
              item.arg_slots.push_back(attr_slot(arg.substr(1), kind, place));
            }
          }
          break;
        default: break;
      }
    }
  }

  void resolve(size_t place) {
    OpRecord& r = *r_;
    for (size_t i = 0; i < r.operands.size(); ++i)
      if (r.operands[i].dtype.kind == DtypePattern::kVariable) resolve_dtype(r.operands[i].dtype, true, places_[i]);
    for (size_t i = 0; i < r.operands.size(); ++i) {
      resolve_dtype(r.operands[i].dtype, true, places_[i]);
      resolve_shape(r.operands[i].shape, true, places_[i]);
    }
    for (size_t i = 0; i < r.results.size(); ++i) {
      resolve_dtype(r.results[i].dtype, false, places_[r.operands.size() + i]);
      resolve_shape(r.results[i].shape, false, places_[r.operands.size() + i]);
    }
    for (const auto& [name, mask] : r.dtype_sets)
      if (std::find(r.dtype_names.begin(), r.dtype_names.end(), name) == r.dtype_names.end())
        contradiction(place, "the dtype variable " + name + " is the dtype of no operand");
    for (const std::string& name : r.dtype_names) r.dtype_masks.push_back(r.dtype_sets[name]);
    for (const std::string& name : r.dim_names)
      if (std::find(r.run_names.begin(), r.run_names.end(), name) != r.run_names.end())
        contradiction(place, name + " names both a size and a run of sizes");
  }

  std::pmr::monotonic_buffer_resource file_memory_;
  Reader in_;
  std::string_view prefix_;
  const std::string& plugin_;
  std::unique_ptr<OpRecord> r_;
  std::vector<std::unique_ptr<OpRecord>> out_;
  std::vector<size_t> places_;  // of operands, then results
  Token decompose_, grad_;      // the opening brace, when there is a body
  Mark decompose_mark_{}, grad_mark_{};
};

}  // namespace

std::string_view trait_name(Trait t) {
  for (const auto& [name, trait] : kTraits)
    if (trait == t) return name;
  return "?";
}

std::string_view attr_kind_name(uint32_t kind) {
  for (const auto& [name, k] : kKinds)
    if (k == kind) return name;
  return "?";
}

std::vector<std::unique_ptr<OpRecord>> parse_records(std::string_view text, std::string_view file, std::string_view prefix,
                                                     const std::string& plugin) {
  try {
    return RecordsParser(text, file, prefix, plugin).run();
  } catch (const Error& e) {
    // What the shared reader calls a fault of the text IR is here a malformed record.
    const bool shared = e.code().starts_with("TSR-I0");
    throw Error(e.family(), shared ? "TSR-O002" : e.code(), e.message(), e.hint());
  }
}

}  // namespace tessera::core
