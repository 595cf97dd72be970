// SPDX-License-Identifier: Apache-2.0
// tessera._core.Function: a Python function that is captured on its first call and dispatched later (tracing/ has the other
// half).
#include "function.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include "attributes.hpp"

namespace tessera::python {

namespace {

// One call, for what the library asks about it. Calls nest: a captured function may call another.
struct Frame {
  PyObject* values;                                                  // the arguments, as a sequence
  PyObject *type = nullptr, *error = nullptr, *traceback = nullptr;  // what the function has raised
};
thread_local Frame* t_frame = nullptr;

struct FunctionHolder {
  explicit FunctionHolder(PyObject* context, PyObject* owner) : context(Ref::share(context)), owner(owner) {}
  FunctionHolder(const FunctionHolder&) = delete;
  ~FunctionHolder() {
    if (handle) api().callable_destroy(handle);
  }
  Ref context;
  PyObject* owner;  // the Python object whose methods are asked; it owns this one
  tsr_callable_handle* handle = nullptr;
  std::string name, file, backend, mode;
  std::vector<std::string> options;
};

FunctionHolder& holder_of(PyObject* self) { return value_of<FunctionHolder>(self); }

tsr_error* invoke(void* self, tsr_recorder* recorder, const tsr_arg*, size_t, void** structure) noexcept {
  const Locked locked;
  return held([&] {
    auto& f = *static_cast<FunctionHolder*>(self);
    const tsr_capture_api& capture = *api().host->capture;
    capture.observe(recorder, TSR_NONE);  // the client reports every look at a type
    struct End {                          // what escapes the trace is refused later
      Ref recorder, builder;
      ~End() {
        if (recorder) value_of<Recording>(recorder.get()).recorder = nullptr;
        if (builder) value_of<Builder>(builder.get()).graph = nullptr;
      }
    } end{Ref(make<Recording>(module().recorder, Recording{recorder})),
          Ref(make<Builder>(module().builder, Builder{capture.graph(recorder), {}}))};
    PyObject* values = t_frame ? t_frame->values : Py_None;
    const Ref name(str("_capture"));
    *structure =
        checked(PyObject_CallMethodObjArgs(f.owner, name.get(), end.recorder.get(), end.builder.get(), values, nullptr));
  });
}

void path(void* self, const tsr_arg*, size_t, size_t index, char* buf, size_t capacity) noexcept {
  const Locked locked;
  std::string text;
  if (t_frame) {
    PyObject *type = nullptr, *error = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &error, &traceback);
    const Ref found(
        PyObject_CallMethod(static_cast<FunctionHolder*>(self)->owner, "_path", "On", t_frame->values, Py_ssize_t(index)));
    if (found && PyUnicode_Check(found.get())) {
      Py_ssize_t length = 0;
      if (const char* s = PyUnicode_AsUTF8AndSize(found.get(), &length)) text.assign(s, static_cast<size_t>(length));
    }
    PyErr_Restore(type, error, traceback);
  }
  if (text.empty()) text = "arg" + std::to_string(index);
  std::snprintf(buf, capacity, "%s", text.c_str());
}

tsr_error* filter_guard(void* self, const tsr_guard_info* g, int* keep) noexcept {
  const Locked locked;
  return held([&] {
    const Ref answer(checked(
        PyObject_CallMethod(static_cast<FunctionHolder*>(self)->owner, "_keep_guard", "Iss", g->kind, g->path, g->text)));
    *keep = checked(PyObject_IsTrue(answer.get()));
  });
}

// Ctrl-C ends a compile: what the signal's handler raises is kept for the caller.
tsr_error* interrupted(void*) noexcept {
  if (!t_frame) return nullptr;  // a thread that compiles ahead: signals are the main thread's
  const Locked locked;
  if (PyErr_CheckSignals() == 0) return nullptr;
  api().error_free(hold_exception());
  return api().host->core->error_create(TSR_USER, "TSR-D015", "a signal has ended the compile", nullptr);
}

// create(context, owner, name, file, line, backend, mode, dynamic, fullgraph, options, filters)
PyObject* create(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 11, 11, "function(context, owner, name, file, line, backend, mode, dynamic, fullgraph, options, filters)");
    Ref made(make<FunctionHolder>(module().function, args[0], args[1]));
    FunctionHolder& f = holder_of(made.get());
    f.name = text_of(args[2]);
    f.file = text_of(args[3]);
    f.backend = args[5] == Py_None ? std::string() : text_of(args[5]);
    f.mode = args[6] == Py_None ? std::string() : text_of(args[6]);
    const Ref list = list_of(args[9], "options");
    std::vector<const char*> options;
    for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) f.options.push_back(text_of(PyList_GetItem(list.get(), i)));
    for (const std::string& o : f.options) options.push_back(o.c_str());
    tsr_callable_desc d{};
    d.struct_size = sizeof d;
    d.name = f.name.c_str();
    d.loc = {f.file.c_str(), static_cast<uint32_t>(int_of(args[4])), 0};
    d.self = &f;
    d.invoke = invoke;
    d.structure_free = [](void* s) {
      const Locked locked;
      Py_DECREF(static_cast<PyObject*>(s));
    };
    d.path = path;
    d.backend = f.backend.empty() ? nullptr : f.backend.c_str();
    d.mode = f.mode.empty() ? nullptr : f.mode.c_str();
    d.dynamic = static_cast<int32_t>(int_of(args[7]));
    d.fullgraph = int_of(args[8]) != 0;
    d.options = options.data();
    d.num_options = options.size();
    d.runs_itself = 1;
    d.interrupted = interrupted;
    if (checked(PyObject_IsTrue(args[10]))) d.guard_filter = filter_guard;
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().callable_create(context_handle(args[0]), &d, &f.handle);
    }
    check(e);
    return made.release();
  });
}

