// SPDX-License-Identifier: Apache-2.0
// Loops of elementwise ops: the function comes as a plain pointer per domain, NULL where the record excludes the dtype.
#pragma once

#include "op.hpp"

namespace tessera::reference {

using RealUnary = double (*)(double);
using IntUnary = Int (*)(Int);
using ComplexUnary = Complex (*)(Complex);
using RealBinary = double (*)(double, double);
using IntBinary = Int (*)(Int, Int);
using ComplexBinary = Complex (*)(Complex, Complex);

void unary(const Op&, RealUnary, IntUnary = nullptr, ComplexUnary = nullptr);
void binary(const Op&, RealBinary, IntBinary = nullptr, ComplexBinary = nullptr);

}  // namespace tessera::reference
