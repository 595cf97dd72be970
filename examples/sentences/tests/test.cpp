// SPDX-License-Identifier: Apache-2.0
// The tokenizer against the ids that the tokenizers package gives (make_tiny.py), and the reader against files that are wrong.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "error.hpp"
#include "safetensors.hpp"
#include "wordpiece.hpp"

using namespace sentences;
namespace fs = std::filesystem;

namespace {

std::string here() { return std::string(std::getenv("TESSERA_SOURCE_DIR")) + "/examples/sentences/tests/"; }

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// A safetensors file of this header, and so many bytes of data.
class File {
 public:
  File(const std::string& header, size_t data, uint64_t claimed)
      : path_((fs::temp_directory_path() / "tessera_safetensors_XXXXXX").string()) {
    const int fd = ::mkstemp(path_.data());
    REQUIRE(fd >= 0);
    std::ofstream out(path_, std::ios::binary);
    for (int i = 0; i < 8; ++i) out.put(static_cast<char>(claimed >> (8 * i)));
    out << header << std::string(data, '\0');
  }
  File(const std::string& header, size_t data) : File(header, data, header.size()) {}
  ~File() { fs::remove(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string refused() const {
    try {
      (void)read_safetensors(path_);
      return "accepted";
    } catch (const Error& e) {
      const std::string text = e.what();
      return text.substr(text.find(path_) + path_.size() + 2, text.find('\n') - text.find(path_) - path_.size() - 2);
    }
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("text becomes the ids that the tokenizers package gives") {
  const WordPiece words(here() + "tiny/vocab.txt");
  const auto text = lines_of(here() + "text.txt"), ids = lines_of(here() + "ids.txt");
  REQUIRE(text.size() == ids.size());
  REQUIRE(text.size() > 10);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string found;
    for (const int64_t id : words.encode(text[i], 256)) found += (found.empty() ? "" : " ") + std::to_string(id);
    INFO(text[i]);
    CHECK(found == ids[i]);
  }
}

TEST_CASE("long text is cut, damaged text is read as far as it is text") {
  const WordPiece words(here() + "tiny/vocab.txt");
  const auto ids = words.encode("the cat sat on the mat", 5);
  CHECK(ids.size() == 5);
  CHECK(ids.back() == 3);
  CHECK(words.encode("", 8) == std::vector<int64_t>{2, 3});
  CHECK(words.encode("the \xff\xc3 cat", 8) == words.encode("the cat", 8));
  CHECK(split_words("Don't!  Na\xc3\xafve") == std::vector<std::string>{"don", "'", "t", "!", "naive"});
  CHECK_THROWS_AS(WordPiece(here() + "ids.txt"), Error);
  CHECK_THROWS_AS(WordPiece(here() + "no_such_file"), Error);
}

TEST_CASE("a safetensors file names its tensors, and one that lies is refused") {
  const auto tensors = read_safetensors(here() + "tiny/model.safetensors");
  CHECK(tensors.size() == 39);
  const StoredTensor& t = tensors.at("encoder.layer.1.intermediate.dense.weight");
  CHECK(t.shape == std::vector<int64_t>{16, 8});
  CHECK(t.dtype == "F32");
  CHECK(t.bytes == 16 * 8 * 4);

  const std::string good = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  const File file(good, 24);
  const auto one = read_safetensors(file.path());
  CHECK(one.at("a").offset == 8 + good.size());
  CHECK(File(good, 23).refused() == "tensor 'a' lies outside of the file");
  CHECK(File(good, 24, 1ull << 40).refused() ==
        "a header of 1099511627776 bytes in a file of " + std::to_string(good.size() + 32));
  CHECK(File(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 24).refused() ==
        "tensor 'a' takes 24 bytes by its shape, 20 by its range");
  CHECK(File(R"({"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,0]}})", 24).refused() ==
        "tensor 'a' has a shape that cannot be");
  CHECK(File(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 24).refused() ==
        "tensor 'a' has a shape that cannot be");
  CHECK(File(R"({"a":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}})", 24).refused() == "tensor 'a' has the dtype F3");
  CHECK(File("{", 24).refused().rfind("the header: ", 0) == 0);
  CHECK(File(R"({"a":{"dtype":"F32","shape":"x","data_offsets":[0,4]}})", 24).refused().rfind("the header: ", 0) == 0);
}
