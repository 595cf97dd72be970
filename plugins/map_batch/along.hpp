// SPDX-License-Identifier: Apache-2.0
// What every item reads alike, and computes again rather than read: biases and masks of attention scores that are cheap to make
// and as large as the scores of a head. With them in the loop, one kernel can make them where it needs them (`fuse`); outside
// they would be tensors.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "part.hpp"

namespace tessera::map_batch {

class Along {
 public:
  explicit Along(const Part& part);
  // Does the node that makes v, which is read as a whole, come along?
  bool takes(sdk::Value v);

 private:
  void walk(sdk::Value v, int64_t head);
  bool decide(sdk::Value v, int64_t head);

  std::set<tsr_id> inside_;
  std::map<tsr_id, int64_t> scores_;  // values that scores are made of, element by element: elements of a head
  std::map<tsr_id, bool> known_;
};

}  // namespace tessera::map_batch
