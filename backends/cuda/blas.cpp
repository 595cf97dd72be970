// SPDX-License-Identifier: Apache-2.0
#include "blas.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "algorithms.hpp"
#include "libraries.hpp"
#include "timing.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr const char* kBlasSonames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr const char* kBlasPackages[] = {"cu13", "cublas"};
constexpr size_t kKeptPlans = 4096;
constexpr int kMeasured = 8;                       // algorithms
constexpr size_t kMostPlaces = 16;                 // of an operand
constexpr size_t kMostMeasured = size_t{2} << 30;  // bytes of operands and result

const char* type_name(int type) {
  switch (type) {
    case kRealF16: return "f16";
    case kRealBf16: return "bf16";
    case kRealF64: return "f64";
    default: return "f32";
  }
}

}  // namespace

std::string to_text(const ProductShape& s) {
  std::string out = std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k);
  if (s.batch != 1) out += ", batch " + std::to_string(s.batch);
  out += std::string(", ") + type_name(s.type);
  if (s.result_type != s.type) out += std::string(" to ") + type_name(s.result_type);
  out += std::string(s.bias ? ", bias" : "") + (s.residual ? ", residual" : "");
  return out + (s.activation == kReluProduct ? ", relu" : s.activation == kGeluTanhProduct ? ", gelu" : "");
}

