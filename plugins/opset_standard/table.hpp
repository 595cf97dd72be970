// SPDX-License-Identifier: Apache-2.0
// The C++ callbacks of the op set, by op. Every topic has one file with an add_* function that enters its callbacks here;
// plugin.cpp calls them all.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/abi.h"

namespace tessera::opset {

class Infer;
class Build;
class GradBuild;
class CostQuery;
struct ViewQuery;
enum class ViewAnswer : int;

// Each throws sdk::Error; the thunks in table.cpp turn that into a tsr_error.
using InferFn = void (*)(Infer&);
using ViewFn = ViewAnswer (*)(const ViewQuery&);
using DecomposeFn = void (*)(Build&);
using GradFn = void (*)(GradBuild&);
using CostFn = void (*)(CostQuery&);

class Table {
 public:
  void infer(const char* op, InferFn f) { entry(op).infer = f; }
  void view(const char* op, ViewFn f) { entry(op).view = f; }
  void decompose(const char* op, DecomposeFn f) { entry(op).decompose = f; }
  void grad(const char* op, GradFn f) { entry(op).grad = f; }
  void cost(const char* op, CostFn f) { entry(op).cost = f; }
  bool has_cost(std::string_view op) const {
    const auto it = entries_.find(op);
    return it != entries_.end() && it->second.cost;
  }
  const char* keep(std::string op) { return names_.emplace_back(std::move(op)).c_str(); }

  // Sorted by op; lives as long as the table, which must not change afterwards.
  const std::vector<tsr_op_impl>& impls();

 private:
  struct Entry {
    InferFn infer = nullptr;
    ViewFn view = nullptr;
    DecomposeFn decompose = nullptr;
    GradFn grad = nullptr;
    CostFn cost = nullptr;
  };
  Entry& entry(const char* op) { return entries_[op]; }  // `op` is a literal or from keep()

  std::deque<std::string> names_;
  std::map<std::string_view, Entry> entries_;
  std::vector<tsr_op_impl> impls_;
};

void add_infer_shape(Table&);
void add_infer_dynamic(Table&);
void add_infer_index(Table&);
void add_infer_reduce(Table&);
void add_infer_elementwise(Table&);
void add_infer_linalg(Table&);
void add_infer_nn(Table&);
void add_infer_control(Table&);
void add_views(Table&);
void add_decompose_reduce(Table&);
void add_decompose_shape(Table&);
void add_decompose_linalg(Table&);
void add_decompose_adaptive_pool(Table&);
void add_decompose_activation(Table&);
void add_decompose_norm(Table&);
void add_decompose_attention(Table&);
void add_decompose_loss(Table&);
void add_decompose_interpolate(Table&);
void add_grad_elementwise(Table&);
void add_grad_reduce(Table&);
void add_grad_scan(Table&);
void add_grad_shape(Table&);
void add_grad_index(Table&);
void add_grad_linalg(Table&);
void add_grad_conv(Table&);
void add_grad_pool(Table&);
void add_grad_activation(Table&);
void add_grad_norm(Table&);
void add_grad_attention(Table&);
void add_cost(Table&);
// For elementwise ops and reductions that have no cost of their own.
void add_default_costs(Table&, std::span<const tsr_record_file> records);

}  // namespace tessera::opset
