// SPDX-License-Identifier: Apache-2.0
#include "attributes.hpp"

namespace tessera::python {

Attributes::Attributes(PyObject* sequence) {
  if (!sequence || sequence == Py_None) return;
  const Ref list = list_of(sequence, "attributes");
  for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) add(PyList_GetItem(list.get(), i));
}

void Attributes::add(PyObject* item) {
  if (!PyTuple_Check(item) || PyTuple_Size(item) != 3) raise(PyExc_TypeError, "an attribute is (name, kind, value)");
  PyObject* value = PyTuple_GetItem(item, 2);
  tsr_attr a{};
  a.name = text(PyTuple_GetItem(item, 0));
  a.kind = static_cast<uint32_t>(int_of(PyTuple_GetItem(item, 1)));
  switch (a.kind) {
    case TSR_ATTR_INT:
    case TSR_ATTR_BOOL:
    case TSR_ATTR_DTYPE:
    case TSR_ATTR_DIM: a.i = int_of(value); break;
    case TSR_ATTR_FLOAT: a.f = float_of(value); break;
    case TSR_ATTR_STRING: a.s = text(value); break;
    case TSR_ATTR_INTS:
    case TSR_ATTR_DIMS: {
      const std::vector<int64_t>& ints = ints_.emplace_back(ints_of(value));
      a.ints = ints.data();
      a.count = static_cast<uint32_t>(ints.size());
      break;
    }
    case TSR_ATTR_FLOATS: {
      std::vector<double>& floats = floats_.emplace_back();
      const Ref list = list_of(value, "numbers");
      for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) floats.push_back(float_of(PyList_GetItem(list.get(), i)));
      a.floats = floats.data();
      a.count = static_cast<uint32_t>(floats.size());
      break;
    }
    case TSR_ATTR_STRINGS: {
      std::vector<const char*>& texts = string_lists_.emplace_back();
      const Ref list = list_of(value, "texts");
      for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) texts.push_back(text(PyList_GetItem(list.get(), i)));
      a.strings = texts.data();
      a.count = static_cast<uint32_t>(texts.size());
      break;
    }
    case TSR_ATTR_TENSOR: {
      tensors_.emplace_back(value);
      a.tensor = &tensors_.back().desc;
      break;
    }
    default:
      raise(PyExc_TypeError,
            "attribute '" + std::string(a.name) + "' is of kind " + std::to_string(a.kind) + ", which Python cannot give");
  }
  attrs_.push_back(a);
}

}  // namespace tessera::python
