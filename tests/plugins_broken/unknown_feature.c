/* SPDX-License-Identifier: Apache-2.0 */
/* Needs a feature of the host that no host has. */
#include "common.h"

static const char* const needed[] = {"time_travel"};
BROKEN_PLUGIN(desc.features_needed = needed; desc.num_features_needed = 1)
