// SPDX-License-Identifier: Apache-2.0
// L2: what every backend owes its host, whatever it computes.
#include <malloc.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "op_run.hpp"
#include "subject.hpp"
#include "suites.hpp"
#include "tensors.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::conformance {
namespace {

// Small programs of which most backends take at least one. Inputs in f32.
struct Program {
  const char* name;
  const char* text;
  std::vector<std::vector<int64_t>> inputs;
};
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

std::vector<e::Tensor> inputs_of(const Program& p, int seed) {
  std::vector<e::Tensor> out;
  for (const auto& sizes : p.inputs) {
    e::Tensor t = e::Tensor::create(TSR_F32, sizes);
    auto* data = static_cast<float*>(t.data());
    for (int64_t i = 0; i < t.elements(); ++i)
      data[i] = static_cast<float>((i * 37 + seed * 101 + static_cast<int64_t>(out.size()) * 13) % 257 - 128) *
                0.0137f;  // no sum is exact
    out.push_back(std::move(t));
  }
  return out;
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
  // Dense results on the host.
  static std::vector<e::Tensor> run(const e::Executable& x, const std::vector<e::Tensor>& in) {
    std::vector<e::Tensor> out = x.run(in);
    for (e::Tensor& t : out) t = t.copy_to(0);
    return out;
  }

  Subject& s_;
  std::string backend_;
};

bool same_bits(const std::vector<e::Tensor>& a, const std::vector<e::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].elements() != b[i].elements() ||
        std::memcmp(a[i].data(), b[i].data(), static_cast<size_t>(storage_bytes(a[i].dtype(), a[i].elements()))) != 0)
      return false;
  return true;
}

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
    return BackendContract::run(x, in);
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
      throw Failed(std::string(p.name) + ": claim returned " + std::to_string(first) + ", which is no tsr_claim");
    if (first != TSR_CLAIM_YES && (!why || !*why)) throw Failed(std::string(p.name) + ": it refuses without a reason");
    for (int i = 0; i < 3; ++i) {
      const char* again = nullptr;
      if (t.claim(self, g.handle(), body.first, &again) != first)
        throw Failed(std::string(p.name) + ": claim gave two answers for the same node");
    }
    if (g.print() != before) throw Failed(std::string(p.name) + ": claim changed the graph");
  }
}

void deterministic(BackendContract& b) {
  void* self = nullptr;
  if (!(b.table(&self).capabilities & TSR_CAP_DETERMINISTIC)) throw Skipped("it does not declare TSR_CAP_DETERMINISTIC");
  if (!b.computes()) throw Skipped("it computes nothing (TSR_CAP_NO_COMPUTE)");
  for (const auto& [p, x] : b.taken()) {
    const std::vector<e::Tensor> in = inputs_of(*p, 1), first = BackendContract::run(x, in);
    for (int i = 0; i < 20; ++i)
      if (!same_bits(first, BackendContract::run(x, in)))
        throw Failed(std::string(p->name) + ": run " + std::to_string(i + 2) +
                     " gives other bits than the first, and it declares TSR_CAP_DETERMINISTIC");
    const e::Executable serial = [&] {
      const e::Context& c = b.s_.context(b.s_.order_of(b.backend_), "", "[runtime]\nthreads = 1\n");
      return c.compile(c.parse(p->text, p->name));
    }();
    if (!same_bits(first, BackendContract::run(serial, in)))
      throw Failed(std::string(p->name) + ": one thread gives other bits than many, and it declares TSR_CAP_DETERMINISTIC");
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
      want[static_cast<size_t>(t)].push_back(BackendContract::run(x, in[static_cast<size_t>(t)].back()));
    }
  std::vector<std::thread> all;
  for (size_t t = 0; t < 4; ++t)
    all.emplace_back([&, t] {
      try {
        for (int i = 0; i < 25 && !failed; ++i)
          for (size_t k = 0; k < taken.size(); ++k) {
            const auto got = BackendContract::run(taken[k].second, in[t][k]);
            if (computes && !same_bits(got, want[t][k]))
              fail(std::string(taken[k].first->name) +
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

size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

size_t open_files() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& f : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

// Bytes by which the heap has grown per call of f, in the least of three rounds after some for warming up: caches fill, and
// then stop.
template <class F>
double growth(int calls, F&& f) {
  for (int i = 0; i < calls; ++i) f();
  double least = 1e300;
  for (int round = 0; round < 3; ++round) {
    const auto before = static_cast<double>(heap_bytes());
    for (int i = 0; i < calls; ++i) f();
    least = std::min(least, (static_cast<double>(heap_bytes()) - before) / calls);
  }
  return least;
}

void leaks(BackendContract& b) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  throw Skipped("this build has an allocator that does not tell what it holds; leaks are the sanitizer's to find");
#endif
  const e::Context& judge = b.s_.context("\"" + std::string(b.s_.judge()) + "\"");
  for (const auto& [p, x] : b.taken()) {
    const std::vector<e::Tensor> in = inputs_of(*p, 1);
    const size_t files = open_files();
    const double run = growth(64, [&] { (void)BackendContract::run(x, in); });
    if (run >= 16)
      throw Failed(std::string(p->name) + ": every run leaves about " + std::to_string(static_cast<int64_t>(run)) +
                   " bytes of memory behind");
    const double compiled = growth(8, [&] { (void)b.compile(p->text); });
    const double usual = growth(8, [&] { (void)judge.compile(judge.parse(p->text, p->name)); });
    if (compiled - usual >= 32)
      throw Failed(std::string(p->name) + ": every compile leaves about " +
                   std::to_string(static_cast<int64_t>(compiled - usual)) +
                   " bytes of memory behind once its executable is destroyed");
    if (open_files() > files) throw Failed(std::string(p->name) + ": files that it opened stay open");
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
    add("leaks", "Neither runs nor compiles leave memory or open files behind.", leaks);
  }
}

}  // namespace tessera::conformance
