// SPDX-License-Identifier: Apache-2.0
// The untyped half of tessera::compile.
#include "tessera/compile.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>

#include "recording.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/grad.hpp"
#include "tessera/policy.hpp"
#include "trace.hpp"

namespace tessera::detail {

// ------------------------------------------------------------------------------------------------------------ visitors

void FlattenVisitor::other_tensor(Tensor& t) {
  if (placeholders) {
    push(TSR_ARG_TENSOR);
    return;
  }
  if (!t.defined()) {
    push(TSR_ARG_NONE);
    return;
  }
  fail("TSR-F001", "a tensor of a traced function is passed to a compiled function outside its trace");
}

void FlattenVisitor::sym_int(SymInt& x) {
  if (x.graph() && TSR_DIM_IS_EXPR(x.number()) && !placeholders)
    fail("TSR-F001", "a symbolic number of a traced function is passed to a compiled function outside its trace");
  push(TSR_ARG_SYM_INT).i = placeholders ? 0 : x.number();
}

void FlattenVisitor::sym_float(SymFloat& x) {
  if (x.is_symbolic() && !placeholders)
    fail("TSR-F001", "a symbolic number of a traced function is passed to a compiled function outside its trace");
  push(TSR_ARG_SYM_FLOAT).f = placeholders ? 0 : x.number();
}

void FlattenVisitor::module(nn::ModuleBase& m) {
  for (const nn::ModuleBase::Leaf& l : m.leaves()) {
    tensor(*l.tensor);
    if (l.tensor->defined() && !placeholders) out.back().role = l.buffer ? TSR_INPUT_ARG : TSR_INPUT_PARAM;
  }
  for (const bool* flag : m.training_flags()) boolean(*flag);
}

void CollectVisitor::module(nn::ModuleBase& m) {
  for (const nn::ModuleBase::Leaf& l : m.leaves()) tensors.push_back(l.tensor);
}

void ScalarVisitor::module(nn::ModuleBase& m) { at += static_cast<uint32_t>(m.leaves().size() + m.training_flags().size()); }

void PathVisitor::leaf() {
  if (at++ == target)
    for (const std::string& s : stack) found += s;
}
void PathVisitor::enter(char kind, std::string_view text) {
  std::string name;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    constexpr char kHex[] = "0123456789abcdef";
    if (u < 0x20 || u == 0x7f)  // a path is a line of text
      (name += "\\x") += {kHex[u >> 4], kHex[u & 15]};
    else
      name += c;
  }
  switch (kind) {
    case 0: stack.push_back(std::move(name)); break;
    case '.': stack.push_back("." + name); break;
    default: stack.push_back("['" + name + "']");
  }
}
void PathVisitor::enter_index(size_t i) { stack.push_back("[" + std::to_string(i) + "]"); }
void PathVisitor::module(nn::ModuleBase& m) {
  for (const nn::ModuleBase::Leaf& l : m.leaves()) {
    enter('.', l.path);
    leaf();
    leave();
  }
  for (size_t i = 0; i < m.training_flags().size(); ++i) {
    enter('.', "training");
    leaf();
    leave();
  }
}

void WritebackVisitor::module(nn::ModuleBase& m) {
  for (const nn::ModuleBase::Leaf& l : m.leaves()) tensor(*l.tensor);
}
void ResultVisitor::module(nn::ModuleBase& m) {
  for (const nn::ModuleBase::Leaf& l : m.leaves()) tensor(*l.tensor);
}

bool same_host_values(const std::function<void(FlattenVisitor&)>& before, const std::function<void(FlattenVisitor&)>& after,
                      size_t* leaf) {
  ArgBuffer a, b;  // tensors only hold their place: after a run they are traced ones
  FlattenVisitor visit_a(a, true), visit_b(b, true);
  before(visit_a);
  after(visit_b);
  const size_t n = std::min(a.size(), b.size());
  for (size_t i = 0; i < n; ++i) {
    const tsr_arg &x = a.data()[i], &y = b.data()[i];
    bool same = x.kind == y.kind;
    if (same && x.kind != TSR_ARG_TENSOR)
      same = x.i == y.i && std::memcmp(&x.f, &y.f, sizeof x.f) == 0 &&
             ((!x.s && !y.s) || (x.s && y.s && std::strcmp(x.s, y.s) == 0));
    if (!same) {
      *leaf = i;
      return false;
    }
  }
  *leaf = n;
  return a.size() == b.size();
}

