// SPDX-License-Identifier: Apache-2.0
// Special functions that the C library lacks, in f64.
#pragma once

namespace eager {

double erfinv(double x);     // infinite at -1 and 1, NaN beyond
double digamma(double x);    // -inf at 0.0, inf at -0.0, NaN at negative integers
double log_gamma(double x);  // log |gamma(x)|; thread-safe, unlike lgamma with its global sign

}  // namespace eager
