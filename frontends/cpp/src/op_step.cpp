// SPDX-License-Identifier: Apache-2.0
// An op that no backend of the compiled function takes, as a host step between two segments.
#include <list>
#include <string>

#include "sym.hpp"
#include "tessera/breaks.hpp"
#include "trace.hpp"

namespace tessera::detail {

namespace {

// Attributes of an op, with all that they point to. Sizes that are symbols become numbers, and with that guards: the step has
// no graph that could tell it another value.
class OwnedAttrs {
 public:
  OwnedAttrs(std::span<const tsr_attr> attrs, tsr_graph* graph) {
    for (const tsr_attr& from : attrs) {
      tsr_attr a = from;
      a.name = text(from.name);
      switch (from.kind) {
        case TSR_ATTR_DIM: a.i = number(from.i, graph); break;
        case TSR_ATTR_STRING: a.s = text(from.s); break;
        case TSR_ATTR_INTS:
        case TSR_ATTR_DIMS: {
          auto& copy = ints_.emplace_back(from.ints, from.ints + from.count);
          if (from.kind == TSR_ATTR_DIMS)
            for (int64_t& d : copy) d = number(d, graph);
          a.ints = copy.data();
          break;
        }
        case TSR_ATTR_FLOATS: a.floats = floats_.emplace_back(from.floats, from.floats + from.count).data(); break;
        case TSR_ATTR_STRINGS: {
          auto& copy = lists_.emplace_back();
          for (uint32_t i = 0; i < from.count; ++i) copy.push_back(text(from.strings[i]));
          a.strings = copy.data();
          break;
        }
        case TSR_ATTR_TENSOR:
          if (from.tensor) {
            tsr_tensor_handle *view = nullptr, *copy = nullptr;
            check(api().tensor_wrap(from.tensor, nullptr, nullptr, &view));
            const Tensor held = Tensor::adopt(view);
            check(api().tensor_copy(view, 0, &copy));
            tensors_.push_back(Tensor::adopt(copy));
            a.tensor = &copy->desc;
          }
          break;
        default: break;
      }
      attrs_.push_back(a);
    }
  }
  OwnedAttrs(const OwnedAttrs&) = delete;
  std::span<const tsr_attr> view() const { return attrs_; }

 private:
  const char* text(const char* s) { return s ? texts_.emplace_back(s).c_str() : nullptr; }
  static int64_t number(tsr_dim d, tsr_graph* graph) { return TSR_DIM_IS_EXPR(d) ? static_cast<int64_t>(SymInt(d, graph)) : d; }
  std::vector<tsr_attr> attrs_;
  std::list<std::string> texts_;  // lists: what they hold does not move
  std::list<std::vector<int64_t>> ints_;
  std::list<std::vector<double>> floats_;
  std::list<std::vector<const char*>> lists_;
  std::vector<Tensor> tensors_;
};

}  // namespace

void run_between(const char* op, std::span<const Tensor> operands, std::span<const tsr_attr> attrs,
                 std::vector<Tensor>& results, const tsr_loc& where) {
  const std::shared_ptr<Trace> trace = current_trace_shared();
  const auto owned = std::make_shared<const OwnedAttrs>(attrs, trace->graph);
  std::vector<Tensor> inputs;
  std::vector<uint8_t> given;
  for (const Tensor& t : operands) {
    given.push_back(t.defined());
    if (t.defined()) inputs.push_back(t);
  }
  const Context context = trace->callable->context();
  StepResult r = host_step(14, where, op, inputs, [=, name = std::string(op)](const std::vector<Tensor>& in) {
    const ContextScope scope(context);
    std::vector<Tensor> all;
    size_t next = 0;
    for (const uint8_t g : given) all.push_back(g ? in[next++] : Tensor());
    StepResult out;
    run_op(name.c_str(), all, owned->view(), out.tensors);
    return out;
  });
  for (Tensor& t : r.tensors) results.push_back(std::move(t));
}

}  // namespace tessera::detail
