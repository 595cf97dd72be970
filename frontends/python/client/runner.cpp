// SPDX-License-Identifier: Apache-2.0
// Runner: an executable called with the tensors of a library that has an exchange table (PyTorch), outputs in that library's
// memory. The call of a compiled function: no Python code runs in it but that of client steps, inputs are borrowed, nothing
// synchronises: on a device all is queued on the library's current stream, steps of the client included.
#include <algorithm>
#include <array>
#include <memory>

#include "common.hpp"

namespace tessera::python {

namespace {

template <class T, size_t N>
class Small {
 public:
  explicit Small(size_t n) : heap_(n > N ? std::make_unique<T[]>(n) : nullptr), data_(heap_ ? heap_.get() : stack_.data()) {}
  T& operator[](size_t i) { return data_[i]; }
  T* data() { return data_; }

 private:
  std::array<T, N> stack_;
  std::unique_ptr<T[]> heap_;
  T* data_;
};

struct Runner {
  Ref executable, type;  // kept
  tsr_executable* handle = nullptr;
  const dl::Exchange* exchange = nullptr;
  size_t num_outputs = 0;
  enum class Kind : uint8_t {
    kTensor,
    kSize,   // the argument is the size of an input that only stands for a symbol
    kFloat,  // a number, for a 0-d input of f64
    kInt     // and of i64
  };
  struct Source {
    uint32_t argument;
    Kind kind;
    std::vector<uint32_t> order;  // the graph's dimensions in the argument's; empty: as they are
    bool given_up = false;        // the call's list lets go of it with the last step that reads it
  };
  std::vector<Source> sources;  // by input of the graph
  Ref steps;                    // a list of functions, by number of the client's step; null: there are none
  bool gives_up = false;        // some source is given up
  size_t permuted = 0;          // dimensions of all inputs that have an order
  struct KnownDevice {
    tsr_device device;
    dl::Device in_dlpack;
  };
  std::vector<KnownDevice> devices;  // of the graph's inputs and outputs, without the host
};

// A stream of the framework as one of ours. Frameworks keep their streams as long as the process; another one at the same
// address is the same to us.
tsr_stream_handle* wrapped_stream(tsr_device device, void* native) {
  struct Known {
    tsr_device device;
    void* native;
    tsr_stream_handle* stream;
  };
  static std::vector<Known> known;  // under the interpreter's lock
  for (const Known& k : known)
    if (k.device == device && k.native == native) return k.stream;
  tsr_stream_handle* stream = nullptr;
  check(api().stream_wrap(device, native, &stream));
  known.push_back({device, native, stream});
  return stream;
}

// The framework's current streams are this thread's while one lives.
class OnItsStreams {
 public:
  explicit OnItsStreams(const Runner& r) : devices_(r.devices), before_(r.devices.size()) {
    try {
      for (const auto& [device, in_dlpack] : devices_) {
        void* native = nullptr;
        if (r.exchange->stream(in_dlpack.type, in_dlpack.id, &native) != 0) throw PythonError();
        check(api().set_current_stream(device, wrapped_stream(device, native), &before_[changed_]));
        ++changed_;
      }
    } catch (...) {
      restore();
      throw;
    }
  }
  ~OnItsStreams() { restore(); }
  OnItsStreams(const OnItsStreams&) = delete;

