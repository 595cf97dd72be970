// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/interpret.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "interpret_parts.hpp"
#include "tessera/float_formats.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

// A value is the bits of its type, zero-extended.
template <class T>
T get(uint64_t bits) {
  if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<double>(bits);
  else if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else
    return static_cast<T>(bits);
}
template <class T>
uint64_t put(T x) {
  if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(x);
  else if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(x);
  else if constexpr (std::is_same_v<T, bool>)
    return x ? 1 : 0;
  else
    return static_cast<std::make_unsigned_t<T>>(x);
}

// f(zero of the C++ type of `t`), for compute types.
template <class F>
auto with_type(Type t, F f) {
  switch (t) {
    case Type::I32: return f(int32_t{});
    case Type::I64: return f(int64_t{});
    case Type::U32: return f(uint32_t{});
    case Type::U64: return f(uint64_t{});
    case Type::F64: return f(double{});
    default: return f(float{});
  }
}

uint64_t convert(uint64_t x, Type from, Type to) {
  if (to == Type::Bool) {
    if (is_float(from)) return constant_float(from, x) != 0;
    return x != 0;
  }
  if (from == Type::Bool) return constant_bits(to, static_cast<int64_t>(x));
  if (is_float(from)) {
    if (from == Type::F64 && !is_float(to)) from = Type::F64;
    const double d = constant_float(from, x);
    switch (to) {
      case Type::F64: return put(d);
      case Type::F32: return put(static_cast<float>(d));
      case Type::F16: return float_to_half(static_cast<float>(d));
      case Type::BF16: return float_to_bf16(static_cast<float>(d));
      case Type::U64: return static_cast<uint64_t>(d);
      default: return constant_bits(to, static_cast<int64_t>(d));
    }
  }
  const int unused = 64 - type_bytes(from) * 8;
  const int64_t n = is_signed(from) ? static_cast<int64_t>(x << unused) >> unused : static_cast<int64_t>(x);
  if (!is_float(to)) return constant_bits(to, n);
  if (to == Type::F64) return put(from == Type::U64 ? static_cast<double>(x) : static_cast<double>(n));
  const float f = from == Type::U64 ? static_cast<float>(x) : static_cast<float>(n);
  return to == Type::F32 ? put(f) : to == Type::F16 ? float_to_half(f) : float_to_bf16(f);
}

uint64_t unary(Op op, Type t, uint64_t a) {
  if (t == Type::Bool) return !a;
  return with_type(t, [&](auto zero) -> uint64_t {
    using T = decltype(zero);
    const T x = get<T>(a);
    if constexpr (std::is_floating_point_v<T>) {
      const T top = -T(0);
      switch (op) {
        case Op::Neg: return put(x) ^ put(top);
        case Op::Abs: return put(x) & ~put(top);
        case Op::Sqrt: return put(std::sqrt(x));
        case Op::Floor: return put(std::floor(x));
        case Op::Ceil: return put(std::ceil(x));
        case Op::Trunc: return put(std::trunc(x));
        default: return put(std::nearbyint(x));
      }
    } else {
      using U = std::make_unsigned_t<T>;
      switch (op) {
        case Op::Neg: return put(static_cast<T>(U(0) - static_cast<U>(x)));
        case Op::Abs: return put(x < 0 ? static_cast<T>(U(0) - static_cast<U>(x)) : x);
        case Op::Not: return put(static_cast<T>(~x));
        default: return static_cast<uint64_t>(std::popcount(static_cast<U>(x)));
      }
    }
  });
}

