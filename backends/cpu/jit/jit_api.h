/* SPDX-License-Identifier: Apache-2.0
 *
 * What libtessera_cpu_jit.so offers to the cpu backend: C++ text -> object -> addresses, by clang and ORC inside the process.
 * The library is apart because loading LLVM costs some 20 ms that a process which compiles nothing should not pay; the backend
 * opens it when it first needs it. Both sides come from one build; `version` guards against a stray file all the same.
 */
#ifndef TESSERA_CPU_JIT_API_H
#define TESSERA_CPU_JIT_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CPU_JIT_API_VERSION 1

typedef struct cpu_jit_request {
  const char* name; /* what messages call the text: "gelu.cpp" */
  const char* text; /* zero-terminated; includes nothing */
  size_t length;
  const char* cpu;             /* as -mcpu takes it: "x86-64-v3" */
  const char* const* features; /* "+avx512f", ... */
  size_t num_features;
  int vector_bits; /* preferred width of vectors: 128, 256 or 512 */
  int optimize;    /* 1: the minimal pipeline for explicit vectors; 2: LLVM's O2 with its vectorisers */
} cpu_jit_request;

typedef struct cpu_jit_sink { /* where results go; called once */
  void* self;
  void (*put)(void* self, const char* bytes, size_t length);
} cpu_jit_sink;

typedef struct cpu_jit_module cpu_jit_module; /* linked code; executable while it lives */

typedef struct cpu_jit_api {
  uint32_t version;
  const char* llvm; /* "19.1.7": part of cache keys */
  /* 1: `object` has got an ELF object; 0: `error` has got clang's diagnostics. Thread-safe. */
  int (*compile)(const cpu_jit_request*, cpu_jit_sink object, cpu_jit_sink error);
  /* Links an object and finds `count` symbols in it. NULL: `error` has got the reason. Thread-safe. */
  cpu_jit_module* (*link)(const char* object, size_t length, const char* const* symbols, size_t count, void** addresses,
                          cpu_jit_sink error);
  void (*unlink)(cpu_jit_module*);
} cpu_jit_api;

/* The library's one symbol: "tessera_cpu_jit". */
typedef const cpu_jit_api* (*cpu_jit_entry)(void);

#ifdef __cplusplus
}
#endif
#endif
