/* SPDX-License-Identifier: Apache-2.0 */
/* A pass whose table ends before its function. */
#include "common.h"

BROKEN_PLUGIN(the_pass.struct_size = offsetof(tsr_pass, run))
