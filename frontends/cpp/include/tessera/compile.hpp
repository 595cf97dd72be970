// SPDX-License-Identifier: Apache-2.0
// tessera::compile: the first call captures the function as a graph and compiles it, later calls dispatch on guards.
//
//   auto f = tessera::compile([](const Tensor& x, double c) { return (x * c).relu(); }, {.args = {"x", "c"}});
//   Tensor y = f(x, 0.5);
//
// What the function captures (its closure, globals, plain members of modules) is read while it is traced and baked into the
// graph; tensors of modules passed or compiled are inputs. Values that should be guarded are arguments.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/embed.h"
#include "tessera/flatten.hpp"
#include "tessera/nn.hpp"
#include "tessera/substitutes.hpp"
#include "tessera/tensor.hpp"

namespace tessera {

enum class Dynamic : int32_t { automatic = -1, no = 0, yes = 1 };

// A guard that a filter is asked about.
struct GuardInfo {
  enum Kind { value = TSR_GUARD_VALUE, tensor = TSR_GUARD_TENSOR, global = TSR_GUARD_GLOBAL } kind;  // global: of guarded()
  std::string_view path;                                                                             // "c", "self.weight"
  std::string_view text;                                                                             // "c == 0.5"
};

struct CompileOptions {
  bool fullgraph = false;                 // a graph break is an error
  Dynamic dynamic = Dynamic::automatic;   // sizes as symbols
  std::string backend = {};               // "eager", "cpu,eager"; empty: the config's order
  std::string mode = {};                  // "default", "reduce-overhead", ...; empty: the config's
  std::vector<std::string> options = {};  // config overrides: "guards.recompile_limit=16"
  bool disable = false;                   // call the function itself
  std::string name = {};                  // for messages; empty: "fn"
  std::vector<std::string> args = {};     // names of the arguments; empty: arg0, arg1, ...
  std::optional<Context> context = {};    // empty: Context::current() at the compile call
  // UNSAFE. Asked about each guard of a new entry; false drops it: the entry then serves calls that it was not compiled for,
  // and gives what it was compiled to give. Types of tensors that have lost their guard are checked at each call, with errors.
  // policy.hpp has ready-made ones.
  std::function<bool(const GuardInfo&)> guard_filter_unsafe = {};
};

inline bool is_compiling() { return detail::t_traced_now != nullptr; }  // inside a traced function

namespace detail {

// The flattened arguments of one call, with the strings among them. They stand on the stack in a call of ordinary width; more
// of them, and strings, go to memory that the thread keeps, so that a call like an earlier one allocates nothing.
class ArgBuffer {
 public:
  ArgBuffer() : begin_(stack_), end_(stack_), limit_(stack_ + kStack) {}
  ArgBuffer(const ArgBuffer&) = delete;
  ~ArgBuffer() {
    if (spare_) [[unlikely]]
      give_back();
  }
  tsr_arg& push(uint32_t kind) {
    if (end_ == limit_) [[unlikely]]
      grow();
    *end_ = {nullptr, 0, 0, nullptr, kind, TSR_INPUT_ARG};
    return *end_++;
  }
  // These tensors, when all of them are concrete: no call comes between one and the next, so that all of it stays in registers.
  // False: nothing has been pushed.
  template <class... T>
  [[gnu::always_inline]] bool push_tensors(const T&... tensors) {
    if (t_substitutes || static_cast<size_t>(limit_ - end_) < sizeof...(T)) [[unlikely]]
      return false;
    tsr_arg* to = end_;
    if (!(write(*to++, tensors) && ...)) [[unlikely]]
      return false;
    end_ = to;
    return true;
  }
  bool push_tensors(std::span<const Tensor> tensors) {
    if (t_substitutes || static_cast<size_t>(limit_ - end_) < tensors.size()) [[unlikely]]
      return false;
    tsr_arg* to = end_;
    for (const Tensor& t : tensors)
      if (!write(*to++, t)) [[unlikely]]
        return false;
    end_ = to;
    return true;
  }
  void push_text(uint32_t kind, std::string s);
  tsr_arg& back() { return end_[-1]; }
  const tsr_arg* data() const { return begin_; }
  size_t size() const { return static_cast<size_t>(end_ - begin_); }

  struct Spare;

