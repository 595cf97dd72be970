// SPDX-License-Identifier: Apache-2.0
// A program that compiles a function: the project says nothing about the version of C++.
#include <cstdio>
#include <tessera/tessera.hpp>

int main() {
  const auto twice = tessera::compile([](const tessera::Tensor& x) { return x + x; });
  const tessera::Tensor y = twice(tessera::ones({2, 3}));
  std::printf("%lld\n", static_cast<long long>(y.numel()));
  return y.numel() == 6 ? 0 : 1;
}
