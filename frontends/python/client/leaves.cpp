// SPDX-License-Identifier: Apache-2.0
// Arguments of a captured function as the flat list that guards look at: tensors, numbers, texts, and what containers hold.
#include "function.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::python {

namespace {

// Appends key number `i` to the text of all keys (TSR_ARG_KEYS): different keys make different texts.
void append_key(std::string& keys, Py_ssize_t i, const std::string& key) {
  if (i > 0) keys += '\n';
  for (const char c : key) {
    if (c == '\n' || c == '\\') keys += '\\';
    keys += c == '\n' ? 'n' : c;
  }
}

std::string bytes_of(PyObject* text) {  // a zero byte inside is allowed: the number of bytes goes along
  Py_ssize_t length = 0;
  const char* s = PyUnicode_AsUTF8AndSize(text, &length);
  if (!s) throw PythonError();
  return {s, static_cast<size_t>(length)};
}

}  // namespace

tsr_arg& Leaves::push(uint32_t kind) {
  tsr_arg& a = args_.emplace_back();
  a.kind = kind;
  return a;
}

void Leaves::push_text(uint32_t kind, std::string text) {
  const std::string& kept = texts_.emplace_back(std::move(text));
  tsr_arg& a = push(kind);
  a.s = kept.c_str();
  a.i = static_cast<int64_t>(kept.size());
}

void Leaves::add_items(PyObject* sequence) {
  const Py_ssize_t n = PySequence_Size(sequence);
  push(TSR_ARG_LENGTH).i = n;
  for (Py_ssize_t i = 0; i < n; ++i) {
    const Ref item(checked(PySequence_GetItem(sequence, i)));
    add(item.get());
  }
}

void Leaves::add_dict(PyObject* dict) {
  std::string keys, kinds;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0, i = 0;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (PyUnicode_Check(key)) {
      append_key(keys, i++, bytes_of(key));
    } else {
      const Ref text(checked(PyObject_Repr(key)));
      kinds += (kinds.empty() ? "" : ", ") + std::to_string(i);
      append_key(keys, i++, bytes_of(text.get()));
    }
  }
  push_text(TSR_ARG_KEYS, std::move(keys));
  push_text(TSR_ARG_STRING, std::move(kinds));  // which keys are no texts: 1 is not '1'
  at = 0;
  while (PyDict_Next(dict, &at, &key, &value)) add(value);
}

void Leaves::add(PyObject* o) {
  constexpr int kDeepest = 100;
  if (PyObject_TypeCheck(o, module().tensor)) {
    push(TSR_ARG_TENSOR).tensor = handle_of(o);
  } else if (PyFloat_Check(o)) {
    push(TSR_ARG_SYM_FLOAT).f = float_of(o);
  } else if (PyBool_Check(o)) {
    push(TSR_ARG_BOOL).i = o == Py_True;
  } else if (PyLong_Check(o)) {
    push(TSR_ARG_SYM_INT).i = int_of(o);
  } else if (o == Py_None) {
    push(TSR_ARG_NONE);
  } else if (PyUnicode_Check(o)) {
    push_text(TSR_ARG_STRING, bytes_of(o));
  } else {
    if (++depth_ > kDeepest) raise(module().user_error, "an argument of a compiled function nests deeper than 100 containers");
    if (PyList_CheckExact(o)) {
      containers_.push_back(o);
      push_text(TSR_ARG_STRING, "list");
      add_items(o);
    } else if (PyTuple_CheckExact(o)) {
      push_text(TSR_ARG_STRING, "tuple");
      add_items(o);
    } else if (PyDict_CheckExact(o)) {
      containers_.push_back(o);
      add_dict(o);
    } else {
      // Of Python: (None, tensor) for what DLPack gives, else the name of a class and the parts of the object.
      Ref made(checked(PyObject_CallFunctionObjArgs(unknown_, o, nullptr)));
      PyObject *name = checked(PyTuple_GetItem(made.get(), 0)), *parts = checked(PyTuple_GetItem(made.get(), 1));
      if (name == Py_None) {
        tensors_.push_back(Ref::share(parts));
        add(parts);
      } else {
        push_text(TSR_ARG_STRING, bytes_of(name));
        const Py_ssize_t n = PySequence_Size(parts);
        if (n > 0) containers_.push_back(o);
        for (Py_ssize_t i = 0; i < n; ++i) {
          const Ref item(checked(PySequence_GetItem(parts, i)));
          parts_.push_back(Ref::share(item.get()));
          add(item.get());
        }
      }
    }
    --depth_;
  }
}

void Leaves::end() {
  if (containers_.size() < 2) return;
  std::string text;
  for (size_t i = 1; i < containers_.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (containers_[k] == containers_[i]) {
        text += (text.empty() ? "" : ", ") + std::to_string(i) + " is " + std::to_string(k);
        break;
      }
  if (text.empty())
    push(TSR_ARG_NONE);
  else
    push_text(TSR_ARG_STRING, std::move(text));
}

bool Leaves::wants_gradients() const {
  for (const tsr_arg& a : args_)
    if (a.kind == TSR_ARG_TENSOR && a.tensor->requires_grad != 0 && is_float(a.tensor->desc.dtype)) return true;
  return false;
}

}  // namespace tessera::python