namespace {
thread_local int t_inlined = 0;
constexpr int kMaxInlined = 200;
}  // namespace

Inlined::Inlined(const Callable* callable) : traced_(is_compiling()) {
  if (!traced_) return;
  if (t_inlined >= kMaxInlined)
    fail(
        "TSR-F047",
        "compiled functions call each other " + std::to_string(kMaxInlined) + " deep while '" +
            (callable ? callable->options().name : std::string("fn")) +
            "' is traced: a traced call always takes the same way, so that recursion needs an end that does not depend on data",
        "recurse on a plain integer, or use while_loop");
  ++t_inlined;
}
Inlined::~Inlined() { t_inlined -= traced_; }

namespace {
// One tensor of one argument, by where it stands.
struct Place {
  const Tensor* tensor;
  size_t argument;
};
}  // namespace

void share_objects(std::span<const Argument> args, std::span<size_t> first) {
  for (size_t i = 0; i < args.size(); ++i) {
    bool changes = false;
    size_t earliest = i;
    for (size_t j = 0; j < args.size(); ++j) {
      if (args[j].object != args[i].object || args[j].type != args[i].type) continue;
      earliest = std::min(earliest, j);
      changes = changes || args[j].is_mutable;
    }
    first[i] = changes ? earliest : i;
  }
}

std::string aliases(std::span<const Argument> args, const CompileOptions& options, bool* apart) {
  thread_local CollectVisitor leaves;
  thread_local std::vector<Place> places;
  thread_local std::vector<size_t> first;
  places.clear();
  for (size_t i = 0; i < args.size(); ++i) {
    leaves.tensors.clear();
    args[i].collect(args[i].object, leaves);
    for (const Tensor* t : leaves.tensors) places.push_back({t, i});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return std::less<>()(a.tensor, b.tensor); });
  first.resize(args.size());
  share_objects(args, first);
  for (size_t k = 0, end = 0; k < places.size(); k = end) {  // all arguments that show one tensor
    bool changes = false, one = true;
    for (end = k; end < places.size() && places[end].tensor == places[k].tensor; ++end) {
      changes = changes || args[places[end].argument].is_mutable;
      one = one && first[places[end].argument] == first[places[k].argument];
    }
    *apart = *apart || (changes && !one);
  }
  std::string text;
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] == i) continue;
    const std::vector<std::string> names = argument_names(options, args.size());
    text += (text.empty() ? "" : ", ") + names[i] + " is " + names[first[i]];
  }
  return text;
}

std::vector<std::string> argument_names(const CompileOptions& options, size_t count) {
  std::vector<std::string> names = options.args;
  while (names.size() < count) names.push_back("arg" + std::to_string(names.size()));
  return names;
}

// --------------------------------------------------------------------------------------------------------- memory of calls

struct ArgBuffer::Spare {
  std::vector<tsr_arg> args;
  std::vector<std::unique_ptr<std::string>> texts;  // their characters must not move
  size_t used = 0;
};

namespace {
thread_local std::vector<std::unique_ptr<ArgBuffer::Spare>> t_spares;  // calls nest: a traced function may call a compiled one
}

ArgBuffer::Spare& ArgBuffer::spare() {
  if (!spare_) {
    if (t_spares.empty()) {
      spare_ = new Spare;
    } else {
      spare_ = t_spares.back().release();
      t_spares.pop_back();
    }
  }
  return *spare_;
}

