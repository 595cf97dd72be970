// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <set>

#include "ir/body.hpp"
#include "ir/reader.hpp"
#include "ir/records.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {
namespace {

struct Function {
  std::string_view name;
  size_t arguments;
  bool of_value;  // the first argument is a %value
};
constexpr Function kFunctions[] = {{"floordiv", 2, false}, {"mod", 2, false},  {"min", 2, false},     {"max", 2, false},
                                   {"range", 2, false},    {"real", 1, false}, {"complex", 1, false}, {"accumulate", 1, false},
                                   {"shape", 1, true},     {"size", 2, true},  {"rank", 1, true},     {"numel", 1, true},
                                   {"dtype", 1, true}};

class BodyParser {
 public:
  BodyParser(Reader& in, const OpRecord& record, bool grad) : in_(in), r_(record), grad_(grad) {
    for (const OperandDecl& d : r_.operands) names_.insert(d.name);
    if (!grad) return;
    for (const ResultDecl& d : r_.results) {
      names_.insert(d.name);
      names_.insert("d" + d.name);
    }
  }

  Body run() {
    Body body;
    in_.expect("{");
    while (!in_.at_word("return")) {
      if (in_.at("}") || in_.peek().kind == Tok::kEnd) in_.unexpected("a statement or 'return'");
      body.statements.push_back(statement());
    }
    const Token ret = in_.next();
    if (!in_.at("}")) do {
        const Token t = in_.peek();
        BodyExpr e = operand();
        if (e.kind != BodyExpr::kValue && !(grad_ && e.kind == BodyExpr::kOmitted))
          in_.unexpected(t, grad_ ? "%value or _" : "%value");
        body.returns.push_back(std::move(e));
      } while (in_.accept(","));
    in_.expect("}");
    const size_t want = grad_ ? r_.operands.size() : r_.results.size();
    if (body.returns.size() != want)
      fail(ret, "returns " + std::to_string(body.returns.size()) + " values, expected " + std::to_string(want) +
                    (grad_ ? ", one per operand" : ", one per result"));
    return body;
  }

 private:
  [[noreturn]] void fail(const Token& t, const std::string& what) const {
    in_.source().fail("TSR-O007", t.offset, std::string(grad_ ? "grad" : "decompose") + " of op " + r_.name + ": " + what);
  }

  BodyStatement statement() {
    BodyStatement s;
    std::vector<Token> results;
    if (in_.peek().kind == Tok::kValue) {
      do results.push_back(in_.expect(Tok::kValue, "a result"));
      while (in_.accept(","));
      in_.expect("=");
    }
    const Token op = in_.expect(Tok::kIdent, "an op");
    s.op = op.text;
    s.line = op.line;
    // Statements have no separator: operands begin on the op's line.
    const Token first = in_.peek();
    if (first.line == op.line && !in_.at("{") && !in_.at("}") && first.kind != Tok::kEnd) do {
        s.operands.push_back(operand());
      } while (in_.accept(","));
    if (in_.accept("{")) {
      if (!in_.at("}")) do {
          const Token name = in_.expect(Tok::kIdent, "an attribute");
          for (const auto& [other, value] : s.attrs)
            if (other == name.text) fail(name, "attribute '" + other + "' is given twice");
          in_.expect("=");
          s.attrs.emplace_back(std::string(name.text), expression());
        } while (in_.accept(","));
      in_.expect("}");
    }
    for (const Token& t : results) {
      s.results.push_back(in_.name(t));
      if (!names_.insert(s.results.back()).second) fail(t, "%" + s.results.back() + " is defined twice");
    }
    return s;
  }

  BodyExpr operand() {
    if (in_.at_word("_")) {
      in_.next();
      BodyExpr e;
      e.kind = BodyExpr::kOmitted;
      return e;
    }
    return expression(true);
  }

  BodyExpr expression(bool values = false) {
    if (++depth_ > in_.limits().expression_depth) fail(in_.peek(), "an expression is nested too deeply");
    BodyExpr a = product(values);
    while (in_.at("+") || in_.at("-")) {
      const bool sum = in_.next().punct == punct("+");
      a = binary(sum ? BodyExpr::kSum : BodyExpr::kDifference, std::move(a), product(false));
    }
    --depth_;
    return a;
  }

