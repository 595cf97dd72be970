/* SPDX-License-Identifier: Apache-2.0 */
/* A shared library that is not a plugin; also the stand-in that missing_library links and never finds again. */
int acme_helper(void);
int acme_helper(void) { return 0; }
