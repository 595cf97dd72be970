/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing is broken: the base from which tests damage manifests. */
#include "common.h"

BROKEN_PLUGIN((void)0)
