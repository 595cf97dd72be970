/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a function that no library defines. */
#include "common.h"

extern int acme_forgotten_function(void);
BROKEN_PLUGIN(if (acme_forgotten_function()) desc.struct_size = 0)
