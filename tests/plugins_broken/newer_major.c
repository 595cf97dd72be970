/* SPDX-License-Identifier: Apache-2.0 */
/* Built for an incompatible future; everything after the versions means something else there. */
#include "common.h"

BROKEN_PLUGIN(desc.abi_major = TSR_ABI_MAJOR + 1; memset(&desc.id, 0x5a, sizeof desc - offsetof(tsr_plugin_desc, id)))
