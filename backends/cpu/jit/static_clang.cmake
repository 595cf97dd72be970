# SPDX-License-Identifier: Apache-2.0
# tessera_cpu_static_clang(TARGET)    links the parts of clang and LLVM that TARGET uses into it, for a package that brings its
# compiler along: a
# third of what the shared libraries take, and none of what those depend on.
function(tessera_cpu_static_clang target)
  cmake_path(GET LLVM19_INCLUDE_DIR PARENT_PATH prefix)
  execute_process(COMMAND ${prefix}/bin/llvm-config --link-static --libs x86 orcjit passes coverage frontendopenmp frontendhlsl
    frontenddriver windowsdriver lto option OUTPUT_VARIABLE llvm OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(llvm)
  list(FILTER llvm EXCLUDE REGEX Polly)  # polly.cpp stands for it
  set(clang "")
  foreach(part IN ITEMS Frontend CodeGen Driver Serialization Parse Sema Analysis AnalysisFlowSensitive
    AnalysisFlowSensitiveModels Edit AST
                        ASTMatchers Lex Basic Support APINotes ExtractAPI InstallAPI Rewrite ToolingCore IndexSerialization
                          Index)
    if(EXISTS ${prefix}/lib/libclang${part}.a)
      list(APPEND clang clang${part})
    endif()
  endforeach()
  find_package(ZLIB REQUIRED)
  find_library(ZSTD_LIBRARY NAMES zstd libzstd.so.1 REQUIRED)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/jit/polly.cpp)
  target_link_directories(${target} PRIVATE ${prefix}/lib)
  target_link_libraries(${target} PRIVATE -Wl,--start-group ${clang} ${llvm} -Wl,--end-group ZLIB::ZLIB ${ZSTD_LIBRARY}
    ${CMAKE_DL_LIBS} m rt)
  target_link_options(${target} PRIVATE -Wl,--gc-sections -Wl,--icf=all -Wl,--exclude-libs,ALL -Wl,-s -Wl,-z,defs)
endfunction()
