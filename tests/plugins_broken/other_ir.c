/* SPDX-License-Identifier: Apache-2.0 */
/* Reads another version of the graph tables than its manifest says. */
#include "common.h"

BROKEN_PLUGIN(desc.ir_min = desc.ir_max = TSR_IR_VERSION + 6)
