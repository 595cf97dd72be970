// SPDX-License-Identifier: Apache-2.0
// L2: what every backend owes its host, whatever it computes.
#include <malloc.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "op_run.hpp"
#include "programs.hpp"
#include "subject.hpp"
#include "suites.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Of sanitizer/allocator_interface.h, which not every compiler's package has: bytes given out and not taken back.
extern "C" size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace tessera::conformance {
namespace {

// Small programs of which most backends take at least one.
const std::vector<Program>& programs() {
  static const std::vector<Program> all = {
      {"add", "graph @add(%x: f32[64, 33], %y: f32[64, 33]) { %r = add %x, %y return %r }", {{64, 33}, {64, 33}}},
      {"mul", "graph @mul(%x: f32[64, 33], %y: f32[64, 33]) { %r = mul %x, %y return %r }", {{64, 33}, {64, 33}}},
      {"relu", "graph @relu(%x: f32[64, 33]) { %r = relu %x return %r }", {{64, 33}}},
      {"exp", "graph @exp(%x: f32[64, 33]) { %r = exp %x return %r }", {{64, 33}}},
      {"matmul", "graph @matmul(%x: f32[17, 33], %y: f32[33, 20]) { %r = matmul %x, %y return %r }", {{17, 33}, {33, 20}}},
      {"sum", "graph @sum(%x: f32[64, 33]) { %r = reduce_sum %x {axes = [1]} return %r }", {{64, 33}}},
      {"softmax", "graph @softmax(%x: f32[64, 33]) { %r = softmax %x return %r }", {{64, 33}}},
  };
  return all;
}

class BackendContract {
 public:
  BackendContract(Subject& s, std::string backend) : s_(s), backend_(std::move(backend)) {}

  e::Executable compile(const std::string& text) const {
    const e::Context& c = s_.context(s_.order_of(backend_));
    return c.compile(c.parse(text, "conformance"));
  }
  // The programs that the backend takes part in. Throws Skipped where there are none.
  std::vector<std::pair<const Program*, e::Executable>> taken() const {
    std::vector<std::pair<const Program*, e::Executable>> out;
    for (const Program& p : programs()) {
      e::Executable x = compile(p.text);
      if (runs_on(x, backend_)) out.emplace_back(&p, std::move(x));
    }
    if (out.empty())
      throw Skipped("it takes none of the ops that this check knows: add, mul, relu, exp, matmul, reduce_sum, softmax, in f32");
    return out;
  }
  const tsr_backend& table(void** self) const { return s_.backend_table(backend_, self); }
  bool computes() const {
    void* self = nullptr;
    return !(table(&self).capabilities & TSR_CAP_NO_COMPUTE);
  }
  void wait() const {
    void* self = nullptr;
    if (const std::string device = table(&self).device; device != "cpu") e::synchronize(e::device(device));
  }
  Subject& s_;
  std::string backend_;
};

void table_is_sound(BackendContract& b) {
  void* self = nullptr;
  const tsr_backend& t = b.table(&self);
  if (!t.device || !*t.device) throw Failed("its table names no device");
  const uint64_t known =
      TSR_CAP_STRIDED_INPUTS | TSR_CAP_FUSION | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED | TSR_CAP_NO_COMPUTE;
  if (t.capabilities & ~known)
    throw Failed("its capabilities hold bits that this version does not define: " + std::to_string(t.capabilities & ~known));
  if (!t.claim || !t.compile) throw Failed("its table lacks claim or compile");
}

void empty_graphs(BackendContract& b) {
  const auto run = [&](const std::string& text, const std::vector<e::Tensor>& in) {
    const e::Executable x = b.compile(text);
    return run_to_host(x, in);
  };
  if (!run("graph @empty() { return }", {}).empty()) throw Failed("a graph without nodes and outputs gives outputs");
  const Program identity{"identity", "", {{64, 33}}};
  const std::vector<e::Tensor> in = inputs_of(identity, 1);
  if (!same_bits(run("graph @identity(%x: f32[64, 33]) { return %x }", in), in))
    throw Failed("a graph that returns its input gives other bits");
}

// The answer depends on the node alone, and asking changes nothing. Asked of the table itself, for the host remembers.
void claims(BackendContract& b) {
  void* self = nullptr;
  const tsr_backend& t = b.table(&self);
  const e::Context& c = b.s_.context(b.s_.order_of(b.backend_));
  for (const Program& p : programs()) {
    e::Graph g = c.parse(p.text, p.name);
    const std::string before = g.print();
    const tsr_region& body = *TSR_AT(tsr_region, g.tables().regions, g.tables().region_stride, 0);
    const char* why = nullptr;
    const tsr_claim first = t.claim(self, g.handle(), body.first, &why);
    if (first != TSR_CLAIM_NO && first != TSR_CLAIM_YES && first != TSR_CLAIM_DECOMPOSE)
      throw Failed(p.name + ": claim returned " + std::to_string(first) + ", which is no tsr_claim");
    if (first != TSR_CLAIM_YES && (!why || !*why)) throw Failed(p.name + ": it refuses without a reason");
    for (int i = 0; i < 3; ++i) {
      const char* again = nullptr;
      if (t.claim(self, g.handle(), body.first, &again) != first)
        throw Failed(p.name + ": claim gave two answers for the same node");
    }
    if (g.print() != before) throw Failed(p.name + ": claim changed the graph");
  }
}

void deterministic(BackendContract& b) {
  void* self = nullptr;
  if (!(b.table(&self).capabilities & TSR_CAP_DETERMINISTIC)) throw Skipped("it does not declare TSR_CAP_DETERMINISTIC");
  if (!b.computes()) throw Skipped("it computes nothing (TSR_CAP_NO_COMPUTE)");
  for (const auto& [p, x] : b.taken()) {
    const std::vector<e::Tensor> in = inputs_of(*p, 1), first = run_to_host(x, in);
    for (int i = 0; i < 20; ++i)
      if (!same_bits(first, run_to_host(x, in)))
        throw Failed(p->name + ": run " + std::to_string(i + 2) +
                     " gives other bits than the first, and it declares TSR_CAP_DETERMINISTIC");
    // One of the two is another number than the machine's own.
    for (const char* const threads : {"1", "4"}) {
      const e::Context& c = b.s_.context(b.s_.order_of(b.backend_), "", std::string("[runtime]\nthreads = ") + threads + "\n");
      if (!same_bits(first, run_to_host(c.compile(c.parse(p->text, p->name)), in)))
        throw Failed(p->name + ": one thread gives other bits than many, and it declares TSR_CAP_DETERMINISTIC");
    }
  }
}

// Launches overlap: several threads run one executable, each on its own operands, while others compile.
void threads(BackendContract& b) {
  const auto taken = b.taken();
  const bool computes = b.computes();
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::string what;
  const auto fail = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    if (what.empty()) what = text;
    failed = true;
  };
  std::vector<std::vector<std::vector<e::Tensor>>> in(4), want(4);  // by thread and program
  for (int t = 0; t < 4; ++t)
    for (const auto& [p, x] : taken) {
      in[static_cast<size_t>(t)].push_back(inputs_of(*p, t + 1));
      want[static_cast<size_t>(t)].push_back(run_to_host(x, in[static_cast<size_t>(t)].back()));
    }
  std::vector<std::thread> all;
  for (size_t t = 0; t < 4; ++t)
    all.emplace_back([&, t] {
      try {
        for (int i = 0; i < 25 && !failed; ++i)
          for (size_t k = 0; k < taken.size(); ++k) {
            const auto got = run_to_host(taken[k].second, in[t][k]);
            if (computes && !same_bits(got, want[t][k]))
              fail(taken[k].first->name +
                   ": with four threads at once a run gives other bits than alone\n"
                   "  hint: whatever changes during a launch lies in the workspace, never in the kernel");
          }
        for (int i = 0; i < 3 && !failed; ++i)
          for (const auto& [p, x] : taken) (void)b.compile(p->text);
      } catch (const std::exception& x) {
        fail(x.what());
      }
    });
  for (std::thread& t : all) t.join();
  if (failed) throw Failed(what);
}

// Kernels from the bytes of others, by the table alone: the host would recompile what cannot be read.
class DirectKernel {
 public:
  DirectKernel() { kernel_.struct_size = sizeof kernel_; }
  ~DirectKernel() {
    if (kernel_.destroy && kernel_.self) kernel_.destroy(kernel_.self);
  }
  DirectKernel(const DirectKernel&) = delete;
  tsr_kernel* out() { return &kernel_; }
  [[nodiscard]] const tsr_kernel& get() const { return kernel_; }
  // One result in f32, of the sizes given.
  [[nodiscard]] e::Tensor launch(const std::vector<e::Tensor>& in, const std::vector<int64_t>& sizes) const {
    const e::Tensor result = e::Tensor::create(TSR_F32, sizes);
    std::vector<tsr_tensor> inputs;
    for (const e::Tensor& t : in) inputs.push_back(t.desc());
    const int64_t dims[1] = {0};
    const int64_t bytes = kernel_.workspace ? kernel_.workspace(kernel_.self, dims) : 0;
    const e::Tensor workspace = e::Tensor::create(TSR_U8, std::vector<int64_t>{bytes});
    tsr_launch l{};
    l.struct_size = sizeof l;
    l.inputs = inputs.data();
    l.num_inputs = static_cast<uint32_t>(inputs.size());
    l.outputs = &result.desc();
    l.num_outputs = 1;
    l.workspace = workspace.data();
    l.dims = dims;
    if (const std::string what = text_of_error(kernel_.launch(kernel_.self, &l)); !what.empty())
      throw Failed("launch: " + what);
    return result;
  }

 private:
  tsr_kernel kernel_{};
};

void serialisation(BackendContract& b) {
  void* self = nullptr;
  const tsr_backend& t = b.table(&self);
  if (std::string_view(t.device) != "cpu") throw Skipped("its kernels are not the host's");
  if (!b.computes()) throw Skipped("it computes nothing (TSR_CAP_NO_COMPUTE)");
  const e::Context& context = b.s_.context(b.s_.order_of(b.backend_));
  size_t tried = 0;
  for (const Program& p : programs()) {
    e::Graph g = context.parse(p.text, p.name);
    const tsr_tables& tables = g.tables();
    const tsr_id node = TSR_AT(tsr_region, tables.regions, tables.region_stride, 0)->first;
    const char* why = nullptr;
    if (t.claim(self, g.handle(), node, &why) != TSR_CLAIM_YES) continue;
    tsr_compile request{};
    request.struct_size = sizeof request;
    request.graph = g.handle();
    request.node = node;
    request.dim_slot = [](void*, tsr_dim) -> int32_t { return -1; };
    request.dim_hint = [](void*, tsr_dim d) -> int64_t { return d; };
    DirectKernel first, second;
    if (const std::string what = text_of_error(t.compile(self, &request, first.out())); !what.empty())
      throw Failed(p.name + ": it does not compile: " + what);
    if (!first.get().serialize) continue;
    if (!t.deserialize) throw Failed(p.name + ": its kernel is serialised, and its backend has no deserialize");
    std::string bytes;
    const auto alloc = [](void* to, size_t n) -> void* {
      static_cast<std::string*>(to)->resize(n);
      return static_cast<std::string*>(to)->data();
    };
    if (const std::string what = text_of_error(first.get().serialize(first.get().self, alloc, &bytes)); !what.empty())
      throw Failed(p.name + ": serialize: " + what);
    if (const std::string what = text_of_error(t.deserialize(self, bytes.data(), bytes.size(), second.out())); !what.empty())
      throw Failed(p.name + ": deserialize of what serialize wrote: " + what);
    const std::vector<e::Tensor> in = inputs_of(p, 1);
    const tsr_value& result = *TSR_AT(tsr_value, tables.values, tables.value_stride,
                                      TSR_AT(tsr_node, tables.nodes, tables.node_stride, node)->results[0]);
    const std::vector<int64_t> sizes(result.type->sizes, result.type->sizes + result.type->rank);
    if (!same_bits({first.launch(in, sizes)}, {second.launch(in, sizes)}))
      throw Failed(p.name + ": the kernel that was read back gives other bits");
    ++tried;
  }
  if (tried == 0) throw Skipped("its kernels are not serialised");
}

// Fused bits are unfused bits. One check per program, so that a crash costs one.
void fused(BackendContract& b, uint64_t seed) {
  void* self = nullptr;
  if (!(b.table(&self).capabilities & TSR_CAP_FUSION)) throw Skipped("it does not declare TSR_CAP_FUSION");
  if (!b.computes()) throw Skipped("it computes nothing (TSR_CAP_NO_COMPUTE)");
  const e::Context& c = b.s_.context(b.s_.order_of(b.backend_), "\"fuse\"");
  const auto both = [&](const Program& p) {
    e::Graph g = c.parse(p.text, p.name);
    c.run_passes(g);
    const e::Executable together = c.compile(std::move(g)), apart = b.compile(p.text);
    const std::vector<e::Tensor> in = inputs_of(p, 1);
    const auto got = run_to_host(together, in), want = run_to_host(apart, in);
    if (!same_bits(got, want)) {
      const std::string where = far_apart(got, want, 0);
      throw Failed("fused and unfused bits differ: " + (where.empty() ? "in the sign of a zero" : where) + "\n" + p.text);
    }
    return fused_groups(together, b.backend_);
  };
  if (seed == 0) {  // a chain that every kernel which fuses takes
    const Program chain{
        "chain",
        "graph @chain(%x: f32[64, 33], %y: f32[64, 33]) { %a = add %x, %y %b = mul %a, %x %c = sub %b, %y return %c }",
        {{64, 33}, {64, 33}}};
    if (both(chain) == 0)
      throw Failed(
          "it declares TSR_CAP_FUSION, and does not take add, mul and sub of equal shapes in f32 as one group\n"
          "  hint: claim is asked for the group as a node of the op 'fused'");
    return;
  }
  both(random_program(seed));
}

// Under a sanitizer the C library's allocator holds nothing, and the sanitizer's own says what it has given out.
size_t heap_bytes() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return __sanitizer_get_current_allocated_bytes();
#else
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

size_t open_files() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& f : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

// Bytes by which the heap has grown per call of f, in the least of up to twelve rounds after some for warming up: caches fill,
// and then stop, while a leak shows in every round. The first round that is below `enough` ends it.
template <class F>
double growth(int calls, double enough, F&& f) {
  for (int i = 0; i < calls; ++i) f();
  double least = 1e300;
  for (int round = 0; round < 12 && least >= enough; ++round) {
    const auto before = static_cast<double>(heap_bytes());
    for (int i = 0; i < calls; ++i) f();
    least = std::min(least, (static_cast<double>(heap_bytes()) - before) / calls);
  }
  return least;
}

void leaks(BackendContract& b) {
  const e::Context& judge = b.s_.context("\"" + std::string(b.s_.judge()) + "\"");
  for (const auto& [p, x] : b.taken()) {
    const std::vector<e::Tensor> in = inputs_of(*p, 1);
    const size_t files = open_files();
    constexpr double kOfARun = 16, kOfACompile = 32;
    const double run = growth(64, kOfARun, [&] { (void)run_to_host(x, in); });
    if (run >= kOfARun)
      throw Failed(p->name + ": every run leaves about " + std::to_string(static_cast<int64_t>(run)) +
                   " bytes of memory behind");
    // What the core itself leaves by every compile counts for nobody: the judge's are the measure.
    const double usual = growth(8, 0, [&] { (void)judge.compile(judge.parse(p->text, p->name)); });
    const double compiled = growth(8, usual + kOfACompile, [&] { (void)b.compile(p->text); });
    if (compiled - usual >= kOfACompile)
      throw Failed(p->name + ": every compile leaves about " + std::to_string(static_cast<int64_t>(compiled - usual)) +
                   " bytes of memory behind once its executable is destroyed");
    if (open_files() > files) throw Failed(p->name + ": files that it opened stay open");
  }
}

}  // namespace

