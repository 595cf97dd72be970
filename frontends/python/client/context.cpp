// SPDX-License-Identifier: Apache-2.0
// tessera.Context and graphs: a config with its plugins, models as graphs, compilation that Ctrl-C ends.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "common.hpp"

namespace tessera::python {

namespace {

using Context = std::shared_ptr<tsr_context>;

tsr_context* context_of(PyObject* self) { return value_of<Context>(self).get(); }

std::vector<std::string> strings_of(PyObject* o) {
  std::vector<std::string> out;
  if (!o || o == Py_None) return out;
  const Ref list = list_of(o, "strings");
  for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i) out.push_back(text_of(PyList_GetItem(list.get(), i)));
  return out;
}
std::vector<const char*> pointers(const std::vector<std::string>& strings) {
  std::vector<const char*> out;
  for (const std::string& s : strings) out.push_back(s.c_str());
  return out;
}
std::string optional_text(PyObject* o) { return o && o != Py_None ? text_of(o) : std::string(); }

PyObject* new_context(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    PyObject *config = nullptr, *overrides = nullptr, *plugin_dirs = nullptr, *text = nullptr;
    static char* names[] = {const_cast<char*>("config"), const_cast<char*>("overrides"), const_cast<char*>("plugin_dirs"),
                            const_cast<char*>("text"), nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOO", names, &config, &overrides, &plugin_dirs, &text))
      throw PythonError();
    const std::string path = optional_text(config), document = optional_text(text);
    const std::vector<std::string> keys = strings_of(overrides), dirs = strings_of(plugin_dirs);
    const std::vector<const char*> key_pointers = pointers(keys), dir_pointers = pointers(dirs);
    tsr_context_options o{};
    o.struct_size = sizeof o;
    o.config_path = path.empty() ? nullptr : path.c_str();
    o.config_text = document.empty() ? nullptr : document.c_str();
    o.overrides = key_pointers.data();
    o.num_overrides = keys.size();
    o.plugin_dirs = dir_pointers.data();
    o.num_plugin_dirs = dirs.size();
    tsr_context* c = nullptr;
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().context_create(&o, &c);
    }
    check(e);
    return make<Context>(type, c, [](tsr_context* p) { api().context_destroy(p); });
  });
}

PyObject* json_of(PyObject* self, tsr_error* (*function)(tsr_context*, char**)) {
  char* json = nullptr;
  check(function(context_of(self), &json));
  return take(json);
}
PyObject* explain(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] { return json_of(self, api().config_explain); });
}
PyObject* options(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] { return json_of(self, api().config_options); });
}
PyObject* ops(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] { return json_of(self, api().op_list); });
}
PyObject* loaded(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] { return json_of(self, api().loaded); });
}

// load(path, bindings={})
PyObject* load(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 2, "load(path, bindings)");
    const std::string path = text_of(args[0]);
    std::vector<std::string> names;
    std::vector<Borrowed> values;
    if (n > 1 && args[1] != Py_None) {
      const Ref items(checked(PyMapping_Items(args[1])));
      for (Py_ssize_t i = 0; i < PyList_Size(items.get()); ++i) {
        PyObject* pair = PyList_GetItem(items.get(), i);
        names.push_back(text_of(checked(PyTuple_GetItem(pair, 0))));
        values.emplace_back(checked(PyTuple_GetItem(pair, 1)));
      }
    }
    std::vector<tsr_binding> bindings;
    for (size_t i = 0; i < names.size(); ++i) bindings.push_back({names[i].c_str(), &values[i].desc});
    tsr_graph* g = nullptr;
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().graph_load_bound(context_of(self), path.c_str(), bindings.data(), bindings.size(), sizeof(tsr_binding), &g);
    }
    check(e);
    return make<GraphHolder>(module().graph, g);
  });
}

PyObject* callable(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "callable(path)");
    return load_callable(context_of(self), text_of(args[0]));
  });
}

PyObject* parse(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 2, "parse(text, name)");
    const std::string text = text_of(args[0]), name = n > 1 ? text_of(args[1]) : "<text>";
    tsr_graph* g = nullptr;
    check(api().graph_parse(context_of(self), text.data(), text.size(), name.c_str(), &g));
    return make<GraphHolder>(module().graph, g);
  });
}

PyObject* build(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 2, "build(name, function)");
    return build_graph(context_of(self), text_of(args[0]), args[1]);
  });
}

// A compile on a thread of its own, so that the thread which asked for it can look at signals. When it gives up, the compile
// goes on to its end and its result is dropped: the compiler's stages own no state that outlives them.
struct Compile {
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false, abandoned = false;
  tsr_executable* executable = nullptr;
  tsr_error* error = nullptr;
};
struct Abandoned {  // compiles that nobody waits for; the process must not end under them
  std::mutex mutex;
  std::condition_variable none;
  int count = 0;
};
Abandoned& abandoned() {
  static auto* a = new Abandoned;
  return *a;
}

