// SPDX-License-Identifier: Apache-2.0
// The module `tessera._core`: the embedding API for Python. tessera/__init__.py is what users see.
#include "common.hpp"

namespace tessera::python {

const tsr_api& api() {
  static const tsr_api* const table = tsr_get_api(TSR_ABI_MAJOR);
  return *table;  // looked at when the module is imported
}
const tsr_graph_api& graph_api() { return *api().host->graph; }

Module& module() {
  static Module m;
  return m;
}

void check(tsr_error* e) {
  if (!e) return;
  const tsr_host_core& host = *api().host->core;
  const uint32_t family = host.error_family(e);
  const std::string code = host.error_code(e), message = host.error_message(e);
  const std::string hint = host.error_hint(e) ? host.error_hint(e) : "";
  api().error_free(e);
  PyObject* type = family == TSR_USER          ? module().user_error
                   : family == TSR_ENVIRONMENT ? module().environment_fault
                                               : module().internal_error;
  const Ref text(str("error[" + code + "] " + message + (hint.empty() ? "" : "\n  hint: " + hint)));
  const Ref instance(checked(PyObject_CallFunctionObjArgs(type, text.get(), nullptr)));
  for (const auto& [name, value] :
       {std::pair<const char*, const std::string&>{"code", code}, {"message", message}, {"hint", hint}})
    checked(PyObject_SetAttrString(instance.get(), name, Ref(str(value)).get()));
  PyErr_SetObject(type, instance.get());
  throw PythonError();
}

std::string text_of(PyObject* o) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(o, &length);
  if (!text) throw PythonError();
  std::string out(text, static_cast<size_t>(length));
  // The library takes C strings: one that has a zero byte inside would be another one there.
  if (const size_t zero = out.find('\0'); zero != out.npos)
    check(api().host->core->error_create(TSR_USER, "TSR-E015",
                                         ("found a zero byte at index " + std::to_string(zero) + " of '" + out.substr(0, zero) +
                                          "'..., expected text without one")
                                             .c_str(),
                                         "leave it out: names, paths and config values are texts"));
  return out;
}

int64_t int_of(PyObject* o) {
  const Ref index(checked(PyNumber_Index(o)));
  const int64_t v = PyLong_AsLongLong(index.get());
  if (v == -1 && PyErr_Occurred()) throw PythonError();
  return v;
}

double float_of(PyObject* o) {
  const double v = PyFloat_AsDouble(o);
  if (v == -1.0 && PyErr_Occurred()) throw PythonError();
  return v;
}

Ref list_of(PyObject* sequence, const char* what) {
  if (!PySequence_Check(sequence)) raise(PyExc_TypeError, std::string("expected a sequence of ") + what);
  return Ref(checked(PySequence_List(sequence)));
}

std::vector<int64_t> ints_of(PyObject* sequence) {
  const Ref list = list_of(sequence, "numbers");
  std::vector<int64_t> out(static_cast<size_t>(PyList_Size(list.get())));
  for (size_t i = 0; i < out.size(); ++i) out[i] = int_of(PyList_GetItem(list.get(), static_cast<Py_ssize_t>(i)));
  return out;
}

PyObject* tuple_of(const int64_t* values, size_t count) {
  Ref tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(count))));
  for (size_t i = 0; i < count; ++i)
    checked(PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), checked(PyLong_FromLongLong(values[i]))));
  return tuple.release();
}

PyObject* take(char* text) {
  struct Free {
    char* text;
    ~Free() { api().string_free(text); }
  } const owner{text};
  return str(text ? text : "");
}

void expect_args(Py_ssize_t found, Py_ssize_t least, Py_ssize_t most, const char* function) {
  if (found >= least && found <= most) return;
  raise(PyExc_TypeError, std::string(function) + " takes " + std::to_string(least) +
                             (most == least ? "" : " to " + std::to_string(most)) + " arguments, found " +
                             std::to_string(found));
}

namespace {

PyObject* new_exception(PyObject* m, const char* name, const char* doc, PyObject* base) {
  PyObject* type = checked(PyErr_NewExceptionWithDoc((std::string("tessera.") + name).c_str(), doc, base, nullptr));
  checked(PyModule_AddObjectRef(m, name, type));
  return type;
}

PyObject* memory(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 0, 1, "memory_in_use(device='cpu')");
    const tsr_device device = n > 0 ? api().host->core->device_id(text_of(args[0]).c_str()) : 0;
    return checked(PyLong_FromLongLong(api().memory_in_use(device)));
  });
}

PyObject* memory_peak(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 2, "memory_peak(device, reset=False)");
    const bool reset = n > 1 && PyObject_IsTrue(args[1]) == 1;
    return checked(PyLong_FromLongLong(api().memory_peak(api().host->core->device_id(text_of(args[0]).c_str()), reset)));
  });
}

PyObject* log_enabled(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "log_enabled(artifact)");
    return checked(PyBool_FromLong(api().host->core->log_enabled(text_of(args[0]).c_str(), 0)));
  });
}

PyObject* log_write(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 2, "log_write(artifact, text)");
    api().host->core->log_write(text_of(args[0]).c_str(), 0, text_of(args[1]).c_str());
    return Py_NewRef(Py_None);
  });
}

PyObject* modes(PyObject*, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    char* json = nullptr;
    check(api().config_modes(&json));
    return take(json);
  });
}

PyMethodDef functions[] = {method("memory_in_use", memory, "Bytes of live buffers on a device."),
                           method("memory_peak", memory_peak,
                                  "memory_peak(device, reset=False): the most bytes of live buffers on a device since the "
                                  "last reset."),
                           method("log_enabled", log_enabled, "Whether TESSERA_LOGS asks for an artifact."),
                           method("log_write", log_write, "Writes to an artifact of TESSERA_LOGS."),
                           method("modes", modes, "The modes that configs have, as JSON."),
                           {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "Tessera's embedding API.", -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace tessera::python

PyMODINIT_FUNC PyInit__core() {
  using namespace tessera::python;
  return guarded([]() -> PyObject* {
    if (!tsr_get_api(TSR_ABI_MAJOR))
      raise(PyExc_ImportError,
            "libtessera does not serve ABI version " + std::to_string(TSR_ABI_MAJOR) + ": reinstall the package");
    Ref m(checked(PyModule_Create(&definition)));
    Module& s = module();
    s.error = new_exception(m.get(), "Error", "An error of Tessera: `code` (\"TSR-..\"), `message`, `hint`.", PyExc_Exception);
    s.user_error = new_exception(m.get(), "UserError", "The caller's mistake: a bad file, option or shape.", s.error);
    s.environment_fault =
        new_exception(m.get(), "EnvironmentFault", "The machine's fault: out of memory, a missing library, I/O.", s.error);
    s.internal_error =
        new_exception(m.get(), "InternalError", "A bug in Tessera or in a plugin, which the message names.", s.error);
    add_tensor(m.get());
    add_context(m.get());
    add_builder(m.get());
    add_executable(m.get());
    add_callable(m.get());
    add_runner(m.get());
    add_recorder(m.get());
    add_function(m.get());
    checked(PyModule_AddStringConstant(m.get(), "version", api().version));
    return m.release();
  });
}
