// SPDX-License-Identifier: Apache-2.0
#include "cases.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>

#include "tessera/dtypes.hpp"

namespace tessera::conformance {

namespace {

// Sets of operand shapes, separated by '|'. T takes the values that stand behind the name.
const std::map<std::string, std::string> shape_sets = {
    // rank 0 to 4, size 1, no elements, more than one vector, an odd tail
    {"unary", "T[] | T[1] | T[0] | T[3] | T[2, 0, 3] | T[3, 4] | T[2, 3, 5] | T[1, 2, 1, 5] | T[7, 19]"},
    {"binary",
     "T[] T[] | T[1] T[3] | T[0] T[1] | T[5] T[5] | T[2, 3, 4] T[2, 3, 4] | T[3, 1, 4] T[2, 1] | T[] T[2, 3] | T[2, 1, "
     "0] T[3, 1] | "
     "T[1, 2, 1, 5] T[3, 1, 2, 1] | T[9, 17] T[9, 17]"},
    {"copy", "T[2, 3, 4]"},
};

struct Class {
  const char* name;
  bool (*has)(uint32_t);
};
const Class classes[] = {
    {"float", [](uint32_t d) { return is_float(d); }},
    {"int", [](uint32_t d) { return is_int(d); }},
    {"sint", [](uint32_t d) { return is_signed_int(d); }},
    {"uint", [](uint32_t d) { return is_unsigned_int(d); }},
    {"complex", [](uint32_t d) { return is_complex(d); }},
    {"real", [](uint32_t d) { return is_float(d) || is_int(d); }},
    {"number", [](uint32_t d) { return is_float(d) || is_int(d) || is_complex(d); }},
    {"any", [](uint32_t d) { return is_valid_dtype(d); }},
    {"index", [](uint32_t d) { return d == TSR_I32 || d == TSR_I64; }},
};

class LineParser {
 public:
  LineParser(std::string line, std::string where) : line_(std::move(line)), where_(std::move(where)) {}

  void parse(std::vector<Case>& out) {
    const std::string op = word();
    std::string operands;
    while (!done() && peek() != '{' && !at_for()) operands += line_[at_++];
    std::string attributes;
    if (!done() && peek() == '{') {
      const size_t end = line_.find('}', at_);
      if (end == std::string::npos) fail("no closing brace");
      attributes = line_.substr(at_, end + 1 - at_);
      at_ = end + 1;
    }
    std::vector<uint32_t> dtypes = {0};
    skip();
    if (!done()) {
      if (word() != "for") fail("expected 'for'");
      dtypes = dtype_list();
    }
    for (const uint32_t dtype : dtypes)
      for (const std::string& shapes : alternatives(operands)) {
        Case c;
        c.op = op;
        c.where = where_;
        c.dtype = dtype;
        c.attributes = substitute(attributes, dtype);
        c.operands = LineParser(shapes, where_).operand_list(dtype);
        out.push_back(std::move(c));
      }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(where_ + ": " + what + " in '" + line_ + "'");
  }
  bool done() const { return at_ >= line_.size(); }
  char peek() const { return line_[at_]; }
  void skip() {
    while (!done() && peek() == ' ') ++at_;
  }
  bool at_for() const { return line_.compare(at_, 4, "for ") == 0 && at_ > 0 && line_[at_ - 1] == ' '; }
  std::string word() {
    skip();
    const size_t begin = at_;
    while (!done() && (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_' || peek() == '.')) ++at_;
    if (at_ == begin) fail("expected a word at column " + std::to_string(at_ + 1));
    return line_.substr(begin, at_ - begin);
  }
  bool accept(char c) {
    skip();
    if (done() || peek() != c) return false;
    ++at_;
    return true;
  }

  std::vector<uint32_t> dtype_list() {
    std::vector<uint32_t> out;
    for (skip(); !done(); skip()) {
      const std::string name = word();
      if (const uint32_t d = dtype_from_name(name)) {
        out.push_back(d);
        continue;
      }
      const auto known = std::find_if(std::begin(classes), std::end(classes), [&](const Class& c) { return name == c.name; });
      if (known == std::end(classes)) fail("'" + name + "' is neither a dtype nor a class");
      for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d)
        if (known->has(d)) out.push_back(d);
    }
    return out;
  }

  // "@unary(0..9)" becomes its shapes, each T followed by (0..9).
  std::vector<std::string> alternatives(const std::string& operands) const {
    const size_t at = operands.find('@');
    if (at == std::string::npos) return {operands};
    size_t end = at + 1;
    while (end < operands.size() && std::isalpha(static_cast<unsigned char>(operands[end]))) ++end;
    const auto set = shape_sets.find(operands.substr(at + 1, end - at - 1));
    if (set == shape_sets.end()) fail("unknown set of shapes");
    std::string values;
    if (end < operands.size() && operands[end] == '(') {
      const size_t close = operands.find(')', end);
      values = operands.substr(end, close + 1 - end);
      end = close + 1;
    }
    std::vector<std::string> out;
    std::stringstream shapes(set->second);
    for (std::string s; std::getline(shapes, s, '|');) {
      std::string with;
      for (const char c : s) with += c == ']' ? "]" + values : std::string(1, c);
      out.push_back(operands.substr(0, at) + with + operands.substr(end));
    }
    return out;
  }

  static std::string substitute(const std::string& text, uint32_t dtype) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool alone = text[i] == 'T' && (i == 0 || text[i - 1] == ' ') &&
                         (i + 1 == text.size() || !std::isalnum(static_cast<unsigned char>(text[i + 1])));
      out += alone ? std::string(dtype_name(dtype)) : std::string(1, text[i]);
    }
    return out;
  }

