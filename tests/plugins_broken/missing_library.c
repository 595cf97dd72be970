/* SPDX-License-Identifier: Apache-2.0 */
/* Needs a shared library that is not installed. */
#include "common.h"

extern int acme_helper(void);
BROKEN_PLUGIN(if (acme_helper()) desc.struct_size = 0)