 private:
  static constexpr size_t kStack = 96;
  static bool write(tsr_arg& to, const Tensor& t) {  // false: it is undefined or traced
    const uintptr_t bits = t.bits_;
    to = {reinterpret_cast<tsr_tensor_handle*>(bits), 0, 0, nullptr, TSR_ARG_TENSOR, TSR_INPUT_ARG};
    return bits != 0 && (bits & 1) == 0;
  }
  Spare& spare();
  void grow();
  void give_back() noexcept;
  tsr_arg *begin_, *end_, *limit_;
  Spare* spare_ = nullptr;
  tsr_arg stack_[kStack];
};

// ---- visitors of compiled calls
struct FlattenVisitor : VisitorBase {  // fills tsr_arg; on the hot path
  ArgBuffer& out;
  bool placeholders;  // tensors are only counted
  explicit FlattenVisitor(ArgBuffer& to, bool only_count = false) : out(to), placeholders(only_count) {}
  bool wants_keys() const { return true; }
  tsr_arg& push(uint32_t kind) { return out.push(kind); }
  void tensor(Tensor& t) {
    tsr_tensor_handle* const h = t.handle_unchecked();  // or a traced one
    if (placeholders || !h || (reinterpret_cast<uintptr_t>(h) & 1)) [[unlikely]]
      return other_tensor(t);
    push(TSR_ARG_TENSOR).tensor = h;
  }
  void other_tensor(Tensor& t);
  bool tensors(std::span<const Tensor> ts) { return !placeholders && out.push_tensors(ts); }
  void integer(int64_t x) { push(TSR_ARG_INT).i = x; }
  void real(double x) { push(TSR_ARG_FLOAT).f = x; }
  void sym_int(SymInt& x);
  void sym_float(SymFloat& x);
  void boolean(bool x) { push(TSR_ARG_BOOL).i = x; }
  void enumeration(int64_t x) { push(TSR_ARG_ENUM).i = x; }
  void string(const std::string& s) { out.push_text(TSR_ARG_STRING, s); }
  void keys(std::string s) { out.push_text(TSR_ARG_KEYS, std::move(s)); }
  void length(size_t n) { push(TSR_ARG_LENGTH).i = static_cast<int64_t>(n); }
  void none() { push(TSR_ARG_NONE); }
  void module(nn::ModuleBase& m);
};

struct CollectVisitor : VisitorBase {  // addresses of the tensor leaves
  std::vector<Tensor*> tensors;
  void tensor(Tensor& t) { tensors.push_back(&t); }
  void module(nn::ModuleBase& m);
};

struct ScalarVisitor : VisitorBase {  // the symbolic numbers, by the number of their leaf
  uint32_t at = 0;
  std::vector<std::pair<uint32_t, SymInt*>> ints;
  std::vector<std::pair<uint32_t, SymFloat*>> floats;
  std::vector<SymInt> bound_ints;  // as they were when keep() was called
  std::vector<SymFloat> bound_floats;
  void keep() {
    for (const auto& [leaf, n] : ints) bound_ints.push_back(*n);
    for (const auto& [leaf, f] : floats) bound_floats.push_back(*f);
  }
  void tensor(Tensor&) { ++at; }
  void integer(int64_t) { ++at; }
  void real(double) { ++at; }
  void sym_int(SymInt& x) { ints.emplace_back(at++, &x); }
  void sym_float(SymFloat& x) { floats.emplace_back(at++, &x); }
  void boolean(bool) { ++at; }
  void enumeration(int64_t) { ++at; }
  void string(const std::string&) { ++at; }
  void keys(std::string) { ++at; }
  void length(size_t) { ++at; }
  void none() { ++at; }
  void module(nn::ModuleBase& m);
};
// While a function is traced: makes its symbolic arguments what the recorder took them for.
void bind_scalars(const ScalarVisitor& args);
bool scalars_unchanged(const ScalarVisitor& before, const ScalarVisitor& after, size_t* leaf);
void settle_scalars(const ScalarVisitor& results);  // a result is a number: its value becomes a guard

struct PathVisitor : VisitorBase {  // the path of leaf number `target`
  size_t target, at = 0;
  std::vector<std::string> stack;
  std::string found;
  bool wants_keys() const { return false; }
  bool wants_paths() const { return true; }
  void leaf();
  void enter(char kind, std::string_view text);
  void enter_index(size_t i);
  void leave() { stack.pop_back(); }
  void tensor(Tensor&) { leaf(); }
  void integer(int64_t) { leaf(); }
  void real(double) { leaf(); }
  void sym_int(SymInt&) { leaf(); }
  void sym_float(SymFloat&) { leaf(); }
  void boolean(bool) { leaf(); }
  void enumeration(int64_t) { leaf(); }
  void string(const std::string&) { leaf(); }
  void keys(std::string) { leaf(); }
  void length(size_t) { leaf(); }
  void none() { leaf(); }
  void module(nn::ModuleBase& m);
};

// What a trace needs to know of one call, without its types.
struct CallFrame {
  // Runs the function on a copy of the arguments. `inputs` are the traced tensor leaves in order; returns the tensor leaves of
  // the result, the leaves of mutable arguments after the run, and the skeleton of the result.
  struct Traced {
    std::vector<Tensor> results;
    std::vector<Tensor> given, mutated;  // before and after the run, one per mutable tensor leaf, in order
    std::vector<size_t> mutable_leaves;  // their numbers among the tensor leaves
    std::shared_ptr<void> skeleton;
    std::string changed_host_value;  // the path of one that the run changed; empty: none
  };
  virtual std::string path(size_t leaf) = 0;
  virtual Traced run(const std::vector<Tensor>& inputs) = 0;
  std::exception_ptr thrown;
  bool reuse_only = false;  // when the function is to be run as it is: without compiling what it calls

