# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` writes besides the SDK and the plugins, which install themselves, and the Tessera package for
# programs that embed the compiler: find_package(Tessera) -> Tessera::tessera, Tessera::cpp.
include(CMakePackageConfigHelpers)

# configs/ and the templates beside the build tree's binary, where the installed binary finds them too. Links, so that an
# edit is seen without a build step.
function(tessera_link_runtime_data)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/tessera ${PROJECT_BINARY_DIR}/bin ${TESSERA_PLUGIN_OUTPUT_DIRECTORY})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/configs ${PROJECT_BINARY_DIR}/share/tessera/configs SYMBOLIC)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/sdk/templates ${PROJECT_BINARY_DIR}/share/tessera/templates SYMBOLIC)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/sdk/conformance ${PROJECT_BINARY_DIR}/share/tessera/conformance SYMBOLIC)
endfunction()

function(tessera_install)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
  if(TARGET tessera_command)
    install(TARGETS tessera_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/configs)
    install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/configs FILES_MATCHING PATTERN "*.toml")
  endif()
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png")
  install(DIRECTORY examples/plugins DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/examples)
  if(NOT TARGET tessera)
    return()
  endif()

  set(exported tessera)
  set_target_properties(tessera PROPERTIES EXPORT_NAME tessera)
  install(DIRECTORY core/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  if(TARGET tessera_cpp)
    list(APPEND exported tessera_cpp tessera_npz)
    set_target_properties(tessera_cpp PROPERTIES EXPORT_NAME cpp)
    set_target_properties(tessera_npz PROPERTIES EXPORT_NAME npz)
    install(DIRECTORY frontends/cpp/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
            FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  endif()
  install(TARGETS ${exported} EXPORT TesseraTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${package_dir})
  configure_package_config_file(cmake/TesseraConfig.cmake.in TesseraConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/TesseraConfig.cmake ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
          DESTINATION ${package_dir})
endfunction()