struct Current {
  Frame frame;
  Frame* previous;
  explicit Current(PyObject* values) : frame{values}, previous(std::exchange(t_frame, &frame)) {}
  ~Current() {
    t_frame = previous;
    Py_XDECREF(frame.type);
    Py_XDECREF(frame.error);
    Py_XDECREF(frame.traceback);
  }
};

struct Outputs {
  std::vector<tsr_tensor_handle*> handles = std::vector<tsr_tensor_handle*>(kMost, nullptr);
  size_t count = 0;
  static constexpr size_t kMost = 4096;
};
// Buffers of calls that are over: a call takes one, so that calls may nest.
std::vector<std::unique_ptr<Outputs>>& spare_outputs() {
  thread_local std::vector<std::unique_ptr<Outputs>> spares;
  return spares;
}
class TakenOutputs {
 public:
  TakenOutputs() {
    auto& spares = spare_outputs();
    if (spares.empty()) spares.push_back(std::make_unique<Outputs>());
    out_ = std::move(spares.back());
    spares.pop_back();
  }
  ~TakenOutputs() {
    for (size_t i = 0; i < out_->count; ++i)
      if (out_->handles[i]) api().tensor_release(std::exchange(out_->handles[i], nullptr));
    out_->count = 0;
    spare_outputs().push_back(std::move(out_));
  }
  Outputs* operator->() { return out_.get(); }

 private:
  std::unique_ptr<Outputs> out_;
};

void add_all(Leaves& leaves, PyObject* values) {
  const Py_ssize_t count = PySequence_Size(values);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref item(checked(PySequence_GetItem(values, i)));
    leaves.add(item.get());
  }
  leaves.end();
}

// The tensors of a call, which the list takes over.
Ref list_of_outputs(TakenOutputs& out) {
  Ref list(checked(PyList_New(static_cast<Py_ssize_t>(out->count))));
  for (size_t i = 0; i < out->count; ++i)
    checked(PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i),
                           make<TensorHolder>(module().tensor, std::exchange(out->handles[i], nullptr))));
  return list;
}

constexpr int kReuseOnly = 1, kRecord = 2;  // instead of the list of tensors

// call(values, unknown): (structure, [tensors]). structure None: no compiled code serves the call, and the function is to be
// run as it is; kReuseOnly instead of the list: without compiling what it calls; kRecord: by call_saving, for gradients are
// wanted.
PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 2, "call(values, unknown)");
    Leaves leaves(args[1]);
    add_all(leaves, args[0]);
    if (api().grad_enabled() && leaves.wants_gradients()) return checked(Py_BuildValue("(Oi)", Py_None, kRecord));
    Current current(args[0]);
    TakenOutputs out;
    void* structure = nullptr;
    size_t made = 0;
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().call(holder_of(self).handle, leaves.all().data(), leaves.all().size(), out->handles.data(), Outputs::kMost,
                     &made, &structure);
    }
    check_held(e);
    if (made == TSR_RUN_YOURSELF) return checked(Py_BuildValue("(Oi)", Py_None, structure ? kReuseOnly : 0));
    out->count = made;
    Ref list = list_of_outputs(out);
    return checked(Py_BuildValue("(ON)", static_cast<PyObject*>(structure), list.release()));
  });
}

struct SavedHolder {
  explicit SavedHolder(tsr_saved* s) : saved(s) {}
  SavedHolder(const SavedHolder&) = delete;
  ~SavedHolder() { api().saved_destroy(saved); }
  tsr_saved* saved;
};