void add_contract_checks(Subject& s, Checks& out) {
  const std::vector<std::string> backends = s.manifest().names("backend");
  for (const std::string& backend : backends) {
    const std::string of = backends.size() > 1 ? " on " + backend : "";
    const auto add = [&](const std::string& name, const char* about, void (*f)(BackendContract&)) {
      out.push_back({2, "contract/" + name + of, about, [backend, f](Subject& subject) {
                       BackendContract b(subject, backend);
                       f(b);
                     }});
    };
    add("table", "The backend's table names its device and declares capabilities that exist.", table_is_sound);
    add("claims", "A claim depends on the node alone, changes nothing, and gives a reason when it refuses.", claims);
    add("empty_graphs", "Graphs without nodes compile and run.", empty_graphs);
    add("deterministic", "What is declared deterministic gives the same bits on every run and for every number of threads.",
        deterministic);
    add("threads", "Four threads run one executable at once and compile others, and get the bits that they get alone.",
        threads);
    add("serialisation", "A kernel that was serialised and read back gives the same bits.", serialisation);
    const uint64_t programs_to_fuse = s.settings().level >= 4 ? 60 : 12;
    for (uint64_t seed = 0; seed <= programs_to_fuse; ++seed)
      out.push_back({seed <= 12 ? 3 : 4, "fused/program " + std::to_string(seed) + of, "Fused bits are unfused bits.",
                     [backend, seed](Subject& subject) {
                       BackendContract b(subject, backend);
                       fused(b, seed);
                     }});
    add("leaks", "Neither runs nor compiles leave memory or open files behind.", leaks);
  }
}

}  // namespace tessera::conformance
