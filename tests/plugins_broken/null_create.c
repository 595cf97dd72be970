/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves out two functions that every plugin has. */
#include "common.h"

BROKEN_PLUGIN(desc.create = NULL; desc.factories = NULL)