  BodyExpr product(bool values) {
    BodyExpr a = atom(values);
    while (in_.accept("*")) a = binary(BodyExpr::kProduct, std::move(a), atom(false));
    return a;
  }

  static BodyExpr binary(BodyExpr::Kind kind, BodyExpr a, BodyExpr b) {
    BodyExpr e;
    e.kind = kind;
    e.args.push_back(std::move(a));
    e.args.push_back(std::move(b));
    return e;
  }

  BodyExpr value() {
    const Token t = in_.expect(Tok::kValue, "%value");
    BodyExpr e;
    e.kind = BodyExpr::kValue;
    e.text = in_.name(t);
    if (!names_.count(e.text)) fail(t, "%" + e.text + " is not defined before its use");
    return e;
  }

  BodyExpr atom(bool values) {
    BodyExpr e;
    const Token t = in_.peek();
    if (values && t.kind == Tok::kValue) return value();
    const auto start = in_.mark();
    const bool minus = in_.accept("-");
    const Tok kind = in_.peek().kind;
    if (kind == Tok::kInt || kind == Tok::kFloat || (minus && in_.at_word("inf"))) {
      e.kind = kind == Tok::kInt ? BodyExpr::kInt : BodyExpr::kFloat;
      in_.reset(start);
      if (kind == Tok::kInt)
        e.i = in_.integer();
      else
        e.f = in_.number();
      return e;
    }
    if (minus) return binary(BodyExpr::kDifference, BodyExpr{}, atom(false));
    if (kind == Tok::kAttr) {
      e.kind = BodyExpr::kAttr;
      e.text = in_.next().text;
      if (!r_.attr(e.text)) fail(t, "$" + e.text + " is no attribute of the op");
    } else if (kind == Tok::kString) {
      e.kind = BodyExpr::kString;
      e.text = in_.unescape(in_.next());
    } else if (kind == Tok::kIdent) {
      return word();
    } else if (in_.accept("(")) {
      e = expression();
      in_.expect(")");
    } else if (in_.accept("[")) {
      e.kind = BodyExpr::kList;
      if (!in_.at("]")) do
          e.args.push_back(expression());
        while (in_.accept(","));
      in_.expect("]");
    } else {
      in_.unexpected("a value");
    }
    return e;
  }

  BodyExpr word() {
    BodyExpr e;
    const Token t = in_.peek();
    if (t.text == "dense") {
      e.kind = BodyExpr::kTensor;
      e.tensor = in_.dense();
      return e;
    }
    in_.next();
    e.text = t.text;
    if (t.text == "true" || t.text == "false") {
      e.kind = BodyExpr::kBool;
      e.i = t.text == "true";
    } else if (t.text == "inf" || t.text == "nan") {
      e.kind = BodyExpr::kFloat;
      e.f = t.text == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    } else if (in_.at("(")) {
      const auto* f =
          std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& k) { return k.name == t.text; });
      if (f == std::end(kFunctions)) fail(t, "there is no function '" + std::string(t.text) + "'");
      e.kind = BodyExpr::kCall;
      in_.next();
      do e.args.push_back(f->of_value && e.args.empty() ? value() : expression());
      while (in_.accept(","));
      in_.expect(")");
      if (e.args.size() != f->arguments)
        fail(t, e.text + " takes " + std::to_string(f->arguments) + " arguments, found " + std::to_string(e.args.size()));
    } else {
      e.kind = BodyExpr::kName;
      if (t.text != "invalid" && dtype_from_name(t.text) == TSR_DTYPE_INVALID && !r_.dtype_sets.count(e.text))
        fail(t, "'" + e.text + "' is neither a dtype nor a dtype variable of the op");
    }
    return e;
  }

  Reader& in_;
  const OpRecord& r_;
  const bool grad_;
  std::set<std::string> names_;
  uint32_t depth_ = 0;
};

}  // namespace

Body parse_body(Reader& reader, const OpRecord& record, bool grad) { return BodyParser(reader, record, grad).run(); }

}  // namespace tessera::core