// call_saving(values, unknown), of a function that asks for cotangents: (structure, [tensors], what its backward half needs).
// None: it cannot run compiled, or its graph has no backward half.
PyObject* call_saving(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 2, "call_saving(values, unknown)");
    Leaves leaves(args[1]);
    add_all(leaves, args[0]);
    Current current(args[0]);
    TakenOutputs out;
    void* structure = nullptr;
    size_t made = 0;
    tsr_saved* saved = nullptr;
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      tsr_callable_handle* f = holder_of(self).handle;
      e = api().call(f, leaves.all().data(), leaves.all().size(), out->handles.data(), Outputs::kMost, &made, &structure);
      if (!e && made != TSR_RUN_YOURSELF) {
        out->count = made;
        e = api().callable_save(f, structure, leaves.all().data(), leaves.all().size(), out->handles.data(), made, &saved);
      }
    }
    check_held(e);
    if (!saved) return Py_NewRef(Py_None);
    Ref kept(make<SavedHolder>(module().saved, saved));
    Ref list = list_of_outputs(out);
    return checked(Py_BuildValue("(ONN)", static_cast<PyObject*>(structure), list.release(), kept.release()));
  });
}

// backward(cotangents): the gradients. Once.
PyObject* run_backward(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "backward(cotangents)");
    tsr_saved* saved = value_of<SavedHolder>(self).saved;
    const Ref list = list_of(args[0], "cotangents");
    std::vector<tsr_tensor_handle*> given;
    for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) given.push_back(handle_of(PyList_GetItem(list.get(), i)));
    TakenOutputs out;
    const size_t made = api().saved_num_gradients(saved);
    if (made > Outputs::kMost) raise(PyExc_ValueError, "backward: " + std::to_string(made) + " gradients are too many");
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().saved_backward(saved, given.data(), given.size(), out->handles.data(), made);
    }
    check(e);
    out->count = made;
    return list_of_outputs(out).release();
  });
}

// compile_ahead(calls, threads, unknown): how many entries were made
PyObject* compile_ahead(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 3, 3, "compile_ahead(calls, threads, unknown)");
    struct Examples {
      std::deque<Leaves> leaves;
      std::vector<Ref> values;
      Frame* frame;
    } given;
    const Ref list = list_of(args[0], "calls");
    for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) {
      given.values.push_back(list_of(PyList_GetItem(list.get(), i), "arguments"));
      Leaves& leaves = given.leaves.emplace_back(args[2]);
      for (Py_ssize_t k = 0; k < PyList_Size(given.values.back().get()); ++k)
        leaves.add(PyList_GetItem(given.values.back().get(), k));
      leaves.end();
    }
    Current current(Py_None);
    given.frame = &current.frame;
    tsr_examples examples{};
    examples.struct_size = sizeof examples;
    examples.self = &given;
    examples.count = given.leaves.size();
    examples.get = [](void* self_, size_t i, const tsr_arg** leaves, size_t* count) -> tsr_error* {
      auto& all = *static_cast<Examples*>(self_);
      all.frame->values = all.values[i].get();
      *leaves = all.leaves[i].all().data();
      *count = all.leaves[i].all().size();
      return nullptr;
    };
    examples.threads = static_cast<uint32_t>(std::max<int64_t>(0, int_of(args[1])));
    size_t compiled = 0;
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().callable_compile_ahead(holder_of(self).handle, &examples, &compiled, nullptr);
    }
    check_held(e);
    return checked(PyLong_FromSize_t(compiled));
  });
}

PyObject* describe_json(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    char* json = nullptr;
    check(api().callable_describe(holder_of(self).handle, &json));
    return take(json);
  });
}

PyObject* reset(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    {
      const Unlocked unlocked;
      api().callable_reset(holder_of(self).handle);
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* recompile(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    {
      const Unlocked unlocked;
      api().callable_recompile(holder_of(self).handle);
    }
    return Py_NewRef(Py_None);
  });
}

// eager_op(context, op, operands, attributes): results
PyObject* eager_op(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 4, 4, "eager_op(context, op, operands, attributes)");
    const std::string op = text_of(args[1]);
    const Ref list = list_of(args[2], "tensors");
    std::vector<tsr_tensor_handle*> operands;
    for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) {
      PyObject* o = PyList_GetItem(list.get(), i);
      operands.push_back(o == Py_None ? nullptr : handle_of(o));
    }
    const Attributes attributes(args[3]);
    TakenOutputs out;
    tsr_error* e = nullptr;
    size_t made = 0;
    {
      const Unlocked unlocked;
      e = api().eager_op(context_handle(args[0]), op.c_str(), operands.data(), operands.size(), attributes.all().data(),
                         attributes.all().size(), out->handles.data(), Outputs::kMost, &made);
    }
    check(e);
    out->count = made;
    Ref tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(made))));
    for (size_t i = 0; i < made; ++i)
      checked(PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i),
                              make<TensorHolder>(module().tensor, std::exchange(out->handles[i], nullptr))));
    return tuple.release();
  });
}

