/* SPDX-License-Identifier: Apache-2.0 */
/* Provides one name twice. */
#include "common.h"

static tsr_error* twice(void* instance, const tsr_factory** items, size_t* count, size_t* stride) {
  tsr_error* error = factories(instance, items, count, stride);
  *count = 2;
  return error;
}
BROKEN_PLUGIN(desc.factories = twice)