uint64_t binary(Op op, Type t, uint64_t a, uint64_t b) {
  if (t == Type::Bool) return op == Op::And ? a & b : op == Op::Or ? a | b : a ^ b;
  return with_type(t, [&](auto zero) -> uint64_t {
    using T = decltype(zero);
    const T x = get<T>(a), y = get<T>(b);
    switch (op) {
      case Op::Eq: return x == y;
      case Op::Ne: return x != y;
      case Op::Lt: return x < y;
      case Op::Le: return x <= y;
      case Op::Gt: return x > y;
      case Op::Ge: return x >= y;
      default: break;
    }
    if constexpr (std::is_floating_point_v<T>) {
      switch (op) {
        case Op::Add: return put(x + y);
        case Op::Sub: return put(x - y);
        case Op::Mul: return put(x * y);
        default: return put(x / y);
      }
    } else {
      using U = std::make_unsigned_t<T>;
      const U u = static_cast<U>(x), v = static_cast<U>(y);
      const T minus_one = static_cast<T>(-1);
      switch (op) {
        case Op::Add: return put(static_cast<T>(u + v));
        case Op::Sub: return put(static_cast<T>(u - v));
        case Op::Mul: return put(static_cast<T>(u * v));
        case Op::Div:
          return y == 0                                  ? 0
                 : std::is_signed_v<T> && y == minus_one ? put(static_cast<T>(U(0) - u))
                                                         : put(static_cast<T>(x / y));
        case Op::Rem: return y == 0 || (std::is_signed_v<T> && y == minus_one) ? 0 : put(static_cast<T>(x % y));
        case Op::And: return put(static_cast<T>(u & v));
        case Op::Or: return put(static_cast<T>(u | v));
        case Op::Xor: return put(static_cast<T>(u ^ v));
        case Op::Shl: return v >= sizeof(T) * 8 ? 0 : put(static_cast<T>(u << v));
        default: return v >= sizeof(T) * 8 ? put(x < 0 ? static_cast<T>(-1) : T(0)) : put(static_cast<T>(x >> v));
      }
    }
  });
}

}  // namespace

uint64_t apply(const Inst& x, Type operand, const uint64_t* a) {
  switch (x.op) {
    case Op::Const: return x.bits;
    case Op::Convert: return convert(a[0], operand, x.type);
    case Op::Bitcast: return a[0];
    case Op::Fma:
      return x.type == Type::F64 ? put(std::fma(get<double>(a[0]), get<double>(a[1]), get<double>(a[2])))
                                 : put(std::fma(get<float>(a[0]), get<float>(a[1]), get<float>(a[2])));
    case Op::Select: return a[0] ? a[1] : a[2];
    case Op::Lookup: return put(table(x.id).values[a[0] & 31]);
    case Op::Call: return interpret(function(x.id), {a, function(x.id).params.size()});
    default: return num_args(x.op) == 1 ? unary(x.op, operand, a[0]) : binary(x.op, operand, a[0], a[1]);
  }
}

namespace {

// ---- reductions

template <class T>
T lowest() {
  return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
}
template <class T>
T highest() {
  return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
}
template <class T>
T exponential(T x) {
  static const uint32_t e32 = function_named("exp_f32"), e64 = function_named("exp_f64");
  const uint64_t bits = put(x);
  return get<T>(interpret(function(sizeof(T) == 4 ? e32 : e64), {&bits, 1}));
}

template <class T>
void combine_pair(ReduceKind kind, const State& x, const State& y, State& r);

}  // namespace

State Reducer::identity() const {
  State s;
  switch (kind) {
    case ReduceKind::Prod: s.a = constant_bits(type, int64_t{1}); break;
    case ReduceKind::All: s.a = 1; break;
    case ReduceKind::Max:
    case ReduceKind::MaxNumber:
    case ReduceKind::OnlineSoftmax: s.a = with_type(type, [](auto z) { return put(lowest<decltype(z)>()); }); break;
    case ReduceKind::Min: s.a = with_type(type, [](auto z) { return put(highest<decltype(z)>()); }); break;
    case ReduceKind::ArgMax:
    case ReduceKind::ArgMin: s.b = ~uint64_t{0}; break;
    default: break;
  }
  return s;
}

void Reducer::take(State& s, uint64_t x, int64_t point) const {
  State one{x, 0, 1};
  if (kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin) one.b = static_cast<uint64_t>(point);
  if (kind == ReduceKind::OnlineSoftmax) one.b = constant_bits(type, int64_t{1});
  if (kind == ReduceKind::Welford) {
    with_type(type, [&](auto z) {
      using T = decltype(z);
      if constexpr (std::is_floating_point_v<T>) {
        ++s.n;
        const T v = get<T>(x), mean = get<T>(s.a), d = v - mean, moved = mean + d / static_cast<T>(s.n);
        s.a = put(moved);
        s.b = put(get<T>(s.b) + d * (v - moved));
      }
      return 0;
    });
    return;
  }
  s = combine(s, one);
}

