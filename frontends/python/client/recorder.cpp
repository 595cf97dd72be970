// SPDX-License-Identifier: Apache-2.0
// What a function that is being captured records through: inputs, numbers, graph breaks. Nodes go through the Builder of its
// graph.
#include <memory>

#include "function.hpp"

namespace tessera::python {

namespace {

Recording& recording_of(PyObject* self) {
  Recording& r = value_of<Recording>(self);
  if (!r.recorder)
    check(api().host->core->error_create(TSR_USER, "TSR-F001",
                                         "a tensor made while a function was traced is used after the trace ended",
                                         "return it from the compiled function instead of storing it outside"));
  return r;
}
const tsr_capture_api& capture() { return *api().host->capture; }

PyObject* inputs(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    tsr_recorder* r = recording_of(self).recorder;
    std::vector<int64_t> values(capture().num_inputs(r));
    for (uint32_t i = 0; i < values.size(); ++i) values[i] = capture().input(r, i);
    return tuple_of(values.data(), values.size());
  });
}

PyObject* observe(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "observe(value)");
    capture().observe(recording_of(self).recorder, static_cast<tsr_id>(int_of(args[0])));
    return Py_NewRef(Py_None);
  });
}

// scalar(leaf): (kind, value, dim)
PyObject* scalar(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "scalar(leaf)");
    tsr_scalar s{};
    s.struct_size = sizeof s;
    check(capture().scalar(recording_of(self).recorder, static_cast<uint32_t>(int_of(args[0])), &s));
    return checked(Py_BuildValue("(IIL)", s.kind, s.value, static_cast<long long>(s.dim)));
  });
}

// scalar_used(leaf, as_number, where)
PyObject* scalar_used(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 3, 3, "scalar_used(leaf, as_number, where)");
    const std::string where = args[2] == Py_None ? std::string() : text_of(args[2]);
    capture().scalar_used(recording_of(self).recorder, static_cast<uint32_t>(int_of(args[0])), int_of(args[1]) != 0,
                          where.empty() ? nullptr : where.c_str());
    return Py_NewRef(Py_None);
  });
}

// taken(value): whether some backend takes the node that makes the value; otherwise the node is gone
PyObject* taken(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "taken(value)");
    const Recording& r = recording_of(self);
    const tsr_tables& t = *graph_api().tables(capture().graph(r.recorder));
    int answer = 1;
    check(capture().taken(r.recorder, TSR_AT(tsr_value, t.values, t.value_stride, int_of(args[0]))->def_node, &answer));
    return checked(PyBool_FromLong(answer));
  });
}

PyObject* set_outputs(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "set_outputs(values)");
    std::vector<tsr_id> ids;
    for (const int64_t v : ints_of(args[0])) ids.push_back(static_cast<tsr_id>(v));
    check(capture().set_outputs(recording_of(self).recorder, ids.data(), static_cast<uint32_t>(ids.size())));
    return Py_NewRef(Py_None);
  });
}

// A Python function between two segments: function(tensors) gives (tensors, key, outcome).
struct Step {
  PyObject* function;
};

tsr_error* run_step(void* self, tsr_tensor_handle* const* in, uint32_t num_inputs, tsr_tensor_handle** results,
                    uint32_t capacity, uint32_t* num_results, const void** key, size_t* key_length, void** outcome) noexcept {
  thread_local std::string t_key;
  const Locked locked;
  return held([&] {
    Ref tensors(checked(PyList_New(num_inputs)));
    for (uint32_t i = 0; i < num_inputs; ++i) {
      api().tensor_retain(in[i]);
      checked(PyList_SetItem(tensors.get(), i, make<TensorHolder>(module().tensor, in[i])));
    }
    const Ref made(checked(PyObject_CallFunctionObjArgs(static_cast<Step*>(self)->function, tensors.get(), nullptr)));
    const Ref list = list_of(checked(PyTuple_GetItem(made.get(), 0)), "tensors");
    const auto count = static_cast<uint32_t>(PyList_Size(list.get()));
    if (count > capacity)
      raise(module().user_error, "a disabled function returns more than " + std::to_string(capacity) + " tensors");
    std::vector<tsr_tensor_handle*> handles;
    for (uint32_t i = 0; i < count; ++i) handles.push_back(handle_of(PyList_GetItem(list.get(), i)));
    char* bytes = nullptr;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(checked(PyTuple_GetItem(made.get(), 1)), &bytes, &length) < 0) throw PythonError();
    t_key.assign(bytes, static_cast<size_t>(length));
    for (uint32_t i = 0; i < count; ++i) api().tensor_retain(results[i] = handles[i]);
    *num_results = count;
    *key = t_key.data();
    *key_length = t_key.size();
    *outcome = Py_NewRef(checked(PyTuple_GetItem(made.get(), 2)));
  });
}

