// SPDX-License-Identifier: Apache-2.0
#include "support/openmp.hpp"

#if !defined(TESSERA_NO_OPENMP)

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

namespace tessera::core {
namespace {

// What a thread may wait busily: several times what waking one takes (some 5 to 50 us, most on virtual machines), and little beside the time slice of
// a thread that is not running (milliseconds).
constexpr double kBusySeconds = 200e-6;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#else
  __asm__ volatile("" ::: "memory");
#endif
}

// Turns of libgomp's waiting loop in kBusySeconds. A turn takes 10 to 140 cycles, as the processor likes.
long spin_count() {
  using Clock = std::chrono::steady_clock;
  constexpr int kTurns = 128;
  double least = 1;
  for (int i = 0; i < 3; ++i) {  // the least of three: anything may come in between
    const Clock::time_point start = Clock::now();
    for (int k = 0; k < kTurns; ++k) relax();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return std::clamp(static_cast<long>(kBusySeconds * kTurns / std::max(least, 1e-9)), 100L, 100000L);
}

// Loads libgomp as if the environment held the bound. The environment itself stays as it is: setenv may move it while another thread reads it, and
// child processes would inherit the variable. Who reads the environment meanwhile sees a whole one; if someone writes it, that stays.
void* load_bounded() {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  // Never freed: a reader may still have it.
  static auto* bound = new std::string("GOMP_SPINCOUNT=" + std::to_string(spin_count()));
  static auto* variables = new std::vector<char*>;
  for (char** v = environ; v && *v; ++v) variables->push_back(*v);
  variables->push_back(bound->data());
  variables->push_back(nullptr);
  char** const before = environ;
  environ = variables->data();
  void* library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  if (environ == variables->data()) environ = before;
  return library;
}

// The whole table from one library; RTLD_DEFAULT: from all that the process resolves symbols in.
bool take(void* library, OpenMp& to) {
  const auto entry = [library](auto& fn, const char* name) {
    fn = reinterpret_cast<std::remove_reference_t<decltype(fn)>>(dlsym(library, name));
    return fn != nullptr;
  };
  return entry(to.parallel, "GOMP_parallel") && entry(to.thread_num, "omp_get_thread_num") &&
         entry(to.num_threads, "omp_get_num_threads") && entry(to.in_parallel, "omp_in_parallel");
}

const OpenMp* find() {
  static OpenMp found;
  if (take(RTLD_DEFAULT, found)) return &found;
  void* library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!library) library = load_bounded();
  return library && take(library, found) ? &found : nullptr;
}

}  // namespace

const OpenMp* openmp() {
  static const OpenMp* const found = find();
  return found;
}

}  // namespace tessera::core

#else

namespace tessera::core {
const OpenMp* openmp() { return nullptr; }
}  // namespace tessera::core

#endif