 protected:
  ~CallFrame() = default;
};

struct Structure {  // kept with each entry
  std::shared_ptr<void> skeleton;
  size_t num_results = 0;
  std::vector<std::pair<size_t, size_t>> writebacks;  // output number -> tensor leaf number
};

// A structure as the host keeps it for its entry. Whether anything is to be written back stands in the pointer: most calls then
// look at nothing behind it.
class KeptStructure {
 public:
  explicit KeptStructure(const void* kept) : bits_(reinterpret_cast<uintptr_t>(kept)) {}
  static void* keep(std::unique_ptr<Structure> s) {
    const uintptr_t writes_back = s->writebacks.empty() ? 0 : 1;
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(s.release()) | writes_back);
  }
  static void drop(void* kept) { delete const_cast<Structure*>(&*KeptStructure(kept)); }
  explicit operator bool() const { return bits_ != 0; }
  bool writes_back() const { return (bits_ & 1) != 0; }
  const Structure& operator*() const { return *reinterpret_cast<const Structure*>(bits_ & ~uintptr_t{1}); }
  const Structure* operator->() const { return &**this; }

 private:
  uintptr_t bits_;
};

// The tensors that a call has returned; those that nobody takes are released.
class Outputs {
 public:
  static constexpr size_t kStack = 32;
  Outputs() = default;
  Outputs(const Outputs&) = delete;
  // Asked for inline: it is in every call, and a program with many compiled functions would get a call of its own for it.
  [[gnu::always_inline]] ~Outputs() {
    for (size_t i = 0; i < size_; ++i)
      if (data_[i]) [[unlikely]]
        release(data_[i]);
    if (data_ != stack_) [[unlikely]]
      delete[] data_;
  }
  void assign(tsr_tensor_handle* const* from, size_t n) {
    if (n == 1) [[likely]] {
      stack_[0] = from[0];
      size_ = 1;
      return;
    }
    if (n > kStack) [[unlikely]]
      data_ = new tsr_tensor_handle*[n];
    for (size_t i = 0; i < n; ++i) data_[i] = from[i];
    size_ = n;
  }
  Tensor take(size_t i) { return Tensor::adopt(std::exchange(data_[i], nullptr)); }