 private:
  void restore() noexcept {
    while (changed_ > 0) {
      --changed_;
      if (tsr_error* e = api().set_current_stream(devices_[changed_].device, before_[changed_], nullptr)) api().error_free(e);
    }
  }
  const std::vector<Runner::KnownDevice>& devices_;
  Small<tsr_stream_handle*, 4> before_;
  size_t changed_ = 0;
};

struct Steps;

struct Outputs {
  explicit Outputs(const dl::Exchange& x, size_t n) : exchange(x), count(n), managed(n) {
    for (size_t j = 0; j < n; ++j) managed[j] = nullptr;
  }
  Outputs(const Outputs&) = delete;
  ~Outputs() {
    for (size_t j = 0; j < count; ++j)
      if (managed[j] && managed[j]->deleter) managed[j]->deleter(managed[j]);
  }
  const dl::Exchange& exchange;
  size_t count;
  Small<dl::ManagedVersioned*, 16> managed;
  Steps* steps = nullptr;
  PyObject* profiler = nullptr;
  std::string error;
};

tsr_error* allocate(void* self, size_t index, const tsr_tensor* d, size_t bytes, void** data) noexcept {
  auto& o = *static_cast<Outputs*>(self);
  try {
    dl::Tensor prototype{nullptr,
                         dl_device(d->device),
                         static_cast<int32_t>(d->rank),
                         dl_dtype(d->dtype),
                         const_cast<int64_t*>(d->sizes),
                         nullptr,
                         0};
    const auto failed = [](void* ctx, const char* kind, const char* message) {
      static_cast<Outputs*>(ctx)->error = std::string(kind ? kind : "") + ": " + (message ? message : "");
    };
    if (o.exchange.allocate(&prototype, &o.managed[index], &o, failed) != 0 || !o.managed[index])
      return api().host->core->error_create(TSR_ENVIRONMENT, "TSR-R001",
                                            ("the framework gave no memory for output " + std::to_string(index) + " of " +
                                             std::to_string(bytes) + " bytes: " + o.error)
                                                .c_str(),
                                            nullptr);
    const dl::Tensor& t = o.managed[index]->tensor;
    *data = t.data ? static_cast<char*>(t.data) + t.byte_offset : nullptr;
    return nullptr;
  } catch (...) {
    return api().host->core->error_create(TSR_BUG, "TSR-E017", "an output's memory could not be described to the framework",
                                          nullptr);
  }
}

// What a call with steps of the client keeps: step(arguments, tensors) gets the call's own list of arguments, in which it may
// leave what later steps need, and returns a sequence of tensors.
struct Steps {
  const Runner& runner;
  PyObject* arguments;
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;  // what a step has raised

