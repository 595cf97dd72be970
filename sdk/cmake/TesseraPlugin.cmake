# SPDX-License-Identifier: Apache-2.0
# tessera_add_plugin(): builds a plugin and writes the manifest that the host reads before it opens the library. One file
# serves this repository and every project that calls find_package(TesseraSDK).
#
#   tessera_add_plugin(tessera_pass_cse
#     ID tessera.pass.cse            # also the file name: tessera.pass.cse.so, tessera.pass.cse.toml
#     VERSION 0.1.0
#     VENDOR "Tessera"
#     STABILITY stable               # or experimental
#     PROVIDES pass:cse              # KIND:NAME of every factory, as the library reports them
#     SOURCES cse.cpp
#     [KINDS pass]                   # checked against PROVIDES
#     [NEEDS tessera.opset.standard] # ids of plugins that must be active too
#     [OPTIONS_FILE options.toml]    # [[options]] tables, copied verbatim into the manifest
#     [LINK lib...]                  # linked privately
#     [DESTINATION dir]              # written there and not installed (test and example plugins)
#     [LIBRARY file] [MANIFEST_HASH text])  # only for tests of damaged manifests
#
# OPTIONS_FILE holds one table per option:
#   [[options]]
#   name = "isa"                     # [cpu] isa = "avx2" in a config
#   type = "string"                  # int, float, bool, string or strings
#   default = "native"
#   choices = ["native", "avx2", "avx512"]   # strings; min and max bound numbers
#   help = "Instruction set to generate code for."
#   also = "instruction_set"         # optional: a name at root level of a config that sets it too
#
# Without DESTINATION the plugin lands in TESSERA_PLUGIN_OUTPUT_DIRECTORY and is installed to <libdir>/tessera/plugins.
# The sources see TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR, TSR_PLUGIN_SANITIZER and TESSERA_PLUGIN_BUILD_INFO as
# string macros, so that library and manifest cannot disagree.
#
# tessera_add_conformance_test(): the conformance kit on a plugin, as a test of CTest (docs/conformance.md).
#
#   tessera_add_conformance_test(my_plugin
#     [LEVEL L3]           # how far it goes
#     [SAMPLE 10]          # every 10-th case only
#     [EXPECT file]        # checks that are expected to fail
#     [SET npu.grain=64]   # options of the plugin
#     [LOAD id...]         # plugins to load beside it
#     [MODEL file...]      # that a frontend imports
#     [JUNIT file])
#
# It is called conformance.TARGET, and needs the installed command.
#
# tessera_embed_text(): makes text files part of a target.
#
#   tessera_embed_text(my_opset NAME opset_records OUTPUT opset_records.hpp FILES nn.tops math.tops)
#
# writes a header with `inline constexpr tsr_record_file opset_records[]`, one {file name, text} per file.

include_guard(GLOBAL)
set(TESSERA_PLUGIN_MODULE_DIR ${CMAKE_CURRENT_LIST_DIR})
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/../include/tessera/abi.h)
  cmake_path(SET TesseraSDK_INCLUDE_DIR NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../include)
endif()
if(NOT TESSERA_PLUGIN_OUTPUT_DIRECTORY)
  set(TESSERA_PLUGIN_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/tessera/plugins)
endif()

