// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/gpu/text_runner.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tessera/plugin.hpp"

// The thread sanitizer keeps a list of the functions that each thread is in. A fiber that has ended, or that a failure leaves
// where it is, never returns from those that it is in: they must not enter themselves.
#if defined(__SANITIZE_THREAD__)
#define UNLISTED __attribute__((no_sanitize_thread))
#else
#define UNLISTED
#endif

#if defined(__x86_64__)
// Saves what a function must keep on the stack it leaves, and goes on with another one.
extern "C" void tessera_kit_switch_stack(void** from, void* to);
__asm__(R"(
.text
.hidden tessera_kit_switch_stack
.globl tessera_kit_switch_stack
.type tessera_kit_switch_stack, @function
tessera_kit_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tessera_kit_switch_stack, .-tessera_kit_switch_stack
)");
#endif

namespace tessera::kit {
namespace {

constexpr size_t kStack = 64 << 10;
constexpr int32_t kNone32 = -1, kSeveral = -2;

enum class Wait : uint8_t { Ready, Barrier, WaveBarrier, Shuffle, Done };

struct Fiber {
  void* stack = nullptr;  // where it goes on
  Wait wait = Wait::Ready;
  int32_t line = 0;
  uint64_t value = 0;  // given to a shuffle, and what comes back
  int32_t from = 0, lane = 0, lanes = 0;
};

struct Touched {
  int32_t thread = kNone32, wave = kNone32, line = 0;
  uint32_t block_epoch = 0, wave_epoch = 0;
};
struct Byte {
  Touched write, read;
  bool written = false;
};

// Global memory: the same by element, over all blocks, among which nothing is ordered.
struct GlobalTouch {
  Touched by;
  int32_t block = kNone32;
};
struct Element {
  GlobalTouch write, read;
};
struct Argument {
  const char* base = nullptr;
  int64_t bytes = 0;
  uint32_t element = 0;           // bytes; 0: the text has not declared it yet
  std::vector<Element> elements;  // where the kernel writes it
};

class Runner {
 public:
  Runner(const TextLaunch& launch, void* const* arguments) : launch_(launch), arguments_(arguments), random_(launch.seed) {
    fibers_.resize(static_cast<size_t>(launch.threads));
    bytes_ = fibers_.size() * kStack;
    stacks_ =
        static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks_ == MAP_FAILED)
      throw sdk::Error(TSR_ENVIRONMENT, "TSR-K034", "there is no memory for " + std::to_string(launch.threads) + " fibers",
                       "run fewer threads a block");
    shared_.resize(static_cast<size_t>(launch.shared_bytes) + 16);
    cells_.resize(static_cast<size_t>(launch.shared_bytes));
    for (size_t i = 0; i < launch.bytes.size(); ++i)
      global_.push_back({*static_cast<const char* const*>(arguments[i]), launch.bytes[i], 0, {}});
  }
  ~Runner() { munmap(stacks_, bytes_); }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void run() {
    std::vector<int64_t> order(static_cast<size_t>(launch_.blocks));
    for (size_t b = 0; b < order.size(); ++b) order[b] = static_cast<int64_t>(b);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int64_t b : order) {
      block_ = static_cast<uint32_t>(b);
      run_block();
    }
  }

  // ---- what the text calls