  Steps(const Runner& r, PyObject* list) : runner(r), arguments(list) {}
  Steps(const Steps&) = delete;
  ~Steps() {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  }
  void raise_again() {
    if (!type) return;
    PyErr_Restore(std::exchange(type, nullptr), std::exchange(value, nullptr), std::exchange(trace, nullptr));
    throw PythonError();
  }
};

// Operands of a step: memory of the run, described to the framework. How many of them it still holds is counted, for what
// holds one behind the step would see other values there.
struct LentOperand {
  dl::ManagedVersioned managed;
  std::shared_ptr<int64_t> count;
};

PyObject* lend(const dl::Exchange& exchange, const tsr_tensor& t, const std::shared_ptr<int64_t>& count) {
  auto* l = new LentOperand{{}, count};
  dl::ManagedVersioned& m = l->managed;
  m.version = dl::kVersion;
  m.ctx = l;
  m.deleter = [](dl::ManagedVersioned* p) {
    auto* own = static_cast<LentOperand*>(p->ctx);
    --*own->count;
    delete own;
  };
  alignas(64) static char nothing[64];
  m.tensor = {t.data ? t.data : nothing,
              dl_device(t.device),
              static_cast<int32_t>(t.rank),
              dl_dtype(t.dtype),
              const_cast<int64_t*>(t.sizes),
              const_cast<int64_t*>(t.strides),
              0};
  ++*count;
  void* object = nullptr;
  if (exchange.to_object(&m, &object) != 0) {
    m.deleter(&m);
    throw PythonError();
  }
  return static_cast<PyObject*>(object);
}

void run_step(Steps& s, tsr_client_call& c) {
  const Runner& r = s.runner;
  for (uint32_t k = 0; k < c.num_finished; ++k) {
    const Runner::Source& source = r.sources[c.finished[k]];
    if (source.kind == Runner::Kind::kTensor)
      checked(PyList_SetItem(s.arguments, static_cast<Py_ssize_t>(source.argument), Py_NewRef(Py_None)));
  }
  const auto lent = std::make_shared<int64_t>(0);
  const Ref tensors(checked(PyList_New(static_cast<Py_ssize_t>(c.num_inputs))));
  for (uint32_t i = 0; i < c.num_inputs; ++i)
    checked(PyList_SetItem(tensors.get(), static_cast<Py_ssize_t>(i), lend(*r.exchange, c.inputs[i], lent)));
  PyObject* step = checked(PyList_GetItem(r.steps.get(), static_cast<Py_ssize_t>(c.step)));
  Ref results(PyObject_CallFunctionObjArgs(step, s.arguments, tensors.get(), nullptr));
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);  // its traceback knows the list, which must not outlive the memory
  PyList_SetSlice(tensors.get(), 0, c.num_inputs, nullptr);
  PyErr_Restore(type, value, trace);
  checked(results.get());
  if (*lent != 0)
    raise(module().internal_error, "the operator '" + std::string(c.name) + "' keeps memory of the run that called it");
  const Ref list = list_of(results.get(), "tensors");
  if (PyList_Size(list.get()) != static_cast<Py_ssize_t>(c.num_results))
    raise(PyExc_TypeError, "step '" + std::string(c.name) + "' gave another number of tensors");
  for (uint32_t k = 0; k < c.num_results; ++k) {
    PyObject* o = PyList_GetItem(list.get(), static_cast<Py_ssize_t>(k));
    const dl::Exchange* x = exchange_of(Py_TYPE(o));
    if (!x) raise(PyExc_TypeError, "step '" + std::string(c.name) + "' gave something that is no tensor of the framework");
    dl::Tensor borrowed;
    checked(x->borrow(o, &borrowed));
    tsr_client_result& result = c.results[k];
    describe(borrowed, result.tensor);
    result.ctx = Py_NewRef(o);
    result.release = [](void* object) {
      const PyGILState_STATE state = PyGILState_Ensure();
      Py_DECREF(static_cast<PyObject*>(object));
      PyGILState_Release(state);
    };
  }
}

tsr_error* client_step(Steps& s, tsr_client_call* c) noexcept {
  const PyGILState_STATE state = PyGILState_Ensure();
  if (!guarded([&] {
        run_step(s, *c);
        return Py_None;
      }))
    PyErr_Fetch(&s.type, &s.value, &s.trace);
  const bool failed = s.type != nullptr;
  PyGILState_Release(state);
  return failed ? api().host->core->error_create(TSR_USER, "TSR-E017", "a step of the client raised", nullptr) : nullptr;
}

// The call's list no longer holds an input that all steps have read.
void let_go(void* self, size_t input) noexcept {
  const Steps& s = *static_cast<Outputs*>(self)->steps;
  const Runner::Source& source = s.runner.sources[input];
  if (!source.given_up) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  if (PyList_SetItem(s.arguments, static_cast<Py_ssize_t>(source.argument), Py_NewRef(Py_None)) != 0) PyErr_Clear();
  PyGILState_Release(state);
}

// Whoever profiles gets (name, file, line) before a kernel and (None, None, 0) behind it. What it raises is reported, and the
// run goes on.
void tell_profiler(PyObject* profiler, const char* name, const tsr_loc* from) noexcept {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);  // of a step that has failed
  const Ref result(
      PyObject_CallFunction(profiler, "zzI", name, from ? from->file : nullptr, from ? static_cast<unsigned>(from->line) : 0u));
  if (!result) PyErr_WriteUnraisable(profiler);
  PyErr_Restore(type, value, trace);
  PyGILState_Release(state);
}

