/* SPDX-License-Identifier: Apache-2.0 */
/* Built with another sanitizer than its manifest says. */
#include "common.h"

BROKEN_PLUGIN(desc.sanitizer = "memory")