void ArgBuffer::grow() {
  Spare& s = spare();
  const size_t used = size();
  s.args.resize(std::max(s.args.size(), 2 * used));
  if (begin_ == stack_) std::copy_n(stack_, used, s.args.data());
  begin_ = s.args.data();
  end_ = begin_ + used;
  limit_ = begin_ + s.args.size();
}

void ArgBuffer::push_text(uint32_t kind, std::string text) {
  Spare& s = spare();
  if (s.used == s.texts.size()) s.texts.push_back(std::make_unique<std::string>());
  std::string& kept = *s.texts[s.used++];
  kept.assign(text);
  tsr_arg& a = push(kind);
  a.s = kept.c_str();
  a.i = static_cast<int64_t>(kept.size());
}

void ArgBuffer::give_back() noexcept {
  spare_->used = 0;
  try {
    t_spares.emplace_back(spare_);
  } catch (...) {
    delete spare_;
  }
}

void Outputs::release(tsr_tensor_handle* h) { api().tensor_release(h); }

// ------------------------------------------------------------------------------------------------------------- calling

namespace {

constinit thread_local CallFrame* t_frame = nullptr;
constexpr size_t kMaxOutputs = 4096;
constinit thread_local tsr_tensor_handle* t_outputs[kMaxOutputs] = {};  // of the call that returns

bool wants_gradient(const tsr_arg& a) {
  return a.kind == TSR_ARG_TENSOR && a.tensor->requires_grad != 0 && is_float(a.tensor->desc.dtype);
}

// Tensors that the call replaces become states of the graph, donated: their new values lie in the memory of the old ones where
// nobody else holds that (docs/training.md). Those of other types than before, and of sizes that may differ between calls, are
// plain inputs.
void donate(Trace& trace, const std::vector<tsr_id>& outputs, const std::vector<std::pair<size_t, Tensor>>& replaced) {
  const tsr_tables& tables = *graph_api().tables(trace.graph);
  std::vector<tsr_id> inputs;
  const auto value = [&](tsr_id v) -> const tsr_value& { return *TSR_AT(tsr_value, tables.values, tables.value_stride, v); };
  for (const auto& [output, given] : replaced) {
    const tsr_id v = given.traced()->value;
    const tsr_value& x = value(v);
    const tsr_type &was = *x.type, &is = *value(outputs[output]).type;
    bool same = x.def_node == TSR_NONE && x.num_uses > 0 && was.dtype == is.dtype && was.rank == is.rank && !was.strides;
    for (uint32_t k = 0; same && k < was.rank; ++k) same = was.sizes[k] == is.sizes[k] && !TSR_DIM_IS_EXPR(was.sizes[k]);
    if (same && std::find(inputs.begin(), inputs.end(), v) == inputs.end()) {
      inputs.push_back(v);
      check(graph_api().input_set_state(trace.graph, v, static_cast<uint32_t>(output), 1));
    }
  }
}

// The host calls this on a miss, on the calling thread.
tsr_error* invoke(void* self, tsr_recorder* recorder, const tsr_arg* args, size_t num_args, void** structure) {
  CallFrame& frame = *t_frame;
  frame.thrown = nullptr;  // of an earlier attempt
  auto trace = std::make_shared<Trace>();
  struct End {  // tensors that escape the trace are refused later instead of touching a graph that is gone
    Trace& t;
    ~End() { t.end(); }
  } end{*trace};
  try {
    const tsr_capture_api& capture = *api().host->capture;
    trace->recorder = recorder;
    trace->graph = capture.graph(recorder);
    trace->callable = static_cast<const Callable*>(self);
    trace->loc = trace->callable->loc();
    trace->gradients = is_grad_enabled();
    capture.observe(recorder, TSR_NONE);  // every look at a type goes through type_of(), which reports it
    const TraceScope scope(trace);
    std::vector<Tensor> inputs;
    for (uint32_t i = 0; i < capture.num_inputs(recorder); ++i)
      inputs.push_back(make_traced(trace, capture.input(recorder, i)));
    CallFrame::Traced t = frame.run(inputs);
    if (!t.changed_host_value.empty())
      fail("TSR-F041",
           "the compiled function changes the host value " + t.changed_host_value +
               ", which would not change again on later calls",
           "make it a tensor (0-d), or change it outside the compiled function");

    auto s = std::make_unique<Structure>();
    s->skeleton = std::move(t.skeleton);
    s->num_results = t.results.size();
    std::vector<tsr_id> outputs;
    for (const Tensor& r : t.results) {
      if (!r.defined())
        fail("TSR-F042", "the compiled function returns an undefined tensor",
             "use std::optional<Tensor> for results that may be absent");
      outputs.push_back(value_of(*trace, r));
    }
    std::vector<std::pair<size_t, Tensor>> replaced;  // by output: the argument that it takes the place of
    for (size_t i = 0; i < t.mutated.size(); ++i) {
      const size_t leaf = t.mutable_leaves[i];
      Tensor& now = t.mutated[i];
      if (!now.defined()) continue;
      // Unchanged leaves still hold the traced input that was put there.
      Tensor& given = t.given[i];
      const bool unchanged = now.is_traced() && given.defined() && given.traced()->value == now.traced()->value;
      if (unchanged) continue;
      s->writebacks.emplace_back(outputs.size(), leaf);
      if (given.defined() && given.is_traced()) replaced.emplace_back(outputs.size(), given);
      outputs.push_back(value_of(*trace, now));
    }
    if (trace->callable->records()) {
      std::vector<Tensor> results, wanted, cotangents;
      for (const Tensor& r : t.results) {
        const Tensor y = r.is_traced() ? r : make_traced(trace, value_of(*trace, r));
        if (!is_float(static_cast<uint32_t>(y.dtype()))) continue;
        results.push_back(y);
        cotangents.push_back(cotangent(y));
      }
      if (results.empty())
        fail("TSR-F052",
             "a call with an argument that requires gradients returns no floating-point tensor, so that there is nothing to go "
             "back from",
             "call it where gradients are off: NoGradGuard");
      for (size_t i = 0, leaf = 0; i < num_args; ++i) {
        if (args[i].kind != TSR_ARG_TENSOR) continue;
        if (wants_gradient(args[i])) wanted.push_back(inputs.at(leaf));
        ++leaf;
      }
      outputs.push_back(value_of(*trace, cotangents[0]));
      for (const Tensor& g : grad(results, wanted, cotangents)) outputs.push_back(value_of(*trace, g));
    }
    check(capture.set_outputs(recorder, outputs.data(), static_cast<uint32_t>(outputs.size())));
    // A backward half may need the inputs yet, and what follows a graph break runs on values of the call.
    if (!trace->asks_cotangents && !trace->broken) donate(*trace, outputs, replaced);
    *structure = KeptStructure::keep(std::move(s));
    return nullptr;
  } catch (...) {
    return hold_exception("the function threw while it was captured");
  }
}

tsr_error* filter_guard(void* self, const tsr_guard_info* g, int* keep) {
  try {
    const auto& filter = static_cast<const Callable*>(self)->options().guard_filter_unsafe;
    *keep = filter({static_cast<GuardInfo::Kind>(g->kind), g->path, g->text});
    return nullptr;
  } catch (...) {
    return hold_exception("the guard filter threw");
  }
}

void path(void*, const tsr_arg*, size_t, size_t index, char* buf, size_t capacity) {
  std::string p;
  try {
    if (t_frame) p = t_frame->path(index);
  } catch (const std::exception&) {}
  if (p.empty()) p = "arg" + std::to_string(index);
  std::snprintf(buf, capacity, "%s", p.c_str());
}

}  // namespace

