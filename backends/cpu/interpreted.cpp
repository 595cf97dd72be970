// SPDX-License-Identifier: Apache-2.0
#include "interpreted.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

constexpr int64_t kMostElements = 1024;  // of a value: beyond it vectors of the best instructions pay
constexpr int64_t kTile = 64;            // elements that all steps are done for before the next ones
constexpr size_t kMaxTemporaries = 16, kMaxPlaces = 128;

// out[i] = f(a[i], b[i]) for n elements; an operand of one element stays where it is. Unary functions get the same twice.
using StepFn = void (*)(const void* a, const void* b, void* out, int64_t n);

template <class T, class F, bool kOneA, bool kOneB>
void run_step(const void* a, const void* b, void* out, int64_t n) {
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) z[i] = F::of(x[kOneA ? 0 : i], y[kOneB ? 0 : i]);
}

struct Add {
  template <class T>
  static T of(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static T of(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static T of(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <class T>
  static T of(T a, T b) {
    return a / b;
  }
};
struct Neg {
  template <class T>
  static T of(T a, T) {
    return -a;
  }
};
struct Abs {
  template <class T>
  static T of(T a, T) {
    return std::fabs(a);
  }
};
struct Maximum {
  template <class T>
  static T of(T a, T b) {
    return a != a ? a : (a > b ? a : b);
  }
};
struct Minimum {
  template <class T>
  static T of(T a, T b) {
    return a != a ? a : (a < b ? a : b);
  }
};
struct Relu {
  template <class T>
  static T of(T a, T) {
    return Maximum::of(a, T(0));
  }
};
struct Sqrt {
  template <class T>
  static T of(T a, T) {
    return std::sqrt(a);
  }
};

struct Entry {
  std::string_view op;
  uint32_t operands;
  // By width (f32, f64) and which operands have one element: bit 0 the first, bit 1 the second.
  std::array<std::array<StepFn, 4>, 2> functions;
};

template <class T, class F>
constexpr std::array<StepFn, 4> variants() {
  return {run_step<T, F, false, false>, run_step<T, F, true, false>, run_step<T, F, false, true>, run_step<T, F, true, true>};
}
template <class F>
constexpr Entry entry(std::string_view op, uint32_t operands) {
  return {op, operands, {variants<float, F>(), variants<double, F>()}};
}
constexpr Entry kEntries[] = {entry<Add>("add", 2),  entry<Sub>("sub", 2),         entry<Mul>("mul", 2),
                              entry<Div>("div", 2),  entry<Maximum>("maximum", 2), entry<Minimum>("minimum", 2),
                              entry<Neg>("neg", 1),  entry<Abs>("abs", 1),         entry<Relu>("relu", 1),
                              entry<Sqrt>("sqrt", 1)};

const Entry* find_entry(std::string_view op) {
  for (const Entry& e : kEntries)
    if (e.op == op) return &e;
  return nullptr;
}

// Same elements in the same order.
bool is_renamed(const sdk::Node& n) { return n.is("reshape") || n.is("expand_dims") || n.is("squeeze"); }

// A value of the list: an operand of the node, a result, a temporary or a number.
struct Place {
  enum Kind : uint8_t { kOperand, kResult, kTemporary, kNumber } kind;
  uint32_t index;
  bool one;  // of one element
};

struct Step {
  StepFn fn;
  uint8_t a, b, out;  // places
};

struct Program {
  uint32_t dtype = 0;
  int64_t elements = 0;
  size_t temporaries = 0;
  std::vector<Place> places;
  std::vector<Step> steps;
  std::vector<std::array<char, 8>> numbers;
};

// Lists the steps of a node, or says why that cannot be.
class Translator {
 public:
  Translator(const sdk::Graph& g, const sdk::Node& n) : g_(g), n_(n) {}

  const char* translate(Program* out) {
    if (n_.num_results() == 0) return "it has no results";
    const sdk::Type type = n_.result().type();
    p_.dtype = type.dtype();
    p_.elements = type.elements();
    if (p_.dtype != TSR_F32 && p_.dtype != TSR_F64) return "only f32 and f64 are interpreted";
    if (p_.elements <= 0 || p_.elements > kMostElements) return "too large, or of symbolic sizes";
    for (uint32_t k = 0; k < n_.num_results(); ++k)
      if (const char* why = refuse_type(n_.result(k).type())) return why;
    if (n_.is("fused")) {
      if (n_.regions().size() != 1) return "it has several regions";
      const tsr_id region = n_.regions()[0];
      inputs_ = g_.inputs(region);
      outputs_ = g_.outputs(region);
      const auto nodes = g_.nodes(region);
      for (const sdk::Node& x : nodes) {
        if (x.is("constant")) continue;
        if (const char* why = is_renamed(x) ? rename(x) : step(x)) return why;
      }
      for (const tsr_id o : outputs_)
        if (std::find(computed_.begin(), computed_.end(), o) == computed_.end()) return "a result that is no step's";
    } else if (const char* why = step(n_)) {
      return why;
    }
    if (p_.places.size() > kMaxPlaces) return "too many values";
    *out = std::move(p_);
    return nullptr;
  }

 private:
  const char* refuse_type(const sdk::Type& t) const {
    if (t.dtype() != p_.dtype) return "several types";
    return t.elements() == p_.elements ? nullptr : "several sizes";
  }

  sdk::Value source(sdk::Value v) const {
    for (sdk::Node def = v.def(); def && is_renamed(def) && n_.is("fused"); def = v.def()) v = def.operand(0);
    return v;
  }

  const char* rename(const sdk::Node& x) const {
    return x.num_operands() >= 1 && x.operand(0).type().dtype() == p_.dtype ? nullptr : "several types";
  }

  uint8_t add_place(Place p) {
    p_.places.push_back(p);
    return static_cast<uint8_t>(p_.places.size() - 1);
  }

  const char* operand(const sdk::Node& x, uint32_t k, uint8_t* place) {
    const sdk::Value v = n_.is("fused") ? source(x.operand(k)) : x.operand(k);
    const sdk::Type t = v.type();
    if (t.dtype() != p_.dtype) return "several types";
    if (t.elements() != p_.elements && t.elements() != 1) return "an operand that is repeated";
    for (const Known& known : known_)
      if (known.value == v.id) return *place = known.place, nullptr;
    if (p_.places.size() >= kMaxPlaces) return "too many values";
    const sdk::Node def = v.def();
    if (n_.is("fused") && def && def.is("constant")) {
      if (t.elements() != 1) return "a constant of several elements";
      std::array<char, 8> bytes{};
      std::memcpy(bytes.data(), def.attr("value").as_tensor().data, p_.dtype == TSR_F32 ? 4 : 8);
      p_.numbers.push_back(bytes);
      *place = add_place({Place::kNumber, static_cast<uint32_t>(p_.numbers.size() - 1), true});
    } else {
      uint32_t index = k;
      if (n_.is("fused")) {
        const auto at = std::find(inputs_.begin(), inputs_.end(), v.id);
        if (at == inputs_.end()) return "a value from elsewhere";
        index = static_cast<uint32_t>(at - inputs_.begin());
      }
      *place = add_place({Place::kOperand, index, t.elements() == 1});
    }
    known_.push_back({v.id, *place, 0, false});
    return nullptr;
  }

  const char* step(const sdk::Node& x) {
    const Entry* e = find_entry(x.op());
    if (!e || x.num_operands() != e->operands || x.num_results() != 1) return "an op that is not interpreted";
    if (const char* why = refuse_type(x.result().type())) return why;
    uint8_t in[2] = {0, 0};
    for (uint32_t k = 0; k < e->operands; ++k)
      if (const char* why = operand(x, k, &in[k])) return why;
    if (e->operands == 1) in[1] = in[0];
    const bool one_a = p_.places[in[0]].one, one_b = p_.places[in[1]].one;
    uint8_t out = 0;
    if (!n_.is("fused")) {
      out = add_place({Place::kResult, 0, false});
    } else {
      const sdk::Value v = x.result();
      const auto at = std::find(outputs_.begin(), outputs_.end(), v.id);
      if (std::count(outputs_.begin(), outputs_.end(), v.id) > 1) return "a result that is given twice";
      for (uint32_t k = 0; k < e->operands; ++k) read(source(x.operand(k)).id);
      if (at != outputs_.end()) {
        out = add_place({Place::kResult, static_cast<uint32_t>(at - outputs_.begin()), false});
        known_.push_back({v.id, out, 0, false});
      } else if (!free_.empty()) {
        out = free_.back();
        free_.pop_back();
        known_.push_back({v.id, out, uses_of(v), true});
      } else {
        if (p_.temporaries == kMaxTemporaries) return "too many values at once";
        out = add_place({Place::kTemporary, static_cast<uint32_t>(p_.temporaries++), false});
        known_.push_back({v.id, out, uses_of(v), true});
      }
      computed_.push_back(v.id);
    }
    const size_t width = p_.dtype == TSR_F32 ? 0 : 1;
    p_.steps.push_back({e->functions[width][size_t{one_a} | size_t{one_b} << 1], in[0], in[1], out});
    return nullptr;
  }

  // How often steps read a value, also through views.
  size_t uses_of(const sdk::Value& v) const {
    size_t n = 0;
    for (const tsr_use& u : v.uses()) {
      const sdk::Node user{n_.g, u.node};  // none: an output of the graph
      n += user && is_renamed(user) ? uses_of(user.result()) : 1;
    }
    return n;
  }

  // A step reads a value; after the last time its temporary is free. A step writes an element only after it has read it.
  void read(tsr_id value) {
    for (Known& k : known_)
      if (k.value == value && k.temporary && --k.uses == 0) free_.push_back(k.place);
  }

  struct Known {
    tsr_id value;
    uint8_t place;
    size_t uses;
    bool temporary;
  };
  const sdk::Graph& g_;
  sdk::Node n_;
  Program p_;
  std::span<const tsr_id> inputs_, outputs_;
  std::vector<Known> known_;
  std::vector<uint8_t> free_;
  std::vector<tsr_id> computed_;
};

class InterpretedKernel final : public sdk::Kernel {
 public:
  InterpretedKernel(std::string name, Program p) : name_(std::move(name)), p_(std::move(p)) {}
  std::string name() const override { return name_; }

  void launch(const tsr_launch& l) override {
    alignas(64) char temporaries[kMaxTemporaries][kTile * sizeof(double)];
    char* at[kMaxPlaces];
    const int64_t width = p_.dtype == TSR_F32 ? 4 : 8;
    for (int64_t begin = 0; begin < p_.elements; begin += kTile) {
      const int64_t n = std::min(kTile, p_.elements - begin);
      char** to = at;
      for (const Place& p : p_.places) {
        const int64_t offset = p.one ? 0 : begin * width;
        switch (p.kind) {
          case Place::kOperand: *to++ = static_cast<char*>(l.inputs[p.index].data) + offset; break;
          case Place::kResult: *to++ = static_cast<char*>(l.outputs[p.index].data) + offset; break;
          case Place::kTemporary: *to++ = temporaries[p.index]; break;
          case Place::kNumber: *to++ = const_cast<char*>(p_.numbers[p.index].data()); break;
        }
      }
      for (const Step& s : p_.steps) s.fn(at[s.a], at[s.b], at[s.out], n);
    }
  }

 private:
  std::string name_;
  Program p_;
};

}  // namespace

const char* refuse_interpreted(const sdk::Graph& g, const sdk::Node& n) {
  Program p;
  return Translator(g, n).translate(&p);
}

bool of_interpreted_ops(const sdk::Graph& g, const sdk::Node& fused) {
  for (const sdk::Node& x : g.nodes(fused.regions()[0]))
    if (!x.is("constant") && !is_renamed(x) && !find_entry(x.op())) return false;
  return true;
}

std::unique_ptr<sdk::Kernel> make_interpreted(const sdk::Compile& c) {
  Program p;
  if (const char* why = Translator(c.graph(), c.node()).translate(&p))
    throw sdk::Error(TSR_BUG, "TSR-B005", "cpu was asked to interpret '" + std::string(c.node().op()) + "': " + why,
                     "set generate = false in [cpu], and report it");
  std::string name = "cpu.steps";
  if (c.node().is("fused")) {
    for (const sdk::Node& x : sdk::Graph(c.graph()).nodes(c.node().regions()[0]))
      if (!x.is("constant") && !is_renamed(x) && name.size() < 80) name += "_" + std::string(x.op());
  } else {
    name += "_" + std::string(c.node().op());
  }
  return std::make_unique<InterpretedKernel>(std::move(name), std::move(p));
}

}  // namespace cpu
