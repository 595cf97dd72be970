// SPDX-License-Identifier: Apache-2.0
// Tensors in safetensors files: round trips, files that are not what they claim, and checkpoints that outlive their writer.
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <tessera/tessera.hpp>

using namespace tessera;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tessera_safetensors_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string file(const char* name) const { return (path / name).string(); }
};

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// A file with this header and this many bytes of data.
std::string file_of(const std::string& header, size_t data) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(header.size() >> (8 * i));
  return out + header + std::string(data, '\1');
}

struct Model : nn::Module<Model> {
  nn::Linear fc1{4, 8}, fc2{8, 3};
  Model() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) { return fc2(F::relu(fc1(x))); }
};

}  // namespace

TEST_CASE("tensors of every dtype of the format come back as they went") {
  const Folder folder;
  const std::string path = folder.file("all.safetensors");
  std::map<std::string, Tensor> all;
  for (const DType d : {f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean, c64})
    all["t." + std::string(name(d))] = (arange(6) % 2).reshape({2, 3}).to(d);
  all["empty"] = zeros({0, 4});
  all["scalar"] = scalar(2.5, f32);
  all["strided"] = arange(6).reshape({2, 3}).transpose(0, 1);
  save_safetensors(path, all, {{"step", "12"}, {"odd", "\"\n\\ \u00e9"}});
  const TensorFile back = load_safetensors(path);
  CHECK(back.metadata == std::map<std::string, std::string>{{"step", "12"}, {"odd", "\"\n\\ \u00e9"}});
  REQUIRE(back.tensors.size() == all.size());
  for (const auto& [key, t] : all) {
    INFO(key);
    const Tensor& b = back.tensors.at(key);
    CHECK(b.dtype() == t.dtype());
    CHECK(b.sizes() == t.sizes());
    if (t.dtype() != c64) CHECK(b.to_vector<double>() == t.to_vector<double>());
  }
  // Data begins at a multiple of 8, so that whoever maps the file has aligned numbers.
  uint64_t header = 0;
  std::memcpy(&header, read(path).data(), 8);
  CHECK(header % 8 == 0);
}

TEST_CASE("files that are not what they claim are refused") {
  const Folder folder;
  const std::string path = folder.file("bad.safetensors");
  const auto refused = [&](const std::string& bytes, const char* what) {
    write(path, bytes);
    INFO(what);
    CHECK_THROWS_WITH(load_safetensors(path), Catch::Contains("TSR-F054") && Catch::Contains(what));
  };
  const auto tensor = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string(R"("a":{"dtype":")") + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const auto one = [&](const char* dtype, const char* shape, const char* offsets) {
    return "{" + tensor(dtype, shape, offsets) + "}";
  };
  refused("", "found 0 bytes");
  refused("1234567", "found 7 bytes");
  refused(std::string(8, '\xff'), "a header of 18446744073709551615 bytes");
  refused(file_of("{", 0), "no JSON");
  refused(file_of("[]", 0), "no JSON object");
  refused(file_of(std::string(5000, '['), 0), "nests deeper");
  refused(file_of(one("F32", "[2]", "[0,8]"), 4), "lies at 0 to 8 of 4");
  refused(file_of(one("F32", "[2]", "[0,8]"), 12), "end at 8 of 12");
  refused(file_of(one("F32", "[2]", "[8,0]"), 8), "lies at 8 to 0");
  refused(file_of(one("F32", "[3]", "[0,8]"), 8), "takes 12 bytes by its shape, 8 by its offsets");
  refused(file_of(one("F32", "[2]", "[4,12]"), 12), "begins at 4");
  refused(file_of(one("F32", "[2]", "[0,18446744073709551615]"), 8), "lies at");
  refused(file_of(one("F32", "[2]", "[0,18446744073709551616]"), 8), "no two numbers");
  refused(file_of(one("F32", "[2]", "[-8,0]"), 8), "no two numbers");
  refused(file_of(one("F32", "[4611686018427387904,4]", "[0,0]"), 0), "more elements than can be");
  refused(file_of(one("F32", "[-1]", "[0,0]"), 0), "no number of 0 and more");
  refused(file_of(one("F32", "[1.5]", "[0,8]"), 8), "no number of 0 and more");
  refused(file_of(one("F12", "[2]", "[0,8]"), 8), "dtype that tensors here do not have");
  refused(file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "has no data_offsets");
  refused(file_of(R"({"a":3})", 0), "has no dtype");
  refused(file_of("{" + tensor("F32", "[1]", "[0,4]") + "," + tensor("F32", "[1]", "[0,4]") + "}", 4), "twice");
  refused(file_of("{" + tensor("F32", "[2]", "[0,8]") + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
          "begins at 4 of the data, where the one before it ends at 8");
  refused(file_of(R"({"__metadata__":{"step":3}})", 0), "is no text");
  refused(file_of(one("BOOL", "[2]", "[0,2]"), 0) + std::string("\1\2"), "neither 0 nor 1");
  CHECK_THROWS_AS(load_safetensors(folder.file("missing")), EnvironmentError);
  CHECK_THROWS_WITH(save_safetensors(folder.file("no/folder"), {}), Catch::Contains("TSR-F053"));
  CHECK_THROWS_WITH(save_safetensors(path, {{"a", Tensor()}}), Catch::Contains("TSR-F055"));
  CHECK_THROWS_WITH(save_safetensors(path, {{"a", zeros({2}).to(c128)}}), Catch::Contains("TSR-F055"));
}

