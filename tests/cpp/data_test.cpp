// SPDX-License-Identifier: Apache-2.0
// Loaders: what an epoch holds, the same batches from the same seed, and runs that go on where they stopped.
#include <unistd.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include <tessera/data.hpp>
#include <tessera/tessera.hpp>

#include "npz/npz.hpp"

using namespace tessera;

namespace {

struct File {
  std::string path;
  explicit File(const char* name)
      : path((std::filesystem::temp_directory_path() / ("tessera_data_" + std::to_string(::getpid()) + name)).string()) {}
  ~File() { std::filesystem::remove(path); }
};

data::Rows numbers(int64_t n) { return data::Rows({arange(n), arange(n).to(f32).reshape({n, 1}).expand({n, 3})}); }

std::vector<int64_t> first_field(data::Loader& loader, int64_t batches) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < batches; ++i)
    for (const int64_t v : loader.next().at(0).to_vector<int64_t>()) out.push_back(v);
  return out;
}

}  // namespace

TEST_CASE("windows of a text are followed by their targets") {
  const File file(".txt");
  std::ofstream(file.path, std::ios::binary) << "hello, world\xff";
  const data::TextWindows text(file.path, 4);
  REQUIRE(text.size() == 3);
  const int64_t all[] = {0, 2};
  const std::vector<Tensor> b = text.batch(all);
  const auto letters = [](const Tensor& t) {
    std::string s;
    for (const int64_t v : t.to_vector<int64_t>()) s += static_cast<char>(v);
    return s;
  };
  CHECK(b[0].sizes() == std::vector<int64_t>{2, 4});
  CHECK(letters(b[0]) == "hellorld");
  CHECK(letters(b[1]) == "ellorld\xff");
  CHECK(data::TextWindows(file.path, 4, 1).size() == 9);
  CHECK_THROWS_WITH(data::TextWindows(file.path, 13), Catch::Contains("TSR-F058") && Catch::Contains("13 bytes"));
  CHECK_THROWS_WITH(data::TextWindows(file.path, 0), Catch::Contains("TSR-F058"));
  CHECK_THROWS_AS(data::TextWindows("/nowhere/at/all", 4), EnvironmentError);
}

TEST_CASE("an epoch holds every example once, in an order of its own") {
  const data::Rows rows = numbers(10);
  data::Loader loader(rows, {.batch = 3, .seed = 7, .drop_last = false});
  CHECK(loader.batches_per_epoch() == 4);
  std::vector<int64_t> first = first_field(loader, 4), second = first_field(loader, 4);
  CHECK(first != second);
  CHECK(loader.epoch() == 2);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  std::vector<int64_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  CHECK(first == all);
  CHECK(second == all);
  data::Loader ordered(rows, {.batch = 5, .shuffle = false, .prefetch = 0});
  CHECK(first_field(ordered, 2) == all);
  // The order is a function of seed and epoch on every machine.
  CHECK(data::permutation(8, 1, 0) == data::permutation(8, 1, 0));
  CHECK(data::permutation(8, 1, 0) != data::permutation(8, 2, 0));
}

TEST_CASE("batches do not depend on how many are made ahead, and go on from a position") {
  const data::Rows rows = numbers(23);
  std::vector<int64_t> expected;
  {
    data::Loader loader(rows, {.batch = 4, .seed = 3, .prefetch = 0});
    expected = first_field(loader, 30);
  }
  for (const int64_t prefetch : {1, 2, 7})
    for (const int64_t stop : {0, 1, 5, 13}) {
      data::Loader loader(rows, {.batch = 4, .seed = 3, .prefetch = prefetch});
      std::vector<int64_t> found = first_field(loader, stop);
      const Tensor position = loader.position();
      first_field(loader, 3);  // what is thrown away
      data::Loader other(rows, {.batch = 4, .seed = 3, .prefetch = prefetch});
      other.seek(position);
      for (const int64_t v : first_field(other, 15 - stop)) found.push_back(v);
      loader.seek(other.position());
      for (const int64_t v : first_field(loader, 15)) found.push_back(v);
      CHECK(found == expected);
    }
}

TEST_CASE("positions of other data and options out of range are refused") {
  const data::Rows rows = numbers(23), fewer = numbers(22);
  data::Loader loader(rows, {.batch = 4, .seed = 3});
  const Tensor position = loader.position();
  CHECK_THROWS_WITH(data::Loader(fewer, {.batch = 4, .seed = 3}).seek(position),
                    Catch::Contains("TSR-F058") && Catch::Contains("23 examples"));
  CHECK_THROWS_WITH(data::Loader(rows, {.batch = 4, .seed = 4}).seek(position), Catch::Contains("seed 3"));
  CHECK_THROWS_WITH(loader.seek(tensor(std::vector<int64_t>{0, 99, 3, 23})), Catch::Contains("batch 99 of epoch 0"));
  CHECK_THROWS_WITH(loader.seek(zeros({4})), Catch::Contains("i64[4]"));
  CHECK_THROWS_WITH(data::Loader(rows, {.batch = 24}), Catch::Contains("23 examples makes no batch of 24"));
  CHECK_THROWS_WITH(data::Loader(rows, {.batch = 0}), Catch::Contains("TSR-F058"));
  CHECK_THROWS_WITH(data::Rows({zeros({3}), zeros({4})}), Catch::Contains("4 rows"));
}

TEST_CASE("what a dataset throws is thrown by the loader") {
  struct Failing : data::Dataset {
    int64_t size() const override { return 4; }
    std::vector<Tensor> batch(std::span<const int64_t>) const override { throw std::runtime_error("no such row"); }
  } failing;
  for (const int64_t prefetch : {0, 2}) {
    data::Loader loader(failing, {.batch = 2, .prefetch = prefetch});
    CHECK_THROWS_WITH(loader.next(), "no such row");
  }
}

TEST_CASE("arrays of an .npz file are fields") {
  const File file(".npz");
  npz::Array x{"x", "<f4", {4, 2}, std::vector<std::byte>(32)}, y{"y", "<i8", {4}, std::vector<std::byte>(32)};
  for (int i = 0; i < 8; ++i) reinterpret_cast<float*>(x.data.data())[i] = static_cast<float>(i) / 2;
  for (int i = 0; i < 4; ++i) reinterpret_cast<int64_t*>(y.data.data())[i] = 10 * i;
  const npz::Array arrays[] = {x, y};
  npz::write(file.path, arrays, true);
  const data::Rows rows = data::Rows::from_npz(file.path, {"y", "x"});
  const int64_t some[] = {2, 1};
  const std::vector<Tensor> b = rows.batch(some);
  CHECK(b[0].to_vector<int64_t>() == std::vector<int64_t>{20, 10});
  CHECK(b[1].to_vector<float>() == std::vector<float>{2, 2.5, 1, 1.5});
  CHECK(data::Rows::from_npz(file.path).size() == 4);
  CHECK_THROWS_WITH(data::Rows::from_npz(file.path, {"z"}), Catch::Contains("TSR-F058") && Catch::Contains("'z'"));
  CHECK_THROWS_WITH(data::Rows::from_npz("/nowhere.npz"), Catch::Contains("TSR-N001"));
}
