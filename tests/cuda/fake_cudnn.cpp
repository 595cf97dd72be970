// SPDX-License-Identifier: Apache-2.0
// cuDNN's part of the fake: graphs of convolutions, products, sums and elementwise operations in loops, queued like a kernel.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dnn.hpp"
#include "fake_numbers.hpp"
#include "fake_queue.hpp"

namespace {

using namespace tessera::cuda;

// What a descriptor holds. Copied into what it is set into, as the library does.
struct Object {
  int kind = 0;
  bool finished = false;
  std::map<int, std::vector<char>> values;  // by attribute
  std::map<int, std::vector<std::shared_ptr<const Object>>> objects;

  template <class T>
  std::vector<T> get(int name) const {
    const auto at = values.find(name);
    if (at == values.end()) return {};
    std::vector<T> out(at->second.size() / sizeof(T));
    std::memcpy(out.data(), at->second.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  T one(int name, T otherwise = {}) const {
    const std::vector<T> all = get<T>(name);
    return all.empty() ? otherwise : all[0];
  }
  const Object* object(int name) const {
    const auto at = objects.find(name);
    return at == objects.end() || at->second.empty() ? nullptr : at->second[0].get();
  }
};
Object& of(DnnDescriptor d) { return *static_cast<Object*>(d); }

struct Handle {
  CUstream stream = nullptr;
};
std::vector<std::shared_ptr<const Object>>& plans() {  // by the number in their text
  static auto* all = new std::vector<std::shared_ptr<const Object>>;
  return *all;
}

size_t value_bytes(int type) {
  switch (type) {
    case kDnnIsBool:
    case kDnnIsText: return 1;
    case kDnnIsHandle:
    case kDnnIsInt64:
    case kDnnIsDouble:
    case kDnnIsPointer: return 8;
    default: return 4;
  }
}

fake::Kind kind_of(int type) {
  return type == kDnnF64    ? fake::Kind::F64
         : type == kDnnBf16 ? fake::Kind::BF16
         : type == kDnnF16  ? fake::Kind::F16
                            : fake::Kind::F32;  // positions and bools inside too
}

// A tensor of a graph and its numbers, in the order of its dimensions.
struct Tensor {
  std::vector<int64_t> sizes, strides;
  fake::Kind kind = fake::Kind::F32;
  int64_t id = 0;
  bool inside = false, by_value = false;

  explicit Tensor(const Object& o)
      : sizes(o.get<int64_t>(kDnnTensorSizes)),
        strides(o.get<int64_t>(kDnnTensorStrides)),
        kind(kind_of(o.one<int>(kDnnTensorType))),
        id(o.one<int64_t>(kDnnTensorId)),
        inside(o.one<char>(kDnnTensorVirtual) != 0),
        by_value(o.one<char>(kDnnTensorByValue) != 0) {}
  int64_t count() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3]; }
  size_t bytes() const {  // from the first element to the end of the last
    int64_t last = 0;
    for (size_t d = 0; d < 4; ++d) last += (sizes[d] - 1) * strides[d];
    return static_cast<size_t>(last + 1) * fake::bytes_of(kind);
  }
  // Where the element of a greater tensor lies in this one, along whose dimensions of one element it is repeated.
  size_t place(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return static_cast<size_t>(((a % sizes[0] * sizes[1] + b % sizes[1]) * sizes[2] + c % sizes[2]) * sizes[3] + d % sizes[3]);
  }
  template <class F>
  void each_index(F&& f) const {
    for (int64_t a = 0; a < sizes[0]; ++a)
      for (int64_t b = 0; b < sizes[1]; ++b)
        for (int64_t c = 0; c < sizes[2]; ++c)
          for (int64_t d = 0; d < sizes[3]; ++d) f(a, b, c, d);
  }
  template <class F>
  void each(F&& f) const {  // f(position in order, offset in memory)
    int64_t i = 0;
    for (int64_t a = 0; a < sizes[0]; ++a)
      for (int64_t b = 0; b < sizes[1]; ++b)
        for (int64_t c = 0; c < sizes[2]; ++c)
          for (int64_t d = 0; d < sizes[3]; ++d) f(i++, a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
  }
};
using Numbers = std::map<int64_t, std::vector<double>>;  // by the tensor's id

std::vector<double> convolve(const Object& op, const Numbers& n) {
  const Tensor x(*op.object(kDnnOpConvolutionX)), w(*op.object(kDnnOpConvolutionW)), y(*op.object(kDnnOpConvolutionY));
  const Object& d = *op.object(kDnnOpConvolutionDescriptor);
  const auto stride = d.get<int64_t>(kDnnConvolutionStrides), low = d.get<int64_t>(kDnnConvolutionPadLow),
             dilation = d.get<int64_t>(kDnnConvolutionDilations);
  const std::vector<double>&vx = n.at(x.id), &vw = n.at(w.id);
  std::vector<double> out;
  const int64_t groups = x.sizes[1] / w.sizes[1], features = y.sizes[1] / groups;
  for (int64_t i = 0; i < y.sizes[0]; ++i)
    for (int64_t o = 0; o < y.sizes[1]; ++o)
      for (int64_t h = 0; h < y.sizes[2]; ++h)
        for (int64_t v = 0; v < y.sizes[3]; ++v) {
          double sum = 0;
          for (int64_t c = 0; c < w.sizes[1]; ++c)
            for (int64_t p = 0; p < w.sizes[2]; ++p)
              for (int64_t q = 0; q < w.sizes[3]; ++q) {
                const int64_t a = h * stride[0] + p * dilation[0] - low[0], b = v * stride[1] + q * dilation[1] - low[1];
                if (a < 0 || b < 0 || a >= x.sizes[2] || b >= x.sizes[3]) continue;
                const int64_t channel = o / features * w.sizes[1] + c;
                sum += vx[static_cast<size_t>(((i * x.sizes[1] + channel) * x.sizes[2] + a) * x.sizes[3] + b)] *
                       vw[static_cast<size_t>(((o * w.sizes[1] + c) * w.sizes[2] + p) * w.sizes[3] + q)];
              }
          out.push_back(sum);
        }
  return out;
}

std::vector<double> compute_pointwise(const Object& op, const Numbers& n) {
  const Tensor x(*op.object(kDnnOpPointwiseX)), y(*op.object(kDnnOpPointwiseY));
  const Object& how = *op.object(kDnnOpPointwiseDescriptor);
  const int mode = how.one<int>(kDnnPointwiseMode);
  const auto axis = how.one<int64_t>(kDnnPointwiseAxis);
  const auto operand = [&](int name, int64_t a, int64_t b, int64_t c, int64_t d) {
    const Tensor t(*op.object(name));
    return n.at(t.id)[t.place(a, b, c, d)];
  };
  std::vector<double> out;
  y.each_index([&](int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t index[] = {a, b, c, d};
    if (mode == kDnnPosition) return out.push_back(static_cast<double>(index[axis]));
    const double v = operand(kDnnOpPointwiseX, a, b, c, d);
    const auto other = [&] { return operand(kDnnOpPointwiseB, a, b, c, d); };
    switch (mode) {
      case kDnnAdd: return out.push_back(v + other());
      case kDnnMul: return out.push_back(v * other());
      case kDnnDiv: return out.push_back(v / other());
      case kDnnSub: return out.push_back(v - other());
      case kDnnExp: return out.push_back(std::exp(v));
      case kDnnLog: return out.push_back(std::log(v));
      case kDnnRelu: return out.push_back(v < 0 ? 0 : v);
      case kDnnGreaterOrEqual: return out.push_back(v >= other());
      case kDnnSelect: return out.push_back(operand(kDnnOpPointwiseT, a, b, c, d) != 0 ? v : other());
      default: return out.push_back(v);
    }
  });
  return out;
}

// Heads of the left factor share those of the right one in groups.
std::vector<double> multiply(const Object& op, const Numbers& n) {
  const Tensor x(*op.object(kDnnOpMatmulA)), w(*op.object(kDnnOpMatmulB)), y(*op.object(kDnnOpMatmulC));
  const std::vector<double>&vx = n.at(x.id), &vw = n.at(w.id);
  std::vector<double> out;
  y.each_index([&](int64_t a, int64_t b, int64_t c, int64_t d) {
    double sum = 0;
    for (int64_t k = 0; k < x.sizes[3]; ++k)
      sum += vx[x.place(a, b, c, k)] * vw[w.place(a, b / (y.sizes[1] / w.sizes[1]), k, d)];
    out.push_back(sum);
  });
  return out;
}

// Over dimensions of which the result has less: all elements of a row, or those of a group of heads.
std::vector<double> compute_reduction(const Object& op, const Numbers& n) {
  const Tensor x(*op.object(kDnnOpReductionX)), y(*op.object(kDnnOpReductionY));
  const bool greatest = op.object(kDnnOpReductionDescriptor)->one<int>(kDnnReductionOperator) == kDnnMaximum;
  std::vector<double> out(static_cast<size_t>(y.count()), greatest ? -HUGE_VAL : 0);
  const std::vector<double>& vx = n.at(x.id);
  x.each_index([&](int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t s[] = {x.sizes[0] / y.sizes[0], x.sizes[1] / y.sizes[1], x.sizes[2] / y.sizes[2], x.sizes[3] / y.sizes[3]};
    double& to = out[y.place(a / s[0], b / s[1], c / s[2], d / s[3])];
    const double v = vx[x.place(a, b, c, d)];
    to = greatest ? std::max(to, v) : to + v;
  });
  return out;
}

// The elements of x in the order that y's strides say.
std::vector<double> turn(const Object& op, const Numbers& n) {
  const Tensor x(*op.object(kDnnOpReshapeX)), y(*op.object(kDnnOpReshapeY));
  std::map<int64_t, double> memory;
  const std::vector<double>& vx = n.at(x.id);
  x.each([&](int64_t i, int64_t at) { memory[at] = vx[static_cast<size_t>(i)]; });
  std::vector<double> out(static_cast<size_t>(y.count()));
  y.each([&](int64_t i, int64_t at) { out[static_cast<size_t>(i)] = memory.at(at); });
  return out;
}

struct Operation {
  int kind, result;
  std::vector<int> operands;
  std::vector<double> (*compute)(const Object&, const Numbers&);
};
const Operation& operation(const Object& op) {
  static const std::vector<Operation> all = {
      {kDnnOpConvolution, kDnnOpConvolutionY, {kDnnOpConvolutionX, kDnnOpConvolutionW}, convolve},
      {kDnnOpPointwise, kDnnOpPointwiseY, {kDnnOpPointwiseX, kDnnOpPointwiseB, kDnnOpPointwiseT}, compute_pointwise},
      {kDnnOpMatmul, kDnnOpMatmulC, {kDnnOpMatmulA, kDnnOpMatmulB}, multiply},
      {kDnnOpReduction, kDnnOpReductionY, {kDnnOpReductionX}, compute_reduction},
      {kDnnOpReshape, kDnnOpReshapeY, {kDnnOpReshapeX}, turn}};
  for (const Operation& o : all)
    if (o.kind == op.kind) return o;
  std::abort();
}

// Whether a graph adds into memory, as the library's gradient of attention does: its engine's sums have no fixed order.
bool adds_in_any_order(const Object& graph) {
  for (const auto& op : graph.objects.at(kDnnGraphOps))
    if (op->kind == kDnnOpPointwise && op->object(kDnnOpPointwiseDescriptor)->one<int>(kDnnPointwiseMode) == kDnnIdentity)
      return true;
  return false;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cudnnCreate(DnnHandle* handle) {
  *handle = new Handle;
  return 0;
}
EXPORT int cudnnSetStream(DnnHandle handle, CUstream stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}
EXPORT size_t cudnnGetVersion() { return 91900; }
EXPORT const char* cudnnGetErrorString(int) { return "CUDNN_STATUS_FAKE"; }
EXPORT void cudnnGetLastErrorString(char* text, size_t bytes) {
  if (bytes > 0) *text = 0;
}
EXPORT int cudnnBackendCreateDescriptor(int kind, DnnDescriptor* out) {
  auto* o = new Object;
  o->kind = kind;
  *out = o;
  return 0;
}
EXPORT int cudnnBackendDestroyDescriptor(DnnDescriptor d) {
  delete &of(d);
  return 0;
}
EXPORT int cudnnBackendFinalize(DnnDescriptor d) {
  Object& o = of(d);
  if (o.finished) return 3000;
  if (o.kind == kDnnTensor && o.get<int64_t>(kDnnTensorSizes).size() != 4) return 2000;
  // FAKE_CUDA_CUDNN=refuse: a library that has no algorithm.
  const char* refuse = std::getenv("FAKE_CUDA_CUDNN");
  if (o.kind == kDnnPlan && refuse && std::string(refuse) == "refuse") return 3000;
  o.finished = true;
  return 0;
}
EXPORT int cudnnBackendSetAttribute(DnnDescriptor d, int name, int type, int64_t count, const void* values) {
  Object& o = of(d);
  if (o.finished) return 3000;
  if (o.kind == kDnnPlan && name == kDnnPlanText) {
    const std::string text(static_cast<const char*>(values), static_cast<size_t>(count));
    const size_t number = std::strtoul(text.c_str(), nullptr, 10);
    if (number >= plans().size()) return 2000;
    o.objects[kDnnHeuristicGraph] = {plans()[number]};
    return 0;
  }
  if (type == kDnnIsDescriptor) {
    const auto* all = static_cast<const DnnDescriptor*>(values);
    auto& to = o.objects[name];
    to.clear();
    for (int64_t i = 0; i < count; ++i) {
      if (!of(all[i]).finished && of(all[i]).kind != kDnnEngineConfig) return 2000;
      to.push_back(std::make_shared<const Object>(of(all[i])));
    }
    return 0;
  }
  const auto* bytes = static_cast<const char*>(values);
  o.values[name].assign(bytes, bytes + static_cast<size_t>(count) * value_bytes(type));
  return 0;
}
EXPORT int cudnnBackendGetAttribute(DnnDescriptor d, int name, int, int64_t most, int64_t* count, void* values) {
  Object& o = of(d);
  const auto give = [&](const void* from, size_t n, size_t each) {
    *count = static_cast<int64_t>(n);
    if (most > 0) std::memcpy(values, from, std::min(static_cast<size_t>(most), n) * each);
    return 0;
  };
  switch (name) {
    case kDnnHeuristicResults:
      // FAKE_CUDA_CUDNN=engineless: plans that are brought in work all the same.
      *count = std::getenv("FAKE_CUDA_CUDNN") && std::string(std::getenv("FAKE_CUDA_CUDNN")) == "engineless" ? 0 : 1;
      if (*count == 0) return 0;
      if (most > 0) of(*static_cast<DnnDescriptor*>(values)).objects = o.objects;
      return 0;
    case kDnnConfigEngine:
      *count = 1;
      if (most > 0) of(*static_cast<DnnDescriptor*>(values)).objects = o.objects;
      return 0;
    case kDnnEngineIndex: {
      const int64_t index = 7;
      return give(&index, 1, sizeof index);
    }
    case kDnnEngineNotes: {
      const int note = kDnnAnyOrder;
      return give(&note, adds_in_any_order(*o.object(kDnnHeuristicGraph)) ? 1 : 0, sizeof note);
    }
    case kDnnPlanWorkspace: {
      // FAKE_CUDA_CUDNN=workspace:302: MiB that gradients ask for, which have more operations than anything else.
      const char* text = std::getenv("FAKE_CUDA_CUDNN");
      const Object* config = o.object(kDnnPlanConfig);
      const bool gradient = config && config->objects.at(kDnnHeuristicGraph)[0]->objects.at(kDnnGraphOps).size() > 14;
      const bool asked = gradient && text && std::strncmp(text, "workspace:", 10) == 0;
      const int64_t bytes = asked ? int64_t{std::atoi(text + 10)} << 20 : 256;
      return give(&bytes, 1, sizeof bytes);
    }
    case kDnnPlanText: {
      const Object* config = o.object(kDnnPlanConfig);
      if (most == 0 && config) plans().push_back(config->objects.at(kDnnHeuristicGraph)[0]);
      const std::string text = std::to_string(plans().size() - 1);
      return give(text.data(), text.size(), 1);
    }
    default: return 2000;
  }
}
EXPORT int cudnnBackendExecute(DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack) {
  const Object& p = of(plan);
  const Object* config = p.object(kDnnPlanConfig);
  const std::shared_ptr<const Object> graph =
      config ? config->objects.at(kDnnHeuristicGraph)[0] : p.objects.at(kDnnHeuristicGraph)[0];
  const auto ids = of(pack).get<int64_t>(kDnnPackIds);
  const auto pointers = of(pack).get<char*>(kDnnPackPointers);
  char* const workspace = of(pack).one<char*>(kDnnPackWorkspace);
  const auto pointer = [=](const Tensor& t) -> char* {
    const auto at = std::find(ids.begin(), ids.end(), t.id);
    return at == ids.end() ? nullptr : pointers[static_cast<size_t>(at - ids.begin())];
  };
  // What comes by value lies in the host's memory, for the time of this call.
  Numbers given;
  for (const auto& op : graph->objects.at(kDnnGraphOps))
    for (const int name : operation(*op).operands)
      if (op->object(name)) {
        const Tensor t(*op->object(name));
        if (!t.by_value) continue;
        if (!pointer(t)) return 2000;
        given[t.id] = {fake::read(pointer(t), t.kind)};
      }
  return fake::queue(static_cast<Handle*>(handle)->stream, [=](auto&& real) {
    if (!real(workspace, 256)) return false;
    Numbers numbers = given;
    for (const auto& op : graph->objects.at(kDnnGraphOps)) {
      const Operation& what = operation(*op);
      for (const int name : what.operands) {
        if (!op->object(name)) continue;
        const Tensor t(*op->object(name));
        if (numbers.count(t.id)) continue;
        const char* from = t.inside || !pointer(t) ? nullptr : real(pointer(t), t.bytes());
        if (!from) return false;
        std::vector<double>& to = numbers[t.id];
        to.resize(static_cast<size_t>(t.count()));
        t.each([&](int64_t i, int64_t at) {
          to[static_cast<size_t>(i)] = fake::read(from + static_cast<size_t>(at) * fake::bytes_of(t.kind), t.kind);
        });
      }
      const Tensor y(*op->object(what.result));
      std::vector<double>& made = numbers[y.id] = what.compute(*op, numbers);
      if (y.inside) {
        char item[8];
        if (fake::bytes_of(y.kind) == 2)  // rounds
          for (double& v : made) fake::write(item, y.kind, v), v = fake::read(item, y.kind);
        continue;
      }
      char* to = pointer(y) ? real(pointer(y), y.bytes()) : nullptr;
      if (!to) return false;
      y.each([&](int64_t i, int64_t at) {
        fake::write(to + static_cast<size_t>(at) * fake::bytes_of(y.kind), y.kind, made[static_cast<size_t>(i)]);
      });
    }
    return true;
  });
}
