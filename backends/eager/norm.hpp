// SPDX-License-Identifier: Apache-2.0
// Factories of softmax (softmax.cpp) and of the normalisations (norm.cpp).
#pragma once

#include "build.hpp"

namespace eager {

KernelPtr make_softmax(const Build&, int log);
KernelPtr make_layer_norm(const Build&, int rms);
KernelPtr make_group_norm(const Build&, int);
KernelPtr make_batch_norm(const Build&, int);
KernelPtr make_batch_norm_training(const Build&, int);

}  // namespace eager
