# SPDX-License-Identifier: Apache-2.0
# Tests: Catch2 binaries and plain commands, registered with one environment.

find_package(Catch2 QUIET)
if(NOT Catch2_FOUND)
  message(FATAL_ERROR "Catch2 not found. On Debian 12: apt-get install catch2; or configure with -DTESSERA_BUILD_TESTS=OFF.")
endif()

# Programs that only test link this. What is tested is what users run; a test's own code need not be fast, and compiles in half
# the time.
add_library(tessera_test_code INTERFACE)
target_compile_options(tessera_test_code INTERFACE $<$<CONFIG:Release>:-O0>)

# What a unit needs that asserts; and what a program of tests links: main and the runner come compiled from Catch2's package.
add_library(tessera_catch_header INTERFACE)
target_link_libraries(tessera_catch_header INTERFACE tessera_test_code Catch2::Catch2)
# An exception within an assertion fails the test without the text of the expression; in return each assertion is no try block
# of its own.
target_compile_definitions(tessera_catch_header INTERFACE CATCH_CONFIG_FAST_COMPILE)
if(Catch2_VERSION VERSION_GREATER_EQUAL 3)
  # Ubuntu 24.04 has Catch2 3; the tests use the part of it that both versions share, under version 2's header name.
  file(WRITE ${PROJECT_BINARY_DIR}/catch2_compat/catch2/catch.hpp
       "#pragma once\n#include <catch2/catch_all.hpp>\nusing Catch::Approx;\nnamespace Catch { using namespace Matchers; }\n")
  target_include_directories(tessera_catch_header INTERFACE ${PROJECT_BINARY_DIR}/catch2_compat)
endif()
add_library(tessera_catch INTERFACE)
target_link_libraries(tessera_catch INTERFACE tessera_catch_header Catch2::Catch2WithMain)

set(TESSERA_TEST_ENVIRONMENT TESSERA_SOURCE_DIR=${PROJECT_SOURCE_DIR} TESSERA_BUILD_DIR=${PROJECT_BINARY_DIR}
    TESSERA_SANITIZE=${TESSERA_SANITIZE} TESSERA_CACHE_DIR= TESSERA_TRACE=
    OMP_WAIT_POLICY=passive)  # tests share the cores with each other: a thread that spins at a barrier only keeps the others from it
if(TESSERA_SANITIZE)
  set(_supp ${PROJECT_SOURCE_DIR}/tests/support)
  # Up to GCC 13 and LLVM 16 the runtime takes some thread-local blocks for ones of glibc before 2.25, whose length stood before
  # them; the leak check then reads wild memory and dies ("Tracer caught signal 11"), so that interceptor stays off. A block
  # that cannot be had is NULL, as without a sanitizer: what follows from that is tested.
  list(APPEND TESSERA_TEST_ENVIRONMENT
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:intercept_tls_get_addr=0:allocator_may_return_null=1
    LSAN_OPTIONS=suppressions=${_supp}/lsan.supp:print_suppressions=0
    TSAN_OPTIONS=suppressions=${_supp}/tsan.supp:halt_on_error=0:second_deadlock_stack=1:allocator_may_return_null=1
    UBSAN_OPTIONS=print_stacktrace=1)
  unset(_supp)
endif()

# tessera_register_test(NAME COMMAND command... [LABELS l...] [TIMEOUT s] [ENVIRONMENT A=b...] [PROPERTIES k v...])
# The command sees TESSERA_SOURCE_DIR, TESSERA_BUILD_DIR and TESSERA_SANITIZE. A timeout is only there to end a hang;
# under a sanitizer it is four times as long.
function(tessera_register_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS;ENVIRONMENT;PROPERTIES")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)
  endif()
  if(TESSERA_SANITIZE)
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
    ENVIRONMENT "${TESSERA_TEST_ENVIRONMENT};${arg_ENVIRONMENT}")
  if(arg_PROPERTIES)
    set_tests_properties(${name} PROPERTIES ${arg_PROPERTIES})
  endif()
endfunction()

# tessera_add_test(NAME SOURCES a.cpp... [LINK lib...] [LABELS l...] [ARGS a...] [DEPENDS target...] [TIMEOUT s])
# One Catch2 binary NAME and one ctest entry of the same name. DEPENDS: targets that the test loads or starts.
function(tessera_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LINK;LABELS;ARGS;DEPENDS")
  tessera_add_test_binary(${name} SOURCES ${arg_SOURCES} LINK ${arg_LINK})
  if(arg_DEPENDS)
    add_dependencies(${name} ${arg_DEPENDS})
  endif()
  tessera_register_test(${name} COMMAND ${name} ${arg_ARGS} LABELS ${arg_LABELS} TIMEOUT "${arg_TIMEOUT}")
endfunction()

# The binary alone. From three sources on, Catch2's header (its parsing is most of a small test's compile time) is precompiled.
function(tessera_add_test_binary name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} tessera_catch)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  list(LENGTH arg_SOURCES count)
  if(count GREATER 2)
    target_precompile_headers(${name} PRIVATE <catch2/catch.hpp>)
  endif()
endfunction()
