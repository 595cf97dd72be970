// SPDX-License-Identifier: Apache-2.0
// Walks over the leaves of arguments and results: tensors, scalars, strings, enums, optionals, containers, pairs and tuples,
// modules, and structs whose members TESSERA_FIELDS names. The order of leaves is the order of declaration; maps go by key.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/ops.hpp"
#include "tessera/tensor.hpp"

// Names the members of a struct that tensors and guarded values live in. Write it in the struct's namespace, after the struct:
//   struct State { tessera::Tensor h, c; int64_t step; };
//   TESSERA_FIELDS(State, h, c, step)
#define TESSERA_FIELDS(T, ...)                     \
  template <class V>                               \
  void tessera_fields(T& value, V&& visit) {       \
    TESSERA_EACH(TESSERA_VISIT_FIELD, __VA_ARGS__) \
  }                                                \
  inline void tessera_has_fields(const T*) {}
#define TESSERA_VISIT_FIELD(m)       visit(#m, value.m);
#define TESSERA_EXPAND4(...)         TESSERA_EXPAND3(TESSERA_EXPAND3(TESSERA_EXPAND3(__VA_ARGS__)))
#define TESSERA_EXPAND3(...)         TESSERA_EXPAND2(TESSERA_EXPAND2(TESSERA_EXPAND2(__VA_ARGS__)))
#define TESSERA_EXPAND2(...)         TESSERA_EXPAND1(TESSERA_EXPAND1(TESSERA_EXPAND1(__VA_ARGS__)))
#define TESSERA_EXPAND1(...)         __VA_ARGS__
#define TESSERA_PARENS               ()
#define TESSERA_EACH(f, ...)         __VA_OPT__(TESSERA_EXPAND4(TESSERA_EACH_STEP(f, __VA_ARGS__)))
#define TESSERA_EACH_STEP(f, x, ...) f(x) __VA_OPT__(TESSERA_EACH_AGAIN TESSERA_PARENS(f, __VA_ARGS__))
#define TESSERA_EACH_AGAIN()         TESSERA_EACH_STEP

namespace tessera {

namespace nn {
class ModuleBase;
}

namespace detail {

template <class T>
concept HasFields = requires(const T* p) {
  tessera_has_fields(p);
};
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_sequence = false;
template <class T, class A>
inline constexpr bool is_sequence<std::vector<T, A>> = true;
template <class T, size_t N>
inline constexpr bool is_sequence<std::array<T, N>> = true;
template <class T>
inline constexpr bool is_map = false;
template <class K, class T, class C, class A>
inline constexpr bool is_map<std::map<K, T, C, A>> = true;
template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;
template <class T>
inline constexpr bool always_false = false;

template <class K>
std::string key_text(const K& k) {
  if constexpr (std::is_arithmetic_v<K>)
    return std::to_string(k);
  else
    return std::string(k);
}
// Appends key number `i` of a map to the text of all keys (TSR_ARG_KEYS): different keys make different texts.
inline void append_key(std::string& keys, size_t i, const std::string& key) {
  if (i > 0) keys += '\n';
  for (const char c : key) {
    if (c == '\n' || c == '\\') keys += '\\';
    keys += c == '\n' ? 'n' : c;
  }
}

// A visitor has: tensor(Tensor&), integer(int64_t), real(double), sym_int(SymInt&), sym_float(SymFloat&), boolean(bool),
// enumeration(int64_t), string(const std::string&), none(), length(size_t), keys(std::string), module(nn::ModuleBase&), and
// enter(kind, text) / leave() around members ("." name, "[" index or key). Paths follow Python: state['h'][0].
template <class V, class T>
void visit(V& v, T& x) {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, Tensor>) {
    v.tensor(const_cast<Tensor&>(x));
  } else if constexpr (std::is_same_v<U, Generator>) {
    v.enter('.', "state");
    v.tensor(const_cast<Tensor&>(x.state));
    v.leave();
  } else if constexpr (std::is_same_v<U, SymInt>) {
    v.sym_int(const_cast<SymInt&>(x));
  } else if constexpr (std::is_same_v<U, SymFloat>) {
    v.sym_float(const_cast<SymFloat&>(x));
  } else if constexpr (std::is_base_of_v<nn::ModuleBase, U>) {
    v.module(const_cast<U&>(x));
  } else if constexpr (std::is_same_v<U, bool>) {
    v.boolean(x);
  } else if constexpr (std::is_enum_v<U>) {
    v.enumeration(static_cast<int64_t>(x));
  } else if constexpr (std::is_integral_v<U>) {
    v.integer(static_cast<int64_t>(x));
  } else if constexpr (std::is_floating_point_v<U>) {
    v.real(static_cast<double>(x));
  } else if constexpr (std::is_same_v<U, std::string>) {
    v.string(x);
  } else if constexpr (std::is_same_v<U, const char*> || std::is_same_v<U, std::string_view>) {
    v.string(std::string(x));
  } else if constexpr (is_optional<U>) {
    v.length(x.has_value() ? 1 : 0);
    if (x) visit(v, *x);
  } else if constexpr (is_sequence<U>) {
    v.length(x.size());
    if constexpr (std::is_same_v<typename U::value_type, Tensor> && requires { v.tensors(x); })
      if (v.tensors(x)) return;
    size_t i = 0;
    for (auto& e : x) {
      v.enter_index(i++);
      visit(v, e);
      v.leave();
    }
  } else if constexpr (is_map<U>) {
    if (v.wants_keys()) {
      std::string keys;
      size_t i = 0;
      for (auto& [k, e] : x) append_key(keys, i++, key_text(k));
      v.keys(std::move(keys));
    } else {
      v.keys({});
    }
    for (auto& [k, e] : x) {
      if (v.wants_paths()) v.enter('\'', key_text(k));
      visit(v, e);
      if (v.wants_paths()) v.leave();
    }
  } else if constexpr (is_tuple<U>) {
    size_t i = 0;
    std::apply([&](auto&... e) { ((v.enter_index(i++), visit(v, e), v.leave()), ...); }, x);
  } else if constexpr (HasFields<U>) {
    tessera_fields(const_cast<U&>(x), [&](const char* name, auto& member) {
      v.enter('.', name);
      visit(v, member);
      v.leave();
    });
  } else {
    static_assert(always_false<U>,
                  "tessera: this type cannot be an argument or result of a compiled function; name its members with "
                  "TESSERA_FIELDS(Type, members...)");
  }
}

// Skips what a visitor does not care about.
struct VisitorBase {
  bool wants_keys() const { return false; }
  bool wants_paths() const { return false; }
  void enter(char, std::string_view) {}
  void enter_index(size_t) {}
  void leave() {}
  void integer(int64_t) {}
  void real(double) {}
  void sym_int(SymInt&) {}
  void sym_float(SymFloat&) {}
  void boolean(bool) {}
  void enumeration(int64_t) {}
  void string(const std::string&) {}
  void none() {}
  void length(size_t) {}
  void keys(std::string) {}
};

}  // namespace detail
}  // namespace tessera
