// SPDX-License-Identifier: Apache-2.0
#include "tessera/data.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <thread>

#include "npz/elements.hpp"
#include "npz/npz.hpp"
#include "runtime.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/ops.hpp"

namespace tessera::data {

using detail::fail;

namespace {

std::vector<uint8_t> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<uint8_t> out;
  if (in) out.assign(std::istreambuf_iterator<char>(in), {});
  if (!in.is_open() || in.bad())
    throw EnvironmentError("TSR-F053", "cannot read '" + path + "': " + std::strerror(errno), "give a file that can be read");
  return out;
}

// SplitMix64 (Steele et al. 2014).
uint64_t mix(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<int64_t> permutation(int64_t n, uint64_t seed, int64_t epoch) {
  uint64_t state = seed;
  state = mix(state) ^ static_cast<uint64_t>(epoch);
  std::vector<int64_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), int64_t{0});
  for (size_t i = out.size(); i > 1; --i)  // Fisher and Yates; the high word of a product is uniform enough below 2^40
    std::swap(out[i - 1], out[static_cast<size_t>(static_cast<unsigned __int128>(mix(state)) * i >> 64)]);
  return out;
}

// ------------------------------------------------------------------------------------------------------------ datasets

TextWindows::TextWindows(const std::string& path, int64_t length, int64_t stride)
    : TextWindows(read_bytes(path), length, stride) {}

TextWindows::TextWindows(std::vector<uint8_t> bytes, int64_t length, int64_t stride)
    : bytes_(std::move(bytes)), length_(length), stride_(stride == 0 ? length : stride) {
  if (length_ < 1 || stride_ < 1)
    fail("TSR-F058", "a text in windows of " + std::to_string(length) + " bytes, " + std::to_string(stride_) +
                         " apart, expected 1 or more of each");
  if (static_cast<int64_t>(bytes_.size()) <= length_)
    fail("TSR-F058",
         "a text of " + std::to_string(bytes_.size()) + " bytes, expected more than a window of " + std::to_string(length_),
         "give a longer text or shorter windows");
}

int64_t TextWindows::size() const { return (static_cast<int64_t>(bytes_.size()) - 1 - length_) / stride_ + 1; }

std::vector<Tensor> TextWindows::batch(std::span<const int64_t> examples) const {
  const Shape shape{static_cast<int64_t>(examples.size()), length_};
  std::vector<Tensor> out{empty(shape, i64), empty(shape, i64)};
  auto *ids = out[0].data<int64_t>(), *targets = out[1].data<int64_t>();
  for (const int64_t e : examples) {
    const uint8_t* p = bytes_.data() + e * stride_;
    for (int64_t i = 0; i < length_; ++i) {
      *ids++ = p[i];
      *targets++ = p[i + 1];
    }
  }
  return out;
}

Rows::Rows(std::vector<Tensor> fields) : fields_(std::move(fields)) {
  if (fields_.empty()) fail("TSR-F058", "a dataset without a field");
  for (Tensor& t : fields_) {
    if (!t.defined() || t.is_traced() || t.dim() == 0)
      fail("TSR-F058", "a field of a dataset is undefined, traced or 0-d, expected rows along dimension 0");
    t = t.to(Device()).contiguous();
    if (!(t.sizes()[0] == fields_[0].sizes()[0]))
      fail("TSR-F058", "a field of a dataset has " + std::to_string(t.sizes()[0]) + " rows, the first one has " +
                           std::to_string(fields_[0].sizes()[0]));
  }
}

Rows Rows::from_npz(const std::string& path, const std::vector<std::string>& names) {
  std::vector<npz::Array> arrays;
  try {
    arrays = npz::read(path);
  } catch (const npz::Error& e) {
    throw UserError(e.code(), e.what(), e.hint());
  }
  std::vector<Tensor> fields;
  const auto take = [&](const npz::Array& a) {
    uint32_t dtype = TSR_F64;  // raw bytes, which stand for types that numpy lacks, name none
    while (dtype < TSR_DTYPE_COUNT && (npz::descr_of(dtype) != a.descr || a.descr[1] == 'V')) ++dtype;
    if (dtype == TSR_DTYPE_COUNT)
      fail("TSR-F058", path + ": array '" + a.name + "' has the type " + a.descr + ", which tensors do not have");
    const Tensor t = empty(Shape(a.shape.begin(), a.shape.end()), static_cast<DType>(dtype));
    if (!a.data.empty()) std::memcpy(t.raw_data(), a.data.data(), a.data.size());
    fields.push_back(t);
  };
  if (names.empty())
    for (const npz::Array& a : arrays) take(a);
  for (const std::string& name : names) {
    bool found = false;
    for (const npz::Array& a : arrays)
      if (a.name == name) {
        take(a);
        found = true;
      }
    if (!found) fail("TSR-F058", path + ": no array is named '" + name + "'");
  }
  return Rows(std::move(fields));
}

int64_t Rows::size() const { return fields_[0].sizes()[0]; }

std::vector<Tensor> Rows::batch(std::span<const int64_t> examples) const {
  std::vector<Tensor> out;
  for (const Tensor& field : fields_) {
    std::vector<int64_t> sizes = field.sizes();
    int64_t elements = 1;
    for (size_t i = 1; i < sizes.size(); ++i) elements *= sizes[i];
    sizes[0] = static_cast<int64_t>(examples.size());
    const Tensor t = empty(Shape(sizes.begin(), sizes.end()), field.dtype());
    const auto bytes = static_cast<size_t>(storage_bytes(static_cast<uint32_t>(field.dtype()), elements));
    for (size_t i = 0; i < examples.size(); ++i)
      std::memcpy(static_cast<char*>(t.raw_data()) + i * bytes,
                  static_cast<const char*>(field.raw_data()) + static_cast<size_t>(examples[i]) * bytes, bytes);
    out.push_back(t);
  }
  return out;
}

