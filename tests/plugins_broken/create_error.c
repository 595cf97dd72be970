/* SPDX-License-Identifier: Apache-2.0 */
/* create reports the fault of the machine. */
#include "common.h"

static tsr_error* refuse(const tsr_host* host, const tsr_options* options, void** instance) {
  (void)options, (void)instance;
  return host->core->error_create(TSR_ENVIRONMENT, "ACME-17", "no licence server at localhost:27000",
                                  "start the licence server");
}
BROKEN_PLUGIN(desc.create = refuse)
