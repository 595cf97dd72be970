/* SPDX-License-Identifier: Apache-2.0 */
/* Needs functions that this host does not have yet. */
#include "common.h"

BROKEN_PLUGIN(desc.abi_minor_min = TSR_ABI_MINOR + 1)
