// SPDX-License-Identifier: Apache-2.0
// cpp.custom_gradient: values whose gradient a function of the program computes (tessera/grad.hpp, custom_gradient).
#pragma once

#include <tessera/plugin.hpp>

namespace tessera::frontends {

tsr_op_impl custom_gradient();

}  // namespace tessera::frontends