tsr_error* hold_exception(const char* what) {
  if (t_frame) t_frame->thrown = std::current_exception();
  try {
    throw;
  } catch (const Error& e) {
    return to_c(e);
  } catch (const std::exception& e) {
    return api().host->core->error_create(TSR_USER, "TSR-G003", (std::string(what) + ": " + e.what()).c_str(), nullptr);
  } catch (...) {
    return api().host->core->error_create(TSR_USER, "TSR-G003", what, nullptr);
  }
}

void check_held(tsr_error* e) {
  if (e && t_frame && t_frame->thrown) {
    api().error_free(e);
    std::rethrow_exception(std::exchange(t_frame->thrown, nullptr));
  }
  check(e);
}

Callable::Callable(CompileOptions options, std::source_location where)
    : options_(std::move(options)),
      where_(where),
      file_(where.file_name()),
      context_(options_.context ? *options_.context : Context::current()) {
  if (options_.name.empty()) options_.name = "fn";
  std::vector<const char*> overrides;
  for (const std::string& o : options_.options) overrides.push_back(c_text(o, "an option of compile"));
  tsr_callable_desc d{};
  d.struct_size = sizeof d;
  d.name = c_text(options_.name, "the name of a compiled function");
  d.loc = loc_ = {file_.c_str(), where.line(), where.column()};
  d.self = this;
  d.invoke = invoke;
  d.structure_free = KeptStructure::drop;
  d.path = path;
  d.backend = options_.backend.empty() ? nullptr : c_text(options_.backend, "the names of backends");
  d.mode = options_.mode.empty() ? nullptr : c_text(options_.mode, "the name of a mode");
  d.dynamic = static_cast<int32_t>(options_.dynamic);
  d.fullgraph = options_.fullgraph;
  d.options = overrides.data();
  d.num_options = overrides.size();
  d.runs_itself = 1;
  if (options_.guard_filter_unsafe) d.guard_filter = filter_guard;
  check(api().callable_create(context_.handle(), &d, &handle_));
}