  std::vector<Operand> operand_list(uint32_t dtype) {
    std::vector<Operand> out;
    for (skip(); !done(); skip()) {
      Operand o;
      const std::string name = word();
      o.omitted = name == "_";
      if (!o.omitted) {
        o.dtype = name == "T" ? dtype : uint32_t{dtype_from_name(name)};
        if (!o.dtype) fail("'" + name + "' is not a dtype");
        if (!accept('[')) fail("expected sizes");
        while (!accept(']')) {
          o.sizes.push_back(std::stoll(word()));
          accept(',');
        }
        if (accept('(')) values(o);
      }
      out.push_back(std::move(o));
    }
    return out;
  }
  void values(Operand& o) {
    while (!accept(')')) {
      skip();
      if (accept('=')) {
        const size_t end = line_.find(')', at_);
        std::stringstream numbers(line_.substr(at_, end - at_));
        for (int64_t v = 0; numbers >> v;) o.exact.push_back(v);
        at_ = end;
      } else if (line_.compare(at_, 4, "full") == 0) {
        o.full = true;
        at_ += 4;
      } else if (line_.compare(at_, 8, "distinct") == 0) {
        o.distinct = true;
        at_ += 8;
      } else if (line_.compare(at_, 7, "special") == 0) {
        o.special = true;
        at_ += 7;
      } else {
        const size_t dots = line_.find("..", at_), end = line_.find_first_of(",)", dots);
        if (dots == std::string::npos || end == std::string::npos) fail("expected lo..hi");
        o.lo = std::stod(line_.substr(at_, dots - at_));
        o.hi = std::stod(line_.substr(dots + 2, end - dots - 2));
        o.has_range = true;
        at_ = end;
      }
      accept(',');
    }
  }

  std::string line_, where_;
  size_t at_ = 0;
};

uint64_t splitmix(uint64_t& s) {  // Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014
  uint64_t z = s += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

int64_t elements(const Operand& o) {
  int64_t n = 1;
  for (const int64_t s : o.sizes) n *= s;
  return n;
}

std::string type_text(const Operand& o) {
  std::string t = std::string(dtype_name(o.dtype)) + "[";
  for (size_t d = 0; d < o.sizes.size(); ++d) t += (d ? ", " : "") + std::to_string(o.sizes[d]);
  return t + "]";
}

// How many results an op gives when that is not one; the text form has to name them.
size_t result_count(const Case& c) {
  static const std::map<std::string, size_t> several = {{"cummax", 2},
                                                        {"cummin", 2},
                                                        {"sort", 2},
                                                        {"topk", 2},
                                                        {"unique", 4},
                                                        {"max_pool", 2},
                                                        {"adaptive_max_pool", 2},
                                                        {"batch_norm_training", 3},
                                                        {"random_bits", 2},
                                                        {"random_uniform", 2},
                                                        {"random_normal", 2},
                                                        {"random_int", 2},
                                                        {"dropout", 2},
                                                        {"attention_lse", 2},
                                                        {"attention_backward", 3},
                                                        {"attention_y_backward", 3}};
  if (c.op == "split") {
    const size_t open = c.attributes.find('[', c.attributes.find("sizes"));
    return 1 + static_cast<size_t>(std::count(c.attributes.begin() + static_cast<int64_t>(open),
                                              c.attributes.begin() + static_cast<int64_t>(c.attributes.find(']', open)), ','));
  }
  if (c.results) return c.results;
  const auto it = several.find(c.op);
  return it == several.end() ? 1 : it->second;
}

}  // namespace

std::string Case::text() const {
  std::string inputs, used, results;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string name = "%x" + std::to_string(i);
    if (!operands[i].omitted) inputs += (inputs.empty() ? "" : ", ") + name + ": " + type_text(operands[i]);
    used += (i ? ", " : " ") + (operands[i].omitted ? std::string("_") : name);
  }
  for (size_t i = 0; i < result_count(*this); ++i) results += (i ? ", %r" : "%r") + std::to_string(i);
  return "graph @case(" + inputs + ") {\n  " + results + " = " + op + used + (attributes.empty() ? "" : " " + attributes) +
         "\n  return " + results + "\n}\n";
}

