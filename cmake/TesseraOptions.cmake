# SPDX-License-Identifier: Apache-2.0
# Options and flags that hold for every target of this project. Nothing here is exported to users of the SDK.

option(TESSERA_BUILD_TESTS "Build the tests" ON)
option(TESSERA_BUILD_EXAMPLES "Build the example programs" ON)
option(TESSERA_BUILD_BENCHMARKS "Build the benchmarks (bench-*)" ON)
option(TESSERA_NO_OPENMP "Run parallel loops on std::thread instead of OpenMP" OFF)
option(TESSERA_STATIC_CLANG "Link clang and LLVM into the cpu backend, for packages that bring their compiler along" OFF)
option(TESSERA_COVERAGE "Instrument the core for gcov" OFF)
option(TESSERA_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(TESSERA_WERROR "Treat warnings as errors" OFF)
set(TESSERA_SKIP "" CACHE STRING "Components to leave out, such as backends/cuda;examples/gpt2")
set(TESSERA_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# A fixed library directory keeps `../lib/tessera/plugins` true from the binary on every distribution.
set(CMAKE_INSTALL_LIBDIR lib CACHE STRING "Library directory under the prefix")
include(GNUInstallDirs)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # kits are static libraries that end up in plugins
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
# First-party plugins land here and nothing else does; broken and example plugins name another DESTINATION.
set(TESSERA_PLUGIN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/tessera/plugins)

set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# -O2 without debug information: it compiles in about two thirds of -O3's time; the few loops that gain from more ask for it.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
if(TESSERA_SANITIZE)
  # -O1 and line tables keep the instrumented suite within a few times the release run and its reports readable.
  set(CMAKE_C_FLAGS_DEBUG "-O1 -g1")
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
else()
  set(CMAKE_C_FLAGS_DEBUG "-Og -g")
  set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC collects garbage of its own from 800 MB on instead of 128: a tenth less time. ./dev counts with more than that for a
  # job.
  add_compile_options("$<$<CONFIG:Release>:--param=ggc-min-heapsize=800000>")
endif()

add_compile_options(-Wall -Wextra)
# No contraction across source operations: a fused and an unfused kernel must round at the same places (see docs on
# numerics). For the same reason no target may use -ffast-math or a part of it that changes results.
add_compile_options(-ffp-contract=off)
if(TESSERA_WERROR)
  add_compile_options(-Werror)
endif()

if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
  if(TESSERA_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(TESSERA_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TESSERA_FUZZ needs clang (libFuzzer ships with it); found ${CMAKE_CXX_COMPILER_ID}. "
                        "Use: cmake --preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(TESSERA_COVERAGE)
  add_link_options(--coverage)  # what is compiled so is the core alone
endif()

find_program(TESSERA_LLD ld.lld)
mark_as_advanced(TESSERA_LLD)
if(TESSERA_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# The cache is told of the precompiled test header, and that two checkouts of the same text may share results. Debug builds
# keep their directory in the hash: their debug information names it.
find_program(TESSERA_CCACHE ccache)
mark_as_advanced(TESSERA_CCACHE)
if(TESSERA_CCACHE AND (NOT CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$"))
  set(_launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    list(APPEND _launcher CCACHE_NOHASHDIR=1)
  endif()
  set(CMAKE_C_COMPILER_LAUNCHER ${_launcher} ${TESSERA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_launcher} ${TESSERA_CCACHE})
  unset(_launcher)
endif()
