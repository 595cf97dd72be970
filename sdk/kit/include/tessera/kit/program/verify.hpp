// SPDX-License-Identifier: Apache-2.0
// The verifier of programs: what every program must fulfil. Each line is one check, with a negative test.
//
// clang-format off
//  P1  a statement stands once in a body, and every statement stands in one
//  P2  operands are defined before, in the same body or one around it
//  P3  instructions take operands of the number and types that they have in kernels
//  P4  an index mentions axes of loops around it, known symbols, and integer values that are defined
//  P5  a launch begins with its grid, cluster and then block, or warp and lane loops, each the whole body of the one before;
//      these stand nowhere else
//  P6  lanes are as many as the wave, threads a number that is no more than the device has; blocks depend on symbols alone
//  P7  unroll and vector loops have a number of points, and an axis belongs to one loop
//  P8  an index is not provably outside its buffer
//  P9  registers and shared memory have a number of elements, belong to the launch that uses them and fit the device
// P10  registers are indexed by unroll and vector axes and numbers alone, and provably inside
// P11  a vector loop is one load and the store of its value, side by side on both sides, of 2 to 16 bytes, and memory is
//      aligned to all of it
// P12  inputs are never stored, outputs are loaded only if `inout` or stored before, workspaces only if an earlier launch
//      stores them
// P13  a barrier stands where all of its threads come together: no `if` and no loop around it that depends on which thread it
//      is
// P14  a shuffle stands where all lanes of the wave come together, and names lanes that there are
// P15  functions and tables exist, faults are known
// P16  a matrix instruction stands where all lanes of the wave come together, on a device that has it; its shares lie in
//      registers of its types, and begin at multiples of their sizes
// P17  one of four waves stands where all threads of the block come together, on a device that has it; its sums lie in
//      registers, its factors, whose parts do not overlap, in shared memory at multiples of 1,024 bytes
// P18  a copy brings 4, 8 or 16 bytes, aligned to as many on both sides, from an input that no output may lie in to shared
//      memory of the same type, on a device that has copies; a wait names a number
// clang-format on
#pragma once

#include "tessera/kit/program/device.hpp"
#include "tessera/kit/program/program.hpp"

namespace tessera::kit {

// Throws sdk::Error TSR-K024 (a bug of what made the program) that names the check, the statement and what was expected.
void verify(Program& p, const GpuDescription& device);

}  // namespace tessera::kit