// Runner(executable, sources, tensor_type, steps=None): sources has (argument, Runner::Kind) per input of the graph, and behind
// it the order of dimensions where the graph has them in another one: that of memory. steps: see Steps.
PyObject* new_runner(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    PyObject *executable = nullptr, *sources = nullptr, *tensor_type = nullptr, *steps = nullptr;
    static char* names[] = {const_cast<char*>("executable"), const_cast<char*>("sources"), const_cast<char*>("tensor_type"),
                            const_cast<char*>("steps"), nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|O", names, &executable, &sources, &tensor_type, &steps))
      throw PythonError();
    Runner r;
    r.handle = value_of<ExecutableHolder>(executable, module().executable, "an executable").executable;
    r.executable = Ref::share(executable);
    r.type = Ref::share(tensor_type);
    if (!PyType_Check(tensor_type)) raise(PyExc_TypeError, "tensor_type is no type");
    r.exchange = exchange_of(reinterpret_cast<PyTypeObject*>(tensor_type));
    if (!r.exchange) raise(PyExc_TypeError, "the tensor type has no __dlpack_c_exchange_api__ of DLPack 1.x");
    const Ref list = list_of(sources, "sources");
    for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) {
      const std::vector<int64_t> pair = ints_of(PyList_GetItem(list.get(), i));
      if (pair.size() < 2 || pair[1] < 0 || pair[1] > 3) raise(PyExc_TypeError, "a source is (argument, kind, *order)");
      r.sources.push_back({static_cast<uint32_t>(pair[0]), static_cast<Runner::Kind>(pair[1]), {pair.begin() + 2, pair.end()}});
      r.permuted += pair.size() - 2;
    }
    if (steps && steps != Py_None) r.steps = list_of(steps, "functions");
    const tsr_tables& tables = *api().executable_graph(r.handle);
    r.num_outputs = TSR_AT(tsr_region, tables.regions, tables.region_stride, 0)->num_outputs;
    const tsr_region& main = *TSR_AT(tsr_region, tables.regions, tables.region_stride, 0);
    const auto add = [&](tsr_id value) {
      const tsr_device d = TSR_AT(tsr_value, tables.values, tables.value_stride, value)->type->device;
      const auto is_it = [d](const Runner::KnownDevice& k) { return k.device == d; };
      if (d != 0 && std::none_of(r.devices.begin(), r.devices.end(), is_it)) r.devices.push_back({d, dl_device(d)});
    };
    for (uint32_t i = 0; i < main.num_inputs && i < r.sources.size(); ++i) {
      Runner::Source& s = r.sources[i];
      const auto same = [&s](const Runner::Source& t) { return t.argument == s.argument; };
      s.given_up = s.kind == Runner::Kind::kTensor &&
                   TSR_AT(tsr_value, tables.values, tables.value_stride, main.inputs[i])->donated != 0 &&
                   std::count_if(r.sources.begin(), r.sources.end(), same) == 1;
      r.gives_up = r.gives_up || s.given_up;
    }
    std::for_each(main.inputs, main.inputs + main.num_inputs, add);
    std::for_each(main.outputs, main.outputs + main.num_outputs, add);
    if (!r.devices.empty() && !r.exchange->stream)
      raise(PyExc_TypeError, "the tensor type's exchange table does not tell the current stream of a device");
    return make<Runner>(type, std::move(r));
  });
}

