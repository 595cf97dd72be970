// SPDX-License-Identifier: Apache-2.0
#include "api/api.hpp"
#include "dispatch/callable.hpp"
#include "dispatch/global_state.hpp"
#include "dispatch/marks.hpp"
#include "dispatch/model_source.hpp"
#include "dispatch/stance.hpp"
#include "eager/eager.hpp"
#include "ir/graph.hpp"
#include "run/saved_values.hpp"

namespace tessera::core::api {

namespace {

Callable& of(tsr_callable_handle* c) { return *reinterpret_cast<Callable*>(&required(c, "callable")); }

tsr_error* create(tsr_context* c, const tsr_callable_desc* desc, tsr_callable_handle** out) noexcept {
  return guarded([&] {
    required(out, "the callable to be returned");
    *out = reinterpret_cast<tsr_callable_handle*>(
        make_callable(required(c, "context").context, required(desc, "the description")));
  });
}

tsr_error* load(tsr_context* c, const char* path, tsr_callable_handle** out, tsr_graph** inputs) noexcept {
  return guarded([&] {
    required(out, "the callable to be returned");
    const auto& context = required(c, "context").context;
    auto model = std::make_unique<ModelSource>(context, &required(path, "the path"));
    auto declared = inputs ? inputs_of(model->inputs()) : nullptr;
    if (declared) declared->keep(context);
    *out = reinterpret_cast<tsr_callable_handle*>(make_callable(context, std::move(model)));
    if (declared) *inputs = declared.release()->handle();
  });
}

tsr_error* compile_ahead(tsr_callable_handle* c, const tsr_examples* examples, size_t* compiled, size_t* failed) noexcept {
  return guarded([&] {
    required(compiled, "the number to be returned") = 0;
    const tsr_examples& e = required(examples, "the examples");
    if (e.count > 0 && !e.get) throw user_error("TSR-E002", "callable_compile_ahead: the examples have no get function");
    of(c).compile_ahead(e, compiled, failed);
  });
}

tsr_error* eager_op(tsr_context* c, const char* op, tsr_tensor_handle* const* operands, size_t num_operands,
                    const tsr_attr* attrs, size_t num_attrs, tsr_tensor_handle** results, size_t capacity,
                    size_t* num_results) noexcept {
  return guarded([&] {
    required(c, "context")
        .eager->run(&required(op, "the op"), operands, num_operands, attrs, num_attrs, results, capacity, num_results);
  });
}

}  // namespace

void callable_functions(tsr_api& t) {
  t.callable_create = create;
  t.callable_load = load;
  t.callable_destroy = [](tsr_callable_handle* c) noexcept { drop_callable(reinterpret_cast<Callable*>(c)); };
  t.call = call_callable;
  t.callable_save = [](tsr_callable_handle* c, const void* structure, const tsr_arg* args, size_t num_args,
                       tsr_tensor_handle* const* outputs, size_t num_outputs, tsr_saved** saved) noexcept {
    return guarded([&] {
      required(saved, "what is returned");
      *saved = reinterpret_cast<tsr_saved*>(of(c).save(structure, args, num_args, outputs, num_outputs).release());
    });
  };
  t.saved_num_gradients = [](const tsr_saved* s) noexcept -> size_t {
    return s ? reinterpret_cast<const SavedValues*>(s)->num_gradients() : 0;
  };
  t.saved_backward = [](tsr_saved* s, tsr_tensor_handle* const* cotangents, size_t num_cotangents,
                        tsr_tensor_handle** gradients, size_t num_gradients) noexcept {
    return guarded([&] {
      reinterpret_cast<SavedValues&>(required(s, "what was kept"))
          .run({cotangents, num_cotangents}, {gradients, num_gradients});
    });
  };
  t.saved_destroy = [](tsr_saved* s) noexcept { delete reinterpret_cast<SavedValues*>(s); };
  t.callable_describe = [](tsr_callable_handle* c, char** json) noexcept {
    return guarded([&] { required(json, "the text to be returned") = to_c_string(of(c).describe_json()); });
  };
  t.callable_reset = [](tsr_callable_handle* c) noexcept {
    if (c) of(c).reset();
  };
  t.callable_compile_ahead = compile_ahead;
  t.eager_op = eager_op;
  t.tensor_mark = [](tsr_tensor_handle* h, int64_t dim, uint32_t mark, int64_t min, int64_t max) noexcept {
    return guarded([&] { mark_tensor(required(h, "the tensor"), dim, mark, min, max); });
  };
  t.set_stance = [](const char* name) noexcept { return guarded([&] { change_stance(&required(name, "the stance")); }); };
  t.stance = []() noexcept { return stance_name(core::stance()); };
  t.set_reuse_only = [](int on) noexcept -> int { return core::set_reuse_only(on != 0); };
  t.callable_recompile = [](tsr_callable_handle* c) noexcept {
    if (c) of(c).recompile();
  };
  t.reset = []() noexcept { reset_callables(); };
  t.grad_enabled = []() noexcept -> int { return core::grad_enabled(); };
  t.set_grad_enabled = [](int on) noexcept -> int { return core::set_grad_enabled(on != 0); };
}

}  // namespace tessera::core::api
