/* SPDX-License-Identifier: Apache-2.0 */
/* A sound plugin with one pass, in plain C. Each file of this directory breaks one thing of it. */
#ifndef BROKEN_COMMON_H
#define BROKEN_COMMON_H

#include <string.h>
#include <tessera/abi.h>

static const tsr_host* the_host;

static tsr_error* run(void* self, tsr_graph* graph, const tsr_options* options, int* changed) {
  (void)self, (void)graph, (void)options;
  *changed = 0;
  return NULL;
}
static tsr_pass the_pass = {sizeof(tsr_pass), "does nothing", "nothing", run, TSR_STAGE_GRAPH, 0};
static tsr_factory the_factories[2] = {{TSR_PASS, 0, BROKEN_NAME, &the_pass, NULL},
                                       {TSR_PASS, 0, BROKEN_NAME, &the_pass, NULL}};

static tsr_error* create(const tsr_host* host, const tsr_options* options, void** instance) {
  (void)options;
  the_host = host;
  *instance = &the_pass;
  return NULL;
}
static tsr_error* factories(void* instance, const tsr_factory** items, size_t* count, size_t* stride) {
  (void)instance;
  *items = the_factories;
  *count = 1;
  *stride = sizeof the_factories[0];
  return NULL;
}
static void destroy(void* instance) { (void)instance; }

static tsr_plugin_desc sound_desc(void) {
  tsr_plugin_desc d;
  memset(&d, 0, sizeof d);
  d.struct_size = sizeof d;
  d.abi_major = TSR_ABI_MAJOR;
  d.abi_minor = d.abi_minor_min = TSR_ABI_MINOR;
  d.ir_min = d.ir_max = TSR_IR_VERSION;
  d.id = TSR_PLUGIN_ID;
  d.version = TSR_PLUGIN_VERSION;
  d.vendor = TSR_PLUGIN_VENDOR;
  d.sanitizer = TSR_PLUGIN_SANITIZER;
  d.build_info = "as CMake built it";
  d.create = create;
  d.factories = factories;
  d.destroy = destroy;
  return d;
}

/* The exported symbol; BREAK edits `desc`, the_pass or the_factories. */
#define BROKEN_PLUGIN(BREAK)                                                      \
  TSR_EXPORT const tsr_plugin_desc* tsr_plugin_query(const tsr_host_info* host) { \
    static tsr_plugin_desc desc;                                                  \
    the_host = host;                                                              \
    desc = sound_desc();                                                          \
    BREAK;                                                                        \
    return &desc;                                                                 \
  }

#endif
