/* SPDX-License-Identifier: Apache-2.0 */
/* A factory array whose elements are too small. */
#include "common.h"

static tsr_error* narrow(void* instance, const tsr_factory** items, size_t* count, size_t* stride) {
  tsr_error* error = factories(instance, items, count, stride);
  *stride = 8;
  return error;
}
BROKEN_PLUGIN(desc.factories = narrow)