State Reducer::combine(const State& x, const State& y) const {
  State r{0, 0, x.n + y.n};
  if (kind == ReduceKind::Any || kind == ReduceKind::All) {
    r.a = kind == ReduceKind::Any ? x.a | y.a : x.a & y.a;
    return r;
  }
  with_type(type, [&](auto z) {
    using T = decltype(z);
    const T a = get<T>(x.a), b = get<T>(y.a);
    switch (kind) {
      case ReduceKind::Max: r.a = a != a || a > b ? x.a : y.a; break;
      case ReduceKind::MaxNumber: r.a = b > a ? y.a : x.a; break;
      case ReduceKind::Min: r.a = a != a || a < b ? x.a : y.a; break;
      case ReduceKind::ArgMax:
      case ReduceKind::ArgMin: {
        const bool more = kind == ReduceKind::ArgMax ? a > b : a < b;
        const bool both = (a != a && b != b) || a == b;
        const bool first = y.n == 0 || (x.n != 0 && (both ? x.b < y.b : a != a || (b == b && more)));
        r.a = first ? x.a : y.a;
        r.b = first ? x.b : y.b;
        break;
      }
      case ReduceKind::Welford:
      case ReduceKind::OnlineSoftmax:
        if constexpr (std::is_floating_point_v<T>) combine_pair<T>(kind, x, y, r);
        break;
      default: r.a = binary(kind == ReduceKind::Prod ? Op::Mul : Op::Add, type, x.a, y.a);
    }
    return 0;
  });
  return r;
}

namespace {

template <class T>
void combine_pair(ReduceKind kind, const State& x, const State& y, State& r) {
  const T a = get<T>(x.a), b = get<T>(y.a), p = get<T>(x.b), q = get<T>(y.b);
  if (kind == ReduceKind::OnlineSoftmax) {
    const T top = a != a || a > b ? a : b;
    // Nothing, or nothing but -inf so far.
    const T left = a == top ? p : p * exponential(a - top), right = b == top ? q : q * exponential(b - top);
    r.a = put(top);
    r.b = put(left + right);
    return;
  }
  if (x.n == 0 || y.n == 0) {
    r = x.n == 0 ? y : x;
    return;
  }
  const T n = static_cast<T>(r.n), d = b - a, nb = static_cast<T>(y.n), na = static_cast<T>(x.n);
  r.a = put(a + d * (nb / n));
  r.b = put((p + q) + (d * d) * (na * (nb / n)));
}

State fold(const Reducer& r, std::vector<State> lanes) {
  for (size_t w = lanes.size() / 2; w > 0; w /= 2)
    for (size_t j = 0; j < w; ++j) lanes[j] = r.combine(lanes[j], lanes[j + w]);
  return lanes[0];
}

struct Running {
  uint32_t inst;
  Reducer reducer;
  std::vector<State> lanes, folds;
};

class Machine {
 public:
  Machine(const Kernel& k, std::span<void* const> buffers, std::span<const int64_t> symbols, const ReduceOrder& order,
          const FamilyOrder* family = nullptr)
      : k_(k),
        buffers_(buffers),
        order_(order),
        family_(family),
        values_(k.insts.size()),
        seconds_(k.insts.size()),
        axes_(k.axis_names.size()) {
    value_of_ = [this](uint32_t v) {
      const int unused = 64 - type_bytes(k_.insts[v].type) * 8;
      return is_signed(k_.insts[v].type) ? static_cast<int64_t>(values_[v] << unused) >> unused
                                         : static_cast<int64_t>(values_[v]);
    };
    env_ = {axes_, symbols, &value_of_};
    for (const Buffer& b : k.buffers) extents_.push_back(k.pool.evaluate(b.extent, env_));
  }

  uint32_t run() {
    each(k_.parallel, 0, [&] { body(k_.body, nullptr, 0); });
    return faults_;
  }

 private:
  template <class F>
  void each(const std::vector<uint32_t>& axes, size_t at, const F& f) {
    if (at == axes.size()) return f();
    const int64_t n = k_.pool.evaluate(k_.pool.extent(axes[at]), env_);
    for (int64_t i = 0; i < n; ++i) {
      axes_[axes[at]] = i;
      each(axes, at + 1, f);
    }
  }

  void body(const std::vector<Item>& items, std::vector<Running>* running, int64_t point) {
    for (const Item& i : items) {
      if (i.is_loop)
        loop(k_.loops[i.id]);
      else
        inst(i.id, running, point);
    }
  }