Callable::~Callable() { api().callable_destroy(handle_); }

KeptStructure Callable::call(CallFrame& frame, const ArgBuffer& args, Outputs& outputs) {
  struct Current {
    CallFrame* previous;
    explicit Current(CallFrame* f) : previous(std::exchange(t_frame, f)) {}
    ~Current() { t_frame = previous; }
  } current(&frame);
  size_t n = 0;
  void* structure = nullptr;
  const auto call_into = [&](tsr_tensor_handle** buffer) {
    if (tsr_error* e = api().call(handle_, args.data(), args.size(), buffer, kMaxOutputs, &n, &structure)) [[unlikely]]
      check_held(e);
    if (n > Outputs::kStack && n == TSR_RUN_YOURSELF) [[unlikely]] {  // assign() asks the first of these, too
      frame.reuse_only = structure != nullptr;
      structure = nullptr;
      return;
    }
    outputs.assign(buffer, n);
  };
  if (!current.previous) [[likely]]
    call_into(t_outputs);
  else  // inside another call, whose outputs may stand in the thread's already
    call_into(std::make_unique_for_overwrite<tsr_tensor_handle*[]>(kMaxOutputs).get());
  return KeptStructure(structure);
}

bool any_requires_grad(const ArgBuffer& args) {
  if (!is_grad_enabled()) return false;
  return std::any_of(args.data(), args.data() + args.size(), wants_gradient);
}

void keep_requiring(const Tensor& before, Tensor& now) {
  if (before.defined() && before.requires_grad() && !now.requires_grad()) now.requires_grad_();
}