 private:
  static void release(tsr_tensor_handle* h);
  tsr_tensor_handle** data_ = stack_;
  size_t size_ = 0;
  tsr_tensor_handle* stack_[kStack];
};

struct Saved {  // what one call of a forward half has left
  explicit Saved(tsr_saved* saved) : handle(saved) {}
  ~Saved();
  Saved(const Saved&) = delete;
  size_t num_gradients() const;
  tsr_saved* handle;
};
// Throws TSR-A020 when what was kept is gone.
std::vector<Tensor> run_backward(Saved& saved, const std::vector<Tensor>& cotangents);
struct SavingCall {
  std::vector<Tensor> results;  // and the values that are kept
  std::shared_ptr<Saved> saved;
  const void* structure = nullptr;  // a KeptStructure
};

class Callable {  // owns the host's handle
 public:
  Callable(CompileOptions options, std::source_location where);
  ~Callable();
  Callable(const Callable&) = delete;
  // Outputs are new references. Rethrows what the user's function threw while it was traced. Null: no compiled code serves the
  // call, and the function is to be run as it is.
  KeptStructure call(CallFrame& frame, const ArgBuffer& args, Outputs& outputs);
  // Of a function that asks for cotangents. Throws TSR-F052 where it cannot run compiled.
  SavingCall call_saving(CallFrame& frame, const ArgBuffer& args);
  // As call, with the backward half kept for Tensor::backward: results know of it. Throws TSR-F052 where it cannot run
  // compiled.
  KeptStructure call_recorded(CallFrame& frame, const ArgBuffer& args, Outputs& outputs);
  const CompileOptions& options() const { return options_; }
  const tsr_loc& loc() const { return loc_; }
  bool records() const { return records_; }  // it is the half that call_recorded uses
  const std::source_location& where() const { return where_; }
  std::string describe() const;  // entries and guards, as JSON
  void reset();
  void recompile();
  struct Example {
    CallFrame* frame;
    const ArgBuffer* args;
  };
  size_t compile_ahead(std::span<const Example> examples, int threads);  // as Compiled::compile_ahead
  const Context& context() const { return context_; }

 private:
  CompileOptions options_;
  std::source_location where_;
  std::string file_;
  tsr_loc loc_{};  // of the compile call
  Context context_;
  tsr_callable_handle* handle_ = nullptr;
  bool records_ = false;
  std::once_flag recording_made_;
  std::unique_ptr<Callable> recording_;  // captures what call_recorded runs
};

[[noreturn]] void cannot_save(const char* why);  // TSR-F052

// The dtype of Autocast (policy.hpp); 0: off. Calls in another mode are other calls: it is a leaf behind all others while it is
// on.
extern constinit thread_local uint32_t t_autocast;
inline void flatten_modes(ArgBuffer& args) {
  if (t_autocast != 0) [[unlikely]]
    args.push(TSR_ARG_ENUM).i = t_autocast;
}

// Whether any tensor has ever been asked to require gradients: until then no call looks for one.
extern constinit std::atomic<bool> g_gradients_wanted;
bool any_requires_grad(const ArgBuffer& args);
inline bool records_gradients(const ArgBuffer& args) {
  return g_gradients_wanted.load(std::memory_order_relaxed) && any_requires_grad(args);
}
// What a call puts in the place of a tensor requires gradients if that did.
void keep_requiring(const Tensor& before, Tensor& now);

class ReuseOnly {  // compiled functions called on this thread compile nothing while one lives with `on`
 public:
  explicit ReuseOnly(bool on);
  ~ReuseOnly();
  ReuseOnly(const ReuseOnly&) = delete;

 private:
  bool on_, previous_ = false;
};

// Where the tensors of one argument stand: to find objects that a call passes twice.
struct Places : VisitorBase {
  uintptr_t low = UINTPTR_MAX, high = 0;
  void tensor(Tensor& t) {
    const auto at = reinterpret_cast<uintptr_t>(&t);
    low = at < low ? at : low;
    high = at > high ? at : high;
  }
  void module(nn::ModuleBase&) {}  // a module's own: see aliases()
};

// Puts outputs where they belong: into the leaves of mutable arguments, or one after the other into those of a result.
struct WritebackVisitor : VisitorBase {
  Outputs& out;
  const std::pair<size_t, size_t>*next, *end;  // ascending by leaf
  size_t at = 0;
  WritebackVisitor(Outputs& from, const Structure& s) : out(from), next(s.writebacks.data()), end(next + s.writebacks.size()) {}
  void tensor(Tensor& t) {
    if (next != end && next->second == at) {
      Tensor now = out.take(next++->first);
      if (g_gradients_wanted.load(std::memory_order_relaxed)) [[unlikely]]
        keep_requiring(t, now);
      t = std::move(now);
    }
    ++at;
  }
  void module(nn::ModuleBase& m);
};
struct ResultVisitor : VisitorBase {
  Outputs& out;
  size_t at = 0, count;
  ResultVisitor(Outputs& from, size_t n) : out(from), count(n) {}
  void tensor(Tensor& t) {
    if (at < count) t = out.take(at++);
  }
  void module(nn::ModuleBase& m);
};

// A compiled function that another one calls while it is traced is part of that one's graph. Throws TSR-F047 when such calls
// nest without end.
class Inlined {
 public:
  explicit Inlined(const Callable* callable);
  ~Inlined();
  Inlined(const Inlined&) = delete;

