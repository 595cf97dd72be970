/* SPDX-License-Identifier: Apache-2.0 */
/* A C program over the embedding API: finds the table and asks for its version. */
#include <stdio.h>
#include <tessera/embed.h>

int main(void) {
  const tsr_api* api = tsr_get_api(TSR_ABI_MAJOR);
  if (!api || api->abi_major != TSR_ABI_MAJOR) return 1;
  printf("tessera %s\n", api->version);
  return tsr_get_api(TSR_ABI_MAJOR + 1) != NULL;
}
