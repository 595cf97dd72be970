// SPDX-License-Identifier: Apache-2.0
// Text that has become numbers. Strings themselves have no tensor here.
#include <algorithm>

#include "../op.hpp"

namespace tessera::onnx {
namespace {

constexpr int64_t kMostSkips = 1024, kMostEmptyColumns = int64_t{1} << 20;
constexpr int64_t kMostComparisons = int64_t{1} << 14;  // each is a few nodes; a short file can ask for billions

// How often each n-gram of `pool` [P, n] stands in each row of x [N, L], its items `skip` places apart: [N, P].
V occurrences(Build& b, const V& x, const V& pool, int64_t n, int64_t skip) {
  const tsr_dim length = x.size(1);
  const tsr_dim windows = b.max(b.sub(length, (n - 1) * skip), 0);
  V all;
  for (int64_t j = 0; j < n; ++j) {
    const tsr_dim start = b.min(j * skip, length);
    const V item = b.expand(b.slice(x, 1, start, b.add(start, windows)), {2});  // [N, windows, 1]
    const V same = item == b.squeeze(b.slice(pool, 1, j, j + 1), {1});          // [N, windows, P]
    all = all ? both(all, same) : same;
  }
  return b.sum(b.cast(all, TSR_F32), {1});
}

// The pool lists all 1-grams, then all 2-grams and so on; ngram_counts says where each of these lists begins.
void tf_idf_vectorizer(Op& op) {
  Build& b = op.b;
  if (op.has_attr("pool_strings")) op.fail(kType, "attribute 'pool_strings': there are no strings here");
  const Ints pool = op.ints("pool_int64s"), starts = op.ints("ngram_counts"), columns = op.small_ints("ngram_indexes");
  const int64_t shortest = op.small("min_gram_length"), longest = op.small("max_gram_length"),
                skips = op.small("max_skip_count");
  const std::string mode(op.s("mode"));
  op.expect(mode == "TF" || mode == "IDF" || mode == "TFIDF", "mode '" + mode + "' is none of TF, IDF and TFIDF");
  op.expect(0 < shortest && shortest <= longest && skips >= 0, "lengths and skips of n-grams are out of range");
  if (skips > kMostSkips) op.unsupported("max_skip_count above " + std::to_string(kMostSkips));
  op.expect(!columns.empty() && *std::min_element(columns.begin(), columns.end()) >= 0, "ngram_indexes name no columns");
  const auto size = *std::max_element(columns.begin(), columns.end()) + 1, grams = static_cast<int64_t>(columns.size());
  if (size - grams > kMostEmptyColumns) op.unsupported("ngram_indexes that leave millions of columns empty");

  V x = op.in();
  op.expect(is_int(x.dtype()) && (x.rank() == 1 || x.rank() == 2), "the input is no vector or matrix of integers");
  const bool vector = x.rank() == 1;
  x = b.cast(vector ? b.expand(x, {0}) : x, TSR_I64);
  std::vector<V> counts;
  int64_t counted = 0, comparisons = 0;
  for (int64_t n = 1; n <= static_cast<int64_t>(starts.size()); ++n) {
    const auto level = static_cast<size_t>(n - 1);
    const int64_t begin = starts[level],
                  end = level + 1 < starts.size() ? starts[level + 1] : static_cast<int64_t>(pool.size());
    op.expect(0 <= begin && begin <= end && end <= static_cast<int64_t>(pool.size()) && (end - begin) % n == 0,
              "ngram_counts do not divide the pool into n-grams");
    const int64_t p = (end - begin) / n;
    if (p == 0) continue;
    counted += p;
    if (n < shortest || n > longest) {
      counts.push_back(b.full(0, TSR_F32, {x.size(0), p}));
      continue;
    }
    comparisons += n * (n == 1 ? 1 : skips + 1);
    if (comparisons > kMostComparisons)
      op.unsupported("n-grams and skips that take over " + std::to_string(kMostComparisons) + " comparisons");
    const V grams_of_n = b.reshape(b.known(Dims(pool.begin() + begin, pool.begin() + end)), {p, n});
    V sum;
    for (int64_t skip = 1; skip <= (n == 1 ? 1 : skips + 1); ++skip) {  // a single item has nothing to skip
      if (Build::is_number(x.size(1)) && x.size(1) <= (n - 1) * skip && sum) break;
      const V found = occurrences(b, x, grams_of_n, n, skip);
      sum = sum ? sum + found : found;
    }
    counts.push_back(sum);
  }
  op.expect(counted == grams,
            "ngram_indexes has " + std::to_string(grams) + " elements for " + std::to_string(counted) + " n-grams");

  // From the order of the pool to that of the columns; those that no n-gram has stay 0.
  Ints from(static_cast<size_t>(size), grams);
  for (int64_t k = 0; k < grams; ++k) {
    int64_t& at = from[static_cast<size_t>(columns[static_cast<size_t>(k)])];
    if (at != grams) op.unsupported("two n-grams in one column");
    at = k;
  }
  counts.push_back(b.full(0, TSR_F32, {x.size(0), 1}));
  V y = b.gather(b.concat(counts, 1), b.known(Dims(from.begin(), from.end())), 1);
  if (mode != "TF") {
    // One weight per column: so ONNX's reference and ONNX Runtime read what the standard calls the n-gram's place in the pool.
    auto weights = op.reals("weights", std::vector<double>(static_cast<size_t>(size), 1.0));
    op.expect(static_cast<int64_t>(weights.size()) == size, "there is not one weight per column");
    const V w = b.floats(weights, TSR_F32, {size});
    y = (mode == "IDF" ? b.cast(y > 0.0, TSR_F32) : y) * w;
  }
  op.out(vector ? b.squeeze(y, {0}) : y);
}

}  // namespace

std::span<const Record> text_records() {
  static constexpr Record records[] = {
      {"", "TfIdfVectorizer", tf_idf_vectorizer},
  };
  return records;
}

}  // namespace tessera::onnx
