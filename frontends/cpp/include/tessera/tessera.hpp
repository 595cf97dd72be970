// SPDX-License-Identifier: Apache-2.0
// The C++ frontend in one header.
#pragma once

#include "tessera/breaks.hpp"
#include "tessera/compile.hpp"
#include "tessera/explain.hpp"
#include "tessera/flatten.hpp"
#include "tessera/grad.hpp"
#include "tessera/init.hpp"
#include "tessera/nn.hpp"
#include "tessera/ops.hpp"
#include "tessera/optim.hpp"
#include "tessera/policy.hpp"
#include "tessera/safetensors.hpp"
#include "tessera/tensor.hpp"
#include "tessera/types.hpp"