# Sets TSR_ABI_MAJOR, TSR_ABI_MINOR and TSR_IR_VERSION from the header that the plugin is compiled against.
function(_tessera_read_abi_version)
  set(header ${TesseraSDK_INCLUDE_DIR}/tessera/abi.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  foreach(name TSR_ABI_MAJOR TSR_ABI_MINOR TSR_IR_VERSION)
    file(STRINGS ${header} line REGEX "^#define ${name} +[0-9]+" LIMIT_COUNT 1)
    if(NOT line MATCHES "([0-9]+)[^0-9]*$")
      message(FATAL_ERROR "tessera_add_plugin: ${header} does not define ${name} as a number")
    endif()
    set(${name} ${CMAKE_MATCH_1} PARENT_SCOPE)
  endforeach()
endfunction()

# The host compares this word with its own: libraries built with and without a sanitizer must not meet in one process.
function(_tessera_sanitizer out)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" config)
  set(flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${config}} -fsanitize=${TESSERA_SANITIZE}")
  get_directory_property(options COMPILE_OPTIONS)
  string(APPEND flags " ${options}")
  if(flags MATCHES "-fsanitize=[a-z,-]*address")
    set(${out} address PARENT_SCOPE)
  elseif(flags MATCHES "-fsanitize=[a-z,-]*thread")
    set(${out} thread PARENT_SCOPE)
  else()
    set(${out} "" PARENT_SCOPE)
  endif()
endfunction()

function(_tessera_toml_strings out)
  set(items "")
  foreach(item IN LISTS ARGN)
    list(APPEND items "\"${item}\"")
  endforeach()
  list(JOIN items ", " text)
  set(${out} "[${text}]" PARENT_SCOPE)
endfunction()

function(_tessera_write_if_different file text)
  if(EXISTS ${file})
    file(READ ${file} old)
    if(old STREQUAL text)
      return()
    endif()
  endif()
  file(WRITE ${file} "${text}")
endfunction()

function(tessera_add_plugin target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME;ID;VERSION;VENDOR;STABILITY;OPTIONS_FILE;DESTINATION;LIBRARY;MANIFEST_HASH"
                        "KINDS;PROVIDES;NEEDS;SOURCES;LINK")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_add_plugin(${target}): unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  foreach(required ID VERSION VENDOR PROVIDES SOURCES)
    if(NOT arg_${required})
      message(FATAL_ERROR "tessera_add_plugin(${target}): ${required} is missing")
    endif()
  endforeach()
  if(NOT arg_STABILITY)
    set(arg_STABILITY experimental)
  endif()
  if(NOT arg_STABILITY MATCHES "^(stable|experimental)$")
    message(FATAL_ERROR "tessera_add_plugin(${target}): STABILITY is '${arg_STABILITY}'; expected stable or experimental")
  endif()
  if(NOT arg_ID MATCHES "^[a-z0-9_]+(\\.[a-z0-9_]+)+$")
    message(FATAL_ERROR "tessera_add_plugin(${target}): ID is '${arg_ID}'; expected lower-case words joined by dots, such "
                        "as acme.backend.npu")
  endif()
  if(NOT arg_VERSION MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+$")
    message(FATAL_ERROR "tessera_add_plugin(${target}): VERSION is '${arg_VERSION}'; expected MAJOR.MINOR.PATCH")
  endif()
  set(kinds "")
  foreach(item IN LISTS arg_PROVIDES)
    if(NOT item MATCHES "^(opset|frontend|pass|partitioner|device|backend|executor|store):[A-Za-z0-9_.-]+$")
      message(FATAL_ERROR "tessera_add_plugin(${target}): PROVIDES holds '${item}'; expected KIND:NAME, such as pass:cse, "
                          "with KIND one of opset frontend pass partitioner device backend executor store")
    endif()
    list(APPEND kinds ${CMAKE_MATCH_1})
  endforeach()
  list(REMOVE_DUPLICATES kinds)
  if(arg_KINDS)
    list(SORT kinds)
    list(SORT arg_KINDS)
    if(NOT kinds STREQUAL arg_KINDS)
      message(FATAL_ERROR "tessera_add_plugin(${target}): KINDS is '${arg_KINDS}' but PROVIDES says '${kinds}'")
    endif()
  endif()

  _tessera_read_abi_version()
  _tessera_sanitizer(sanitizer)
  set(directory ${TESSERA_PLUGIN_OUTPUT_DIRECTORY})
  if(arg_DESTINATION)
    cmake_path(ABSOLUTE_PATH arg_DESTINATION BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} OUTPUT_VARIABLE directory)
  endif()

  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE TesseraSDK::sdk ${arg_LINK})
  target_compile_features(${target} PRIVATE c_std_11 cxx_std_20)
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  # Escaped once: C and TOML strings agree on these two.
  string(REPLACE "\\" "\\\\" vendor "${arg_VENDOR}")
  string(REPLACE "\"" "\\\"" vendor "${vendor}")
  string(TOUPPER "${CMAKE_BUILD_TYPE}" config)
  set(build_info "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${config}}")
  string(REGEX REPLACE "[ \t]+" " " build_info "${build_info}")
  string(STRIP "${build_info}" build_info)
  target_compile_definitions(${target} PRIVATE TSR_PLUGIN_ID="${arg_ID}" TSR_PLUGIN_VERSION="${arg_VERSION}"
    TSR_PLUGIN_VENDOR="${vendor}" TSR_PLUGIN_SANITIZER="${sanitizer}" TESSERA_PLUGIN_BUILD_INFO="${build_info}")

  set(map ${TESSERA_PLUGIN_MODULE_DIR}/tessera_plugin.map)
  # nodelete: a library that has run an OpenMP region or holds a device module must stay mapped until the process ends.
  target_link_options(${target} PRIVATE -Wl,-z,nodelete -Wl,--exclude-libs,ALL -Wl,--version-script=${map})
  # clang leaves the sanitizer's run time to the executable, so its symbols are undefined here.
  if(NOT (sanitizer AND CMAKE_CXX_COMPILER_ID MATCHES "Clang"))
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  # Built with its final run path and installed as a plain file: rewriting the library would break the manifest's hash.
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME ${arg_ID} SUFFIX .so LIBRARY_OUTPUT_DIRECTORY ${directory}
    POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "" INSTALL_RPATH_USE_LINK_PATH ON)

  # Manifest: everything but the hash is known now; the link step fills that in.
  set(library ${arg_ID}.so)
  if(arg_LIBRARY)
    set(library ${arg_LIBRARY})
  endif()
  _tessera_toml_strings(provides ${arg_PROVIDES})
  _tessera_toml_strings(needs ${arg_NEEDS})
  string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" platform)
  set(manifest "# Written by tessera_add_plugin(); edits are lost with the next build.
[plugin]
id = \"${arg_ID}\"
version = \"${arg_VERSION}\"
vendor = \"${vendor}\"
stability = \"${arg_STABILITY}\"
library = \"${library}\"
hash = \"<hash>\"
platform = \"${platform}\"
abi_major = ${TSR_ABI_MAJOR}
abi_minor = ${TSR_ABI_MINOR}
ir_min = ${TSR_IR_VERSION}
ir_max = ${TSR_IR_VERSION}
sanitizer = \"${sanitizer}\"
provides = ${provides}
needs = ${needs}
")
  if(arg_OPTIONS_FILE)
    cmake_path(ABSOLUTE_PATH arg_OPTIONS_FILE BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${arg_OPTIONS_FILE})
    file(READ ${arg_OPTIONS_FILE} options)
    string(APPEND manifest "\n${options}")
  endif()
  set(template ${CMAKE_CURRENT_BINARY_DIR}/${arg_ID}.toml.in)
  _tessera_write_if_different(${template} "${manifest}")
  # Linking again when the template changed keeps one rule for both files.
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${template};${map}")
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -DLIBRARY=$<TARGET_FILE:${target}> -DTEMPLATE=${template}
            -DMANIFEST=${directory}/${arg_ID}.toml "-DHASH=${arg_MANIFEST_HASH}"
            -P ${TESSERA_PLUGIN_MODULE_DIR}/TesseraManifest.cmake
    BYPRODUCTS ${directory}/${arg_ID}.toml VERBATIM)

  if(NOT arg_DESTINATION)
    include(GNUInstallDirs)
    install(PROGRAMS $<TARGET_FILE:${target}> DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera/plugins)
    install(FILES ${directory}/${arg_ID}.toml DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera/plugins)
  endif()
