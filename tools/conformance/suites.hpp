// SPDX-License-Identifier: Apache-2.0
// The suites of the conformance kit, one per file of the same name. docs/conformance.md says what each level promises.
#pragma once

#include "check.hpp"

namespace tessera::conformance {

void add_static_checks(Subject&, Checks&);     // L0: manifest and library as files
void add_handshake_checks(Subject&, Checks&);  // L1: query, create, factories, older and newer hosts
void add_contract_checks(Subject&, Checks&);   // L2: what every backend owes its host, whatever it computes
void add_device_checks(Subject&, Checks&);     // L2 to L4: memory, copies, streams, events, graphs of a device
void add_kind_checks(Subject&, Checks&);       // L2, L3: stores, frontends, passes, partitioners, executors, op sets
void add_op_checks(Subject&, Checks&);         // L2, L3: every op against the judge

// In a fixed order, those of levels up to the settings' own. Unless `loaded`, only those that are made before anything is
// known to load: level 0, and the check that loads the plugin.
Checks all_checks(Subject&, bool loaded);

// The check whose success all others of level 1 and above rest on.
inline constexpr const char* kLoads = "handshake/loads";

}  // namespace tessera::conformance
