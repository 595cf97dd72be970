// SPDX-License-Identifier: Apache-2.0
// The builder that Context.build hands to a function: a graph by calls. Values are numbers; sizes are numbers too, symbolic
// ones being those that `symbol` and `dim` return.
#include <algorithm>

#include "attributes.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/size_hints.hpp"

namespace tessera::python {

namespace {

tsr_graph* graph_of(PyObject* self) {
  tsr_graph* g = value_of<Builder>(self).graph;
  if (!g) raise(module().user_error, "the builder is used after its graph was built");
  return g;
}

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

// input(name, dtype, sizes, kind, device="cpu", donated=0): a value
PyObject* input(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 4, 6, "input(name, dtype, sizes, kind, device, donated)");
    const std::vector<int64_t> sizes = ints_of(args[2]);
    tsr_type type{};
    type.dtype = static_cast<uint32_t>(int_of(args[1]));
    type.rank = static_cast<uint32_t>(sizes.size());
    type.sizes = sizes.data();
    if (n > 4) type.device = api().host->core->device_id(text_of(args[4]).c_str());
    tsr_id value = TSR_NONE;
    check(graph_api().input_create(graph_of(self), text_of(args[0]).c_str(), &type, static_cast<uint32_t>(int_of(args[3])),
                                   nullptr, &value));
    if (n > 5 && int_of(args[5]) != 0) check(graph_api().input_set_state(graph_of(self), value, TSR_NONE, 1));
    return checked(PyLong_FromUnsignedLong(value));
  });
}

// node(op, operands, attributes, name, regions, region, file, line): its results
PyObject* node(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 8, "node(op, operands, attributes, name, regions, region, file, line)");
    tsr_graph* g = graph_of(self);
    const std::string op = text_of(args[0]);
    const std::vector<tsr_id> operands = ids_of(args[1]);
    const Attributes attributes(n > 2 ? args[2] : nullptr);
    const std::string name = n > 3 && args[3] != Py_None ? text_of(args[3]) : std::string();
    const std::vector<tsr_id> regions = n > 4 && args[4] != Py_None ? ids_of(args[4]) : std::vector<tsr_id>();
    const std::string file = n > 7 && args[6] != Py_None ? text_of(args[6]) : std::string();
    tsr_node_desc d{};
    d.struct_size = sizeof d;
    d.op = op.c_str();
    d.operands = operands.data();
    d.num_operands = static_cast<uint32_t>(operands.size());
    d.attrs = attributes.all().data();
    d.num_attrs = static_cast<uint32_t>(attributes.all().size());
    d.regions = regions.data();
    d.num_regions = static_cast<uint32_t>(regions.size());
    d.result_name = name.empty() ? nullptr : name.c_str();
    const Builder& builder = value_of<Builder>(self);
    d.marks = builder.marks;
    if (!builder.file.empty()) d.loc = {builder.file.c_str(), builder.line, 0};
    if (!file.empty()) d.loc = {file.c_str(), static_cast<uint32_t>(int_of(args[7])), 0};
    tsr_id made = TSR_NONE;
    check(graph_api().node_create(g, &d, n > 5 ? static_cast<tsr_id>(int_of(args[5])) : 0, TSR_NONE, &made));
    const tsr_tables& t = *graph_api().tables(g);
    const tsr_node& result = *TSR_AT(tsr_node, t.nodes, t.node_stride, made);
    const std::vector<int64_t> results(result.results, result.results + result.num_results);
    return tuple_of(results.data(), results.size());
  });
}

// constant(tensor): a value that names the tensor's memory, on the host and dense, and keeps it. Nobody may write to it as long
// as the graph, or what is compiled of it, lives.
PyObject* constant(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "constant(tensor)");
    tsr_graph* g = graph_of(self);
    tsr_tensor_handle* held = handle_of(args[0]);
    if (held->desc.device != 0 || !is_dense(held->desc))
      raise(PyExc_ValueError, "constant: the tensor has to lie on the host, dense and row-major");
    const auto release = [](void* ctx) { api().tensor_release(static_cast<tsr_tensor_handle*>(ctx)); };
    api().tensor_retain(held);
    check(graph_api().keep(g, release, held));
    tsr_tensor named = held->desc;
    if (reinterpret_cast<uintptr_t>(named.data) % std::max<size_t>(dtype_bits(named.dtype) / 8, 1) == 0)
      named.flags |= TSR_TENSOR_KEPT;
    tsr_attr value{};
    value.name = "value";
    value.kind = TSR_ATTR_TENSOR;
    value.tensor = &named;
    tsr_node_desc d{};
    d.struct_size = sizeof d;
    d.op = "constant";
    d.attrs = &value;
    d.num_attrs = 1;
    d.marks = value_of<Builder>(self).marks;
    tsr_id made = TSR_NONE;
    check(graph_api().node_create(g, &d, 0, TSR_NONE, &made));
    const tsr_tables& t = *graph_api().tables(g);
    return checked(PyLong_FromUnsignedLong(TSR_AT(tsr_node, t.nodes, t.node_stride, made)->results[0]));
  });
}

// set_place(file, line): where in the program the next nodes come from; an empty file: nobody knows
PyObject* set_place(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 2, "set_place(file, line)");
    auto& builder = value_of<Builder>(self);
    builder.file = text_of(args[0]);
    builder.line = static_cast<uint32_t>(int_of(args[1]));
    return Py_NewRef(Py_None);
  });
}

// set_marks(marks): of the next nodes, TSR_MARK_*
PyObject* set_marks(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "set_marks(marks)");
    value_of<Builder>(self).marks = static_cast<uint32_t>(int_of(args[0]));
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