KeptStructure Callable::call_recorded(CallFrame& frame, const ArgBuffer& args, Outputs& outputs) {
  std::call_once(recording_made_, [&] {
    CompileOptions options = options_;
    options.fullgraph = true;  // what follows a break would be a program of its own, without a backward half
    recording_ = std::make_unique<Callable>(std::move(options), where_);
    recording_->records_ = true;
  });
  SavingCall call = recording_->call_saving(frame, args);
  const KeptStructure kept(call.structure);
  std::vector<Tensor> wanted;
  for (const tsr_arg* a = args.data(); a != args.data() + args.size(); ++a)
    if (wants_gradient(*a)) {
      wanted_record(*a->tensor);
      api().tensor_retain(a->tensor);
      wanted.push_back(Tensor::adopt(a->tensor));
    }
  const auto results = static_cast<std::ptrdiff_t>(kept->num_results);
  std::vector<Tensor> own =
      record_call(std::move(call.saved), std::move(wanted), {call.results.begin(), call.results.begin() + results});
  own.insert(own.end(), call.results.begin() + results,
             call.results.begin() + results + static_cast<std::ptrdiff_t>(kept->writebacks.size()));
  std::vector<tsr_tensor_handle*> handles;
  for (const Tensor& t : own) {
    api().tensor_retain(t.handle());
    handles.push_back(t.handle());
  }
  outputs.assign(handles.data(), handles.size());
  return kept;
}

Saved::~Saved() { api().saved_destroy(handle); }
size_t Saved::num_gradients() const { return api().saved_num_gradients(handle); }

void cannot_save(const char* why) {
  fail("TSR-F052", std::string("a differentiable function has a backward half only when it is compiled, and ") + why,
       "take value and gradient in one compiled function: value_and_grad");
}

SavingCall Callable::call_saving(CallFrame& frame, const ArgBuffer& args) {
  struct Current {
    CallFrame* previous;
    explicit Current(CallFrame* f) : previous(std::exchange(t_frame, f)) {}
    ~Current() { t_frame = previous; }
  } current(&frame);
  const auto buffer = std::make_unique<tsr_tensor_handle*[]>(kMaxOutputs);
  size_t n = 0;
  void* structure = nullptr;
  check_held(api().call(handle_, args.data(), args.size(), buffer.get(), kMaxOutputs, &n, &structure));
  if (n == TSR_RUN_YOURSELF) cannot_save("this call runs without compiled code");
  SavingCall out;
  for (size_t i = 0; i < n; ++i) out.results.push_back(Tensor::adopt(buffer[i]));
  tsr_saved* saved = nullptr;
  check(api().callable_save(handle_, structure, args.data(), args.size(), buffer.get(), n, &saved));
  if (!saved) cannot_save("its graph is not one");
  out.saved = std::make_shared<Saved>(saved);
  out.structure = structure;
  return out;
}

ReuseOnly::ReuseOnly(bool on) : on_(on) {
  if (on_) previous_ = api().set_reuse_only(1) != 0;
}
ReuseOnly::~ReuseOnly() {
  if (on_) api().set_reuse_only(previous_);
}

std::string Callable::describe() const {
  char* json = nullptr;
  check(api().callable_describe(handle_, &json));
  std::string s = json;
  api().string_free(json);
  return s;
}

size_t Callable::compile_ahead(std::span<const Example> examples, int threads) {
  struct Examples {
    std::span<const Example> all;
    CallFrame* previous = t_frame;
    ~Examples() { t_frame = previous; }
  } given{examples};
  tsr_examples e{};
  e.struct_size = sizeof e;
  e.self = &given;
  e.count = examples.size();
  e.get = [](void* self, size_t index, const tsr_arg** args, size_t* count) -> tsr_error* {
    const Example& example = static_cast<Examples*>(self)->all[index];
    t_frame = example.frame;
    *args = example.args->data();
    *count = example.args->size();
    return nullptr;
  };
  e.threads = static_cast<uint32_t>(std::max(0, threads));
  size_t compiled = 0, failed = 0;
  if (tsr_error* error = api().callable_compile_ahead(handle_, &e, &compiled, &failed)) {
    if (failed < examples.size()) t_frame = examples[failed].frame;
    check_held(error);
  }
  return compiled;
}

NotTraced::NotTraced(const std::string& name) {
  if (is_compiling())
    fail("TSR-F048", "compile_ahead of '" + name + "' is called by a function that is being traced",
         "compile ahead before the first call");
}

void Callable::reset() { api().callable_reset(handle_); }
void Callable::recompile() { api().callable_recompile(handle_); }

}  // namespace tessera::detail
