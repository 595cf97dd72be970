// SPDX-License-Identifier: Apache-2.0
#include "conv_plan.hpp"

namespace tessera::cuda {

namespace {

// Ids of a problem's tensors.
constexpr int64_t kConvX = 1, kConvW = 2, kConvY = 3, kConvBias = 4, kConvResidual = 5, kConvVirtual = 10;

struct Sizes {
  int64_t x[4], w[4], y[4];
  explicit Sizes(const ConvProblem& p)
      : x{p.images, p.channels, p.height, p.width},
        w{p.features, p.channels / p.groups, p.taps[0], p.taps[1]},
        y{p.images, p.features, p.out(0), p.out(1)} {}
  static size_t bytes(const int64_t* s, int type) {
    return static_cast<size_t>(s[0] * s[1] * s[2] * s[3] * dnn_item_bytes(type));
  }
};

}  // namespace

std::string to_text(const ConvProblem& p) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  std::string out = number(p.images) + " x " + number(p.channels) + " x " + number(p.height) + " x " + number(p.width) +
                    " by " + number(p.features) + " of " + number(p.taps[0]) + " x " + number(p.taps[1]);
  if (p.stride[0] != 1 || p.stride[1] != 1) out += ", stride " + number(p.stride[0]);
  if (p.groups != 1) out += ", " + number(p.groups) + " groups";
  out += std::string(", ") + dnn_type_name(p.type) + (p.channels_last ? ", channels last" : "");
  return out + (p.bias ? ", bias" : "") + (p.residual ? ", residual" : "") + (p.relu ? ", relu" : "");
}

// `sizes`: images or features, channels, height, width, wherever the channels lie.
DnnGraph::Shape ConvPlan::shape(const int64_t* s) const {
  if (!p_.channels_last) return DnnGraph::dense(s[0], s[1], s[2], s[3]);
  return {{s[0], s[1], s[2], s[3]}, {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]}};
}

// Between its operations values stay in the accumulator's type.
void ConvPlan::describe(DnnGraph& g) const {
  const Sizes s(p_);
  const int sum = p_.type == kDnnF64 ? kDnnF64 : kDnnF32;
  const int64_t dims = 2;
  const DnnGraph::Node how = g.make(kDnnConvolution);
  g.set(how, kDnnConvolutionType, kDnnIsType, 1, &sum);
  g.set(how, kDnnConvolutionMode, kDnnIsConvolutionMode, 1, &kDnnCrossCorrelation);
  g.set(how, kDnnConvolutionDims, kDnnIsInt64, 1, &dims);
  g.set(how, kDnnConvolutionDilations, kDnnIsInt64, dims, p_.dilation);
  g.set(how, kDnnConvolutionStrides, kDnnIsInt64, dims, p_.stride);
  g.set(how, kDnnConvolutionPadLow, kDnnIsInt64, dims, p_.pad_low);
  g.set(how, kDnnConvolutionPadHigh, kDnnIsInt64, dims, p_.pad_high);
  g.finish(how);

  int steps = int{p_.bias} + int{p_.residual} + int{p_.relu};
  const auto result = [&] {  // of the next operation
    const bool last = steps-- == 0;
    return last ? g.tensor(kConvY, p_.type, shape(s.y)) : g.inside(sum, shape(s.y));
  };
  DnnGraph::Node at = result();
  const DnnGraph::Node op = g.make(kDnnOpConvolution);
  if (sum == kDnnF64) {
    const double one = 1, zero = 0;
    g.set(op, kDnnOpConvolutionAlpha, kDnnIsDouble, 1, &one);
    g.set(op, kDnnOpConvolutionBeta, kDnnIsDouble, 1, &zero);
  } else {
    const float one = 1, zero = 0;
    g.set(op, kDnnOpConvolutionAlpha, kDnnIsFloat, 1, &one);
    g.set(op, kDnnOpConvolutionBeta, kDnnIsFloat, 1, &zero);
  }
  g.set(op, kDnnOpConvolutionDescriptor, how);
  g.set(op, kDnnOpConvolutionX, g.tensor(kConvX, p_.type, shape(s.x)));
  g.set(op, kDnnOpConvolutionW, g.tensor(kConvW, p_.type, shape(s.w)));
  g.set(op, kDnnOpConvolutionY, at);
  g.finish(op);
  g.add(op);
  const auto then = [&](int mode, DnnGraph::Node b) { at = g.pointwise(mode, sum, at, b, nullptr, result()); };
  if (p_.bias) {
    const int64_t sizes[] = {1, p_.features, 1, 1};
    then(kDnnAdd, g.tensor(kConvBias, p_.type, shape(sizes)));
  }
  if (p_.residual) then(kDnnAdd, g.tensor(kConvResidual, p_.type, shape(s.y)));
  if (p_.relu) then(kDnnRelu, nullptr);
}

ConvPlan::ConvPlan(Dnn& dnn, Gpu& gpu, const ConvProblem& problem, const std::string& choice, bool measure)
    : DnnPlan(dnn, gpu, subject(problem)), p_(problem) {
  Wanted wanted;
  wanted.exact_f32 = p_.type == kDnnF32 && !p_.tf32;
  std::function<double()> timer;
  if (measure) timer = [this] { return seconds_of_run(); };
  choose(
      choice, [this](DnnGraph& g) { describe(g); }, wanted, timer);
}

std::string ConvPlan::record_of(const Gpu& gpu, const std::string& version, const ConvProblem& p) {
  return algorithm_problem(
      gpu, "cuDNN " + version, "convolution",
      {p.images,    p.channels,      p.height,     p.width,       p.features,    p.taps[0],     p.taps[1],     p.stride[0],
       p.stride[1], p.pad_low[0],    p.pad_low[1], p.pad_high[0], p.pad_high[1], p.dilation[0], p.dilation[1], p.groups,
       p.type,      p.channels_last, p.bias,       p.residual,    p.relu,        p.tf32});
}

double ConvPlan::seconds_of_run() const {
  const Sizes s(p_);
  const size_t bytes[] = {
      Sizes::bytes(s.x, p_.type), Sizes::bytes(s.w, p_.type), static_cast<size_t>(p_.features * dnn_item_bytes(p_.type)),
      Sizes::bytes(s.y, p_.type), Sizes::bytes(s.y, p_.type), workspace_bytes()};
  return seconds(bytes, [this](void* const* m, CUstream stream) { launch(m[0], m[1], m[2], m[3], m[4], m[5], stream); });
}

void ConvPlan::launch(const void* x, const void* w, const void* bias, const void* residual, void* y, void* workspace,
                      CUstream stream) const {
  int64_t ids[5] = {kConvX, kConvW, kConvY};
  const void* pointers[5] = {x, w, y};
  int64_t count = 3;
  if (p_.bias) ids[count] = kConvBias, pointers[count++] = bias;
  if (p_.residual) ids[count] = kConvResidual, pointers[count++] = residual;
  const auto n = static_cast<size_t>(count);
  execute({ids, n}, {pointers, n}, workspace, stream);
}

}  // namespace tessera::cuda
