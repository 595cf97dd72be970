/* SPDX-License-Identifier: Apache-2.0 */
/* A pass that cannot run. */
#include "common.h"

BROKEN_PLUGIN(the_pass.run = NULL; the_pass.ensures = NULL)
