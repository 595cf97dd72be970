/* SPDX-License-Identifier: Apache-2.0 */
/* A device of a library that was built for an older ABI, whose device table had another layout. */
#include "common.h"

BROKEN_PLUGIN(desc.abi_minor = desc.abi_minor_min = 1; the_factories[0].kind = TSR_DEVICE)