// outputs(values, region)
PyObject* outputs(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 2, "outputs(values, region)");
    const std::vector<tsr_id> values = ids_of(args[0]);
    check(graph_api().region_set_outputs(graph_of(self), n > 1 ? static_cast<tsr_id>(int_of(args[1])) : 0, values.data(),
                                         static_cast<uint32_t>(values.size())));
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

const tsr_value& value_at(PyObject* self, PyObject* number) {
  const tsr_tables& t = *graph_api().tables(graph_of(self));
  const int64_t value = int_of(number);
  if (value < 0 || static_cast<size_t>(value) >= t.num_values) raise(PyExc_IndexError, "no value " + std::to_string(value));
  return *TSR_AT(tsr_value, t.values, t.value_stride, value);
}

// layout(value): (device, strides or None)
PyObject* layout(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "layout(value)");
    const tsr_type& found = *value_at(self, args[0]).type;
    Ref strides(found.strides ? tuple_of(found.strides, found.rank) : Py_NewRef(Py_None));
    return checked(Py_BuildValue("(sN)", api().host->core->device_name(found.device), strides.release()));
  });
}

// place(value): (file, line) of the node that makes it, or None
PyObject* place(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "place(value)");
    const tsr_id node = value_at(self, args[0]).def_node;
    if (node == TSR_NONE) return Py_NewRef(Py_None);
    const tsr_tables& t = *graph_api().tables(graph_of(self));
    const tsr_loc& loc = TSR_AT(tsr_node, t.nodes, t.node_stride, node)->loc;
    return loc.file ? checked(Py_BuildValue("(sI)", loc.file, loc.line)) : Py_NewRef(Py_None);
  });
}

// hint(dim): what the size is for the arguments at hand, or None
PyObject* hint(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "hint(dim)");
    const std::optional<int64_t> found = sdk::hint_of(*graph_api().tables(graph_of(self)), int_of(args[0]));
    return found ? checked(PyLong_FromLongLong(*found)) : Py_NewRef(Py_None);
  });
}

// text(dim): the expression for people
PyObject* text(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "text(dim)");
    return str(sdk::size_text(*graph_api().tables(graph_of(self)), int_of(args[0])));
  });
}

// region(like, drop): the region, and its inputs, which have the types of the values `like`; those from number `drop[0]` to
// `drop[1]` without their first dimension
PyObject* region(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 3, 3, "region(like, from, to)");
    tsr_graph* g = graph_of(self);
    const Ref list = list_of(args[0], "values");
    std::vector<tsr_type> types;
    for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) {
      tsr_type t = *value_at(self, PyList_GetItem(list.get(), i)).type;
      if (i >= int_of(args[1]) && i < int_of(args[2])) {
        if (t.rank == 0) raise(module().user_error, "a 0-d tensor has no slices");
        --t.rank;
        ++t.sizes;
        t.strides = nullptr;
      }
      types.push_back(t);
    }
    std::vector<const tsr_type*> pointers;
    for (const tsr_type& t : types) pointers.push_back(&t);
    tsr_id made = TSR_NONE;
    check(graph_api().region_create(g, pointers.data(), static_cast<uint32_t>(pointers.size()), &made));
    const tsr_tables& t = *graph_api().tables(g);
    const tsr_region& r = *TSR_AT(tsr_region, t.regions, t.region_stride, made);
    const std::vector<int64_t> inputs(r.inputs, r.inputs + r.num_inputs);
    Ref numbers(tuple_of(inputs.data(), inputs.size()));
    return checked(Py_BuildValue("(IN)", made, numbers.release()));
  });
}

// checkpoint(first, kept): the nodes from number `first` on are computed again in the backward half, but for those whose
// results are among the values `kept`
PyObject* checkpoint(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 2, "checkpoint(first, kept)");
    tsr_graph* g = graph_of(self);
    std::vector<tsr_id> kept;
    const Ref list = list_of(args[1], "values");
    for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i)
      kept.push_back(value_at(self, PyList_GetItem(list.get(), i)).def_node);
    const tsr_tables& t = *graph_api().tables(g);
    const size_t end = t.num_nodes;
    for (auto id = static_cast<tsr_id>(int_of(args[0])); id < end; ++id) {
      const tsr_node& made = *TSR_AT(tsr_node, graph_api().tables(g)->nodes, t.node_stride, id);
      if (!made.alive || std::find(kept.begin(), kept.end(), id) != kept.end()) continue;
      check(graph_api().set_marks(g, id, made.marks | TSR_MARK_CHECKPOINT));
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* num_nodes(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] { return checked(PyLong_FromSize_t(graph_api().tables(graph_of(self))->num_nodes)); });
}

PyMethodDef methods[] = {method("layout", layout, "The device of a value, and its strides where they are not row-major."),
                         method("place", place, "Where the node that makes a value was written."),
                         method("hint", hint, "What a size is for the arguments at hand."),
                         method("text", text, "A size for people."),
                         method("region", region, "A free region."),
                         method("checkpoint", checkpoint, "Says what is computed again in the backward half."),
                         method("num_nodes", num_nodes, "How many nodes there have been."),
                         method("symbol", symbol, "A symbolic size."),
                         method("dim", dim, "A size from two."),
                         method("input", input, "An input of the graph."),
                         method("node", node, "An op applied to values."),
                         method("constant", constant, "A constant that shares a tensor's memory."),
                         method("set_place", set_place, "Says where in the program the next nodes come from."),
                         method("set_marks", set_marks, "Says what marks the next nodes have."),
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