TEST_CASE("a file cut short anywhere is refused") {
  const Folder folder;
  const std::string path = folder.file("cut.safetensors");
  Model model;
  Checkpoint c;
  c.put("model", model);
  c.save(path);
  const std::string whole = read(path);
  for (size_t n = 0; n < whole.size(); n += 1 + whole.size() / 97) {
    write(path, whole.substr(0, n));
    CHECK_THROWS_WITH(load_safetensors(path), Catch::Contains("TSR-F054"));
  }
}

TEST_CASE("a checkpoint of another model changes nothing and says what differs") {
  const Folder folder;
  const std::string path = folder.file("c.safetensors");
  manual_seed(1);
  Model model;
  optim::AdamW optimizer(model);
  Checkpoint c;
  c.put("model", model);
  c.put("optimizer", optimizer);
  c.metadata["step"] = "7";
  c.save(path);
  manual_seed(2);
  Model other;
  const std::vector<float> before = other.fc1.weight.to_vector<float>();
  Checkpoint found = Checkpoint::load(path);
  CHECK(found.text("step") == "7");
  CHECK_THROWS_WITH(found.text("epoch"), Catch::Contains("TSR-F056") && Catch::Contains("'epoch'"));
  CHECK_THROWS_WITH(found.tensor("loader"), Catch::Contains("TSR-F056"));
  Checkpoint damaged = found;
  damaged.tensors.erase("model.fc1.bias");
  damaged.tensors["model.fc3"] = zeros({1});
  damaged.tensors["model.fc2.weight"] = zeros({3, 9});
  CHECK_THROWS_WITH(damaged.get("model", other), Catch::Contains("TSR-F040") && Catch::Contains("missing: fc1.bias") &&
                                                     Catch::Contains("unexpected: fc3") &&
                                                     Catch::Contains("fc2.weight: shape or dtype differs"));
  CHECK(other.fc1.weight.to_vector<float>() == before);
  found.get("model", other);
  CHECK(other.fc1.weight.to_vector<float>() == model.fc1.weight.to_vector<float>());
}

TEST_CASE("a process killed while it saves leaves the last good file") {
  const Folder folder;
  const std::string path = folder.file("killed.safetensors");
  const auto state = [](int round) {
    return std::map<std::string, Tensor>{{"a", full({1000}, round, i64)}, {"b", full({100000}, round, i64)}};
  };
  save_safetensors(path, state(0), {{"round", "0"}});
  for (int attempt = 0; attempt < 8; ++attempt) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      // Nothing but the writing runs here: the tensors are made before.
      for (int round = 1;; ++round) {
        std::string bytes = file_of(R"({"__metadata__":{"round":")" + std::to_string(round) +
                                        R"("},"a":{"dtype":"U8","shape":[300000],"data_offsets":[0,300000]}})",
                                    300000);
        write_file(path, std::as_bytes(std::span(bytes)));
      }
    }
    ::usleep(static_cast<useconds_t>(3000 + 1700 * attempt));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    const TensorFile found = load_safetensors(path);
    CHECK(found.metadata.count("round") == 1);
    CHECK(found.tensors.count("a") == 1);
  }
}

TEST_CASE("initialisers have the spread that they promise") {
  manual_seed(9);
  const auto spread = [](const Tensor& t) { return t.std({0, 1}).item<double>(); };
  Tensor w = zeros({200, 300});
  nn::init::xavier_uniform_(w);
  CHECK(spread(w) == Approx(std::sqrt(2.0 / 500)).epsilon(0.02));
  CHECK(w.abs().max().item<double>() <= std::sqrt(6.0 / 500));
  nn::init::xavier_normal_(w, 2);
  CHECK(spread(w) == Approx(2 * std::sqrt(2.0 / 500)).epsilon(0.02));
  nn::init::kaiming_uniform_(w);
  CHECK(spread(w) == Approx(std::sqrt(2.0 / 300)).epsilon(0.02));
  nn::init::kaiming_normal_(w);
  CHECK(spread(w) == Approx(std::sqrt(2.0 / 300)).epsilon(0.02));
  nn::init::normal_(w, 3, 0.5);
  CHECK(w.mean().item<double>() == Approx(3).epsilon(0.01));
  nn::init::trunc_normal_(w, 0, 1, -0.5, 0.5);
  CHECK(w.abs().max().item<double>() <= 0.5);
  CHECK(spread(w) == Approx(0.2843).epsilon(0.02));  // of the normal distribution between -1/2 and 1/2
  nn::init::constant_(w, 4);
  CHECK(w.sum().item<double>() == 4.0 * 200 * 300);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{5, 9}, {9, 5}}) {
    Tensor q = zeros({rows, columns}, f64);
    nn::init::orthogonal_(q, 2);
    const Tensor gram = rows < columns ? q.matmul(q.t()) : q.t().matmul(q);
    CHECK((gram - eye(5, f64) * 4.0).abs().max().item<double>() < 1e-12);
  }
  Tensor v = zeros({3});
  CHECK_THROWS_WITH(nn::init::kaiming_normal_(v), Catch::Contains("TSR-F057") && Catch::Contains("1 dimensions"));
}
