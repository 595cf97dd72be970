# SPDX-License-Identifier: Apache-2.0
# Run by the link step of a plugin: copies TEMPLATE to MANIFEST with the hash of LIBRARY filled in. HASH overrides it.
if(HASH)
  set(hash "${HASH}")
else()
  file(SHA256 ${LIBRARY} digest)
  set(hash "sha256:${digest}")
endif()
file(READ ${TEMPLATE} text)
string(REPLACE "hash = \"<hash>\"" "hash = \"${hash}\"" text "${text}")
file(WRITE ${MANIFEST} "${text}")
