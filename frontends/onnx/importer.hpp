// SPDX-License-Identifier: Apache-2.0
// A model's graph into a graph of the IR: names to values, nodes in order through the table of translations, functions expanded
// where they are called, nested graphs into regions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "build.hpp"
#include "op.hpp"

namespace tessera::onnx {

class Importer {
 public:
  Importer(sdk::Graph graph, const ModelProto& model, Tensors& tensors, std::string path);
  void run();

  Build b;

  // ---- for operators with nested graphs
  // What the graphs use of the scope around them: values that are no constants, each once.
  void captures(std::span<const GraphProto* const> graphs, std::vector<V>* values, std::vector<std::string_view>* names);
  // Translates `graph` into a new region whose inputs have the given types. `enter` maps the region's inputs to the values of
  // the graph's inputs; captured values follow them under their names. `leave` maps the graph's outputs to those of the region.
  tsr_id region(const GraphProto& graph, std::span<const tsr_type> types, std::span<const std::string_view> captured,
                const std::function<std::vector<V>(std::span<const V>)>& enter,
                const std::function<std::vector<V>(std::vector<V>)>& leave);
  // Translates `graph` in place, with these values for its inputs.
  std::vector<V> inline_graph(const GraphProto& graph, std::span<const V> inputs);

  // ---- random numbers
  // Whether the graph, or what it calls, draws random numbers.
  bool draws(const GraphProto& graph) const;
  // In the body of a loop that draws: the number of the iteration. Numbers drawn from here on differ from one to the next.
  void begin_iteration(const V& iteration);
  // While one lives, numbers drawn in the open scope are those of one more iteration.
  class LoopIteration {
   public:
    LoopIteration(Importer& importer, const V& iteration) : importer_(importer), before_(importer.scope_->stream) {
      importer.begin_iteration(iteration);
    }
    ~LoopIteration() { importer_.scope_->stream = before_; }
    LoopIteration(const LoopIteration&) = delete;

   private:
    Importer& importer_;
    V before_;
  };
  // What tells the turns of all loops around from each other: u64[1]; null outside of loops.
  V stream() const;
  uint64_t next_draw() { return ++drawn_; }  // the number of a node that draws, from 1
  uint64_t drawn() const { return drawn_; }
  void draw_again_from(uint64_t drawn) { drawn_ = drawn; }  // what was translated since has been thrown away
  // The value that a region's input stands for, where it is one that captures() gave; else the value itself.
  tsr_id captured_from(tsr_id value) const;
  const TypeProto* declared(std::string_view name) const;
  tsr_dim declared_dim(const TypeProto::Dim& d) const;  // -1: not known
  // The value that a size has in the call which the model is imported for, where the caller lets what depends on it be decided
  // by that, under an assumption.
  std::optional<int64_t> size_in_call(tsr_dim d) const;
  Tensors& tensors() { return tensors_; }
  const std::string& path() const { return path_; }

 private:
  struct Scope {
    std::unordered_map<std::string_view, V> values;
    std::unordered_map<std::string_view, const TypeProto*> declared;
    const Scope* outer = nullptr;  // constants and captured values of graphs around; null at a function's border
    const std::map<std::string_view, const AttributeProto*>* attributes = nullptr;  // of the function that is expanded
    const OpsetImports* opsets = nullptr;
    std::string within;   // " in function 'f'", for messages
    V stream;             // see Importer::stream(); null: that of the scope around, but across the border of a region
    bool region = false;  // the outermost scope of a region
  };

  const V* find(std::string_view name) const;
  void define(std::string_view name, const V& v, const std::string& place);
  V lookup(std::string_view name, const std::string& place) const;
  void declare(const GraphProto& g);
  V graph_input(const ValueInfoProto& info);
  void initializers(const GraphProto& g);
  void nodes(std::span<const NodeProto> nodes);
  void node(const NodeProto& n, size_t index);
  void call(const FunctionProto& f, const NodeProto& n, const std::vector<V>& in,
            const std::vector<const AttributeProto*>& attributes, const std::string& place);
  int64_t version_of(std::string_view domain, const std::string& place) const;
  const FunctionProto* function(const NodeProto& n) const;
  [[noreturn]] void unknown_operator(const NodeProto& n, int64_t version, const std::string& place) const;
  std::vector<V> inline_body(const GraphProto& graph, std::span<const V> inputs);
  void sweep(tsr_id region);

  const ModelProto& model_;
  Tensors& tensors_;
  std::string path_;
  Scope* scope_ = nullptr;
  std::map<std::string, tsr_dim, std::less<>> symbols_;
  std::unordered_map<uint32_t, int64_t> sizes_in_call_;  // by symbol
  std::unordered_map<tsr_id, tsr_id> captured_from_;     // input of a region -> value of the region around
  std::string_view lacks_rank_;                          // the first input whose rank nothing says
  size_t translated_ = 0;
  uint64_t drawn_ = 0;
  int depth_ = 0;
};

}  // namespace tessera::onnx