  uint32_t block() const { return block_; }
  uint32_t thread() const { return current_; }
  char* shared() { return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(shared_.data()) + 15) / 16 * 16); }
  UNLISTED void wait(Wait w, int32_t line) {
    Fiber& f = fibers_[current_];
    f.wait = w;
    f.line = line;
    leave();
  }
  UNLISTED uint64_t shuffle(uint64_t value, int32_t from, int32_t lane, int32_t lanes, int32_t line) {
    Fiber& f = fibers_[current_];
    f.value = value, f.from = from, f.lane = lane, f.lanes = lanes;
    wait(Wait::Shuffle, line);
    return fibers_[current_].value;
  }
  UNLISTED void touch(const void* at, uint32_t bytes, bool store, int32_t line) {
    const char* const base = shared();
    const auto first = static_cast<const char*>(at) - base;
    if (at == nullptr || first < 0 || first + bytes > launch_.shared_bytes)
      return fail(line, "an access outside of its array in shared memory");
    for (uint32_t i = 0; i < bytes && failure_.empty(); ++i) {
      Byte& b = cells_[static_cast<size_t>(first) + i];
      const auto where = [&] { return "byte " + std::to_string(first + i) + " of shared memory "; };
      const auto who = [](const Touched& t) {
        return (t.thread == kSeveral ? std::string("several threads") : "thread " + std::to_string(t.thread)) + " in line " +
               std::to_string(t.line) + ", and no barrier stands between";
      };
      if (!store && !b.written) return fail(line, where() + "is read before it is written");
      if (!ordered(b.write)) return fail(line, where() + "was written by " + who(b.write));
      if (store && !ordered(b.read)) return fail(line, where() + "was read by " + who(b.read));
      Touched now = me(line);
      if (store) {
        b = {now, {}, true};
        continue;
      }
      if (b.read.thread != kNone32 && !ordered(b.read)) {
        now.thread = kSeveral;
        if (b.read.wave != now.wave) now.wave = kSeveral;
      }
      b.read = now;
    }
  }

  void watch(int32_t argument, uint32_t element_bytes, bool written) {
    if (static_cast<size_t>(argument) >= global_.size()) return;
    Argument& a = global_[static_cast<size_t>(argument)];
    if (a.element != 0) return;
    a.element = element_bytes;
    if (written) a.elements.resize(static_cast<size_t>(a.bytes / element_bytes));
  }
  UNLISTED void touch_global(const void* at, uint32_t bytes, bool store, int32_t line, int32_t argument) {
    if (static_cast<size_t>(argument) >= global_.size()) return;
    const Argument& own = global_[static_cast<size_t>(argument)];
    const auto first = static_cast<const char*>(at) - own.base;
    if (first < 0 || first + bytes > own.bytes)
      return fail(line, "an access outside of argument " + std::to_string(argument) + ": bytes " + std::to_string(first) +
                            " to " + std::to_string(first + bytes) + " of " + std::to_string(own.bytes));
    // Memory that the kernel reads under one argument and writes under another is one memory.
    for (size_t i = 0; i < global_.size() && failure_.empty(); ++i) {
      Argument& a = global_[i];
      const auto offset = static_cast<const char*>(at) - a.base;
      if (a.elements.empty() || offset + bytes <= 0 || offset >= a.bytes) continue;
      const auto from = std::max<int64_t>(0, offset) / a.element,
                 to = std::min<int64_t>(a.bytes, offset + bytes + a.element - 1) / a.element;
      for (int64_t e = from; e < to && failure_.empty(); ++e)
        touch_element(a.elements[static_cast<size_t>(e)], i, e, store, line);
    }
  }

  static thread_local Runner* running;

 private:
  bool ordered(const GlobalTouch& t) const {
    if (t.block == kNone32) return true;
    return t.block == static_cast<int32_t>(block_) && ordered(t.by);
  }
  UNLISTED void touch_element(Element& e, size_t argument, int64_t number, bool store, int32_t line) {
    const auto said = [&](const GlobalTouch& t, const char* what) UNLISTED {
      const bool many = t.by.thread == kSeveral || t.block == kSeveral;
      fail(line,
           "element " + std::to_string(number) + " of argument " + std::to_string(argument) + " was " + what + " by " +
               (many ? std::string("several threads")
                     : "thread " + std::to_string(t.by.thread) + " of block " + std::to_string(t.block)) +
               " in line " + std::to_string(t.by.line) +
               (t.block == static_cast<int32_t>(block_) ? ", and no barrier stands between" : ", and nothing orders blocks"));
    };
    if (!ordered(e.write)) return said(e.write, "written");
    if (store && !ordered(e.read)) return said(e.read, "read");
    GlobalTouch now{me(line), static_cast<int32_t>(block_)};
    if (store) {
      e = {now, {}};
      return;
    }
    if (e.read.block != kNone32 && !ordered(e.read)) {
      now.by.thread = kSeveral;
      if (e.read.by.wave != now.by.wave) now.by.wave = kSeveral;
      if (e.read.block != now.block) now.block = kSeveral;
    }
    e.read = now;
  }

  bool ordered(const Touched& t) const {
    if (t.thread == kNone32 || t.thread == static_cast<int32_t>(current_) || t.block_epoch < block_epoch_) return true;
    const auto wave = static_cast<int32_t>(current_) / launch_.wave;
    return t.wave == wave && t.wave_epoch < wave_epochs_[static_cast<size_t>(wave)];
  }
  Touched me(int32_t line) const {
    const auto wave = static_cast<int32_t>(current_) / launch_.wave;
    return {static_cast<int32_t>(current_), wave, line, block_epoch_, wave_epochs_[static_cast<size_t>(wave)]};
  }

  // The first failure ends the launch: the fibers are left where they are.
  UNLISTED void fail(int32_t line, const std::string& what) {
    failure_ = "text of " + launch_.name + ", line " + std::to_string(line) + ", block " + std::to_string(block_) +
               ", thread " + std::to_string(current_) + ": " + what;
    leave();
  }

