/* SPDX-License-Identifier: Apache-2.0 */
/* Is another plugin than its manifest says. */
#include "common.h"

BROKEN_PLUGIN(desc.id = "acme.pass.other"; desc.version = "9.9.9")