  void loop(const Loop& l) {
    if (family_) return loop_of_family(l);
    int64_t count = 1;
    for (const uint32_t a : l.axes) count *= k_.pool.evaluate(k_.pool.extent(a), env_);
    const int64_t lanes = count >= order_.long_from ? order_.long_lanes : order_.short_lanes;
    std::vector<Running> running;
    for (const Item& i : l.body)
      if (!i.is_loop && k_.insts[i.id].op == Op::Reduce) {
        const Inst& x = k_.insts[i.id];
        running.push_back({i.id, {static_cast<ReduceKind>(x.id), k_.insts[x.args[0]].type}, {}, {}});
      }
    for (Running& r : running) r.lanes.assign(static_cast<size_t>(lanes), r.reducer.identity());
    int64_t point = 0, chunks = 0;
    const auto close = [&] {  // a chunk is complete
      for (Running& r : running) {
        if (r.folds.empty()) r.folds.assign(static_cast<size_t>(order_.fold_lanes), r.reducer.identity());
        State& lane = r.folds[static_cast<size_t>(chunks % order_.fold_lanes)];
        const State s = fold(r.reducer, r.lanes);
        lane = chunks < order_.fold_lanes ? s : r.reducer.combine(lane, s);
        r.lanes.assign(r.lanes.size(), r.reducer.identity());
      }
      ++chunks;
    };
    each(l.axes, 0, [&] {
      lane_ = static_cast<size_t>(point % order_.chunk % lanes);
      body(l.body, &running, point);
      if (++point % order_.chunk == 0) close();
    });
    if (point % order_.chunk != 0 || chunks == 0) close();
    for (const Running& r : running) {
      const State s = chunks == 1 ? r.folds[0] : fold(r.reducer, r.folds);
      const bool arg = r.reducer.kind == ReduceKind::ArgMax || r.reducer.kind == ReduceKind::ArgMin;
      values_[r.inst] = arg ? s.b : s.a;
      seconds_[r.inst] = s.b;
    }
  }

  // All points first, one state each; the family says how they are combined.
  void loop_of_family(const Loop& l) {
    std::vector<Running> running;
    for (const Item& i : l.body)
      if (!i.is_loop && k_.insts[i.id].op == Op::Reduce) {
        const Inst& x = k_.insts[i.id];
        running.push_back({i.id, {static_cast<ReduceKind>(x.id), k_.insts[x.args[0]].type}, {}, {}});
        if (running.back().reducer.kind == ReduceKind::Dot) running.back().lanes = {State{}};
      }
    int64_t point = 0;
    each(l.axes, 0, [&] {
      for (Running& r : running)
        if (r.reducer.kind != ReduceKind::Dot) r.lanes.push_back(r.reducer.identity());
      lane_ = static_cast<size_t>(point);
      body(l.body, &running, point++);
    });
    for (const Running& r : running) {
      const State s = r.reducer.kind == ReduceKind::Dot ? r.lanes[0] : (*family_)(r.reducer, r.lanes, l.across);
      const bool arg = r.reducer.kind == ReduceKind::ArgMax || r.reducer.kind == ReduceKind::ArgMin;
      values_[r.inst] = arg ? s.b : s.a;
      seconds_[r.inst] = s.b;
    }
  }

  int64_t address(const Inst& x, uint32_t id) const {
    const int64_t at = k_.pool.evaluate(x.index, env_);
    if (at < 0 || at >= extents_[x.id])
      throw sdk::Error(TSR_BUG, "TSR-K030",
                       "kernel @" + k_.name + ", %" + std::to_string(id) + ": index " + std::to_string(at) + " of buffer '" +
                           k_.buffers[x.id].name + "' is outside its " + std::to_string(extents_[x.id]) + " elements");
    return at;
  }

