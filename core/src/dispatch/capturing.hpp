// SPDX-License-Identifier: Apache-2.0
// How deep captures nest on this thread.
#pragma once

namespace tessera::core {

class Callable;
class Frame;

// Captures nest where a capture runs a segment whose host functions call what is being captured. Throws TSR-D013 when that
// comes to no end.
class Capturing {
 public:
  Capturing(const Callable& callable, const Frame& frame);
  ~Capturing();
  Capturing(const Capturing&) = delete;
};

}  // namespace tessera::core
