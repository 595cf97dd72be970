// SPDX-License-Identifier: Apache-2.0
// Dynamic profiles that outlive the process: a later one makes what varied a symbol at its first compile.
#pragma once

#include <string>
#include <string_view>

#include "dispatch/dynamic_profile.hpp"

namespace tessera::core {

class Cache;
class Frame;

// Of one frame. Used under the lock of its misses. Only what was found dynamic is kept: a value that one process saw is no
// reason for the next to expect it.
class ProfileStore {
 public:
  // Merges what earlier processes found into `profile`; the first call looks, later ones do nothing. `cache` may be null.
  void load(Cache* cache, const Frame& frame, DynamicProfile& profile);
  // Writes when there is something that was not there before, merged with what other processes have written meanwhile.
  void save(Cache* cache, const Frame& frame, const DynamicProfile& profile);

 private:
  bool loaded_ = false;
  std::string known_;  // as it is in the cache
};

// The payload of an entry of kind "profile"; "" when nothing is dynamic.
std::string encode_profile(const DynamicProfile& profile);
// "" and merged into *out, or why the payload cannot be used.
std::string decode_profile(std::string_view payload, DynamicProfile* out);

}  // namespace tessera::core
