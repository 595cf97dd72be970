# SPDX-License-Identifier: Apache-2.0
# A part that this machine cannot build is left out with one line that says what is missing and how to get it. The lines
# are printed at the end of configuring and kept in left_out.txt, from where `./dev` repeats them after a build.

# tessera_left_out("the cuda backend" "nvcc not found" "install the CUDA toolkit, 12.0 or newer")
function(tessera_left_out part reason remedy)
  set_property(GLOBAL APPEND PROPERTY TESSERA_LEFT_OUT "left out: ${part} (${reason})\\; to get it: ${remedy}")
endfunction()

function(tessera_report)
  get_property(lines GLOBAL PROPERTY TESSERA_LEFT_OUT)
  set(text "")
  foreach(line IN LISTS lines)
    message(STATUS "${line}")
    string(APPEND text "${line}\n")
  endforeach()
  file(WRITE ${PROJECT_BINARY_DIR}/left_out.txt "${text}")
endfunction()
