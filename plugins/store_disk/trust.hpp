// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tessera::store {

// Whether nobody but this user and root can change what this folder holds: "" or what stands against it. Looks at the folder
// and at every folder above it, links resolved, since whoever can rename one of those can put another in its place.
std::string why_not_exclusive(const std::string& folder);

}  // namespace tessera::store