// graph_break(code, read_kind, file, line, detail, read, live, forbidden, function, step_inputs):
// (rebound, what was read or None, step results, outcome)
PyObject* graph_break(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 10, 10, "graph_break(code, read_kind, file, line, detail, read, live, forbidden, function, step_inputs)");
    const Recording& r = recording_of(self);
    const std::string file = text_of(args[2]), detail = args[4] == Py_None ? std::string() : text_of(args[4]);
    const auto ids = [](PyObject* sequence) {
      std::vector<tsr_id> out;
      for (const int64_t v : ints_of(sequence)) out.push_back(static_cast<tsr_id>(v));
      return out;
    };
    const std::vector<tsr_id> live = ids(args[6]), inputs = ids(args[9]);
    std::vector<tsr_id> rebound(live.size()), results(256);
    tsr_break b{};
    b.struct_size = sizeof b;
    b.code = static_cast<uint32_t>(int_of(args[0]));
    b.read_kind = static_cast<uint32_t>(int_of(args[1]));
    b.loc = {file.c_str(), static_cast<uint32_t>(int_of(args[3])), 0};
    b.detail = detail.empty() ? nullptr : detail.c_str();
    b.read = args[5] == Py_None ? TSR_NONE : static_cast<tsr_id>(int_of(args[5]));
    b.live = live.data();
    b.num_live = static_cast<uint32_t>(live.size());
    b.rebound = rebound.data();
    b.forbidden = int_of(args[7]) != 0;
    tsr_host_step step{};
    step.struct_size = sizeof step;
    step.run = run_step;
    step.outcome_free = [](void* o) {
      const Locked locked;
      Py_DECREF(static_cast<PyObject*>(o));
    };
    step.destroy = [](void* s) {
      const Locked locked;
      Py_DECREF(static_cast<Step*>(s)->function);
      delete static_cast<Step*>(s);
    };
    if (args[8] != Py_None) {
      step.self = new Step{Py_NewRef(args[8])};
      b.step = &step;
      b.step_inputs = inputs.data();
      b.num_step_inputs = static_cast<uint32_t>(inputs.size());
      b.step_results = results.data();
      b.step_capacity = static_cast<uint32_t>(results.size());
    }
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = capture().graph_break(r.recorder, &b);
    }
    check_held(e);
    const std::vector<int64_t> again(rebound.begin(), rebound.end()),
        made(results.begin(), results.begin() + (b.step ? b.num_step_results : 0));
    Ref read(Py_NewRef(Py_None));
    switch (b.read_kind) {
      case TSR_READ_BOOL: read = Ref(checked(PyBool_FromLong(b.i != 0))); break;
      case TSR_READ_INT: read = Ref(checked(PyLong_FromLongLong(b.i))); break;
      case TSR_READ_FLOAT: read = Ref(checked(PyFloat_FromDouble(b.f))); break;
      case TSR_READ_TENSOR:
      case TSR_READ_MEMORY: read = Ref(make<TensorHolder>(module().tensor, b.tensor)); break;
      default: break;
    }
    PyObject* outcome = b.outcome ? static_cast<PyObject*>(b.outcome) : Py_None;
    Ref first(tuple_of(again.data(), again.size())), third(tuple_of(made.data(), made.size()));
    return checked(Py_BuildValue("(NNNO)", first.release(), read.release(), third.release(), outcome));
  });
}

PyMethodDef methods[] = {method("inputs", inputs, "The values of the graph that stand for the tensors of the call."),
                         method("observe", observe, "Says that the function has looked at the type of a value."),
                         method("scalar", scalar, "What a number among the arguments is in this capture."),
                         method("scalar_used", scalar_used, "Says that the function has used a number."),
                         method("taken", taken, "Whether some backend takes the node that makes a value."),
                         method("set_outputs", set_outputs, "Says which values the function returns."),
                         method("graph_break", graph_break, "Ends the segment."),
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_recorder(PyObject* m) {
  module().recorder = make_type<Recording>("tessera.Recorder", "A capture that is going on.", methods);
  checked(PyModule_AddObjectRef(m, "Recorder", reinterpret_cast<PyObject*>(module().recorder)));
}

}  // namespace tessera::python
