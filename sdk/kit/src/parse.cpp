// SPDX-License-Identifier: Apache-2.0
// Recursive descent over the text form. Values keep the numbers they have in the text when those are dense; otherwise they are
// renumbered in order of appearance, as the printer would.
#include "tessera/kit/text.hpp"
#include "text_parser.hpp"

namespace tessera::kit {
namespace {

class Parser : private TextParser {
 public:
  explicit Parser(std::string_view text) : TextParser(text, "kernel text", "TSR-K025", k_.pool) {}

  Kernel run() {
    expect("kernel");
    k_.name = name('@');
    expect("(");
    // Symbols are written behind the buffers that use them: they are declared at first sight, and their minimum is read twice.
    const size_t start = at_;
    scan_symbols();
    at_ = start;
    while (!accept(")")) {
      if (!k_.buffers.empty()) expect(",");
      buffer();
    }
    if (accept("symbols")) {
      expect("(");
      do {
        word();
        expect(">=");
        integer();
      } while (accept(","));
      expect(")");
    }
    expect("{");
    expect("parallel");
    k_.parallel = axes();
    expect("{");
    k_.body = body(0);
    expect("}");
    skip();
    if (at_ != s_.size()) fail("the end of the text");
    return std::move(k_);
  }

 private:
  // ---- signature
  void scan_symbols() {
    const size_t open = s_.find('{', at_);
    const size_t at = s_.substr(0, open).find("symbols(", at_);
    if (at == s_.npos) return;
    at_ = at + 8;
    do {
      const std::string symbol = word();
      expect(">=");
      if (!symbols_.try_emplace(symbol, k_.add_symbol(symbol, integer())).second) fail("a symbol of another name");
    } while (accept(","));
  }
  void buffer() {
    Buffer b;
    b.name = name('%');
    expect(":");
    b.access = accept("inout") ? Access::InOut : accept("in") ? Access::In : (expect("out"), Access::Out);
    b.type = type();
    expect("[");
    b.extent = expr();
    expect("]");
    if (!buffers_.try_emplace(b.name, static_cast<uint32_t>(k_.buffers.size())).second) fail("a buffer of another name");
    k_.buffers.push_back(std::move(b));
  }
  std::vector<uint32_t> axes() {
    std::vector<uint32_t> out;
    skip();
    if (at_ < s_.size() && s_[at_] == '{') return out;
    do {
      const std::string axis = word();
      expect("<");
      const Expr extent = expr();
      const auto known = axes_.find(axis);
      if (known == axes_.end()) {
        axes_[axis] = k_.add_axis(axis, extent);
      } else if (k_.pool.extent(known->second) != extent) {
        fail("the extent that '" + axis + "' had before");
      }
      out.push_back(axes_[axis]);
    } while (accept(","));
    return out;
  }

  // ---- instructions
  std::vector<Item> body(int depth) {
    if (depth > kMaxNesting) fail("fewer nested loops");
    std::vector<Item> items;
    while (!accept("}")) {
      if (accept("loop")) {
        Loop loop;
        loop.across = accept("across");
        loop.axes = axes();
        expect("{");
        loop.body = body(depth + 1);
        k_.loops.push_back(std::move(loop));
        items.push_back({true, static_cast<uint32_t>(k_.loops.size() - 1)});
        continue;
      }
      if (k_.insts.size() >= kMaxInsts) fail("fewer instructions");
      const uint32_t id = inst();
      items.push_back({false, id});
    }
    return items;
  }
  uint32_t push(const Inst& x, const std::string& result = {}) {
    k_.insts.push_back(x);
    const auto id = static_cast<uint32_t>(k_.insts.size() - 1);
    if (!result.empty() && !values_.try_emplace(result, id).second) fail("a value of another name than '%" + result + "'");
    return id;
  }
  uint32_t inst() {
    Inst x;
    if (effect(x)) return push(x);
    const std::string result = name('%');
    expect("=");
    return push(operation(word()), result);
  }
  Kernel k_;
};

}  // namespace

Kernel parse(std::string_view text) { return Parser(text).run(); }

}  // namespace tessera::kit
