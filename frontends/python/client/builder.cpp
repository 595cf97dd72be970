// SPDX-License-Identifier: Apache-2.0
// The builder that Context.build hands to a function: a graph by calls. Values are numbers; sizes are numbers too, symbolic
// ones being those that `symbol` and `dim` return.
#include <deque>

#include "common.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::python {

namespace {

struct Builder {
  tsr_graph* graph = nullptr;  // null once the graph is built
  std::string file;            // of the host program, whose line the next nodes come from; empty: unknown
  uint32_t line = 0;
};

tsr_graph* graph_of(PyObject* self) {
  tsr_graph* g = value_of<Builder>(self).graph;
  if (!g) raise(module().user_error, "the builder is used after its graph was built");
  return g;
}

// The attributes of a node and what they point at. Each is (name, kind, value): kind is tsr_attr_kind.
class Attributes {
 public:
  explicit Attributes(PyObject* sequence) {
    if (!sequence || sequence == Py_None) return;
    const Ref list = list_of(sequence, "attributes");
    for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) add(PyList_GetItem(list.get(), i));
  }
  [[nodiscard]] const std::vector<tsr_attr>& all() const { return attrs_; }

 private:
  void add(PyObject* item) {
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
  const char* text(PyObject* o) { return strings_.emplace_back(text_of(o)).c_str(); }

  std::vector<tsr_attr> attrs_;
  std::deque<std::string> strings_;
  std::deque<std::vector<const char*>> string_lists_;
  std::deque<std::vector<int64_t>> ints_;
  std::deque<Borrowed> tensors_;
};

std::vector<tsr_id> ids_of(PyObject* sequence) {
  std::vector<tsr_id> out;
  for (const int64_t v : ints_of(sequence)) out.push_back(v < 0 ? TSR_NONE : static_cast<tsr_id>(v));
  return out;
}

// symbol(name, min, max, hint): a size
PyObject* symbol(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 4, 4, "symbol(name, min, max, hint)");
    tsr_dim d = 0;
    check(api().graph_symbol(graph_of(self), text_of(args[0]).c_str(), int_of(args[1]), int_of(args[2]), int_of(args[3]), &d));
    return checked(PyLong_FromLongLong(d));
  });
}

// dim(op, a, b): op is tsr_dim_op
PyObject* dim(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 3, 3, "dim(op, a, b)");
    tsr_dim d = 0;
    check(graph_api().dim(graph_of(self), static_cast<tsr_dim_op>(int_of(args[0])), int_of(args[1]), int_of(args[2]), &d));
    return checked(PyLong_FromLongLong(d));
  });
}

// input(name, dtype, sizes, kind): a value
PyObject* input(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 4, 4, "input(name, dtype, sizes, kind)");
    const std::vector<int64_t> sizes = ints_of(args[2]);
    tsr_type type{};
    type.dtype = static_cast<uint32_t>(int_of(args[1]));
    type.rank = static_cast<uint32_t>(sizes.size());
    type.sizes = sizes.data();
    tsr_id value = TSR_NONE;
    check(graph_api().input_create(graph_of(self), text_of(args[0]).c_str(), &type, static_cast<uint32_t>(int_of(args[3])),
                                   nullptr, &value));
    return checked(PyLong_FromUnsignedLong(value));
  });
}

// node(op, operands, attributes, name): its results
PyObject* node(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 4, "node(op, operands, attributes, name)");
    tsr_graph* g = graph_of(self);
    const std::string op = text_of(args[0]);
    const std::vector<tsr_id> operands = ids_of(args[1]);
    const Attributes attributes(n > 2 ? args[2] : nullptr);
    const std::string name = n > 3 && args[3] != Py_None ? text_of(args[3]) : std::string();
    tsr_node_desc d{};
    d.struct_size = sizeof d;
    d.op = op.c_str();
    d.operands = operands.data();
    d.num_operands = static_cast<uint32_t>(operands.size());
    d.attrs = attributes.all().data();
    d.num_attrs = static_cast<uint32_t>(attributes.all().size());
    d.result_name = name.empty() ? nullptr : name.c_str();
    const Builder& builder = value_of<Builder>(self);
    if (!builder.file.empty()) d.loc = {builder.file.c_str(), builder.line, 0};
    tsr_id made = TSR_NONE;
    check(graph_api().node_create(g, &d, 0, TSR_NONE, &made));
    const tsr_tables& t = *graph_api().tables(g);
    const tsr_node& result = *TSR_AT(tsr_node, t.nodes, t.node_stride, made);
    const std::vector<int64_t> results(result.results, result.results + result.num_results);
    return tuple_of(results.data(), results.size());
  });
}