PyObject* compile(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "compile(graph)");
    GraphHolder& holder = value_of<GraphHolder>(args[0], module().graph, "a graph");
    if (!holder.graph)
      raise(module().user_error, "the graph has been compiled already: a compile takes its graph over; clone it first");
    tsr_graph* graph = std::exchange(holder.graph, nullptr);
    const Context context = value_of<Context>(self);
    const auto job = std::make_shared<Compile>();
    std::thread([job, context, graph] {
      tsr_executable* executable = nullptr;
      tsr_error* error = api().compile_model(context.get(), graph, &executable);
      bool dropped = false;
      {
        const std::lock_guard lock(job->mutex);
        job->executable = executable;
        job->error = error;
        job->done = true;
        dropped = job->abandoned;
      }
      job->finished.notify_one();
      if (!dropped) return;
      if (error) api().error_free(error);
      if (executable) api().executable_destroy(executable);
      {
        const std::lock_guard lock(abandoned().mutex);
        --abandoned().count;
      }
      abandoned().none.notify_all();
    }).detach();
    for (bool done = false; !done;) {
      {
        const Unlocked unlocked;
        std::unique_lock lock(job->mutex);
        done = job->finished.wait_for(lock, std::chrono::milliseconds(50), [&] { return job->done; });
      }
      if (!done && PyErr_CheckSignals() < 0) {
        const std::lock_guard lock(job->mutex);
        if (job->done) {
          if (job->error) api().error_free(job->error);
          if (job->executable) api().executable_destroy(job->executable);
        } else {
          job->abandoned = true;
          const std::lock_guard counter(abandoned().mutex);
          ++abandoned().count;
        }
        throw PythonError();
      }
    }
    check(job->error);
    return make<ExecutableHolder>(module().executable, job->executable);
  });
}

// memory_plans(graph): as JSON; takes the graph over
PyObject* memory_plans(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "memory_plans(graph)");
    GraphHolder& holder = value_of<GraphHolder>(args[0], module().graph, "a graph");
    if (!holder.graph) raise(module().user_error, "the graph has been compiled: clone it first");
    tsr_graph* graph = std::exchange(holder.graph, nullptr);
    char* json = nullptr;
    tsr_error* e = nullptr;
    {
      const Unlocked unlocked;
      e = api().memory_plans(context_of(self), graph, &json);
    }
    check(e);
    return take(json);
  });
}

PyObject* wait_for_compiles(PyObject*, PyObject* const*, Py_ssize_t) {
  return guarded([] {
    {
      const Unlocked unlocked;
      std::unique_lock lock(abandoned().mutex);
      abandoned().none.wait(lock, [] { return abandoned().count == 0; });
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* flush(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    {
      const Unlocked unlocked;
      api().cache_flush(context_of(self));
    }
    return Py_NewRef(Py_None);
  });
}

tsr_graph* graph_of(PyObject* self) {
  tsr_graph* g = value_of<GraphHolder>(self).graph;
  if (!g) raise(module().user_error, "the graph has been compiled: a compile takes its graph over");
  return g;
}

PyObject* print(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 0, 1, "print(flags)");
    char* text = nullptr;
    check(api().graph_print(graph_of(self), n > 0 ? static_cast<uint32_t>(int_of(args[0])) : 0u, &text));
    return take(text);
  });
}

PyObject* clone(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    tsr_graph* g = nullptr;
    check(api().graph_clone(graph_of(self), &g));
    return make<GraphHolder>(module().graph, g);
  });
}

PyMethodDef context_methods[] = {
    method("explain", explain, "Every value of the config and where it came from, as JSON."),
    method("options", options, "All keys of the config with type, range, default and help, as JSON."),
    method("ops", ops, "The records of all ops, as JSON."),
    method("loaded", loaded, "The plugins in use, as JSON."),
    method("load", load, "The model in a file as a graph; inputs that `bindings` names become constants."),
    method("callable", callable, "The model in a file as a function that is compiled for its calls."),
    method("parse", parse, "Text IR as a graph."),
    method("build", build, "A graph that function(builder) makes by calls."),
    method("compile", compile, "Passes, then code: an executable. Takes the graph over."),
    method("memory_plans", memory_plans,
           "What the partitioner chooses from, or for a budget its choice, as JSON. Takes the graph over."),
    method("cache_flush", flush, "Waits until the cache has written what it is to keep."),
    {nullptr, nullptr, 0, nullptr}};
PyMethodDef graph_methods[] = {
    method("print", print, "The graph as text IR."), method("clone", clone, "A copy."), {nullptr, nullptr, 0, nullptr}};
PyMethodDef functions[] = {
    method("wait_for_compiles", wait_for_compiles, "Waits for compiles that Ctrl-C has ended the waiting for."),
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

tsr_context* context_handle(PyObject* context) {
  return value_of<Context>(context, module().context, "a tessera.Context").get();
}

void add_context(PyObject* m) {
  module().context = make_type<Context>(
      "tessera.Context", "A config with its plugins: Context(config=None, overrides=(), plugin_dirs=(), text=None).",
      context_methods, nullptr, new_context);
  module().graph = make_type<GraphHolder>("tessera.Graph", "A program as a graph.", graph_methods);
  checked(PyModule_AddObjectRef(m, "Context", reinterpret_cast<PyObject*>(module().context)));
  checked(PyModule_AddObjectRef(m, "Graph", reinterpret_cast<PyObject*>(module().graph)));
  checked(PyModule_AddFunctions(m, functions));
}

}  // namespace tessera::python