 private:
  const bool traced_;
};

template <class A>
inline constexpr bool is_mutable_arg = std::is_lvalue_reference_v<A> && !std::is_const_v<std::remove_reference_t<A>>;
template <class A>
inline constexpr bool is_module_arg = std::is_base_of_v<nn::ModuleBase, std::remove_cvref_t<A>>;
// Of a function that may replace tensors of its arguments: whether two of them are one object decides what it computes.
template <class... A>
inline constexpr bool may_alias = sizeof...(A) > 1 && ((is_mutable_arg<A> && !is_module_arg<A>) || ...);

// Throws TSR-F048 while a function is traced.
struct NotTraced {
  explicit NotTraced(const std::string& name);
};

// One argument of such a function.
template <class T>
inline constexpr char type_id = 0;  // its address tells types apart
struct Argument {
  const void* object;
  const void* type;
  bool is_mutable;
  Places places;
  void (*collect)(const void* object, CollectVisitor& leaves);
  template <class A>
  static Argument of(std::remove_cvref_t<A>& a) {
    Argument out{&a,
                 &type_id<std::remove_cvref_t<A>>,
                 is_mutable_arg<A> && !is_module_arg<A>,
                 {},
                 [](const void* object, CollectVisitor& v) {
                   visit(v, *static_cast<std::remove_cvref_t<A>*>(const_cast<void*>(object)));
                 }};
    visit(out.places, a);
    return out;
  }
};
// Whether two of them may share a tensor that the function may replace.
inline bool may_share(std::span<const Argument> args) {
  for (size_t i = 1; i < args.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if ((args[i].is_mutable || args[j].is_mutable) && args[i].places.low <= args[j].places.high &&
          args[j].places.low <= args[i].places.high)
        return true;
  return false;
}
// By argument: the first one that is the same object, where the function may replace tensors of one of them; else itself.
void share_objects(std::span<const Argument> args, std::span<size_t> first);
// What of it decides the compile: "b is a", by names of arguments; empty: nothing. *apart: some share tensors without being one
// object of one type, which a traced run cannot do as they do. Allocates nothing where nothing is shared.
std::string aliases(std::span<const Argument> args, const CompileOptions& options, bool* apart);

// A module's tensors have substitutes while it is traced, which only the tracing thread sees; other arguments are copied.
template <class A>
struct TraceArg {
  std::remove_cvref_t<A> value;
  explicit TraceArg(std::remove_cvref_t<A>& v) : value(v) {}
  std::remove_cvref_t<A>& get() { return value; }
};
template <class A>
requires is_module_arg<A>
struct TraceArg<A> {
  std::remove_cvref_t<A>& module;
  SubstituteModule substitutes;
  explicit TraceArg(std::remove_cvref_t<A>& m) : module(m), substitutes(m) {}
  std::remove_cvref_t<A>& get() { return module; }
};

// An argument as an example of compile_ahead holds it: modules by reference.
template <class A>
using ExampleArg = std::conditional_t<is_module_arg<A>, std::reference_wrapper<std::remove_cvref_t<A>>, std::remove_cvref_t<A>>;
template <class T>
T& example_value(T& a) {
  return a;
}
template <class M>
M& example_value(std::reference_wrapper<M>& m) {
  return m.get();
}

bool same_host_values(const std::function<void(FlattenVisitor&)>& a, const std::function<void(FlattenVisitor&)>& b,
                      size_t* leaf);
std::vector<std::string> argument_names(const CompileOptions& options, size_t count);

}  // namespace detail

template <class Signature>
class Compiled;

// A compiled function. Copies share cache and guards. Thread-safe.
template <class R, class... A>
class Compiled<R(A...)> {
 public:
  Compiled(std::function<R(A...)> fn, CompileOptions options, std::source_location where)
      : fn_(std::make_shared<std::function<R(A...)>>(std::move(fn))),
        callable_(options.disable ? nullptr : std::make_shared<detail::Callable>(std::move(options), where)) {}

