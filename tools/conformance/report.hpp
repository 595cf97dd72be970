// SPDX-License-Identifier: Apache-2.0
// A run as text for people, as JUnit XML for continuous integration, and as one HTML page.
#pragma once

#include <string>

#include "run.hpp"

namespace tessera::conformance {

std::string junit_xml(const Run&, const Manifest&);
std::string html_page(const Run&, const Manifest&, int level);

}  // namespace tessera::conformance