#if defined(__x86_64__)
  UNLISTED void leave() { tessera_kit_switch_stack(&fibers_[current_].stack, main_); }
  void enter(size_t t) {
    current_ = static_cast<uint32_t>(t);
    tessera_kit_switch_stack(&main_, fibers_[t].stack);
  }
  UNLISTED static void start() {
    Runner& r = *running;
    r.launch_.entry(r.arguments_);
    r.fibers_[r.current_].wait = Wait::Done;
    r.leave();
  }
  void prepare(size_t t) {
    char* const top = stacks_ + (t + 1) * kStack;
    std::memset(top - 4096, 0xa5, 4096);  // what is not written is not zero by chance
    // The address that `ret` takes, after six registers; the stack is then as it is behind a call.
    auto* words = reinterpret_cast<void**>(top - 16);
    words[0] = reinterpret_cast<void*>(&Runner::start);
    words[1] = nullptr;
    fibers_[t] = {};
    fibers_[t].stack = words - 6;
  }
#else
  void leave() {}
  void enter(size_t) {
    throw sdk::Error(TSR_ENVIRONMENT, "TSR-K034", "there are no fibers for this processor", "run on x86-64");
  }
  void prepare(size_t) {}
#endif

  void run_block() {
    std::memset(shared(), 0xa5, static_cast<size_t>(launch_.shared_bytes));
    std::fill(cells_.begin(), cells_.end(), Byte{});
    block_epoch_ = 1;
    wave_epochs_.assign(fibers_.size() / static_cast<size_t>(launch_.wave) + 1, 1);
    std::vector<uint32_t> order(fibers_.size());
    for (size_t t = 0; t < fibers_.size(); ++t) {
      order[t] = static_cast<uint32_t>(t);
      prepare(t);
    }
    for (;;) {
      std::shuffle(order.begin(), order.end(), random_);
      bool ran = false;
      for (const uint32_t t : order)
        if (fibers_[t].wait == Wait::Ready) {
          ran = true;
          enter(t);
          if (!failure_.empty()) throw sdk::Error(TSR_BUG, "TSR-K033", failure_);
        }
      const bool woken = wake_waves() || wake_block();
      if (!ran && !woken) break;
    }
    for (current_ = 0; current_ < fibers_.size(); ++current_)
      if (fibers_[current_].wait != Wait::Done) stuck();
  }

  // All threads of [from, to) wait at one place of one kind.
  bool together(size_t from, size_t to, Wait w) const {
    for (size_t t = from; t < to; ++t)
      if (fibers_[t].wait != w || fibers_[t].line != fibers_[from].line) return false;
    return true;
  }
  bool wake_waves() {
    bool woken = false;
    const auto wave = static_cast<size_t>(launch_.wave);
    for (size_t from = 0; from < fibers_.size(); from += wave) {
      const size_t to = std::min(from + wave, fibers_.size());
      if (together(from, to, Wait::WaveBarrier)) {
        ++wave_epochs_[from / wave];
      } else if (together(from, to, Wait::Shuffle)) {
        std::vector<uint64_t> given;
        for (size_t t = from; t < to; ++t) given.push_back(fibers_[t].value);
        for (size_t t = from; t < to; ++t) {
          Fiber& f = fibers_[t];
          const size_t lane = t - from, lanes = static_cast<size_t>(f.lanes);
          const size_t other = f.from ? lane / lanes * lanes + static_cast<size_t>(f.lane) : lane ^ static_cast<size_t>(f.lane);
          if (other >= given.size()) {
            current_ = static_cast<uint32_t>(t);
            throw sdk::Error(TSR_BUG, "TSR-K033",
                             "text of " + launch_.name + ", line " + std::to_string(f.line) + ": a shuffle from lane " +
                                 std::to_string(other) + " of a wave of " + std::to_string(given.size()));
          }
          f.value = given[other];
        }
      } else {
        continue;
      }
      for (size_t t = from; t < to; ++t) fibers_[t].wait = Wait::Ready;
      woken = true;
    }
    return woken;
  }
  bool wake_block() {
    if (!together(0, fibers_.size(), Wait::Barrier)) return false;
    ++block_epoch_;
    for (Fiber& f : fibers_) f.wait = Wait::Ready;
    return true;
  }
  [[noreturn]] void stuck() const {
    const Fiber& f = fibers_[current_];
    size_t elsewhere = 0;
    while (elsewhere + 1 < fibers_.size() && fibers_[elsewhere].wait == f.wait && fibers_[elsewhere].line == f.line)
      ++elsewhere;
    const Fiber& other = fibers_[elsewhere];
    throw sdk::Error(TSR_BUG, "TSR-K033",
                     "text of " + launch_.name + ", line " + std::to_string(f.line) + ", block " + std::to_string(block_) +
                         ", thread " + std::to_string(current_) + " waits at a " +
                         (f.wait == Wait::Shuffle ? "shuffle" : "barrier") + " that thread " + std::to_string(elsewhere) +
                         (other.wait == Wait::Done ? " does not come to"
                                                   : " does not come to: it waits in line " + std::to_string(other.line)));
  }

  TextLaunch launch_;
  void* const* arguments_;
  std::mt19937_64 random_;
  std::vector<Fiber> fibers_;
  char* stacks_ = nullptr;
  size_t bytes_ = 0;
  void* main_ = nullptr;
  std::vector<char> shared_;
  std::vector<Byte> cells_;
  std::vector<Argument> global_;
  uint32_t block_ = 0, current_ = 0, block_epoch_ = 1;
  std::vector<uint32_t> wave_epochs_;
  std::string failure_;
};
thread_local Runner* Runner::running = nullptr;