  R operator()(A... args) const {
    if (!callable_ || is_compiling()) {
      const detail::Inlined inlined(callable_.get());
      return (*fn_)(std::forward<A>(args)...);
    }
    using Refs = std::tuple<std::remove_cvref_t<A>&...>;
    Refs refs(const_cast<std::remove_cvref_t<A>&>(args)...);
    detail::ArgBuffer flat;
    if constexpr (sizeof...(A) > 0 && (std::is_same_v<std::remove_cvref_t<A>, Tensor> && ...)) {
      if (!flat.push_tensors(args...)) [[unlikely]]
        flatten(flat, refs);
    } else {
      flatten(flat, refs);
    }
    if constexpr (detail::may_alias<A...>)
      if (!flatten_aliases(flat, refs)) [[unlikely]]
        return run_itself(false, std::forward<A>(args)...);
    detail::flatten_modes(flat);

    Frame frame(*this, refs);  // only looked into when the call misses
    detail::Outputs out;
    bool recorded = false;
    if constexpr (!std::is_void_v<R>) recorded = detail::records_gradients(flat);
    const detail::KeptStructure s = recorded ? callable_->call_recorded(frame, flat, out) : callable_->call(frame, flat, out);
    if (!s) [[unlikely]]
      return run_itself(frame.reuse_only, std::forward<A>(args)...);
    if (s.writes_back()) {
      detail::WritebackVisitor write(out, *s);
      std::apply([&](auto&... a) { (detail::visit(write, a), ...); }, refs);
    }
    if constexpr (std::is_same_v<R, Tensor>) {
      return out.take(0);
    } else if constexpr (!std::is_void_v<R>) {
      R result = *static_cast<const R*>(s->skeleton.get());
      detail::ResultVisitor fill(out, s->num_results);
      detail::visit(fill, result);
      return result;
    }
  }

  // As a call, of a function that asks for cotangents (grad.hpp: differentiable): the results that do not depend on them, and
  // what the backward half needs.
  detail::SavingCall call_saving(A... args) const {
    const detail::NotTraced outside(callable_ ? callable_->options().name : std::string("fn"));
    Refs refs(const_cast<std::remove_cvref_t<A>&>(args)...);
    detail::ArgBuffer flat;
    flatten(flat, refs);
    detail::flatten_modes(flat);
    Frame frame(*this, refs);
    if (!callable_) detail::cannot_save("compilation is disabled");
    return callable_->call_saving(frame, flat);
  }

  std::string describe() const { return callable_ ? callable_->describe() : "{}"; }  // entries, guards, counts as JSON
  void reset() const {
    if (callable_) callable_->reset();
  }  // forgets every entry, and what was learned about sizes
  // From now on the entries there are serve no call: the next call of each kind compiles again.
  void recompile() const {
    if (callable_) callable_->recompile();
  }
  // The arguments of one call: std::tuple<Tensor, double>; modules by reference.
  using Example = std::tuple<detail::ExampleArg<A>...>;
  // Compiles for calls before they come, without running any of it:
  //   f.compile_ahead({{zeros({1, 768}), 0.5}, {zeros({8, 768}), 0.5}});
  // The function is traced once per example, on this thread; what is traced is compiled on up to `threads` threads meanwhile
  // (0: as many as parallel loops have). Each example is compiled as a first call would be: with dynamic = automatic its sizes
  // are numbers, and only calls of other sizes find out what varies. Returns how many entries were made; examples that others
  // serve make none. Throws what the first example that failed reports, after the others have been compiled: TSR-D014 for a
  // function that breaks its graph, TSR-D012 past guards.recompile_limit, TSR-F048 inside a traced function. The stance does
  // not matter. Nothing is done when compilation is disabled.
  size_t compile_ahead(std::vector<Example> examples, int threads = 0) const {
    if (!callable_) return 0;
    const detail::NotTraced outside(callable_->options().name);
    struct Call {
      Call(const Compiled& c, Refs args) : refs(args), frame(c, refs) {}
      Refs refs;
      Frame frame;
      detail::ArgBuffer flat;
    };
    std::vector<std::unique_ptr<Call>> calls;
    std::vector<detail::Callable::Example> all;
    for (Example& example : examples) {
      auto refs = std::apply([](auto&... a) { return Refs(detail::example_value(a)...); }, example);
      Call& call = *calls.emplace_back(std::make_unique<Call>(*this, refs));
      detail::FlattenVisitor flatten(call.flat);
      std::apply([&](auto&... a) { (detail::visit(flatten, a), ...); }, call.refs);
      if constexpr (detail::may_alias<A...>) flatten_aliases(call.flat, call.refs);
      detail::flatten_modes(call.flat);
      all.push_back({&call.frame, &call.flat});
    }
    return callable_->compile_ahead(all, threads);
  }
  const std::function<R(A...)>& original() const { return *fn_; }
  Compiled afresh() const {  // of the same function and options, with nothing compiled yet
    return callable_ ? Compiled(*fn_, callable_->options(), callable_->where()) : *this;
  }

