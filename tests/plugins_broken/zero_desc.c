/* SPDX-License-Identifier: Apache-2.0 */
/* A description whose size was never set. */
#include "common.h"

BROKEN_PLUGIN(desc.struct_size = 0)
