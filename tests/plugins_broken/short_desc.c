/* SPDX-License-Identifier: Apache-2.0 */
/* An older, shorter description without its last field: this one must load. */
#include "common.h"

BROKEN_PLUGIN(desc.struct_size = offsetof(tsr_plugin_desc, destroy))
