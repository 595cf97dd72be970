/* SPDX-License-Identifier: Apache-2.0 */
/* Provides something else than its manifest promises. */
#include "common.h"

BROKEN_PLUGIN(the_factories[0].name = "surprise")
