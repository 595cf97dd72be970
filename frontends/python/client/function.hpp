// SPDX-License-Identifier: Apache-2.0
// What functions that are captured in Python share: the interpreter's lock in callbacks, exceptions that wait for their
// caller, leaves.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "common.hpp"

namespace tessera::python {

class Locked {  // in a callback of the library: the interpreter's lock is held while one lives
 public:
  Locked() : state_(PyGILState_Ensure()) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

struct Recording {
  tsr_recorder* recorder;  // null once the capture is over
};

// Keeps the Python exception that is set for the caller of the compiled function, who gets it as it was raised, and says the
// same to the library.
tsr_error* hold_exception();
void check_held(tsr_error* e);  // as check(), or raises what is kept

template <class F>
tsr_error* held(F&& f) noexcept {  // f() as a callback of the library
  try {
    f();
    return nullptr;
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return hold_exception();
}

// The leaves of a call's arguments, and what keeps their memory.
class Leaves {
 public:
  // `unknown` turns an object of a class that is no leaf and no container into (name of its class, its parts), or raises.
  explicit Leaves(PyObject* unknown) : unknown_(unknown) {}
  Leaves(const Leaves&) = delete;
  void add(PyObject* object);
  void end();  // behind the last argument: says which containers are one
  [[nodiscard]] const std::vector<tsr_arg>& all() const { return args_; }
  [[nodiscard]] bool wants_gradients() const;

 private:
  tsr_arg& push(uint32_t kind);
  void push_text(uint32_t kind, std::string text);
  void add_items(PyObject* sequence);
  void add_dict(PyObject* dict);

  PyObject* unknown_;
  std::vector<tsr_arg> args_;
  std::vector<Ref> tensors_, parts_;
  std::vector<PyObject*> containers_;
  std::deque<std::string> texts_;
  int depth_ = 0;
};

}  // namespace tessera::python
