// SPDX-License-Identifier: Apache-2.0
// Einsum against the definition: a sum over all values of all names, on random equations of every form that numpy takes.
#include <algorithm>
#include <map>
#include <random>

#include "run_model.hpp"

using namespace tessera::onnx_test;
namespace e = tessera::embed;

namespace {

// Dimensions of the ellipsis are the names '0', '1' ... from the right.
struct Operand {
  std::string text, names;
  Sizes sizes;
  std::vector<float> values;
};

struct Equation {
  std::vector<Operand> operands;
  std::string text, output;  // names of the result
  std::map<char, int64_t> size;
};

Equation random_equation(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Equation q;
  const std::string letters = "aBcdZ";
  for (const char c : letters) q.size[c] = 1 + below(3);
  const int dots = below(3);  // of the widest ellipsis
  for (int i = 0; i < 3; ++i) q.size[static_cast<char>('0' + i)] = 1 + below(3);
  bool any = false;
  int widest = 0;
  for (int k = 1 + below(3); k > 0; --k) {
    Operand o;
    const int rank = below(4), at = below(rank + 1);
    const bool ellipsis = below(2) == 0;
    any = any || ellipsis;
    for (int i = 0; i <= rank; ++i) {
      if (ellipsis && i == at) {
        o.text += "...";
        const int covered = below(dots + 1);
        widest = std::max(widest, covered);
        for (int d = covered; d-- > 0;) {
          o.names += static_cast<char>('0' + d);
          o.sizes.push_back(below(3) == 0 ? 1 : q.size[o.names.back()]);  // broadcast, or not
        }
      }
      if (i == rank) break;
      const char c = letters[static_cast<size_t>(below(5))];  // the same one twice: a diagonal
      o.text += c;
      o.names += c;
      o.sizes.push_back(q.size[c]);
      if (below(4) == 0) o.text += ' ';
    }
    int64_t n = 1;
    for (const int64_t s : o.sizes) n *= s;
    for (int64_t i = 0; i < n; ++i) o.values.push_back(static_cast<float>(below(7) - 3));
    q.operands.push_back(o);
  }
  for (const Operand& o : q.operands) q.text += (q.text.empty() && &o == &q.operands[0] ? "" : ",") + o.text;
  // The size of a dimension of the ellipsis is 1 where every operand has 1 there.
  for (int d = 0; d < widest; ++d) {
    int64_t most = 1;
    for (const Operand& o : q.operands)
      if (const size_t at = o.names.find(static_cast<char>('0' + d)); at != o.names.npos) most = std::max(most, o.sizes[at]);
    q.size[static_cast<char>('0' + d)] = most;
  }
  std::string dims;
  for (int d = widest; d-- > 0;) dims += static_cast<char>('0' + d);
  std::map<char, int> uses;
  for (const Operand& o : q.operands)
    for (const char c : o.names) ++uses[c];
  if (below(2) == 0) {  // implicit: the ellipsis, then the names that stand once, in the order of their codes
    q.output = dims;
    for (const auto& [c, n] : uses)
      if (n == 1 && c > '9') q.output += c;
    return q;
  }
  std::string names;
  for (const auto& [c, n] : uses)
    if (c > '9' && below(2) == 0) names += c;
  std::shuffle(names.begin(), names.end(), random);
  const size_t at = static_cast<size_t>(below(static_cast<int>(names.size()) + 1));
  q.output = any ? names.substr(0, at) + dims + names.substr(at) : names;
  q.text += "->" + (any ? names.substr(0, at) + "..." + names.substr(at) : names);
  return q;
}

std::vector<double> by_definition(const Equation& q, Sizes* sizes) {
  std::string all = q.output;
  for (const Operand& o : q.operands)
    for (const char c : o.names)
      if (all.find(c) == all.npos) all += c;
  int64_t total = 1, results = 1;
  for (size_t i = 0; i < all.size(); ++i) {
    total *= q.size.at(all[i]);
    if (i < q.output.size()) results *= q.size.at(all[i]);
  }
  for (const char c : q.output) sizes->push_back(q.size.at(c));
  std::vector<double> out(static_cast<size_t>(results), 0);
  for (int64_t n = 0; n < total; ++n) {
    std::map<char, int64_t> at;
    int64_t rest = n;
    for (size_t i = all.size(); i-- > 0;) {
      at[all[i]] = rest % q.size.at(all[i]);
      rest /= q.size.at(all[i]);
    }
    double product = 1;
    for (const Operand& o : q.operands) {
      int64_t index = 0;
      for (size_t d = 0; d < o.names.size(); ++d) index = index * o.sizes[d] + (o.sizes[d] == 1 ? 0 : at[o.names[d]]);
      product *= static_cast<double>(o.values[static_cast<size_t>(index)]);
    }
    out[static_cast<size_t>(n / (total / results))] += product;
  }
  return out;
}

e::Tensor einsum(const Folder& folder, const Equation& q) {
  Msg n = Msg();
  GraphParts parts;
  std::vector<e::Tensor> in;
  for (size_t i = 0; i < q.operands.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    n.s(1, name);
    Msg shape;
    for (const int64_t s : q.operands[i].sizes) shape.m(1, Msg().i(1, s));
    parts.inputs.push_back(Msg().s(1, name).m(2, Msg().m(1, Msg().i(1, kFloat).m(2, shape))));
    in.push_back(floats(q.operands[i].sizes, q.operands[i].values));
  }
  parts.nodes.push_back(n.s(2, "y").s(4, "Einsum").m(5, text_attribute("equation", q.text.c_str())));
  parts.outputs.push_back(Msg().s(1, "y").m(2, Msg().m(1, Msg().i(1, kFloat))));
  return compile(folder, model(graph(parts)).bytes()).run(in)[0];
}

}  // namespace

TEST_CASE("an equation without an arrow gives the names that stand once, as it is written") {
  const Folder folder;
  const auto of = [&](const char* text, Sizes sizes, std::vector<float> values) {
    Equation q;
    q.text = text;
    q.operands.push_back({text, "", std::move(sizes), std::move(values)});
    return einsum(folder, q);
  };
  const e::Tensor trace = of("ii", {2, 2}, {1, 2, 3, 4});
  CHECK(sizes_of(trace) == Sizes{});
  CHECK(values_of(trace) == std::vector<double>{5});
  const e::Tensor turned = of("ba", {2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(sizes_of(turned) == Sizes{3, 2});
  CHECK(values_of(turned) == std::vector<double>{1, 4, 2, 5, 3, 6});
  const e::Tensor kept = of("...", {2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(sizes_of(kept) == Sizes{2, 3});
  CHECK(values_of(of("...ii", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})) == std::vector<double>{5, 13});
}

TEST_CASE("random equations give what the definition gives") {
  const Folder folder;
  std::mt19937 random(31);
  for (int i = 0; i < 600; ++i) {
    const Equation q = random_equation(random);
    INFO(i << ": " << q.text);
    Sizes sizes;
    const std::vector<double> want = by_definition(q, &sizes);
    const e::Tensor got = einsum(folder, q);
    CHECK(sizes_of(got) == sizes);
    CHECK(values_of(got) == want);
  }
}
