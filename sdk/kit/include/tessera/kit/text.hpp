// SPDX-License-Identifier: Apache-2.0
// The text form of kernels: parse(print(k)) prints the same again. See ir.hpp for an example.
//
//   constants   %3 = const 0.5 : f32            NaN payloads and the like as bits: const 0x7fc00001 : f32
//   indices     %4 = index p0 * 2 + floordiv(r0, 3) : i64;  %v in an index is an integer value
//   loads       %5 = load %x[p0] if %c else %d : f32
//   stores      store %y[p0], %5 if %c
//   reductions  %6 = reduce dot %a, %b : f32;   %7 = second %6 : f32
//   checks      check %c, 1
//   comments    // to the end of the line; the printer writes the origin of an instruction there
#pragma once

#include <string>
#include <string_view>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

std::string print(const Kernel& k, bool origins = false);
// Throws sdk::Error TSR-K025, which names line and column, on text that is no kernel. The result is not verified.
Kernel parse(std::string_view text);
// One function in the same syntax: func @exp_f32(%0: f32) -> f32 { .. return %9 }
std::string print(const Function& f);

}  // namespace tessera::kit
