/* SPDX-License-Identifier: Apache-2.0 */
/* Provides a kind that does not exist, beside one without a name. */
#include "common.h"

static tsr_error* two(void* instance, const tsr_factory** items, size_t* count, size_t* stride) {
  tsr_error* error = factories(instance, items, count, stride);
  *count = 2;
  return error;
}
BROKEN_PLUGIN(the_factories[0].kind = 99; the_factories[1].name = NULL; desc.factories = two)
