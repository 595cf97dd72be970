# SPDX-License-Identifier: Apache-2.0

# Adds one directory if it has a CMakeLists.txt and TESSERA_SKIP does not name it.
macro(tessera_add_component directory)
  if(NOT "${directory}" IN_LIST TESSERA_SKIP AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${directory}/CMakeLists.txt)
    add_subdirectory(${directory})
  endif()
endmacro()

# tessera_add_components(plugins [EXCLUDE name...])
# Adds every child of a directory that has a CMakeLists.txt, in alphabetical order: a new plugin needs no edit here. A
# directory with a CMakeLists.txt of its own (order or conditions matter) is added as a whole instead.
function(tessera_add_components directory)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "EXCLUDE")
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${directory}/CMakeLists.txt)
    add_subdirectory(${directory})
    return()
  endif()
  file(GLOB lists CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${directory}/*/CMakeLists.txt)
  foreach(list IN LISTS lists)
    cmake_path(GET list PARENT_PATH child)
    cmake_path(GET child FILENAME name)
    if(NOT name IN_LIST arg_EXCLUDE AND NOT "${directory}/${name}" IN_LIST TESSERA_SKIP)
      add_subdirectory(${child})
    endif()
  endforeach()
endfunction()