PyObject* reset_all(PyObject*, PyObject* const*, Py_ssize_t) {
  return guarded([] {
    {
      const Unlocked unlocked;
      api().reset();
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* set_stance(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "set_stance(name)");
    Ref before(str(api().stance()));
    check(api().set_stance(text_of(args[0]).c_str()));
    return before.release();
  });
}

PyObject* set_flag(PyObject* const* args, Py_ssize_t n, int (*set)(int)) {
  return guarded([&] {
    expect_args(n, 1, 1, "set(on)");
    return checked(PyBool_FromLong(set(checked(PyObject_IsTrue(args[0])))));
  });
}
PyObject* set_grad_enabled(PyObject*, PyObject* const* args, Py_ssize_t n) { return set_flag(args, n, api().set_grad_enabled); }
PyObject* set_reuse_only(PyObject*, PyObject* const* args, Py_ssize_t n) { return set_flag(args, n, api().set_reuse_only); }
PyObject* grad_enabled(PyObject*, PyObject* const*, Py_ssize_t) {
  return guarded([] { return checked(PyBool_FromLong(api().grad_enabled())); });
}

PyMethodDef methods[] = {method("call", call, "Runs compiled code for these arguments, captured now where there is none."),
                         method("call_saving", call_saving, "As call, with what the backward half needs."),
                         method("compile_ahead", compile_ahead, "Compiles for calls before they come."),
                         method("describe", describe_json, "What has been compiled, with guards, as JSON."),
                         method("reset", reset, "Forgets what has been compiled."),
                         method("recompile", recompile, "What has been compiled serves no call any more."),
                         {nullptr, nullptr, 0, nullptr}};
PyMethodDef saved_methods[] = {method("backward", run_backward, "The gradients for these cotangents."),
                               {nullptr, nullptr, 0, nullptr}};
PyMethodDef functions[] = {
    method("function", create, "A function that is captured when it is called."),
    method("eager_op", eager_op, "Runs one op now."),
    method("reset", reset_all, "Forgets what has been compiled for every function; frames count from 0 again."),
    method("set_stance", set_stance, "How functions treat calls that need a compile; what it was."),
    method("set_grad_enabled", set_grad_enabled, "Whether this thread records gradients; what it was."),
    method("grad_enabled", grad_enabled, "Whether this thread records gradients."),
    method("set_reuse_only", set_reuse_only, "Whether this thread compiles nothing; what it was."),
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

tsr_error* hold_exception() {
  PyObject *type = nullptr, *error = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  std::string code = "TSR-G003", message = "the function raised an exception while it was captured", hint;
  uint32_t family = TSR_USER;
  const auto attribute = [&](const char* name, std::string& to) {
    const Ref value(error ? PyObject_GetAttrString(error, name) : nullptr);
    Py_ssize_t length = 0;
    const char* s = value && PyUnicode_Check(value.get()) ? PyUnicode_AsUTF8AndSize(value.get(), &length) : nullptr;
    if (s && length > 0) to.assign(s, static_cast<size_t>(length));
    PyErr_Clear();
  };
  if (error && PyErr_GivenExceptionMatches(error, module().error)) {
    attribute("code", code);
    attribute("message", message);
    attribute("hint", hint);
    if (PyErr_GivenExceptionMatches(error, module().environment_fault)) family = TSR_ENVIRONMENT;
    if (PyErr_GivenExceptionMatches(error, module().internal_error)) family = TSR_BUG;
  }
  if (t_frame) {
    std::swap(t_frame->type, type);
    std::swap(t_frame->error, error);
    std::swap(t_frame->traceback, traceback);
  }
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
  return api().host->core->error_create(family, code.c_str(), message.c_str(), hint.empty() ? nullptr : hint.c_str());
}

void check_held(tsr_error* e) {
  if (e && t_frame && t_frame->type) {
    api().error_free(e);
    PyErr_Restore(std::exchange(t_frame->type, nullptr), std::exchange(t_frame->error, nullptr),
                  std::exchange(t_frame->traceback, nullptr));
    throw PythonError();
  }
  check(e);
}

void add_function(PyObject* m) {
  module().function = make_type<FunctionHolder>("tessera.Function", "A function that is captured when it is called.", methods);
  module().saved = make_type<SavedHolder>("tessera.Saved", "What one call has left for its backward half.", saved_methods);
  checked(PyModule_AddObjectRef(m, "Function", reinterpret_cast<PyObject*>(module().function)));
  checked(PyModule_AddFunctions(m, functions));
}

}  // namespace tessera::python
