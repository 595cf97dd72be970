/* SPDX-License-Identifier: Apache-2.0 */
/* A description too short to hold what the host must know. */
#include "common.h"

BROKEN_PLUGIN(desc.struct_size = offsetof(tsr_plugin_desc, id))
