// SPDX-License-Identifier: Apache-2.0
// tessera.ModelCallable: a model file that is imported and compiled for its calls, as far as one differs from another.
#include <string_view>

#include "common.hpp"

namespace tessera::python {

namespace {

struct CallableHolder {
  CallableHolder(tsr_callable_handle* c, tsr_graph* g) : callable(c), inputs(g) {}
  CallableHolder(const CallableHolder&) = delete;
  ~CallableHolder() {
    api().callable_destroy(callable);
    api().graph_destroy(inputs);
  }
  tsr_callable_handle* callable;
  tsr_graph* inputs;
};

CallableHolder& holder_of(PyObject* self) { return value_of<CallableHolder>(self); }

// The outputs of a call: handles that are released unless they have been taken.
struct Outputs {
  std::vector<tsr_tensor_handle*> handles = std::vector<tsr_tensor_handle*>(64, nullptr);
  size_t count = 0;
  Outputs() = default;
  Outputs(const Outputs&) = delete;
  ~Outputs() {
    for (size_t i = 0; i < count; ++i)
      if (handles[i]) api().tensor_release(handles[i]);
  }
};

PyObject* call(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  return guarded([&] {
    constexpr size_t kMostOutputs = size_t{1} << 20;
    std::vector<tsr_arg> args(static_cast<size_t>(n));
    for (size_t i = 0; i < args.size(); ++i) {
      args[i].kind = TSR_ARG_TENSOR;
      args[i].tensor = handle_of(arguments[i]);
    }
    Outputs out;
    for (;;) {
      size_t count = 0;
      tsr_error* e = nullptr;
      {
        const Unlocked unlocked;
        e = api().call(holder_of(self).callable, args.data(), args.size(), out.handles.data(), out.handles.size(), &count,
                       nullptr);
      }
      if (e && out.handles.size() < kMostOutputs && std::string_view(api().host->core->error_code(e)) == "TSR-E003") {
        api().error_free(e);  // more outputs than there was room for; nothing has run
        out.handles.resize(out.handles.size() * 8, nullptr);
        continue;
      }
      check(e);
      out.count = count;
      break;
    }
    Ref list(checked(PyList_New(static_cast<Py_ssize_t>(out.count))));
    for (size_t i = 0; i < out.count; ++i)
      checked(PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i),
                             make<TensorHolder>(module().tensor, std::exchange(out.handles[i], nullptr))));
    return list.release();
  });
}

PyObject* inputs(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    const tsr_tables& t = *graph_api().tables(holder_of(self).inputs);
    const tsr_region& body = *TSR_AT(tsr_region, t.regions, t.region_stride, 0);
    Ref names(checked(PyTuple_New(body.num_inputs)));
    for (uint32_t i = 0; i < body.num_inputs; ++i) {
      const tsr_value& v = *TSR_AT(tsr_value, t.values, t.value_stride, body.inputs[i]);
      checked(PyTuple_SetItem(names.get(), i, str(v.key ? v.key : v.name)));
    }
    return names.release();
  });
}

PyObject* describe_json(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    char* json = nullptr;
    check(api().callable_describe(holder_of(self).callable, &json));
    return take(json);
  });
}

PyMethodDef methods[] = {method("call", call, "call(*inputs): one Tensor per input of the model; a list of tensors."),
                         method("inputs", inputs, "The names of the inputs that the file declares."),
                         method("describe", describe_json, "What has been compiled, with guards, as JSON."),
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_callable(PyObject* m) {
  module().callable = make_type<CallableHolder>("tessera.ModelCallable", "A model file, compiled for its calls.", methods);
  checked(PyModule_AddObjectRef(m, "ModelCallable", reinterpret_cast<PyObject*>(module().callable)));
}

PyObject* load_callable(tsr_context* context, const std::string& path) {
  tsr_callable_handle* callable = nullptr;
  tsr_graph* inputs = nullptr;
  tsr_error* e = nullptr;
  {
    const Unlocked unlocked;
    e = api().callable_load(context, path.c_str(), &callable, &inputs);
  }
  check(e);
  return make<CallableHolder>(module().callable, callable, inputs);
}

}  // namespace tessera::python