  void inst(uint32_t id, std::vector<Running>* running, int64_t point) {
    const Inst& x = k_.insts[id];
    uint64_t a[3] = {};
    for (size_t i = 0; i < 3; ++i)
      if (x.args[i] != kNone) a[i] = values_[x.args[i]];
    switch (x.op) {
      case Op::Index: values_[id] = static_cast<uint64_t>(k_.pool.evaluate(x.index, env_)); return;
      case Op::Load: {
        if (x.args[0] != kNone && !a[0]) {
          values_[id] = a[1];
          return;
        }
        const auto size = static_cast<size_t>(type_bytes(x.type));
        uint64_t bits = 0;
        std::memcpy(&bits, static_cast<const char*>(buffers_[x.id]) + static_cast<size_t>(address(x, id)) * size, size);
        values_[id] = x.type == Type::Bool ? bits != 0 : bits;
        return;
      }
      case Op::Store: {
        if (x.args[1] != kNone && !a[1]) return;
        const auto size = static_cast<size_t>(type_bytes(k_.buffers[x.id].type));
        std::memcpy(static_cast<char*>(buffers_[x.id]) + static_cast<size_t>(address(x, id)) * size, &a[0], size);
        return;
      }
      case Op::Check:
        if (!a[0]) faults_ |= x.id;
        return;
      case Op::Second: values_[id] = seconds_[x.args[0]]; return;
      case Op::Reduce: {
        for (Running& r : *running)
          if (r.inst == id && family_ && r.reducer.kind == ReduceKind::Dot) {  // one product after the other
            const uint64_t operands[] = {a[0], a[1], r.lanes[0].a};
            Inst fused;
            fused.op = Op::Fma;
            fused.type = x.type;
            r.lanes[0].a = is_float(x.type) ? apply(fused, x.type, operands)
                                            : binary(Op::Add, x.type, operands[2], binary(Op::Mul, x.type, a[0], a[1]));
          } else if (r.inst == id) {
            const uint64_t v = r.reducer.kind == ReduceKind::Dot ? binary(Op::Mul, x.type, a[0], a[1]) : a[0];
            r.reducer.take(r.lanes[lane_], v, point);
          }
        return;
      }
      default: values_[id] = apply(x, x.args[0] == kNone ? x.type : k_.insts[x.args[0]].type, a);
    }
  }

  const Kernel& k_;
  std::span<void* const> buffers_;
  ReduceOrder order_;
  const FamilyOrder* family_;
  std::vector<uint64_t> values_, seconds_;
  std::vector<int64_t> axes_, extents_;
  std::function<int64_t(uint32_t)> value_of_;
  IndexEnv env_;
  size_t lane_ = 0;
  uint32_t faults_ = 0;
};

}  // namespace

uint32_t interpret(const Kernel& k, std::span<void* const> buffers, std::span<const int64_t> symbols,
                   const ReduceOrder& order) {
  return Machine(k, buffers, symbols, order).run();
}

uint32_t interpret_in(const Kernel& k, std::span<void* const> buffers, std::span<const int64_t> symbols,
                      const FamilyOrder& order) {
  return Machine(k, buffers, symbols, {}, &order).run();
}

uint64_t interpret(const Function& f, std::span<const uint64_t> args) {
  if (!f.external.empty()) {
    const double x = get<double>(args[0]), y = args.size() > 1 && f.params[1] == Type::F64 ? get<double>(args[1]) : 0;
    if (f.params.size() > 1 && f.params[1] == Type::Bool && !args[1]) return args[0];
    const std::string& n = f.external;
    struct One {
      const char* name;
      double (*f)(double);
    };
    static constexpr One ones[] = {{"exp", std::exp},     {"exp2", std::exp2},   {"expm1", std::expm1}, {"log", std::log},
                                   {"log2", std::log2},   {"log10", std::log10}, {"log1p", std::log1p}, {"sin", std::sin},
                                   {"cos", std::cos},     {"tan", std::tan},     {"asin", std::asin},   {"acos", std::acos},
                                   {"atan", std::atan},   {"sinh", std::sinh},   {"cosh", std::cosh},   {"tanh", std::tanh},
                                   {"asinh", std::asinh}, {"acosh", std::acosh}, {"atanh", std::atanh}, {"erf", std::erf}};
    for (const One& o : ones)
      if (n == o.name) return put(o.f(x));
    if (n == "pow") return put(std::pow(x, y));
    if (n == "atan2") return put(std::atan2(x, y));
    if (n == "hypot") return put(std::hypot(x, y));
    return put(std::fmod(x, y));
  }
  std::vector<uint64_t> values(f.insts.size());
  for (size_t i = 0; i < f.insts.size(); ++i) {
    const Inst& x = f.insts[i];
    if (x.op == Op::Param) {
      values[i] = args[x.id];
      continue;
    }
    uint64_t a[3] = {};
    for (size_t k = 0; k < 3; ++k)
      if (x.args[k] != kNone) a[k] = values[x.args[k]];
    values[i] = apply(x, x.args[0] == kNone ? x.type : f.insts[x.args[0]].type, a);
  }
  return values[f.value];
}

}  // namespace tessera::kit
