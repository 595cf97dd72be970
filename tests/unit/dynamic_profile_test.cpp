// SPDX-License-Identifier: Apache-2.0
// Automatic dynamic shapes: the lattice, and what it makes of arguments. Marks.
#include <catch2/catch.hpp>

#include "dispatch/dynamic_profile.hpp"
#include "dispatch/input_policy.hpp"
#include "fake_backend.hpp"
#include "host_support.hpp"
#include "memory/tensor.hpp"
#include "support/error.hpp"

namespace dynamic_profile_test {

using namespace tessera::core;
using namespace tessera::test;

namespace {

tsr_arg tensor_arg(const TensorRef& t) {
  tsr_arg a{};
  a.kind = TSR_ARG_TENSOR;
  a.role = TSR_INPUT_ARG;
  a.tensor = t.get();
  return a;
}
TensorRef made(std::vector<int64_t> sizes) { return TensorRef(tensor_create(TSR_F32, sizes, 0)); }

// Which dimensions of the last tensor become symbols after all of them came to one source.
std::string dynamic(const std::vector<std::vector<int64_t>>& shapes, GuardPolicy policy = {}) {
  DynamicProfile profile;
  TensorRef last;
  for (const auto& s : shapes) {
    last = made(s);
    profile.see("x", tensor_arg(last));
  }
  std::string out;
  for (const DimPolicy& d : input_policy(policy, profile, "x", tensor_arg(last), 0, {}).dims)
    out += d.kind == DimPolicy::kFixed ? '.' : d.kind == DimPolicy::kSymbol ? 's' : 'u';
  return out;
}

}  // namespace

TEST_CASE("a size that changed is a symbol, each for itself") {
  CHECK(dynamic({{3, 4}}) == "..");
  CHECK(dynamic({{3, 4}, {3, 4}}) == "..");
  CHECK(dynamic({{3, 4}, {5, 4}}) == "s.");
  CHECK(dynamic({{3, 4}, {5, 4}, {5, 6}}) == "ss");
  CHECK(dynamic({{3, 4}, {5, 4}, {3, 4}}) == "s.");
  CHECK(dynamic({{3, 4}, {3, 4, 5}}) == "sss");  // another rank: nothing says which size is which
  CHECK(dynamic({{3, 4}, {3, 4, 5}, {3, 4}}) == "ss");
  CHECK(dynamic({{3}, {1}}) == ".");  // 0 and 1 are numbers
  CHECK(dynamic({{3}, {0}}) == ".");
}

TEST_CASE("policies for sizes") {
  GuardPolicy never, always, unbacked, plain, ones, all;
  never.dynamic = GuardPolicy::kFalse;
  CHECK(dynamic({{3}, {4}}, never) == ".");
  always.dynamic = GuardPolicy::kTrue;
  CHECK(dynamic({{3, 1}}, always) == "s.");
  unbacked.automatic_unbacked = true;
  CHECK(dynamic({{3}, {4}}, unbacked) == "u");
  plain.automatic = false;
  CHECK(dynamic({{3}, {4}}, plain) == ".");
  ones.dynamic = GuardPolicy::kTrue;
  ones.specialize_one = false;
  CHECK(dynamic({{3, 1, 0}}, ones) == "ss.");
  all = ones;
  all.specialize_zero = false;
  CHECK(dynamic({{3, 1, 0}}, all) == "sss");
  GuardPolicy eager;
  eager.assume_static = false;
  CHECK(dynamic({{3}}, eager) == "s");
}

TEST_CASE("profiles merge to the least upper bound, in any order") {
  const TensorRef a = made({3, 4}), b = made({5, 4}), c = made({3});
  const auto of = [](const TensorRef& t) { return DynamicProfile::of(tensor_arg(t)); };
  const DynamicProfile::Source parts[] = {of(a), of(b), of(c)};
  for (const auto& x : parts)
    for (const auto& y : parts) {
      DynamicProfile::Source xy = x, yx = y, twice;
      xy.merge(y);
      yx.merge(x);
      CHECK(xy == yx);
      twice = xy;
      twice.merge(xy);
      CHECK(twice == xy);
    }
  DynamicProfile::Number n;
  n.merge(3);
  CHECK(n.state == DynamicProfile::kValue);
  n.merge(3);
  CHECK(n.state == DynamicProfile::kValue);
  n.merge(4);
  CHECK(n.state == DynamicProfile::kDynamic);
}

TEST_CASE("marks: the last one of a dimension wins, equal sets are one") {
  const TensorRef a = made({3, 4, 5}), b = made({3, 4, 5});
  mark_tensor(*a, 0, TSR_MARK_DYNAMIC, 2, 8);
  mark_tensor(*a, -1, TSR_MARK_STATIC, 0, INT64_MAX);
  mark_tensor(*b, 2, TSR_MARK_STATIC, 0, INT64_MAX);
  CHECK(a->marks != b->marks);
  mark_tensor(*b, 0, TSR_MARK_UNBACKED, 0, 9);
  mark_tensor(*b, 0, TSR_MARK_DYNAMIC, 2, 8);
  CHECK(a->marks == b->marks);
  CHECK(marks_of(a->marks).size() == 2);
  CHECK(mark_of(a->marks, 1) == nullptr);
  CHECK(error_of([&] { mark_tensor(*a, 3, TSR_MARK_STATIC, 0, 1); }).substr(0, 9) == "TSR-D003 ");
  CHECK(error_of([&] { mark_tensor(*a, 0, TSR_MARK_DYNAMIC, 5, 4); }).substr(0, 9) == "TSR-D003 ");
  CHECK(error_of([&] { mark_tensor(*a, 0, 17, 0, 4); }).substr(0, 9) == "TSR-D003 ");
  GuardPolicy policy;
  policy.dynamic = GuardPolicy::kFalse;
  const auto dims = input_policy(policy, {}, "x", tensor_arg(a), 0, {}).dims;
  CHECK(dims[0].kind == DimPolicy::kSymbol);
  CHECK((dims[0].min == 2 && dims[0].max == 8));
  CHECK(dims[2].kind == DimPolicy::kFixed);
  const TensorRef large = made({9});
  mark_tensor(*large, 0, TSR_MARK_DYNAMIC, 2, 8);
  CHECK(error_of([&] { input_policy(policy, {}, "x", tensor_arg(large), 0, {}); }).substr(0, 9) == "TSR-D002 ");
  const TensorRef one = made({1});
  mark_tensor(*one, 0, TSR_MARK_DYNAMIC, 0, 8);
  CHECK(error_of([&] { input_policy(policy, {}, "x", tensor_arg(one), 0, {}); }).substr(0, 9) == "TSR-D001 ");
}

}  // namespace dynamic_profile_test
