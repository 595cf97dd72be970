// SPDX-License-Identifier: Apache-2.0
// What plans of cuDNN's graph API share: a graph of operations as the library's descriptors, which engine computes it, and how
// a plan is kept, measured and run.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithms.hpp"
#include "dnn.hpp"

namespace tessera::cuda {

const char* dnn_type_name(int type);  // "bf16"
int64_t dnn_item_bytes(int type);
int dnn_type_of(uint32_t dtype);  // of TSR_BF16, ..; -1: the library is not used for it

// Owns a descriptor of the library.
struct DnnObject {
  const Dnn* dnn = nullptr;
  DnnDescriptor d = nullptr;
  DnnObject() = default;
  DnnObject(const Dnn& library, int kind);
  ~DnnObject();
  DnnObject(DnnObject&& o) noexcept : dnn(o.dnn), d(std::exchange(o.d, nullptr)) {}
  DnnObject& operator=(DnnObject&& o) noexcept {
    std::swap(dnn, o.dnn), std::swap(d, o.d);
    return *this;
  }
};

// A graph of operations under construction. It owns its descriptors: what its functions give out lives as long as it does.
class DnnGraph {
 public:
  using Node = DnnDescriptor;
  struct Shape {  // of a tensor of four dimensions, strides in elements
    int64_t sizes[4], strides[4];
  };
  static Shape dense(int64_t a, int64_t b, int64_t c, int64_t d) { return {{a, b, c, d}, {b * c * d, c * d, d, 1}}; }

  DnnGraph(Dnn& dnn, const std::string& what) : dnn_(dnn), what_(what) {}

  Node make(int kind);  // to be set and finished
  void set(Node n, int name, int type, int64_t count, const void* values) const;
  void set(Node n, int name, Node value) const { set(n, name, kDnnIsDescriptor, 1, &value); }
  void finish(Node n) const;
  void add(Node operation) { ops_.push_back(operation); }  // a finished one

  Node tensor(int64_t id, int type, const Shape& shape);
  Node inside(int type, const Shape& shape);  // never in memory
  Node scalar(int64_t id);                    // a float that a run brings by value
  // Operations; each gives `y` back. `b`, `t`: null where the mode has no such operand.
  Node pointwise(int mode, int precision, Node x, Node b, Node t, Node y, int64_t axis = -1);
  Node matmul(Node a, Node b, Node y);
  Node reduce(int mode, Node x, Node y);
  Node reshape(Node x, Node y);  // the same elements in other strides

  Node whole(Gpu& gpu);  // the graph's descriptor

 private:
  Node tensor(int64_t id, int type, const Shape& shape, bool inside, bool by_value);
  // Adds an operation whose fields are attributes and their descriptors; those that are null are not set.
  Node operation(int kind, std::initializer_list<std::pair<int, Node>> fields, Node y);

  Dnn& dnn_;
  const std::string& what_;
  std::vector<DnnObject> kept_;
  std::vector<Node> ops_;
  int64_t next_ = 1000;  // ids of tensors inside; those of others are below
};

// How one problem is computed on one device. Immutable once made.
class DnnPlan {
 public:
  DnnPlan(const DnnPlan&) = delete;
  size_t workspace_bytes() const { return workspace_; }
  const std::string& choice() const { return choice_; }
  bool measured() const { return measured_; }  // choice() is the fastest of several engines

 protected:
  struct Wanted {
    bool exact_f32 = false;  // no engine that multiplies f32 on the matrix units
    bool any_order = false;  // engines whose sums have no fixed order are taken too
    size_t workspace = size_t{256} << 20;
  };
  // `what`: for messages, "a convolution ..".
  DnnPlan(Dnn& dnn, Gpu& gpu, std::string what) : dnn_(dnn), gpu_(gpu), what_(std::move(what)) {}
  ~DnnPlan() = default;

  // `choice`: as choice() gave it to somebody; empty: the first engine that the library's heuristic offers and that makes a
  // plan or, with `measure`, which gives the seconds of a run, the fastest of those that it ranks highest. Throws TSR-R031
  // where the library has no engine.
  void choose(const std::string& choice, const std::function<void(DnnGraph&)>& describe, const Wanted& wanted,
              const std::function<double()>& measure);
  void execute(std::span<const int64_t> ids, std::span<const void* const> pointers, void* workspace, CUstream stream) const;
  // Seconds of `run` on memory of its own, which gets a block for each number of bytes.
  double seconds(std::span<const size_t> bytes, const std::function<void(void* const*, CUstream)>& run) const;
  const std::string& what() const { return what_; }

 private:
  std::vector<DnnObject> ranked(DnnDescriptor graph) const;  // configurations, best first
  bool allowed(const DnnObject& config, const Wanted& wanted, int64_t* engine) const;
  bool take(const DnnObject& config, const Wanted& wanted);  // false: the library makes no plan of it
  bool restore(const std::string& choice, const Wanted& wanted);
  bool finish_plan(const Wanted& wanted);
  void begin_plan();
  void check(int status, const char* call) const { dnn_.check(status, call, what_); }

  Dnn& dnn_;
  Gpu& gpu_;
  std::string what_;
  DnnObject plan_;
  std::string choice_;
  size_t workspace_ = 0;
  bool measured_ = false;
};

// Plans by what they compute, made at the first use and kept. Thread-safe.
template <class Problem, class Plan>
class DnnPlans {
 public:
  // Null, and *why says so: the library has no algorithm for it. Its engine is the one that is given, else the one that was
  // measured, if `algorithms` asks for that, else the first that the library ranks.
  std::shared_ptr<const Plan> get(Dnn& dnn, Gpu& gpu, const Problem& problem, std::string* why, std::string choice = {},
                                  const Algorithms& algorithms = {}) {
    std::string record;
    if (choice.empty() && algorithms.asked()) {
      record = Plan::record_of(gpu, dnn.version_text(), problem);
      choice = algorithms.records->find(record).value_or("");
      if (!choice.empty() && sdk::log_enabled("autotuning"))
        sdk::log("autotuning", "cuda: " + Plan::subject(problem) + ": the engine that was measured before");
    }
    const bool measure = choice.empty() && algorithms.may_measure();
    const Key key{&gpu, problem, measure || !choice.empty()};
    {
      std::lock_guard lock(mutex_);
      const auto it = made_.find(key);
      if (it != made_.end()) {
        *why = it->second.why;
        return it->second.plan;
      }
    }
    Made made;
    try {
      made.plan = std::make_shared<const Plan>(dnn, gpu, problem, choice, measure);
      if (made.plan->measured() && !made.plan->choice().empty())
        if (const std::string kept = algorithms.records->keep(record, made.plan->choice()); kept != made.plan->choice())
          made.plan = std::make_shared<const Plan>(dnn, gpu, problem, kept, false);  // another process was faster
    } catch (const sdk::Error& e) {
      if (e.code != "TSR-R031") throw;
      made.why = e.what();
    }
    std::lock_guard lock(mutex_);
    if (made_.size() >= kMost) made_.clear();  // kernels that use one hold it
    const Made& kept = made_.emplace(key, std::move(made)).first->second;
    *why = kept.why;
    return kept.plan;
  }

 private:
  static constexpr size_t kMost = 4096;
  struct Key {
    Gpu* gpu;
    Problem problem;
    bool decided;
    auto operator<=>(const Key&) const = default;
  };
  struct Made {
    std::shared_ptr<const Plan> plan;
    std::string why;
  };
  std::mutex mutex_;
  std::map<Key, Made> made_;
};

}  // namespace tessera::cuda