endfunction()

function(tessera_embed_text target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME;OUTPUT" "FILES")
  if(NOT arg_NAME OR NOT arg_OUTPUT OR NOT arg_FILES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_embed_text(${target}): expected NAME, OUTPUT and FILES; got ${ARGN}")
  endif()
  set(files "")
  foreach(file IN LISTS arg_FILES)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND files ${file})
  endforeach()
  set(directory ${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded)
  list(JOIN files "|" joined)
  add_custom_command(OUTPUT ${directory}/${arg_OUTPUT}
    COMMAND ${CMAKE_COMMAND} -DNAME=${arg_NAME} -DOUTPUT=${directory}/${arg_OUTPUT} "-DFILES=${joined}"
            -P ${TESSERA_PLUGIN_MODULE_DIR}/TesseraEmbed.cmake
    DEPENDS ${files} ${TESSERA_PLUGIN_MODULE_DIR}/TesseraEmbed.cmake
    COMMENT "Embedding ${arg_OUTPUT}" VERBATIM)
  target_sources(${target} PRIVATE ${directory}/${arg_OUTPUT})
  target_include_directories(${target} PRIVATE ${directory})
endfunction()

function(tessera_add_conformance_test target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LEVEL;SAMPLE;EXPECT;JUNIT" "SET;LOAD;MODEL")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_add_conformance_test(${target}): unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(arguments "")
  if(arg_EXPECT)  # a test runs in the build folder
    get_filename_component(arg_EXPECT ${arg_EXPECT} ABSOLUTE)
  endif()
  foreach(name LEVEL SAMPLE EXPECT JUNIT SET LOAD MODEL)
    string(TOLOWER ${name} option)
    foreach(value IN LISTS arg_${name})
      list(APPEND arguments --${option} ${value})
    endforeach()
  endforeach()
  add_test(NAME conformance.${target} COMMAND ${TesseraSDK_EXECUTABLE} plugin test $<TARGET_FILE:${target}> ${arguments})
  # What a plugin lacks on this machine is no fault of it.
  set_tests_properties(conformance.${target} PROPERTIES SKIP_RETURN_CODE 3)
endfunction()
