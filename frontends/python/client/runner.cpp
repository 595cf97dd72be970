// SPDX-License-Identifier: Apache-2.0
// Runner: an executable called with the tensors of a library that has an exchange table (PyTorch), outputs in that library's
// memory. The call of a compiled function: no Python code runs in it, inputs are borrowed, nothing synchronises.
#include <array>
#include <memory>

#include "common.hpp"

namespace tessera::python {

namespace {

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
  };
  std::vector<Source> sources;  // by input of the graph
  size_t permuted = 0;          // dimensions of all inputs that have an order
};

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

// Runner(executable, sources, tensor_type): sources has (argument, Runner::Kind) per input of the graph, and behind it the
// order of dimensions where the graph has them in another one: that of memory.
PyObject* new_runner(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    PyObject *executable = nullptr, *sources = nullptr, *tensor_type = nullptr;
    static char* names[] = {const_cast<char*>("executable"), const_cast<char*>("sources"), const_cast<char*>("tensor_type"),
                            nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO", names, &executable, &sources, &tensor_type)) throw PythonError();
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
    const tsr_tables& tables = *api().executable_graph(r.handle);
    r.num_outputs = TSR_AT(tsr_region, tables.regions, tables.region_stride, 0)->num_outputs;
    return make<Runner>(type, std::move(r));
  });
}

// run(args): a list of tensors and sizes; a list of outputs.
PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "run(arguments)");
    const Runner& r = value_of<Runner>(self);
    PyObject* list = args[0];
    if (!PyList_Check(list)) raise(PyExc_TypeError, "the arguments are a list");
    const auto given = static_cast<size_t>(PyList_Size(list));
    const size_t count = r.sources.size();
    Small<tsr_tensor, 32> inputs(count);
    union Number {
      int64_t i;
      double f;
    };
    Small<Number, 32> numbers(count);
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
    tsr_raw_call call{};
    call.struct_size = sizeof call;
    call.inputs = inputs.data();
    call.num_inputs = count;
    call.num_outputs = r.num_outputs;
    call.self = &outputs;
    call.output = allocate;
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().run_raw(r.handle, &call);
    }
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

PyMethodDef methods[] = {method("run", run, "run(arguments): a list of tensors and numbers; a list of tensors."),
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_runner(PyObject* m) {
  module().runner =
      make_type<Runner>("tessera.Runner", "Runs an executable on a framework's tensors, with outputs in its memory.", methods,
                        nullptr, new_runner);
  checked(PyModule_AddObjectRef(m, "Runner", reinterpret_cast<PyObject*>(module().runner)));
}

}  // namespace tessera::python
