// SPDX-License-Identifier: Apache-2.0
// tessera.opset.standard: the ops that every frontend, pass and backend of Tessera speaks.
//
// To add an op
//   1. write its record in records/*.tops: signature, traits, doc, numerics, and, for a composite, decompose { }, and grad { }
//      when it is differentiable;
//   2. a primitive also needs a kernel in the reference backend and one in the eager backend: each finds kernels by name.
// That is all when the patterns of the record give the result types and the bodies are straight-line text. What text cannot
// say is a callback in the file of its topic here (infer_*.cpp, view.cpp, decompose_*.cpp, grad_*.cpp, cost.cpp): write the
// function and enter it in the add_* function at the end of that file. A composite with callbacks of one topic thus touches
// two files, a primitive four at most. The sources are found by CMake, the records embedded by it.
#include "tessera/plugin.hpp"
#include "opset.hpp"

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_raw(TSR_OPSET, "standard", tessera::opset::tessera_standard_opset(), nullptr);
}
