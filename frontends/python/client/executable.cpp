// SPDX-License-Identifier: Apache-2.0
// tessera.Executable: runs on tensors of any library that speaks DLPack, outputs are Tessera's.
#include "common.hpp"

namespace tessera::python {

namespace {

tsr_executable* executable_of(PyObject* self) { return value_of<ExecutableHolder>(self).executable; }

struct Outputs {  // made by the library, one handle each
  std::vector<tsr_tensor_handle*> handles;
  explicit Outputs(size_t n) : handles(n, nullptr) {}
  Outputs(const Outputs&) = delete;
  ~Outputs() {
    for (tsr_tensor_handle* h : handles)
      if (h) api().tensor_release(h);
  }
};

PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    const tsr_tables& tables = *api().executable_graph(executable_of(self));
    std::vector<Borrowed> borrowed;
    borrowed.reserve(static_cast<size_t>(n));
    std::vector<tsr_tensor> inputs;
    for (Py_ssize_t i = 0; i < n; ++i) inputs.push_back(borrowed.emplace_back(args[i]).desc);
    Outputs outputs(TSR_AT(tsr_region, tables.regions, tables.region_stride, 0)->num_outputs);
    tsr_raw_call call{};
    call.struct_size = sizeof call;
    call.inputs = inputs.data();
    call.num_inputs = inputs.size();
    call.num_outputs = outputs.handles.size();
    call.self = &outputs;
    call.output = [](void* to, size_t index, const tsr_tensor* d, size_t, void** data) noexcept -> tsr_error* {
      tsr_tensor_handle*& h = static_cast<Outputs*>(to)->handles[index];
      if (tsr_error* e = api().tensor_create(d->dtype, d->rank, d->sizes, d->device, &h)) return e;
      *data = h->desc.data;
      return nullptr;
    };
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().run_raw(executable_of(self), &call);
    }
    check(e);
    Ref list(checked(PyList_New(static_cast<Py_ssize_t>(outputs.handles.size()))));
    for (size_t j = 0; j < outputs.handles.size(); ++j)
      checked(PyList_SetItem(list.get(), static_cast<Py_ssize_t>(j),
                             make<TensorHolder>(module().tensor, std::exchange(outputs.handles[j], nullptr))));
    return list.release();
  });
}

PyObject* describe_json(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    char* json = nullptr;
    check(api().executable_describe(executable_of(self), &json));
    return take(json);
  });
}

PyObject* plan(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    char* text = nullptr;
    check(api().executable_plan(executable_of(self), &text));
    return take(text);
  });
}

PyMethodDef methods[] = {method("run", run, "run(*inputs): one tensor per input of the graph; a list of tensors."),
                         method("describe", describe_json, "Signature, steps, memory and compile times, as JSON."),
                         method("plan", plan, "The step table and the memory plan, for people."),
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_executable(PyObject* m) {
  module().executable =
      make_type<ExecutableHolder>("tessera.Executable", "A compiled graph. May run on many threads at once.", methods);
  checked(PyModule_AddObjectRef(m, "Executable", reinterpret_cast<PyObject*>(module().executable)));
}

}  // namespace tessera::python
