// SPDX-License-Identifier: Apache-2.0
// What the sources of the Python module share: owning references, errors, the types of the module. Written against the limited
// API of CPython 3.10, so that one binary serves every later version.
#pragma once

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dlpack.hpp"
#include "tessera/embed.h"

namespace tessera::python {

// A Python exception has been set: unwinds to the function that Python called.
struct PythonError {};

class Ref {  // an owning pointer to an object; null by default
 public:
  Ref() = default;
  explicit Ref(PyObject* o) : o_(o) {}  // takes over one reference
  Ref(Ref&& other) noexcept : o_(std::exchange(other.o_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(o_, other.o_);
    return *this;
  }
  ~Ref() { Py_XDECREF(o_); }
  static Ref share(PyObject* o) {
    Py_XINCREF(o);
    return Ref(o);
  }
  [[nodiscard]] PyObject* get() const { return o_; }
  PyObject* release() { return std::exchange(o_, nullptr); }
  explicit operator bool() const { return o_ != nullptr; }

 private:
  PyObject* o_ = nullptr;
};

inline PyObject* checked(PyObject* o) {  // a new or borrowed reference; throws when a call has failed
  if (!o) throw PythonError();
  return o;
}
inline int checked(int result) {
  if (result < 0) throw PythonError();
  return result;
}
[[noreturn]] inline void raise(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw PythonError();
}

// f() as a function that Python calls: null with an exception set when it throws.
template <class F>
PyObject* guarded(F&& f) noexcept {
  try {
    return f();
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

class Unlocked {  // the interpreter's lock is given up while one lives
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() { PyEval_RestoreThread(state_); }
  Unlocked(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

const tsr_api& api();
const tsr_graph_api& graph_api();

// Raises what `e` reports as the exception of its family, with code, message and hint, and frees it; returns when it is null.
void check(tsr_error* e);

std::string text_of(PyObject* str);
int64_t int_of(PyObject* number);
double float_of(PyObject* number);
Ref list_of(PyObject* sequence, const char* what);  // a list or tuple as a list of its own
std::vector<int64_t> ints_of(PyObject* sequence);
PyObject* tuple_of(const int64_t* values, size_t count);
inline PyObject* str(const std::string& s) {
  return checked(PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size())));
}
PyObject* take(char* text);  // a string of the library as a str
void expect_args(Py_ssize_t found, Py_ssize_t least, Py_ssize_t most, const char* function);

// The module's state: types and exceptions, made once by the first import.
struct Module {
  PyObject *error = nullptr, *user_error = nullptr, *environment_fault = nullptr, *internal_error = nullptr;
  PyTypeObject *tensor = nullptr, *context = nullptr, *graph = nullptr, *builder = nullptr, *executable = nullptr,
               *callable = nullptr, *runner = nullptr, *function = nullptr, *recorder = nullptr, *saved = nullptr;
};
Module& module();

// An instance of a type of the module that holds one C++ object.
template <class T>
struct Object {
  PyObject_HEAD T value;
};
template <class T, class... Args>
PyObject* make(PyTypeObject* type, Args&&... args) {
  auto* alloc = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* o = checked(alloc(type, 0));
  new (&reinterpret_cast<Object<T>*>(o)->value) T(std::forward<Args>(args)...);
  return o;
}
template <class T>
T& value_of(PyObject* o) {
  return reinterpret_cast<Object<T>*>(o)->value;
}
template <class T>
T& value_of(PyObject* o, PyTypeObject* type, const char* what) {
  if (!PyObject_TypeCheck(o, type)) raise(PyExc_TypeError, std::string("expected ") + what);
  return value_of<T>(o);
}
template <class T>
void destroy(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  value_of<T>(o).~T();
  auto* free = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  free(o);
  Py_DECREF(type);
}
template <class T>
PyTypeObject* make_type(const char* name, const char* doc, PyMethodDef* methods, PyGetSetDef* getset = nullptr,
                        newfunc make_new = nullptr, unsigned long extra_flags = 0) {
  std::vector<PyType_Slot> slots = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy<T>)}, {Py_tp_doc, const_cast<char*>(doc)}};
  if (methods) slots.push_back({Py_tp_methods, methods});
  if (getset) slots.push_back({Py_tp_getset, getset});
  if (make_new) slots.push_back({Py_tp_new, reinterpret_cast<void*>(make_new)});
  slots.push_back({0, nullptr});
  const unsigned long flags = Py_TPFLAGS_DEFAULT | extra_flags | (make_new ? 0u : Py_TPFLAGS_DISALLOW_INSTANTIATION);
  PyType_Spec spec{name, static_cast<int>(sizeof(Object<T>)), 0, static_cast<unsigned>(flags), slots.data()};
  return reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&spec)));
}
inline PyMethodDef method(const char* name, PyObject* (*f)(PyObject*, PyObject* const*, Py_ssize_t), const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f)), METH_FASTCALL, doc};
}

// Tensors (tensor.cpp).
struct TensorHolder {
  explicit TensorHolder(tsr_tensor_handle* handle) : handle(handle) {}  // takes over one reference
  TensorHolder(const TensorHolder&) = delete;
  ~TensorHolder() {
    if (handle) api().tensor_release(handle);
  }
  Ref record;                 // of gradients (tracing/backward.py); null: there is none
  tsr_tensor_handle* handle;  // null: a tensor of a function that is being captured (tracing/tensor.py)
};
// Of any tensor. One that is being captured is read: the graph breaks.
tsr_tensor_handle* handle_of(PyObject* tensor);
bool is_dense(const tsr_tensor& t);              // row-major and without gaps
tsr_context* context_handle(PyObject* context);  // of a tessera.Context
// A tensor of any library that speaks DLPack, borrowed: valid while this lives and the object is not changed.
class Borrowed {
 public:
  explicit Borrowed(PyObject* object);
  Borrowed(Borrowed&&) = default;
  tsr_tensor desc{};

 private:
  Ref keep_;
  std::vector<int64_t> strides_;
};
const dl::Exchange* exchange_of(PyTypeObject* type);  // null: the type has none. No exception is set
void describe(const dl::Tensor& from, tsr_tensor& to);
dl::DataType dl_dtype(uint32_t dtype);
dl::Device dl_device(tsr_device device);

void add_tensor(PyObject* m);
void add_context(PyObject* m);
void add_builder(PyObject* m);
void add_executable(PyObject* m);
void add_callable(PyObject* m);
void add_runner(PyObject* m);
void add_function(PyObject* m);
void add_recorder(PyObject* m);
PyObject* build_graph(tsr_context* context, const std::string& name, PyObject* callable);  // builder.cpp
PyObject* load_callable(tsr_context* context, const std::string& path);                    // callable.cpp

struct Builder {
  tsr_graph* graph = nullptr;  // null once the graph is built
  std::string file;            // of the host program, whose line the next nodes come from; empty: unknown
  uint32_t line = 0;
  uint32_t marks = 0;  // TSR_MARK_*, of the next nodes
};
struct GraphHolder {
  explicit GraphHolder(tsr_graph* g) : graph(g) {}
  GraphHolder(const GraphHolder&) = delete;
  ~GraphHolder() {
    if (graph) api().graph_destroy(graph);
  }
  tsr_graph* graph;  // null: it has been compiled
};
struct ExecutableHolder {
  explicit ExecutableHolder(tsr_executable* e) : executable(e) {}
  ExecutableHolder(const ExecutableHolder&) = delete;
  ~ExecutableHolder() { api().executable_destroy(executable); }
  tsr_executable* executable;
};

}  // namespace tessera::python