std::vector<Case> read_cases(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& f : std::filesystem::directory_iterator(directory))
    if (f.path().extension() == ".cases") files.push_back(f.path());
  std::sort(files.begin(), files.end());
  std::vector<Case> out;
  for (const auto& path : files) {
    std::ifstream in(path);
    std::string line, joined;
    for (int number = 1; std::getline(in, line); ++number) {
      line.erase(std::min(line.find("//"), line.size()));
      line.erase(line.find_last_not_of(' ') + 1);
      if (!line.empty() && line.back() == '\\') {
        joined += line.substr(0, line.size() - 1);
        continue;
      }
      joined += line;
      if (!joined.empty()) LineParser(joined, path.filename().string() + ":" + std::to_string(number)).parse(out);
      joined.clear();
    }
  }
  return out;
}

std::vector<char> make_values(const Case& c, size_t index) {
  const Operand& o = c.operands[index];
  const int64_t n = elements(o);
  std::vector<char> out(static_cast<size_t>(storage_bytes(o.dtype, n)) + 16);
  uint64_t seed = 1469598103934665603u + index;  // FNV-1a of the text
  for (const char ch : c.text()) seed = (seed ^ static_cast<unsigned char>(ch)) * 1099511628211u;
  const auto uniform = [&](double lo, double hi) {
    return lo + (hi - lo) * static_cast<double>(splitmix(seed) >> 11) * 0x1p-53;
  };

  const double inf = std::numeric_limits<double>::infinity();
  const double specials[] = {std::numeric_limits<double>::quiet_NaN(), inf, -inf, 0.0, -0.0, 1.0, -1.0};
  const double lo = o.has_range ? o.lo : -2, hi = o.has_range ? o.hi : 2;
  for (int64_t i = 0; i < n; ++i) {
    const bool pick = o.special && splitmix(seed) % 4 == 0;
    const double special = specials[splitmix(seed) % 7];
    if (!o.exact.empty()) {
      store_from(o.dtype, out.data(), i, o.exact[static_cast<size_t>(i) % o.exact.size()]);
    } else if (is_bool(o.dtype)) {
      store_from(o.dtype, out.data(), i, splitmix(seed) % 2 == 0);
    } else if (is_float(o.dtype)) {
      store_from(o.dtype, out.data(), i, pick ? special : uniform(lo, hi));
    } else if (is_complex(o.dtype)) {
      store_from(o.dtype, out.data(), i, ComplexValue<double>{uniform(lo, hi), uniform(lo, hi)});
    } else if (o.full) {
      const int bits = dtype_bits(o.dtype);
      const uint64_t edges[] = {0, 1, ~uint64_t{0}, uint64_t{1} << (bits - 1), (uint64_t{1} << (bits - 1)) - 1};
      store_from(o.dtype, out.data(), i, splitmix(seed) % 3 == 0 ? edges[splitmix(seed) % 5] : splitmix(seed));
    } else {
      const int bits = dtype_bits(o.dtype);
      const bool sign = is_signed_int(o.dtype);
      const int64_t least = sign ? (bits == 64 ? INT64_MIN : -(int64_t{1} << (bits - 1))) : 0;
      const int64_t most = bits == 64 ? INT64_MAX : (int64_t{1} << (sign ? bits - 1 : bits)) - 1;
      const int64_t from = std::max<int64_t>(least, o.has_range ? static_cast<int64_t>(o.lo) : -9);
      const int64_t to = std::min<int64_t>(most, o.has_range ? static_cast<int64_t>(o.hi) : 9);
      store_from(o.dtype, out.data(), i, from + static_cast<int64_t>(splitmix(seed) % static_cast<uint64_t>(to - from + 1)));
    }
  }
  return out;
}

std::vector<char> absolute_values(const Operand& o, const std::vector<char>& dense) {
  std::vector<char> out = dense;
  const int64_t n = elements(o);
  for (int64_t i = 0; i < n; ++i) {
    if (is_float(o.dtype)) {
      store_from(o.dtype, out.data(), i, std::fabs(load_as<double>(o.dtype, dense.data(), i)));
    } else if (is_complex(o.dtype)) {
      const auto z = load_as<ComplexValue<double>>(o.dtype, dense.data(), i);
      store_from(o.dtype, out.data(), i, ComplexValue<double>{std::hypot(z.re, z.im), 0});
    }
  }
  return out;
}

}  // namespace tessera::conformance
