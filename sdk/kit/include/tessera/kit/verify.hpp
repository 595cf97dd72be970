// SPDX-License-Identifier: Apache-2.0
// The verifier: what every kernel must fulfil. Each line is one check of verify(), with a negative test.
//
//  V1  an instruction stands once in a body, and every instruction and loop stands in one V2  operands are defined before, in
//  the same body or one around it; of a loop's values only reductions are seen after it V3  every op has as many operands as it
//  takes V4  operand and result types fit the op: arithmetic on compute types, bitcast between equal widths, select and
//  predicates on bool, .. V5  an index mentions axes of loops around it, known symbols, and i32, i64, u32 or u64 values that
//  are defined V6  loads and stores name a buffer of the right type and access; a predicated load has a value for the other
//  case V7  reduce stands in a loop, `second` after the loop of a reduction with two results V8  functions exist and get the
//  types of their parameters V9  an axis belongs to the parallel axes or to loops, and no loop is inside another over the same
//  axis V10 an index is not provably outside its buffer
#pragma once

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

// Throws sdk::Error TSR-K020 (a bug of what made the kernel) that names the check, the instruction and what was expected.
void verify(Kernel& k);

}  // namespace tessera::kit
