// SPDX-License-Identifier: Apache-2.0
// The test runner. Version 3 of Catch2 brings its own main in a library; version 2 generates it here.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