// place(file, line): where in the program the next nodes come from; an empty file: nobody knows
PyObject* place(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 2, "place(file, line)");
    auto& builder = value_of<Builder>(self);
    builder.file = text_of(args[0]);
    builder.line = static_cast<uint32_t>(int_of(args[1]));
    return Py_NewRef(Py_None);
  });
}

// type(value): (dtype, sizes)
PyObject* type(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "type(value)");
    const tsr_tables& t = *graph_api().tables(graph_of(self));
    const int64_t value = int_of(args[0]);
    if (value < 0 || static_cast<size_t>(value) >= t.num_values) raise(PyExc_IndexError, "no value " + std::to_string(value));
    const tsr_type& found = *TSR_AT(tsr_value, t.values, t.value_stride, value)->type;
    Ref sizes(tuple_of(found.sizes, found.rank));
    return checked(Py_BuildValue("(IN)", static_cast<unsigned>(found.dtype), sizes.release()));
  });
}

PyObject* outputs(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "outputs(values)");
    const std::vector<tsr_id> values = ids_of(args[0]);
    check(graph_api().region_set_outputs(graph_of(self), 0, values.data(), static_cast<uint32_t>(values.size())));
    return Py_NewRef(Py_None);
  });
}

// known(relation, a, b): whether the relation (tsr_relation) holds for every value in range: True, False or None
PyObject* known(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 3, 3, "known(relation, a, b)");
    const tsr_truth t =
        graph_api().dim_compare(graph_of(self), static_cast<tsr_relation>(int_of(args[0])), int_of(args[1]), int_of(args[2]));
    return Py_NewRef(t == TSR_UNKNOWN ? Py_None : t == TSR_TRUE ? Py_True : Py_False);
  });
}

// require(relation, a, b, why): calls whose sizes do not have the relation are refused
PyObject* require(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 4, 4, "require(relation, a, b, why)");
    check(graph_api().dim_require(graph_of(self), static_cast<tsr_relation>(int_of(args[0])), int_of(args[1]), int_of(args[2]),
                                  text_of(args[3]).c_str()));
    return Py_NewRef(Py_None);
  });
}

PyMethodDef methods[] = {method("symbol", symbol, "A symbolic size."),
                         method("dim", dim, "A size from two."),
                         method("input", input, "An input of the graph."),
                         method("node", node, "An op applied to values."),
                         method("place", place, "Says where in the program the next nodes come from."),
                         method("type", type, "The type of a value."),
                         method("known", known, "What is known of a relation between sizes."),
                         method("require", require, "A relation between sizes that every call must have."),
                         method("outputs", outputs, "Says which values the graph returns."),
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* build_graph(tsr_context* context, const std::string& name, PyObject* callable) {
  struct Call {
    PyObject* callable;
    Ref builder;
  } call{callable, Ref(make<Builder>(module().builder))};
  tsr_graph* g = nullptr;
  tsr_error* e = api().graph_build(
      context, name.c_str(),
      [](void* self, tsr_graph* graph) noexcept -> tsr_error* {
        auto& c = *static_cast<Call*>(self);
        value_of<Builder>(c.builder.get()).graph = graph;
        const Ref result(PyObject_CallFunctionObjArgs(c.callable, c.builder.get(), nullptr));
        value_of<Builder>(c.builder.get()).graph = nullptr;
        // The exception itself stays set and is what the caller of Context.build sees.
        return result ? nullptr
                      : api().host->core->error_create(TSR_USER, "TSR-E017", "the function that builds raised", nullptr);
      },
      &call, &g);
  if (PyErr_Occurred()) {
    if (e) api().error_free(e);
    if (g) api().graph_destroy(g);
    throw PythonError();
  }
  check(e);
  return make<GraphHolder>(module().graph, g);
}

void add_builder(PyObject* m) {
  module().builder = make_type<Builder>("tessera.Builder", "Makes a graph by calls; Context.build hands it out.", methods);
  checked(PyModule_AddObjectRef(m, "Builder", reinterpret_cast<PyObject*>(module().builder)));
  Ref dtypes(checked(PyDict_New()));
  for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d)
    checked(PyDict_SetItem(dtypes.get(), Ref(str(std::string(dtype_name(d)))).get(),
                           Ref(checked(PyLong_FromUnsignedLong(d))).get()));
  checked(PyModule_AddObjectRef(m, "dtypes", dtypes.get()));
}

}  // namespace tessera::python