 private:
  using Refs = std::tuple<std::remove_cvref_t<A>&...>;

  [[gnu::noinline]] static void flatten(detail::ArgBuffer& flat, Refs& refs) {
    detail::FlattenVisitor visitor(flat);
    std::apply([&](auto&... a) { (detail::visit(visitor, a), ...); }, refs);
  }
  R run_itself(bool reuse_only, A... args) const {
    const ContextScope context(callable_->context());
    const detail::ReuseOnly nested(reuse_only);
    return (*fn_)(std::forward<A>(args)...);
  }
  // Which arguments are one object, as the last leaf: a text, or nothing. False: the function has to run as it is.
  bool flatten_aliases(detail::ArgBuffer& flat, Refs& refs) const {
    const auto all =
        std::apply([](auto&... a) { return std::array<detail::Argument, sizeof...(A)>{detail::Argument::of<A>(a)...}; }, refs);
    bool apart = false;
    std::string text;
    if (detail::may_share(all)) [[unlikely]]
      text = detail::aliases(all, callable_->options(), &apart);
    if (text.empty())
      flat.push(TSR_ARG_NONE);
    else
      flat.push_text(TSR_ARG_STRING, std::move(text));
    return !apart;
  }

  struct Frame final : detail::CallFrame {
    Frame(const Compiled& c, Refs& refs) : c_(c), refs_(refs) {}
    std::string path(size_t leaf) override { return path_of(leaf); }
    Traced run(const std::vector<Tensor>& inputs) override { return trace(inputs); }

   private:
    std::string path_of(size_t leaf) {
      detail::PathVisitor v;
      v.target = leaf;
      const std::vector<std::string> names = detail::argument_names(c_.callable_->options(), sizeof...(A));
      size_t i = 0;
      std::apply([&](auto&... a) { ((v.enter(0, names[i++]), detail::visit(v, a), v.leave()), ...); }, refs_);
      if (v.found.empty() && leaf >= v.at + (detail::may_alias<A...> ? 1 : 0))
        return "autocast";  // the leaves behind all others
      if (detail::may_alias<A...> && v.found.empty()) return "aliasing";
      return v.found;
    }
    Traced trace(const std::vector<Tensor>& inputs) {
      return std::apply([&](auto&... a) { return trace_on(inputs, detail::TraceArg<A>(a)...); }, refs_);
    }
    Traced trace_on(const std::vector<Tensor>& inputs, detail::TraceArg<A>... copies) {
      Traced t;
      // An object that is passed twice is one object in the traced run, too.
      std::array<void*, sizeof...(A)> objects{static_cast<void*>(&copies.get())...};
      if constexpr (detail::may_alias<A...>) {
        const auto all = std::apply(
            [](auto&... a) { return std::array<detail::Argument, sizeof...(A)>{detail::Argument::of<A>(a)...}; }, refs_);
        std::array<size_t, sizeof...(A)> first;
        detail::share_objects(all, first);
        for (size_t i = 0; i < all.size(); ++i) objects[i] = objects[first[i]];
      }
      Refs given = refs_to(objects, std::index_sequence_for<A...>());
      const auto visit_all = [&](auto& visitor) { std::apply([&](auto&... a) { (detail::visit(visitor, a), ...); }, given); };
      detail::CollectVisitor leaves;
      size_t begin = 0;
      auto each = [&](auto& arg, bool is_mutable) {
        detail::visit(leaves, arg);
        // Of a module, forward assigns buffers and a training step parameters, whatever kind of reference it is passed by.
        if (is_mutable || std::is_base_of_v<nn::ModuleBase, std::remove_cvref_t<decltype(arg)>>) {
          for (size_t leaf = begin; leaf < leaves.tensors.size(); ++leaf) t.mutable_leaves.push_back(leaf);
        }
        begin = leaves.tensors.size();
      };
      std::apply([&](auto&... a) { (each(a, detail::is_mutable_arg<A>), ...); }, given);
      size_t next = 0;
      for (Tensor* leaf : leaves.tensors)
        if (leaf->defined()) detail::give(*leaf, inputs[next++]);
      for (size_t leaf : t.mutable_leaves) t.given.push_back(*leaves.tensors[leaf]);
      detail::ScalarVisitor numbers;
      visit_all(numbers);
      detail::bind_scalars(numbers);
      numbers.keep();
      if constexpr (std::is_void_v<R>) {
        invoke(given, std::index_sequence_for<A...>());
      } else {
        auto result = std::make_shared<R>(invoke(given, std::index_sequence_for<A...>()));
        detail::CollectVisitor out;
        detail::visit(out, *result);
        detail::ScalarVisitor plain;
        detail::visit(plain, *result);
        detail::settle_scalars(plain);
        for (Tensor* r : out.tensors) t.results.push_back(std::exchange(*r, Tensor()));
        t.skeleton = result;
      }
      for (size_t leaf : t.mutable_leaves) t.mutated.push_back(*leaves.tensors[leaf]);
      // Host values that the function changed would not change again on a hit: that is an error, not a wrong number.
      size_t changed = 0;
      const auto before = [&](detail::FlattenVisitor& v) {
        std::apply([&](auto&... a) { (detail::visit(v, a), ...); }, refs_);
      };
      const auto after = [&](detail::FlattenVisitor& v) { visit_all(v); };
      detail::ScalarVisitor numbers_after;
      visit_all(numbers_after);
      if (!detail::same_host_values(before, after, &changed) || !detail::scalars_unchanged(numbers, numbers_after, &changed))
        t.changed_host_value = path_of(changed);
      return t;
    }
    template <size_t... I>
    static Refs refs_to(const std::array<void*, sizeof...(A)>& objects, std::index_sequence<I...>) {
      return Refs(*static_cast<std::remove_cvref_t<A>*>(objects[I])...);
    }
    template <size_t... I>
    R invoke(Refs& given, std::index_sequence<I...>) {
      return (*c_.fn_)(static_cast<A>(std::get<I>(given))...);
    }
    const Compiled& c_;
    Refs& refs_;
  };

