/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest plugin that C can say: a pass that changes nothing. */
#include <tessera/abi.h>

static tsr_error* run(void* self, tsr_graph* graph, const tsr_options* options, int* changed) {
  (void)self, (void)graph, (void)options;
  *changed = 0;
  return NULL;
}

static const tsr_pass pass = {sizeof(tsr_pass), "does nothing", "nothing", run};
static const tsr_factory factory = {TSR_PASS, 0, "nothing", &pass, NULL};

static tsr_error* create(const tsr_host* host, const tsr_options* options, void** instance) {
  (void)host, (void)options;
  *instance = NULL;
  return NULL;
}

static tsr_error* factories(void* instance, const tsr_factory** items, size_t* count, size_t* stride) {
  (void)instance;
  *items = &factory;
  *count = 1;
  *stride = sizeof factory;
  return NULL;
}

static void destroy(void* instance) { (void)instance; }

TSR_EXPORT const tsr_plugin_desc* tsr_plugin_query(const tsr_host_info* host) {
  static const tsr_plugin_desc desc = {.struct_size = sizeof(tsr_plugin_desc),
                                       .abi_major = TSR_ABI_MAJOR,
                                       .abi_minor = TSR_ABI_MINOR,
                                       .abi_minor_min = TSR_ABI_MINOR,
                                       .ir_min = TSR_IR_VERSION,
                                       .ir_max = TSR_IR_VERSION,
                                       .id = TSR_PLUGIN_ID,
                                       .version = TSR_PLUGIN_VERSION,
                                       .vendor = TSR_PLUGIN_VENDOR,
                                       .sanitizer = TSR_PLUGIN_SANITIZER,
                                       .build_info = TESSERA_PLUGIN_BUILD_INFO,
                                       .create = create,
                                       .factories = factories,
                                       .destroy = destroy};
  (void)host;
  return &desc;
}