// -------------------------------------------------------------------------------------------------------------- loader

struct Loader::State {
  struct Place {
    int64_t epoch = 0, batch = 0;
  };
  const Dataset& dataset;
  const LoaderOptions o;
  const int64_t size, per_epoch;
  Place given;  // of the batch that next() gives

  // Of whoever makes batches: the thread, or next() itself without one.
  Place made;
  int64_t ordered_epoch = -1;
  std::vector<int64_t> order;

  std::mutex lock;
  std::condition_variable changed;
  std::deque<std::vector<Tensor>> ready;
  std::exception_ptr failed;
  bool stop = false;
  std::thread thread;

  State(const Dataset& d, const LoaderOptions& options)
      : dataset(d),
        o(options),
        size(d.size()),
        per_epoch(o.batch < 1   ? 0
                  : o.drop_last ? size / o.batch
                                : (size + o.batch - 1) / o.batch) {
    if (o.batch < 1 || o.prefetch < 0 || o.prefetch > 1024)
      fail("TSR-F058", "a loader of batches of " + std::to_string(o.batch) + " with " + std::to_string(o.prefetch) +
                           " made ahead, expected 1 or more and 0 to 1024");
    if (per_epoch == 0)
      fail("TSR-F058", "a dataset of " + std::to_string(size) + " examples makes no batch of " + std::to_string(o.batch),
           "give a smaller batch, or drop_last = false");
  }

  std::vector<Tensor> make() {
    if (ordered_epoch != made.epoch) {
      if (o.shuffle) {
        order = permutation(size, o.seed, made.epoch);
      } else if (order.empty()) {
        order.resize(static_cast<size_t>(size));
        std::iota(order.begin(), order.end(), int64_t{0});
      }
      ordered_epoch = made.epoch;
    }
    const int64_t begin = made.batch * o.batch;
    const auto count = static_cast<size_t>(std::min(o.batch, size - begin));
    advance(made);
    return dataset.batch(std::span(order).subspan(static_cast<size_t>(begin), count));
  }
  void advance(Place& p) const {
    if (++p.batch == per_epoch) p = {p.epoch + 1, 0};
  }

  void start() {
    made = given;
    stop = false;
    if (o.prefetch == 0) return;
    thread = std::thread([this] {
      for (;;) {
        {
          std::unique_lock hold(lock);
          changed.wait(hold, [&] { return stop || ready.size() < static_cast<size_t>(o.prefetch); });
          if (stop) return;
        }
        std::vector<Tensor> batch;
        std::exception_ptr error;
        try {
          batch = make();
        } catch (...) {
          error = std::current_exception();
        }
        const std::lock_guard hold(lock);
        if (error)
          failed = error;
        else
          ready.push_back(std::move(batch));
        changed.notify_all();
        if (error) return;
      }
    });
  }
  void end() {
    if (thread.joinable()) {
      {
        const std::lock_guard hold(lock);
        stop = true;
      }
      changed.notify_all();
      thread.join();
    }
    ready.clear();
    failed = nullptr;
  }
};

Loader::Loader(const Dataset& dataset, LoaderOptions options) : state_(std::make_unique<State>(dataset, options)) {
  state_->start();
}
Loader::~Loader() { state_->end(); }

std::vector<Tensor> Loader::next() {
  State& s = *state_;
  std::vector<Tensor> out;
  if (s.o.prefetch == 0) {
    out = s.make();
  } else {
    std::unique_lock hold(s.lock);
    s.changed.wait(hold, [&] { return !s.ready.empty() || s.failed; });
    if (s.ready.empty()) std::rethrow_exception(s.failed);
    out = std::move(s.ready.front());
    s.ready.pop_front();
    s.changed.notify_all();
  }
  s.advance(s.given);
  return out;
}

int64_t Loader::batches_per_epoch() const { return state_->per_epoch; }
int64_t Loader::epoch() const { return state_->given.epoch; }

Tensor Loader::position() const {
  const State& s = *state_;
  return tensor(std::vector<int64_t>{s.given.epoch, s.given.batch, static_cast<int64_t>(s.o.seed), s.size});
}

void Loader::seek(const Tensor& position) {
  State& s = *state_;
  if (!position.defined() || position.dtype() != i64 || position.sizes() != std::vector<int64_t>{4})
    fail("TSR-F058", "Loader::seek: expected what position() gave, an i64[4]");
  const std::vector<int64_t> p = position.to_vector<int64_t>();
  if (p[2] != static_cast<int64_t>(s.o.seed) || p[3] != s.size)
    fail("TSR-F058",
         "Loader::seek: a position in a dataset of " + std::to_string(p[3]) + " examples with seed " + std::to_string(p[2]) +
             ", where this loader has " + std::to_string(s.size) + " and seed " + std::to_string(s.o.seed),
         "go on with the data that the run began with");
  if (p[0] < 0 || p[1] < 0 || p[1] >= s.per_epoch)
    fail("TSR-F058",
         "Loader::seek: batch " + std::to_string(p[1]) + " of epoch " + std::to_string(p[0]) + " cannot be, an epoch has " +
             std::to_string(s.per_epoch),
         "go on with the size of batches that the run began with");
  s.end();
  s.given = {p[0], p[1]};
  s.start();
}

}  // namespace tessera::data
