// SPDX-License-Identifier: Apache-2.0
#include "random_graph.hpp"

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>
#include <map>
#include <optional>

#include "ir/records.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::test {
namespace {

using core::AttrDecl;
using core::DtypePattern;
using core::Error;
using core::Graph;
using core::NodeSpec;
using core::OpRecord;
using core::ShapeItem;

// SplitMix64 (Steele, Lea and Flood 2014): the standard library's distributions differ between implementations.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t n) { return n == 0 ? 0 : bits() % n; }
  int64_t between(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(below(static_cast<uint64_t>(hi - lo) + 1)); }
  bool chance(int percent) { return below(100) < static_cast<uint64_t>(percent); }
  template <class T>
  const T& pick(const std::vector<T>& v) {
    return v[below(v.size())];
  }

 private:
  uint64_t state_;
};

using Shape = std::vector<tsr_dim>;

class Generator {
 public:
  Generator(const core::OpRegistry& ops, uint64_t seed, const RandomGraphOptions& options)
      : ops_(ops), o_(options), random_(seed * 0x2545f4914f6cdd1d + 1), graph_(std::make_unique<Graph>(ops, "")), g_(*graph_) {
    records_ = ops.all();
    std::erase_if(records_, [](const core::OpRecord* r) {
      return r->has(core::kTransfer)   // a graph keeps to one device
             || r->name == "tangent";  // and is one program, not two halves
    });
    for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d)
      if (o_.dtypes == 0 || (o_.dtypes >> d & 1)) dtypes_.push_back(d);
    if (o_.devices && random_.chance(15)) device_ = core::host_core().device_id("null:0");
  }

  std::unique_ptr<Graph> run() {
    g_.rename(o_.odd_names && random_.chance(10) ? "odd \"graph\" name" : "g" + std::to_string(random_.below(100)));
    if (o_.symbolic) symbols();
    inputs();
    const uint64_t nodes = random_.below(o_.max_nodes) + 1;
    for (uint64_t i = 0; i < nodes; ++i) node(0);
    outputs();
    g_.commit();
    if (o_.witness) *o_.witness = witness_;
    return std::move(graph_);
  }

 private:
  // --------------------------------------------------------------------------------------------------------- sizes
  void symbols() {
    auto& s = g_.sizes();
    for (uint64_t n = random_.below(4); n > 0; --n) {
      const int64_t lo = random_.between(0, 3), hi = random_.chance(40) ? INT64_MAX : random_.between(lo, 2000);
      const bool unbacked = random_.chance(20);
      witness_.push_back(random_.between(lo, std::min<int64_t>(hi, lo + 6)));
      symbols_.push_back(s.symbol((unbacked             ? "u"
                                   : random_.chance(20) ? "batch_"
                                                        : "s") +
                                      std::to_string(symbols_.size()),
                                  lo, hi, unbacked, random_.chance(50) ? witness_.back() : -1));
    }
    for (uint64_t n = symbols_.empty() ? 0 : random_.below(3); n > 0; --n) {
      static constexpr tsr_relation kRelations[] = {TSR_EQ, TSR_NE, TSR_LT, TSR_LE, TSR_GT, TSR_GE, TSR_DIVISIBLE};
      const tsr_relation r = kRelations[random_.below(std::size(kRelations))];
      const tsr_dim a = expression(1), b = r == TSR_DIVISIBLE ? random_.between(2, 8) : expression(1);
      if (core::Sizes::holds(r, value_of(a).value_or(0), value_of(b).value_or(0)) && value_of(a) && value_of(b))
        s.require(r, a, b, random_.chance(50) ? "random \"reason\"" : "");
    }
  }

  std::optional<int64_t> value_of(tsr_dim d) const {
    try {
      return g_.sizes().evaluate(d, witness_);
    } catch (const Error&) {  // it overflows
      return {};
    }
  }

  tsr_dim expression(int depth) {
    if (symbols_.empty() || (depth == 0 && random_.chance(30))) return random_.between(0, 9);
    if (depth == 0 || random_.chance(40)) return random_.pick(symbols_);
    static constexpr tsr_dim_op kOps[] = {TSR_DIM_ADD, TSR_DIM_SUB, TSR_DIM_MUL, TSR_DIM_FLOORDIV,
                                          TSR_DIM_MOD, TSR_DIM_MIN, TSR_DIM_MAX};
    const tsr_dim_op op = kOps[random_.below(std::size(kOps))];
    const tsr_dim a = expression(depth - 1);
    const bool divides = op == TSR_DIM_FLOORDIV || op == TSR_DIM_MOD;
    try {
      return g_.sizes().make(op, a, divides ? random_.between(1, 9) : expression(depth - 1));
    } catch (const Error&) {
      return a;
    }
  }

  tsr_dim size() {
    if (!symbols_.empty() && random_.chance(35)) {
      const tsr_dim d = random_.chance(60) ? random_.pick(symbols_) : expression(2);
      if (value_of(d).value_or(-1) >= 0 && *value_of(d) < 100) return d;
    }
    static constexpr int64_t kSizes[] = {0, 1, 1, 2, 2, 3, 4, 5, 8, 17};
    return kSizes[random_.below(std::size(kSizes))];
  }

  Shape shape(uint64_t max_rank = 4) {
    Shape s(random_.below(max_rank + 1));
    for (tsr_dim& d : s) d = size();
    return s;
  }

  // -------------------------------------------------------------------------------------------------------- inputs
  std::string value_name() {
    if (random_.chance(70)) return {};
    if (!o_.odd_names || random_.chance(60)) return "v" + std::to_string(random_.below(50));
    static const std::vector<std::string> kNames = {
        "layers.0.weight", "two words", "quo\"te", "back\\slash", "", "über", "1.", ".5", "a-b",
        "new\nline",       "loc",       "region",  "return",      "_"};
    return random_.pick(kNames);
  }

  tsr_type type(uint32_t dtype, const Shape& sizes) {
    tsr_type t = g_.make_type(static_cast<tsr_dtype>(dtype), sizes, device_);
    return t;
  }

  void inputs() {
    for (uint64_t n = random_.below(5) + 1; n > 0; --n) {
      tsr_type t = type(random_.pick(dtypes_), shape());
      if (t.rank > 0 && !is_packed(t.dtype) && random_.chance(10)) {
        Shape strides(t.rank);
        for (tsr_dim& d : strides) d = random_.chance(20) && o_.symbolic ? size() : random_.between(-4, 64);
        t.strides = g_.copy_dims(strides);
      }
      const auto kind =
          o_.states ? static_cast<tsr_input_kind>(random_.between(TSR_INPUT_ARG, TSR_INPUT_STATE)) : TSR_INPUT_ARG;
      const std::string key = "key " + std::to_string(n);
      const tsr_id v =
          g_.create_input(value_name(), t, kind, kind != TSR_INPUT_ARG && random_.chance(80) ? key.c_str() : nullptr);
      if (kind == TSR_INPUT_STATE)
        states_.push_back(v);
      else if (kind == TSR_INPUT_ARG && random_.chance(10))
        g_.set_state(v, TSR_NONE, true);
      values_[0].push_back(v);
    }
    if (!o_.unbound) bind_symbols();
  }

  // What no input has as a size, one more input has: a graph with a symbol that nothing determines cannot run.
  void bind_symbols() {
    std::vector<uint8_t> bound(g_.sizes().symbols().size(), 0);
    const tsr_region& body = g_.region(0);
    for (uint32_t i = 0; i < body.num_inputs; ++i) {
      const tsr_type& t = *g_.value(body.inputs[i]).type;
      for (uint32_t k = 0; k < t.rank; ++k)
        for (size_t s = 0; s < symbols_.size(); ++s) bound[s] |= t.sizes[k] == symbols_[s];
    }
    Shape rest;
    for (size_t s = 0; s < symbols_.size(); ++s)
      if (!bound[s]) rest.push_back(symbols_[s]);
    if (!rest.empty()) g_.create_input({}, type(dtypes_[0], rest), TSR_INPUT_ARG, nullptr);
  }

  void outputs() {
    std::vector<tsr_id> out;
    for (uint64_t n = random_.below(4); n > 0; --n) out.push_back(random_.pick(values_[0]));
    for (const tsr_id s : states_) {
      std::vector<tsr_id> same;
      for (const tsr_id v : values_[0]) {
        const tsr_type &a = *g_.value(v).type, &b = *g_.value(s).type;
        if (a.dtype == b.dtype && a.rank == b.rank && std::equal(a.sizes, a.sizes + a.rank, b.sizes)) same.push_back(v);
      }
      g_.set_state(s, static_cast<uint32_t>(out.size()), random_.chance(50));
      out.push_back(random_.pick(same));
    }
    g_.set_outputs(0, out);
    if (!random_.chance(30)) return;
    std::vector<std::string> names;
    std::vector<const char*> given;
    for (size_t i = 0; i < out.size(); ++i) names.push_back("out \"" + std::to_string(i) + "\"");
    for (const std::string& name : names) given.push_back(random_.chance(50) ? name.c_str() : nullptr);
    g_.set_output_names(given);
  }

  // ------------------------------------------------------------------------------------------- values of a wanted type
  tsr_loc location() {
    static const char* const kFiles[] = {"model.cpp", "a \"b\".py", "dir/x.hpp"};
    if (!random_.chance(25)) return {nullptr, 0, 0};
    tsr_loc l{kFiles[random_.below(3)], 0, 0};
    if (random_.chance(80)) l.line = static_cast<uint32_t>(random_.below(5000));
    if (l.line && random_.chance(60)) l.column = static_cast<uint32_t>(random_.below(120));
    return l;
  }

  tsr_id create(NodeSpec s, tsr_id region) {
    s.loc = location();
    const tsr_id made = g_.create_node(s, region);
    const tsr_node& n = g_.node(made);
    values_[region].insert(values_[region].end(), n.results, n.results + n.num_results);
    return made;
  }

  tsr_tensor tensor(uint32_t dtype, const Shape& sizes) {
    int64_t n = 1;
    for (const tsr_dim d : sizes) n *= d;
    auto& data = buffers_.emplace_back(static_cast<size_t>(storage_bytes(dtype, n)) + 16);
    const int kind = static_cast<int>(random_.below(4));
    if (kind == 0 && o_.odd_names) {  // any bits: NaNs with payloads, bools other than 0 and 1
      for (char& c : data) c = static_cast<char>(random_.bits());
      const int64_t per_byte = dtype_bits(dtype) < 8 ? 8 / dtype_bits(dtype) : 1;
      if (n % per_byte)
        data[static_cast<size_t>(n / per_byte)] &= static_cast<char>((1 << n % per_byte * dtype_bits(dtype)) - 1);
    } else {
      const double one = number();
      for (int64_t i = 0; i < n; ++i) {
        const double v = kind == 1 ? one : number();
        if (is_int(dtype))
          store_from(dtype, data.data(), i, kind == 1 ? uint64_t{7} : random_.bits());
        else if (is_complex(dtype))
          store_from(dtype, data.data(), i, ComplexValue<double>{v, -v});
        else
          store_from(dtype, data.data(), i, v);
      }
    }
    auto& extents = shapes_.emplace_back(sizes.begin(), sizes.end());
    tsr_tensor t{};
    t.data = data.data();
    t.dtype = dtype;
    t.rank = static_cast<uint32_t>(extents.size());
    t.sizes = extents.data();
    return t;
  }

  double number() {
    static constexpr double kSpecial[] = {0.0,  -0.0,   1.0, -1.0, 0.1,   1e-5,
                                          1e30, 5e-324, 1.5, 448,  65504, 3.4028234663852886e38};
    switch (random_.below(5)) {
      case 0: return kSpecial[random_.below(std::size(kSpecial))];
      case 1: return std::numeric_limits<double>::infinity() * (random_.chance(50) ? 1 : -1);
      case 2: return std::numeric_limits<double>::quiet_NaN();
      case 3: return static_cast<double>(random_.between(-100, 100));
      default: return static_cast<double>(random_.between(-1000000, 1000000)) / 3.0;
    }
  }

  std::optional<tsr_id> make(uint32_t dtype, const Shape& sizes, tsr_id region) {
    int64_t n = 1;
    bool fixed = true;
    for (const tsr_dim d : sizes) {
      if (TSR_DIM_IS_EXPR(d))
        fixed = false;
      else
        n *= d;
    }
    if (fixed && n <= 200 && ops_.find("constant")) {
      const tsr_tensor t = tensor(dtype, sizes);
      tsr_attr value{};
      value.name = "value";
      value.kind = TSR_ATTR_TENSOR;
      value.tensor = &t;
      NodeSpec s;
      s.op = "constant";
      s.attrs = {value};
      s.result_names = {value_name()};
      return g_.node(create(std::move(s), region)).results[0];
    }
    if (sizes.empty() || !ops_.find("full")) return {};
    const auto scalar = make(dtype, {}, region);
    if (!scalar) return {};
    tsr_attr a{};
    a.name = "shape";
    a.kind = TSR_ATTR_DIMS;
    a.count = static_cast<uint32_t>(sizes.size());
    a.ints = sizes.data();
    NodeSpec s;
    s.op = "full";
    s.operands = {*scalar};
    s.attrs = {a};
    return g_.node(create(std::move(s), region)).results[0];
  }

  // -------------------------------------------------------------------------------------------------------- nodes
  struct Bindings {
    std::map<std::string, uint32_t> dtypes;
    std::map<std::string, tsr_dim> dims;
    std::map<std::string, Shape> runs;
  };

  bool dtype_fits(const OpRecord& r, const DtypePattern& p, uint32_t dtype, const Bindings& b) const {
    if (p.kind == DtypePattern::kConcrete) return dtype == p.dtype;
    if (p.kind == DtypePattern::kUnknown) return true;
    const auto bound = b.dtypes.find(p.name);
    if (p.kind == DtypePattern::kVariable) {
      if (bound != b.dtypes.end()) return bound->second == dtype;
      return r.dtype_masks[p.slot] >> dtype & 1;
    }
    return bound == b.dtypes.end() ||
           dtype == (p.kind == DtypePattern::kRealOf ? to_real_dtype(bound->second) : to_complex_dtype(bound->second));
  }

  // Does the shape match? Binds what the pattern names.
  bool match(const std::vector<ShapeItem>& pattern, const Shape& sizes, Bindings& b) const {
    if (pattern.size() == 1 && pattern[0].kind == ShapeItem::kUnknown) return true;
    size_t run = pattern.size();
    for (size_t i = 0; i < pattern.size(); ++i)
      if (pattern[i].kind == ShapeItem::kRun || pattern[i].kind == ShapeItem::kAttr) run = i;
    const size_t fixed = pattern.size() - (run < pattern.size());
    if (run < pattern.size() ? sizes.size() < fixed : sizes.size() != fixed) return false;
    const size_t length = sizes.size() - fixed;
    for (size_t i = 0, at = 0; i < pattern.size(); ++i) {
      if (i == run) {
        const Shape part(sizes.begin() + static_cast<ptrdiff_t>(at), sizes.begin() + static_cast<ptrdiff_t>(at + length));
        if (b.runs.try_emplace(pattern[i].name, part).first->second != part) return false;
        at += length;
      } else {
        const tsr_dim want = pattern[i].kind == ShapeItem::kNumber
                                 ? pattern[i].number
                                 : b.dims.try_emplace(pattern[i].name, sizes[at]).first->second;
        if (want != sizes[at++]) return false;
      }
    }
    return true;
  }

  Shape shape_of(tsr_id v) const {
    const tsr_type& t = *g_.value(v).type;
    return {t.sizes, t.sizes + t.rank};
  }

  // A shape for the pattern where nothing at hand fits.
  Shape invent(const std::vector<ShapeItem>& pattern, const Bindings& b) {
    if (pattern.size() == 1 && pattern[0].kind == ShapeItem::kUnknown) return shape();
    Shape s;
    for (const ShapeItem& item : pattern) {
      if (item.kind == ShapeItem::kNumber) {
        s.push_back(item.number);
      } else if (item.kind == ShapeItem::kDim) {
        const auto it = b.dims.find(item.name);
        s.push_back(it == b.dims.end() ? size() : it->second);
      } else {
        Shape part;
        if (const auto it = b.runs.find(item.name); it != b.runs.end())
          part = it->second;
        else if (!b.runs.empty() && random_.chance(80))
          part = related(b.runs.begin()->second);
        else
          part = shape(3);
        s.insert(s.end(), part.begin(), part.end());
      }
    }
    return s;
  }

  // Broadcasts with `s`: a suffix of it, with ones here and there.
  Shape related(const Shape& s) {
    Shape out(s.begin() + static_cast<ptrdiff_t>(random_.chance(60) ? 0 : random_.below(s.size() + 1)), s.end());
    for (tsr_dim& d : out)
      if (random_.chance(20)) d = 1;
    return out;
  }

  std::optional<tsr_id> operand(const OpRecord& r, const core::OperandDecl& d, Bindings& b, tsr_id region) {
    auto fits = [&](tsr_id v, Bindings& into) {
      const uint32_t dtype = g_.value(v).type->dtype;
      if (!dtype_fits(r, d.dtype, dtype, b) || !match(d.shape, shape_of(v), into)) return false;
      if (d.dtype.kind == DtypePattern::kVariable) into.dtypes.try_emplace(d.dtype.name, dtype);
      return true;
    };
    if (random_.chance(80)) {
      std::vector<tsr_id> candidates;
      for (const tsr_id v : values_[region]) {
        Bindings copy = b;
        if (fits(v, copy)) candidates.push_back(v);
      }
      if (!candidates.empty()) {
        const tsr_id v = random_.pick(candidates);
        fits(v, b);
        return v;
      }
    }
    std::vector<uint32_t> dtypes;
    for (const uint32_t t : dtypes_)
      if (dtype_fits(r, d.dtype, t, b)) dtypes.push_back(t);
    if (dtypes.empty()) return {};
    const auto v = make(random_.pick(dtypes), invent(d.shape, b), region);
    if (v && !fits(*v, b)) return {};
    return v;
  }

  // Keeps what `build` makes unless it throws or the witness does not satisfy it.
  template <class F>
  void attempt(F&& build) {
    const auto before = g_.sizes().checkpoint();
    const size_t values = g_.num_values();
    std::map<tsr_id, size_t> counts;
    for (const auto& [r, list] : values_) counts[r] = list.size();
    g_.begin("random");
    bool keep = true;
    try {
      build();
      for (size_t i = witness_.size(); i < g_.sizes().symbols().size(); ++i) {  // of results whose sizes depend on data
        const tsr_symbol& s = g_.sizes().symbols()[i];
        witness_.push_back(random_.between(s.min, std::min<int64_t>(s.max, s.min + 6)));
      }
      for (size_t i = before.assumptions; i < g_.sizes().assumptions().size(); ++i) {
        const core::Assumption& a = g_.sizes().assumptions()[i];
        keep = keep && value_of(a.a) && value_of(a.b) && core::Sizes::holds(a.relation, *value_of(a.a), *value_of(a.b));
      }
      for (size_t v = values; v < g_.num_values(); ++v) {
        const tsr_type& t = *g_.value(static_cast<tsr_id>(v)).type;
        for (uint32_t k = 0; k < t.rank; ++k) keep = keep && value_of(t.sizes[k]).value_or(-1) >= 0;
      }
    } catch (const Error& e) {
      keep = false;
      if (e.family() != TSR_USER) throw;  // the op refused the draw; anything else is a fault
    }
    if (keep) return g_.commit();
    g_.rollback();
    witness_.resize(g_.sizes().symbols().size());
    for (auto it = values_.begin(); it != values_.end();) {
      const auto known = counts.find(it->first);
      if (known == counts.end()) {
        it = values_.erase(it);
      } else {
        it->second.resize(known->second);
        ++it;
      }
    }
  }

  void node(tsr_id region) {
    const OpRecord& r = *random_.pick(records_);
    attempt([&] {
      if (r.has(core::kControl)) return control(r, region);
      NodeSpec s;
      Bindings b;
      s.op = r.name;
      for (const core::OperandDecl& d : r.operands) {
        if (d.optional && random_.chance(40)) {
          s.operands.push_back(TSR_NONE);
          continue;
        }
        for (uint64_t n = d.variadic ? random_.below(3) + 1 : 1; n > 0; --n) {
          const auto v = operand(r, d, b, region);
          if (!v) return;
          s.operands.push_back(*v);
        }
      }
      operand_rank_ = s.operands.empty() || s.operands[0] == TSR_NONE ? 1 : g_.value(s.operands[0]).type->rank;
      for (const AttrDecl& a : r.attrs)
        if (a.required || random_.chance(50)) s.attrs.push_back(attr(r, a, b));
      for (size_t i = 0; i < r.results.size(); ++i) s.result_names.push_back(value_name());
      create(std::move(s), region);
    });
  }

  // ------------------------------------------------------------------------------------------------------ attributes
  template <class T, class V>
  const T* keep(std::vector<V>& store, V v) {
    return store.emplace_back(std::move(v)).data();
  }

  const char* text() {
    static const std::vector<const char*> kTexts = {
        "", "plain", "with \"quotes\"", "line\nbreak\ttab", "\x01\x7f", "\xc3\xa4\xe2\x82\xac", "a\\b"};
    return random_.pick(kTexts);
  }

  double any_float() {
    if (o_.odd_names && random_.chance(10))
      return std::bit_cast<double>(0x7ff0000000000001 | (random_.bits() & 0x800fffffffffffff));
    return random_.chance(10) ? std::bit_cast<double>(random_.bits() & 0x7fefffffffffffff) : number();
  }

  tsr_attr attr(const OpRecord& r, const AttrDecl& d, const Bindings& b) {
    tsr_attr a{};
    a.name = d.name.c_str();
    a.kind = d.kind;
    // Axes count in the dimensions of the run that a result's function takes, or of the first run there is.
    uint32_t rank = b.runs.empty() ? 2 : static_cast<uint32_t>(b.runs.begin()->second.size());
    bool permutation = false;
    for (const core::ResultDecl& result : r.results)
      for (const ShapeItem& item : result.shape)
        if (item.kind == ShapeItem::kCall && item.slot != core::kBroadcast) {
          if (const auto it = b.runs.find(item.args[0]); it != b.runs.end()) rank = static_cast<uint32_t>(it->second.size());
          permutation |= item.slot == core::kPermute && item.args[1] == "$" + d.name;
        }
    switch (d.kind) {
      case TSR_ATTR_INT: a.i = rank ? random_.between(-static_cast<int64_t>(rank), rank - 1) : random_.between(-3, 3); break;
      case TSR_ATTR_FLOAT: a.f = any_float(); break;
      case TSR_ATTR_BOOL: a.i = random_.chance(50); break;
      case TSR_ATTR_STRING: a.s = d.choices.empty() ? text() : random_.pick(d.choices).c_str(); break;
      case TSR_ATTR_DTYPE: a.i = random_.pick(dtypes_); break;
      case TSR_ATTR_DIM: a.i = random_.chance(50) ? size() : random_.between(-5, 5); break;
      case TSR_ATTR_INTS: {
        std::vector<int64_t> v;
        for (uint32_t k = 0; k < rank; ++k) v.push_back(k);
        for (size_t k = v.size(); k > 1; --k) std::swap(v[k - 1], v[random_.below(k)]);
        if (!permutation) v.resize(random_.below(v.size() + 1));
        for (int64_t& x : v)
          if (random_.chance(20)) x -= rank;
        if (!permutation && random_.chance(30)) {  // a window or stride per dimension, or per spatial dimension
          v.assign(random_.chance(50) ? operand_rank_ : operand_rank_ > 2 ? operand_rank_ - 2 : 1, 1);
          for (int64_t& x : v) x = random_.between(1, 2);
        }
        a.count = static_cast<uint32_t>(v.size());
        a.ints = keep<int64_t>(shapes_, std::move(v));
        break;
      }
      case TSR_ATTR_DIMS: {
        Shape v = shape();
        if (random_.chance(50)) {
          v.assign(operand_rank_, 0);
          for (tsr_dim& x : v) x = random_.chance(50) ? 0 : size();
        }
        a.count = static_cast<uint32_t>(v.size());
        a.ints = keep<int64_t>(shapes_, std::move(v));
        break;
      }
      case TSR_ATTR_FLOATS: {
        std::vector<double> v(random_.below(4));
        for (double& x : v) x = any_float();
        a.count = static_cast<uint32_t>(v.size());
        a.floats = keep<double>(floats_, std::move(v));
        break;
      }
      case TSR_ATTR_STRINGS: {
        std::vector<const char*> v(random_.below(4));
        for (const char*& x : v) x = text();
        a.count = static_cast<uint32_t>(v.size());
        a.strings = keep<const char*>(strings_, std::move(v));
        break;
      }
      default: {
        Shape s(random_.below(4));
        for (tsr_dim& x : s) x = random_.between(0, random_.chance(10) ? 12 : 4);
        a.tensor = &tensors_.emplace_back(tensor(random_.pick(dtypes_), s));
      }
    }
    return a;
  }

  // --------------------------------------------------------------------------------------------------------- regions
  tsr_id region_over(const std::vector<tsr_id>& args, uint64_t nodes) {
    std::vector<tsr_type> types;
    std::vector<std::string> names;
    for (const tsr_id v : args) {
      types.push_back(*g_.value(v).type);
      names.push_back(value_name());
    }
    const tsr_id region = g_.create_region(types, names);
    values_[region].assign(g_.region(region).inputs, g_.region(region).inputs + args.size());
    ++depth_;
    for (; nodes > 0; --nodes) node(region);
    --depth_;
    return region;
  }

  void control(const OpRecord& r, tsr_id region) {
    if (depth_ >= o_.max_region_depth) return;
    const bool loop = r.name == "while_loop";
    if (!loop && r.name != "cond") return;
    std::vector<tsr_id> args;
    for (uint64_t n = random_.below(3) + 1; n > 0; --n) args.push_back(random_.pick(values_[region]));
    NodeSpec s;
    s.op = r.name;
    const uint64_t carried = random_.below(args.size() + 1);
    if (!loop) {
      const auto pred = make(TSR_BOOL, {}, region);
      if (!pred) return;
      s.operands.push_back(*pred);
    }
    s.operands.insert(s.operands.end(), args.begin(), args.end());
    for (int i = 0; i < 2; ++i) {
      const tsr_id made = region_over(args, random_.below(4));
      std::vector<tsr_id> out(g_.region(made).inputs, g_.region(made).inputs + carried);
      if (loop && i == 0) {
        const auto go_on = make(TSR_BOOL, {}, made);
        out = {*go_on};
      }
      g_.set_outputs(made, out);
      s.regions.push_back(made);
    }
    tsr_attr a{};
    a.name = "carried";
    a.kind = TSR_ATTR_INT;
    a.i = static_cast<int64_t>(carried);
    if (loop) s.attrs = {a};
    for (uint64_t i = 0; i < carried; ++i) s.result_names.push_back(value_name());
    create(std::move(s), region);
  }

  const core::OpRegistry& ops_;
  const RandomGraphOptions o_;
  Random random_;
  std::unique_ptr<Graph> graph_;
  Graph& g_;
  std::vector<const OpRecord*> records_;
  std::vector<uint32_t> dtypes_;
  tsr_device device_ = 0;
  uint32_t depth_ = 0;
  uint32_t operand_rank_ = 0;  // of the node being drawn
  std::vector<tsr_dim> symbols_;
  std::vector<int64_t> witness_;                  // by symbol
  std::map<tsr_id, std::vector<tsr_id>> values_;  // by region
  std::vector<tsr_id> states_;
  // What attributes point at, until create_node has copied it.
  std::vector<std::vector<char>> buffers_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<std::vector<double>> floats_;
  std::vector<std::vector<const char*>> strings_;
  std::deque<tsr_tensor> tensors_;
};

}  // namespace

std::unique_ptr<core::Graph> random_graph(const core::OpRegistry& ops, uint64_t seed, const RandomGraphOptions& options) {
  return Generator(ops, seed, options).run();
}

}  // namespace tessera::test