const TextRunnerApi kApi = {
    [] { return Runner::running->block(); },
    [] { return Runner::running->thread(); },
    [] { return Runner::running->shared(); },
    [](int32_t of_block, int32_t line) UNLISTED { Runner::running->wait(of_block ? Wait::Barrier : Wait::WaveBarrier, line); },
    [](uint64_t value, int32_t from, int32_t lane, int32_t lanes, int32_t line)
        UNLISTED { return Runner::running->shuffle(value, from, lane, lanes, line); },
    [](const void* at, uint32_t bytes, int32_t store, int32_t line)
        UNLISTED { Runner::running->touch(at, bytes, store != 0, line); },
    [](int32_t argument, uint32_t bytes, int32_t written) { Runner::running->watch(argument, bytes, written != 0); },
    [](const void* at, uint32_t bytes, int32_t store, int32_t line, int32_t argument)
        UNLISTED { Runner::running->touch_global(at, bytes, store != 0, line, argument); },
    [](tsr_fault* record, uint64_t site, uint32_t code) { sdk::report_fault(record, site, code); },
};

}  // namespace

void run_text(const TextLaunch& launch, void* const* arguments) {
  Runner runner(launch, arguments);
  struct Running {
    explicit Running(Runner* r) { Runner::running = r; }
    ~Running() { Runner::running = nullptr; }
  } const running(&runner);
  launch.bind(&kApi);
  runner.run();
}

}  // namespace tessera::kit
