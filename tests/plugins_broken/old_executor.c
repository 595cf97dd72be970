/* SPDX-License-Identifier: Apache-2.0 */
/* An executor of a library that was built for an older ABI, whose functions took other arguments. */
#include "common.h"

BROKEN_PLUGIN(desc.abi_minor = desc.abi_minor_min = 2; the_factories[0].kind = TSR_EXECUTOR)
