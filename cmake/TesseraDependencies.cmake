# SPDX-License-Identifier: Apache-2.0
# Libraries that the core, the command and the tests need. Each is found once, here, with a message that names the package.
# What only one plugin needs (oneDNN, LLVM, CUDA, ...) is looked for by that plugin: its absence leaves out the plugin alone.

find_package(Threads REQUIRED)

macro(tessera_require package debian)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} (${ARGN}) not found. On Debian 12: apt-get install ${debian}; or let ./dev build do it.")
  endif()
endmacro()

tessera_require(Boost "libboost1.81-dev libboost-program-options1.81-dev libboost-filesystem1.81-dev"
                1.74 COMPONENTS program_options filesystem)
tessera_require(TBB libtbb-dev)
tessera_require(tomlplusplus libtomlplusplus-dev)
tessera_require(nlohmann_json nlohmann-json3-dev 3.10)
tessera_require(ZLIB zlib1g-dev)

# toml++ header-only: the core must not gain a run-time dependency for a parser, and the packages of different
# distributions disagree about whether the library is compiled.
add_library(tessera_toml INTERFACE)
get_target_property(_toml_include tomlplusplus::tomlplusplus INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(tessera_toml SYSTEM INTERFACE ${_toml_include})
target_compile_definitions(tessera_toml INTERFACE TOML_HEADER_ONLY=1 TOML_ENABLE_FORMATTERS=1)
add_library(Tessera::toml ALIAS tessera_toml)

# nlohmann's header with its templates compiled once: a unit that uses them takes half the time. What is installed links
# nlohmann_json itself.
add_library(tessera_json STATIC ${CMAKE_CURRENT_LIST_DIR}/json/json.cpp)
target_include_directories(tessera_json PUBLIC ${CMAKE_CURRENT_LIST_DIR}/json)
target_link_libraries(tessera_json PUBLIC nlohmann_json::nlohmann_json)
target_compile_options(tessera_json PRIVATE $<$<CONFIG:Release>:-O1>)
add_library(Tessera::json ALIAS tessera_json)

# For what links oneDNN, which runs on OpenMP; the core finds the runtime when the process runs. Under TSan it is off.
if(NOT TESSERA_NO_OPENMP)
  find_package(OpenMP QUIET COMPONENTS CXX)
endif()
