// SPDX-License-Identifier: Apache-2.0
// Profiles as bytes: what varied is kept, what did not is not.
#include <catch2/catch.hpp>

#include "cache/cache.hpp"
#include "dispatch/frame.hpp"
#include "dispatch/profile_store.hpp"
#include "support.hpp"

using namespace tessera::core;
using namespace tessera::test;

namespace {

DynamicProfile::Source tensor(std::vector<DynamicProfile::Number> sizes) {
  DynamicProfile::Source s;
  s.rank_state = DynamicProfile::kValue;
  s.rank = static_cast<uint32_t>(sizes.size());
  s.sizes = std::move(sizes);
  return s;
}
const DynamicProfile::Number kThree{DynamicProfile::kValue, 3}, kVaries{DynamicProfile::kDynamic, 0};

DynamicProfile sample() {
  DynamicProfile p;
  p.merge("x", tensor({kVaries, kThree}));
  p.merge("fixed", tensor({kThree}));
  DynamicProfile::Source scalar;
  scalar.scalar = kVaries;
  p.merge("lr", scalar);
  DynamicProfile::Source ranks;
  ranks.rank_state = DynamicProfile::kDynamic;
  p.merge("any", ranks);
  return p;
}

}  // namespace

TEST_CASE("a profile keeps what varied, and no values") {
  DynamicProfile read;
  REQUIRE(decode_profile(encode_profile(sample()), &read).empty());
  CHECK(read.find("fixed") == nullptr);
  REQUIRE(read.find("x"));
  CHECK(read.find("x")->size_is_dynamic(0));
  CHECK_FALSE(read.find("x")->size_is_dynamic(1));
  CHECK(read.find("x")->sizes[1].state == DynamicProfile::kUnset);
  CHECK(read.find("lr")->scalar.state == DynamicProfile::kDynamic);
  CHECK(read.find("any")->size_is_dynamic(7));
  CHECK(encode_profile(read) == encode_profile(sample()));
  DynamicProfile fixed;
  fixed.merge("x", tensor({kThree}));
  CHECK(encode_profile(fixed).empty());
}

TEST_CASE("a profile that is cut short or nonsense merges nothing") {
  const std::string bytes = encode_profile(sample());
  size_t accepted = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    DynamicProfile read;
    const std::string why = decode_profile(std::string_view(bytes).substr(0, n), &read);
    accepted += why.empty();
    if (!why.empty()) CHECK(read.sources().empty());
  }
  CHECK(accepted == 3);  // nothing, after the first source, after the second
  for (size_t i = 0; i < bytes.size(); ++i)
    for (const int value : {0, 1, 3, 127, 255}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(value);
      DynamicProfile read;
      decode_profile(changed, &read);
    }
}

TEST_CASE("processes add to a profile of one function") {
  const TemporaryFolder folder;
  const Frame fn("fn", "a.cpp", 1, {}), other("fn", "a.cpp", 2, {});
  const auto found = [&](const Frame& frame) {
    ProfileStore store;
    DynamicProfile p;
    store.load(make_context(folder.path)->cache(), frame, p);
    return p;
  };
  DynamicProfile first, second;
  first.merge("x", tensor({kVaries, kThree}));
  second.merge("x", tensor({kThree, kVaries}));
  {
    const auto a = make_context(folder.path), b = make_context(folder.path);
    ProfileStore one, two;
    DynamicProfile nothing;
    one.load(a->cache(), fn, nothing);
    two.load(b->cache(), fn, nothing);  // before the first one writes
    one.save(a->cache(), fn, first);
    two.save(b->cache(), fn, second);
  }
  CHECK(found(fn).find("x")->size_is_dynamic(0));
  CHECK(found(fn).find("x")->size_is_dynamic(1));
  CHECK(found(other).sources().empty());
  ProfileStore without;
  DynamicProfile p = first;
  without.load(nullptr, fn, p);
  without.save(nullptr, fn, p);
}