// run(args, profiler=None): a list of tensors and sizes; a list of outputs. Donated arguments of the graph leave the list as
// soon as the last step that reads them is queued.
PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 2, "run(arguments, profiler)");
    const Runner& r = value_of<Runner>(self);
    PyObject* list = args[0];
    if (!PyList_Check(list)) raise(PyExc_TypeError, "the arguments are a list");
    const auto given = static_cast<size_t>(PyList_Size(list));
    const size_t count = r.sources.size();
    Small<tsr_tensor, 128> inputs(count);
    union Number {
      int64_t i;
      double f;
    };
    Small<Number, 128> numbers(count);
    Small<int64_t, 64> permuted(2 * r.permuted);
    int64_t* next = permuted.data();
    alignas(64) static char nothing[64];
    static const int64_t kZero = 0;
    for (size_t i = 0; i < count; ++i) {
      const Runner::Source& s = r.sources[i];
      if (s.argument >= given)
        raise(PyExc_TypeError,
              "found " + std::to_string(given) + " arguments, expected one at place " + std::to_string(s.argument));
      PyObject* o = PyList_GetItem(list, static_cast<Py_ssize_t>(s.argument));
      tsr_tensor& t = inputs[i];
      switch (s.kind) {
        case Runner::Kind::kTensor: break;
        case Runner::Kind::kSize:
          numbers[i].i = int_of(o);
          t = {nothing, TSR_BOOL, 1, &numbers[i].i, &kZero, 0, 0};
          continue;
        case Runner::Kind::kFloat:
          numbers[i].f = float_of(o);
          t = {&numbers[i], TSR_F64, 0, nullptr, nullptr, 0, 0};
          continue;
        case Runner::Kind::kInt:
          numbers[i].i = int_of(o);
          t = {&numbers[i], TSR_I64, 0, nullptr, nullptr, 0, 0};
          continue;
      }
      dl::Tensor borrowed;
      const dl::Exchange* x = r.exchange;
      if (reinterpret_cast<PyObject*>(Py_TYPE(o)) != r.type.get()) {
        x = exchange_of(Py_TYPE(o));
        if (!x) raise(PyExc_TypeError, "argument " + std::to_string(s.argument) + " is no tensor of the framework");
      }
      if (x->borrow(o, &borrowed) != 0) throw PythonError();
      describe(borrowed, t);
      if (s.order.empty()) continue;
      if (s.order.size() != t.rank) raise(PyExc_TypeError, "argument " + std::to_string(s.argument) + " has another rank");
      int64_t *sizes = next, *strides = next + t.rank;
      for (uint32_t k = 0; k < t.rank; ++k) {
        sizes[k] = t.sizes[s.order[k]];
        strides[k] = t.strides[s.order[k]];
      }
      t.sizes = sizes;
      t.strides = strides;
      next += 2 * static_cast<size_t>(t.rank);
    }
    Outputs outputs(*r.exchange, r.num_outputs);
    Steps steps(r, list);
    outputs.steps = &steps;
    tsr_raw_call call{};
    call.struct_size = sizeof call;
    call.inputs = inputs.data();
    call.num_inputs = count;
    call.num_outputs = r.num_outputs;
    call.self = &outputs;
    call.output = allocate;
    call.client_queues = 1;
    const OnItsStreams streams(r);
    if (r.steps)
      call.client_step = [](void* self, tsr_client_call* c) noexcept {
        return client_step(*static_cast<Outputs*>(self)->steps, c);
      };
    if (r.gives_up) call.let_go = let_go;
    if (n > 1 && args[1] != Py_None) {
      outputs.profiler = args[1];
      call.kernel = [](void* self, const char* name, const tsr_loc* from) noexcept {
        tell_profiler(static_cast<Outputs*>(self)->profiler, name, from);
      };
    }
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().run_raw(r.handle, &call);
    }
    if (e && steps.type) api().error_free(e);
    steps.raise_again();
    check(e);
    Ref results(checked(PyList_New(static_cast<Py_ssize_t>(r.num_outputs))));
    for (size_t j = 0; j < r.num_outputs; ++j) {
      void* object = nullptr;
      checked(r.exchange->to_object(std::exchange(outputs.managed[j], nullptr), &object));
      checked(PyList_SetItem(results.get(), static_cast<Py_ssize_t>(j), static_cast<PyObject*>(object)));
    }
    return results.release();
  });
}

PyMethodDef methods[] = {method("run", run,
                                "run(arguments, profiler=None): a list of tensors and numbers; a list of tensors. "
                                "profiler(name, file, line) is called before each kernel, and with None behind it."),
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_runner(PyObject* m) {
  module().runner =
      make_type<Runner>("tessera.Runner", "Runs an executable on a framework's tensors, with outputs in its memory.", methods,
                        nullptr, new_runner);
  checked(PyModule_AddObjectRef(m, "Runner", reinterpret_cast<PyObject*>(module().runner)));
}

}  // namespace tessera::python
