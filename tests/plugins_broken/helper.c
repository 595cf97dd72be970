/* SPDX-License-Identifier: Apache-2.0 */
/* A shared library that is not a plugin. */
int acme_helper(void);
int acme_helper(void) { return 0; }
