// SPDX-License-Identifier: Apache-2.0
// What people see of a compile: its graphs and steps in the trace and in a debug folder, its plan in the log.
#pragma once

#include "compile/driver.hpp"

namespace tessera::core {

class ShowHook final : public StageHook {
 public:
  bool before(Stage stage, Compilation& c) override;
  void after(Stage stage, Compilation& c) override;
};

}  // namespace tessera::core
