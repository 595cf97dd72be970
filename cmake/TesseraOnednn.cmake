# SPDX-License-Identifier: Apache-2.0
# tessera_link_onednn(TARGET DEFINITION PART)
# Links oneDNN and defines DEFINITION for TARGET where it is there and may be used; else PART is
# reported as left out. It runs on OpenMP, which the thread sanitizer does not understand.
function(tessera_link_onednn target definition part)
  if(TESSERA_SANITIZE MATCHES "thread" OR TESSERA_NO_OPENMP)
    tessera_left_out("${part}" "it needs OpenMP" "build without TESSERA_NO_OPENMP and the thread sanitizer")
    return()
  endif()
  # Looked for by hand: the package's own config demands OpenCL's headers.
  find_path(DNNL_INCLUDE_DIR dnnl.hpp)
  find_library(DNNL_LIBRARY dnnl)
  mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
  if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY AND OpenMP_CXX_FOUND)
    file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h major REGEX "#define DNNL_VERSION_MAJOR 2$")
  endif()
  if(NOT major)
    tessera_left_out("${part}" "dnnl 2 not found" "apt-get install libdnnl-dev (2.6)")
    return()
  endif()
  target_include_directories(${target} SYSTEM PRIVATE ${DNNL_INCLUDE_DIR})
  target_link_libraries(${target} PRIVATE ${DNNL_LIBRARY} OpenMP::OpenMP_CXX)
  target_compile_definitions(${target} PRIVATE ${definition}=1)
endfunction()
