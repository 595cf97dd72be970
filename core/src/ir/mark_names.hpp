// SPDX-License-Identifier: Apache-2.0
// The words for marks of nodes in the text form: mark(backward, recomputed).
#pragma once

#include <array>

#include "tessera/abi.h"

namespace tessera::core {

struct MarkName {
  uint32_t mark;
  const char* name;
};
inline constexpr std::array<MarkName, 4> kMarkNames = {{{TSR_MARK_BACKWARD, "backward"},
                                                        {TSR_MARK_RECOMPUTED, "recomputed"},
                                                        {TSR_MARK_CHECKPOINT, "checkpoint"},
                                                        {TSR_MARK_SAVE, "save"}}};

}  // namespace tessera::core
