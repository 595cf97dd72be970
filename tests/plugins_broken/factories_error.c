/* SPDX-License-Identifier: Apache-2.0 */
/* factories reports a bug of its own. */
#include "common.h"

static tsr_error* fail(void* instance, const tsr_factory** items, size_t* count, size_t* stride) {
  (void)instance, (void)items, (void)count, (void)stride;
  return the_host->core->error_create(TSR_BUG, "ACME-99", "the table of passes is empty", NULL);
}
BROKEN_PLUGIN(desc.factories = fail)