  std::shared_ptr<std::function<R(A...)>> fn_;
  std::shared_ptr<detail::Callable> callable_;
};

namespace detail {
template <class F>
struct SignatureOf : SignatureOf<decltype(std::function(std::declval<F>()))> {};
template <class R, class... A>
struct SignatureOf<std::function<R(A...)>> {
  using type = R(A...);
};
template <class M>
struct MemberSignature;
template <class M, class R, class... A>
struct MemberSignature<R (M::*)(A...)> {
  using type = R(A...);
  using with_self = R(M&, A...);
};
template <class M, class R, class... A>
struct MemberSignature<R (M::*)(A...) const> {
  using type = R(A...);
  using with_self = R(M&, A...);
};
}  // namespace detail

// A function, lambda or function object with one call operator (not a template: name the argument types).
template <class F>
requires(!std::is_base_of_v<nn::ModuleBase, std::remove_cvref_t<F>>) auto compile(
    F&& fn, CompileOptions options = {}, std::source_location where = std::source_location::current()) {
  using Signature = typename detail::SignatureOf<std::decay_t<F>>::type;
  return Compiled<Signature>(std::forward<F>(fn), std::move(options), where);
}

// A module, in place: its parameters and buffers are inputs of the graph, their names and state keys stay, and calling the
// module calls the compiled forward from now on. Returns the compiled forward, which takes the module as its first argument.
template <class M>
requires std::is_base_of_v<nn::ModuleBase, M>
auto compile(M& module, CompileOptions options = {}, std::source_location where = std::source_location::current()) {
  using Signature = typename detail::MemberSignature<decltype(&M::forward)>::with_self;
  if (options.name.empty()) options.name = "forward";
  if (!options.args.empty()) options.args.insert(options.args.begin(), "self");
  auto compiled = std::make_shared<Compiled<Signature>>(
      [](M& m, auto&&... a) { return m.forward(std::forward<decltype(a)>(a)...); }, std::move(options), where);
  module.compiled_ = compiled;
  return *compiled;
}

namespace nn {
template <class Derived>
bool Module<Derived>::is_tracing() {
  return is_compiling();
}
template <class Derived>
template <class D, class... A>
auto Module<Derived>::call_compiled(D& self, A&&... a) {
  using Signature = typename detail::MemberSignature<decltype(&D::forward)>::with_self;
  return (*static_cast<Compiled<Signature>*>(self.compiled_.get()))(self, std::forward<A>(a)...);
}
}  // namespace nn

}  // namespace tessera