std::shared_ptr<Blas> Blas::open(const std::string& wanted, std::string* why) {
  const Library library = open_library({kBlasSonames, kBlasPackages}, wanted);
  if (!library.handle) {
    std::string tried;
    for (const std::string& path : library.tried) tried += (tried.empty() ? "" : ", ") + path;
    *why = "cuBLASLt was not found (tried " + tried + ")";
    return nullptr;
  }
  auto blas = std::make_shared<Blas>();
  blas->path_ = library.path;
  std::string missing;
#define TESSERA_BLAS_LOAD(name, result, parameters)                                  \
  blas->name = reinterpret_cast<decltype(blas->name)>(dlsym(library.handle, #name)); \
  if (!blas->name) missing += (missing.empty() ? "" : ", ") + std::string(#name);
  TESSERA_BLAS_FUNCTIONS(TESSERA_BLAS_LOAD)
#undef TESSERA_BLAS_LOAD
  if (!missing.empty()) {
    *why = "cuBLASLt of " + library.path + " lacks " + missing;
    return nullptr;
  }
  return blas;
}

std::string Blas::locate(const std::string& wanted) { return locate_library({kBlasSonames, kBlasPackages}, wanted); }

void Blas::open_ahead(const std::string& wanted) noexcept {
  try {
    (void)open_library({kBlasSonames, kBlasPackages}, wanted);
  } catch (...) {  // open() will say so
  }
}

std::string Blas::version_text() const {
  const size_t v = cublasLtGetVersion();  // 130100: 13.1.0
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

void Blas::check(int status, const char* call, const ProductShape& shape) const {
  if (status == 0) return;
  const char* text = cublasLtGetStatusString(status);
  throw t::Error(TSR_ENVIRONMENT, "TSR-R031",
                 std::string("cuBLASLt: ") + call + ": " + (text ? text : "error") + " (" + std::to_string(status) +
                     "), for a product " + to_text(shape),
                 "[cuda] cublaslt = \"off\" computes products without it");
}

BlasHandle Blas::handle(Gpu& gpu) {
  const Gpu::Scope scope(gpu);
  std::lock_guard lock(mutex_);
  BlasHandle& h = handles_[&gpu];
  if (!h) check(cublasLtCreate(&h), "cublasLtCreate", {});
  return h;
}

template <class Make>
std::shared_ptr<const ProductPlan> Blas::kept(const Key& key, Make&& make) {
  {
    std::lock_guard lock(mutex_);
    const auto it = plans_.find(key);
    if (it != plans_.end()) return it->second;
  }
  std::shared_ptr<const ProductPlan> made = make();
  std::lock_guard lock(mutex_);
  if (plans_.size() >= kKeptPlans) plans_.clear();  // kernels that use one hold it
  return plans_.emplace(key, std::move(made)).first->second;
}

namespace {

std::string problem_of(const Gpu& gpu, const std::string& version, const ProductShape& s, size_t max_workspace) {
  return algorithm_problem(gpu, "cuBLASLt " + version, "product",
                           {s.batch, s.m, s.n, s.k, s.a_transposed, s.b_transposed, s.type, s.result_type, s.compute, s.bias,
                            s.residual, s.activation, static_cast<int64_t>(max_workspace)});
}

std::string to_record(const BlasChoice& c) { return to_hexadecimal({reinterpret_cast<const char*>(&c), sizeof c}); }

std::optional<BlasChoice> from_record(const std::string& record) {
  const std::optional<std::string> bytes = from_hexadecimal(record);
  BlasChoice c{};
  if (!bytes || bytes->size() != sizeof c) return std::nullopt;
  std::memcpy(&c, bytes->data(), sizeof c);
  return c;
}

}  // namespace

std::shared_ptr<const ProductPlan> Blas::plan(Gpu& gpu, const ProductShape& shape, size_t max_workspace,
                                              const BlasChoice* choice) {
  return kept({&gpu, shape, max_workspace, choice != nullptr},
              [&] { return std::make_shared<const ProductPlan>(*this, gpu, shape, max_workspace, choice, false); });
}

std::shared_ptr<const ProductPlan> Blas::plan(Gpu& gpu, const ProductShape& shape, size_t max_workspace,
                                              const Algorithms& algorithms) {
  if (!algorithms.asked()) return plan(gpu, shape, max_workspace);
  const std::string problem = problem_of(gpu, version_text(), shape, max_workspace);
  const auto as_recorded = [&](const std::string& record) -> std::shared_ptr<const ProductPlan> {
    const std::optional<BlasChoice> choice = from_record(record);
    return choice ? plan(gpu, shape, max_workspace, &*choice) : nullptr;
  };
  if (const std::optional<std::string> record = algorithms.records->find(problem))
    if (auto known = as_recorded(*record)) {
      if (t::log_enabled("autotuning"))
        t::log("autotuning", "cuda: product " + to_text(shape) + ": the algorithm that was measured before");
      return known;
    }
  if (!algorithms.may_measure()) return plan(gpu, shape, max_workspace);
  auto made = std::make_shared<const ProductPlan>(*this, gpu, shape, max_workspace, nullptr, true);
  if (!made->measured()) return plan(gpu, shape, max_workspace);
  const std::string mine = to_record(made->choice()), holds = algorithms.records->keep(problem, mine);
  if (holds != mine)
    if (auto known = as_recorded(holds)) return known;  // another process was faster
  return kept({&gpu, shape, max_workspace, true}, [&] { return std::move(made); });
}

ProductPlan::ProductPlan(Blas& blas, Gpu& gpu, const ProductShape& s, size_t max_workspace, const BlasChoice* choice,
                         bool measure)
    : blas_(blas), gpu_(gpu), shape_(s), handle_(blas.handle(gpu)) {
  const Gpu::Scope scope(gpu);
  const auto check = [&](int status, const char* call) { blas_.check(status, call, s); };
  const auto layout = [&](BlasDescriptor* out, int type, int64_t rows, int64_t columns) {
    check(blas_.cublasLtMatrixLayoutCreate(out, type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                                           std::max<int64_t>(1, columns)),
          "cublasLtMatrixLayoutCreate");
    if (s.batch == 1) return;
    const auto count = static_cast<int32_t>(s.batch);
    const int64_t stride = rows * columns;
    check(blas_.cublasLtMatrixLayoutSetAttribute(*out, kBlasBatchCount, &count, sizeof count),
          "cublasLtMatrixLayoutSetAttribute");
    check(blas_.cublasLtMatrixLayoutSetAttribute(*out, kBlasBatchStride, &stride, sizeof stride),
          "cublasLtMatrixLayoutSetAttribute");
  };
  // The library's matrices are column-major: a row-major one is its transpose there, and d' = b' a'.
  const int scale = s.compute == kComputeF64 ? kRealF64 : kRealF32;
  check(blas_.cublasLtMatmulDescCreate(&operation_, s.compute, scale), "cublasLtMatmulDescCreate");
  const int32_t left = s.b_transposed ? kBlasOpT : kBlasOpN, right = s.a_transposed ? kBlasOpT : kBlasOpN;
  check(blas_.cublasLtMatmulDescSetAttribute(operation_, kBlasTransA, &left, sizeof left), "cublasLtMatmulDescSetAttribute");
  check(blas_.cublasLtMatmulDescSetAttribute(operation_, kBlasTransB, &right, sizeof right), "cublasLtMatmulDescSetAttribute");
  if (s.bias || s.activation != kNoActivation) {
    const uint32_t activation = s.activation == kReluProduct ? kBlasRelu : s.activation == kGeluTanhProduct ? kBlasGelu : 0;
    const uint32_t epilogue = activation | (s.bias ? kBlasAddBias : 0);
    check(blas_.cublasLtMatmulDescSetAttribute(operation_, kBlasEpilogue, &epilogue, sizeof epilogue),
          "cublasLtMatmulDescSetAttribute");
  }
  layout(&left_, s.type, s.b_transposed ? s.n : s.k, s.b_transposed ? s.k : s.n);
  layout(&right_, s.type, s.a_transposed ? s.k : s.m, s.a_transposed ? s.m : s.k);
  layout(&result_, s.result_type, s.m, s.n);
  if (choice) {
    choice_ = *choice;
  } else if (const std::vector<BlasChoice> all = ranked(max_workspace, measure ? kMeasured : 1); all.size() > 1) {
    choice_ = fastest(all);
  } else {
    choice_ = all[0];
  }
}

// At least one, the one that the library expects to be the fastest first.
std::vector<BlasChoice> ProductPlan::ranked(size_t max_workspace, int wanted) {
  const auto check = [&](int status, const char* call) { blas_.check(status, call, shape_); };
  struct Preference {
    Blas& blas;
    BlasDescriptor p = nullptr;
    ~Preference() {
      if (p) blas.cublasLtMatmulPreferenceDestroy(p);
    }
  } preference{blas_};
  check(blas_.cublasLtMatmulPreferenceCreate(&preference.p), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](int attribute, const void* value, size_t bytes) {
    check(blas_.cublasLtMatmulPreferenceSetAttribute(preference.p, attribute, value, bytes),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  const size_t most = max_workspace - std::min(max_workspace, kWorkspaceRoom);
  prefer(kBlasMaxWorkspace, &most, sizeof most);
  // Partial sums are added in the accumulator's type, in a fixed order.
  const uint32_t reductions = kBlasReduceInComputeType;
  prefer(kBlasReductions, &reductions, sizeof reductions);
  const uint32_t alignment = 64;  // what the host gives
  for (int operand = 0; operand < 4; ++operand) prefer(kBlasAlignA + operand, &alignment, sizeof alignment);
  std::vector<BlasChoice> all(static_cast<size_t>(wanted));
  int found = 0;
  check(blas_.cublasLtMatmulAlgoGetHeuristic(handle_, operation_, left_, right_, result_, result_, preference.p, wanted,
                                             all.data(), &found),
        "cublasLtMatmulAlgoGetHeuristic");
  if (found <= 0) check(15, "cublasLtMatmulAlgoGetHeuristic");  // CUBLAS_STATUS_NOT_SUPPORTED
  check(all[0].state, "cublasLtMatmulAlgoGetHeuristic");
  all.resize(static_cast<size_t>(found));
  std::erase_if(all, [](const BlasChoice& c) { return c.state != 0; });
  return all;
}

// Operands are taken from one place after another, so that large ones are not in the cache: weights of a model are not, when
// their turn comes. What is faster by less than the noise is not taken.
BlasChoice ProductPlan::fastest(const std::vector<BlasChoice>& all) {
  const auto bytes_of = [](int type) { return type == kRealF64 ? size_t{8} : type == kRealF32 ? size_t{4} : size_t{2}; };
  const auto elements = [](int64_t x, int64_t y, int64_t z) { return static_cast<size_t>(x * y * z); };
  size_t workspace = 0;
  for (const BlasChoice& c : all) workspace = std::max(workspace, c.workspace_bytes + kWorkspaceRoom);
  const auto apart = [](size_t bytes) { return (std::max<size_t>(bytes, 16) + 255) / 256 * 256; };
  const size_t a = apart(elements(shape_.batch, shape_.m, shape_.k) * bytes_of(shape_.type)),
               b = apart(elements(shape_.batch, shape_.k, shape_.n) * bytes_of(shape_.type)),
               d = elements(shape_.batch, shape_.m, shape_.n) * bytes_of(shape_.result_type);
  if (a + b + d > kMostMeasured) return all[0];
  const size_t cache = static_cast<size_t>(std::max(1, gpu_.attribute(kL2CacheSize)));
  const size_t places = std::clamp<size_t>(2 * cache / (a + b), 1, kMostPlaces);
  // The second operand stands for the bias as well, which is shorter unless the product is one of few rows.
  const size_t sizes[] = {a * places, std::max(b * places, static_cast<size_t>(shape_.n) * 8), d, workspace};
  std::optional<Timing> timing;
  try {
    timing.emplace(gpu_, sizes);
  } catch (const t::Error& e) {  // no memory to measure in is no reason not to compile
    t::log("autotuning", "cuda: product " + to_text(shape_) + " is predicted: " + e.what());
    return all[0];
  }
  void* const* m = timing->memory();
  BlasChoice best = all[0];
  double least = 0;
  std::string times;
  for (size_t i = 0; i < all.size(); ++i) {
    choice_ = all[i];
    double seconds = 0;
    try {
      seconds = timing->seconds([&](int number, CUstream stream) {
        const size_t place = static_cast<size_t>(number) % places;
        launch({static_cast<char*>(m[0]) + place * a, static_cast<char*>(m[1]) + place * b, m[1], m[2], m[2]}, m[3], stream);
      });
    } catch (const t::Error&) {
      if (i == 0) throw;
      continue;  // the heuristic offers what does not run
    }
    char text[32];
    std::snprintf(text, sizeof text, "%s%.1f", i ? ", " : "", seconds * 1e6);
    times += text;
    if (i == 0 || seconds < 0.98 * least) best = all[i], least = seconds;
  }
  measured_ = true;
  if (t::log_enabled("autotuning"))
    t::log("autotuning", "cuda: product " + to_text(shape_) + ": us of each algorithm, as cuBLASLt ranks them: " + times);
  return best;
}

ProductPlan::~ProductPlan() {
  for (const BlasDescriptor d : {left_, right_, result_})
    if (d) blas_.cublasLtMatrixLayoutDestroy(d);
  if (operation_) blas_.cublasLtMatmulDescDestroy(operation_);
}

void ProductPlan::launch(const ProductOperands& o, void* workspace, CUstream stream) const {
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const uintptr_t first = reinterpret_cast<uintptr_t>(workspace) + kBlasWorkspaceAlignment - 1;
  void* const aligned = reinterpret_cast<void*>(first / kBlasWorkspaceAlignment * kBlasWorkspaceAlignment);
  const bool wide = shape_.compute == kComputeF64;
  const auto number = [&](bool is_one) -> const void* {
    return wide ? static_cast<const void*>(is_one ? &one64 : &zero64) : is_one ? &one : &zero;
  };
  std::unique_lock lock(bias_mutex_, std::defer_lock);
  if (shape_.bias) {
    lock.lock();
    blas_.check(blas_.cublasLtMatmulDescSetAttribute(operation_, kBlasBias, &o.bias, sizeof o.bias),
                "cublasLtMatmulDescSetAttribute", shape_);
  }
  blas_.check(blas_.cublasLtMatmul(handle_, operation_, number(true), o.b, left_, o.a, right_, number(shape_.residual),
                                   shape_.residual ? o.residual : o.d, result_, o.d, result_, &choice_, aligned,
                                   choice_.workspace_bytes, stream),
              "cublasLtMatmul", shape_);
}

}  // namespace tessera::cuda
