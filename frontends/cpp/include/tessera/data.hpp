// SPDX-License-Identifier: Apache-2.0
// Batches of training data: text files and .npz files, shuffled by a seed, made ahead on a thread, and resumed where they
// stopped.
//
//   data::TextWindows text("book.txt", 256);
//   data::Loader loader(text, {.batch = 32, .seed = 1});
//   for (;;) {
//     std::vector<Tensor> b = loader.next();  // ids and targets, i64 [32, 256]
//     ...
//     checkpoint.tensors["loader"] = loader.position();
//   }
//   loader.seek(checkpoint.tensor("loader"));  // the next batch is the one that would have come
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/tensor.hpp"

namespace tessera::data {

// Examples by number. `batch` is called on the loader's thread.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // One tensor per field, with the examples along dimension 0.
  virtual std::vector<Tensor> batch(std::span<const int64_t> examples) const = 0;
};

// The bytes of a text file, cut into windows of `length`: ids i64 [n, length], and targets of the same shape, the bytes that
// follow. Windows begin `stride` bytes apart; 0 stands for `length`. Throws TSR-F053 where the file cannot be read, and
// TSR-F058 where it is shorter than one window.
class TextWindows : public Dataset {
 public:
  TextWindows(const std::string& path, int64_t length, int64_t stride = 0);
  TextWindows(std::vector<uint8_t> bytes, int64_t length, int64_t stride = 0);
  int64_t size() const override;
  std::vector<Tensor> batch(std::span<const int64_t> examples) const override;
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
  int64_t length_, stride_;
};

// Tensors whose rows belong together: batch i of each field is its rows at `examples`. Throws TSR-F058 where they differ in
// length.
class Rows : public Dataset {
 public:
  explicit Rows(std::vector<Tensor> fields);
  // The arrays of an .npz file with these names, in this order; without names all of them. Throws the error of the file
  // (docs/errors.md, TSR-N), or TSR-F058.
  static Rows from_npz(const std::string& path, const std::vector<std::string>& names = {});
  int64_t size() const override;
  std::vector<Tensor> batch(std::span<const int64_t> examples) const override;

 private:
  std::vector<Tensor> fields_;
};

struct LoaderOptions {
  int64_t batch = 1;
  bool shuffle = true;  // another order in each epoch, a function of seed and epoch alone
  uint64_t seed = 0;
  bool drop_last = true;  // an epoch ends with its last full batch
  int64_t prefetch = 2;   // batches made ahead; 0: none, and no thread
};

// Batches without end, epoch after epoch. The dataset must outlive it. Not thread-safe. What the dataset throws is thrown by
// next().
class Loader {
 public:
  // Throws TSR-F058 for a dataset that is smaller than a batch, or options out of range.
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  std::vector<Tensor> next();
  int64_t batches_per_epoch() const;
  int64_t epoch() const;  // of the batch that next() gives
  // Where the next batch stands, as a tensor for a checkpoint: i64 [epoch, batch within it, seed, size of the dataset]. seek
  // throws TSR-F058 for a position of another dataset or seed.
  Tensor position() const;
  void seek(const Tensor& position);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The order of an epoch: a permutation of 0..n-1 that depends on its arguments alone, on every machine.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, int64_t epoch);

}  // namespace tessera::data
