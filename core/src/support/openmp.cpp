// SPDX-License-Identifier: Apache-2.0
#include "support/openmp.hpp"

#if !defined(TESSERA_NO_OPENMP)

#include <dlfcn.h>

#include <type_traits>

namespace tessera::core {
namespace {

// The whole table from one library; RTLD_DEFAULT: from all that the process resolves symbols in.
bool take_entries(void* library, OpenMp& to) {
  const auto entry = [library](auto& fn, const char* name) {
    fn = reinterpret_cast<std::remove_reference_t<decltype(fn)>>(dlsym(library, name));
    return fn != nullptr;
  };
  return entry(to.parallel, "GOMP_parallel") && entry(to.thread_num, "omp_get_thread_num") &&
         entry(to.num_threads, "omp_get_num_threads") && entry(to.in_parallel, "omp_in_parallel");
}

const OpenMp* find_openmp() {
  static OpenMp found;
  if (take_entries(RTLD_DEFAULT, found)) return &found;
  void* library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  return library && take_entries(library, found) ? &found : nullptr;
}

}  // namespace

const OpenMp* openmp() {
  static const OpenMp* const found = find_openmp();
  return found;
}

}  // namespace tessera::core

#else

namespace tessera::core {
const OpenMp* openmp() { return nullptr; }
}  // namespace tessera::core

#endif
