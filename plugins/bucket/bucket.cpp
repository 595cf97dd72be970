// SPDX-License-Identifier: Apache-2.0
// The pass: which sizes go into which bucket.
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <vector>

#include "proof.hpp"
#include "rebuild.hpp"

namespace tessera::bucket {

namespace t = tessera::sdk;

namespace {

struct Bucket {
  int64_t low, high;   // sizes low..high are padded to high ...
  bool padded = true;  // ... or stay as they are: 0, and those beyond the last bucket
};

class Buckets {
 public:
  // Throws TSR-C003 for what is no ascending list of sizes.
  explicit Buckets(const t::Options& options) {
    const tsr_option* o = options.find("buckets");
    for (uint32_t i = 0; o && i < o->count; ++i) {
      const std::string_view text = o->strings[i];
      if (text == "powers_of_two" && o->count == 1) {
        powers_ = true;
        return;
      }
      int64_t n = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
      if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > INT64_C(1) << 40 ||
          (!sizes_.empty() && n <= sizes_.back()))
        throw t::Error(TSR_USER, "TSR-C003",
                       "'bucket.buckets': found '" + std::string(text) + "', expected sizes of at least 1 in ascending order",
                       "for example: buckets = [8, 16, 64], or buckets = [\"powers_of_two\"]");
      sizes_.push_back(n);
    }
  }
  bool any() const { return powers_ || !sizes_.empty(); }
  int64_t largest() const { return powers_ ? INT64_C(1) << 40 : sizes_.back(); }
  Bucket of(int64_t size) const {
    if (size < 1) return {0, 0, false};
    if (size > largest()) return {largest() + 1, INT64_MAX, false};
    if (powers_) {
      int64_t high = 1;
      while (high < size) high *= 2;
      return {high / 2 + 1, high};
    }
    const auto at = std::lower_bound(sizes_.begin(), sizes_.end(), size);
    return {at == sizes_.begin() ? 1 : at[-1] + 1, *at};
  }

 private:
  bool powers_ = false;
  std::vector<int64_t> sizes_;
};

class BucketPass final : public t::Pass {
  const char* summary() const override {
    return "pads dynamic sizes up to a few buckets, where that provably changes no result";
  }
  const char* ensures() const override {
    return "a size that is padded is a number everywhere but where inputs are padded and outputs sliced";
  }
  uint32_t stage() const override { return TSR_STAGE_CALL; }

  bool run(t::Graph g, const t::Options& options) override {
    const Buckets buckets(options);
    if (!buckets.any()) return false;
    bool changed = false;
    for (uint32_t s = 0; s < g.tables().num_symbols; ++s)
      changed = pad(g, s, buckets, options.get_bool("reorder_sums", false)) || changed;
    return changed;
  }

  static bool pad(t::Graph g, uint32_t index, const Buckets& buckets, bool reorder_sums) {
    const tsr_symbol symbol = *TSR_AT(tsr_symbol, g.tables().symbols, g.tables().symbol_stride, index);
    const std::string what = "graph @" + std::string(g.tables().name) + ": size " + symbol.name;
    const auto refused = [&](const std::string& why) {
      if (t::log_enabled("perf_hints")) t::log("perf_hints", "bucket: " + what + " is not padded: " + why);
      return false;
    };
    if (symbol.unbacked || symbol.hint < 0) return false;  // known only later, or no call says which bucket
    const std::optional<tsr_dim> size = size_of(g, index);
    if (!size || g.compare(TSR_EQ, *size, symbol.hint) == TSR_TRUE) return false;  // nobody reads it, or it has one value only
    // By relations that ops need it is one size under several names.
    std::vector<uint32_t> equal = {index};
    std::vector<tsr_dim> names = {*size};
    for (size_t k = 0; k < names.size(); ++k)
      for (uint32_t other = 0; other < g.tables().num_symbols; ++other) {
        const std::optional<tsr_dim> name = size_of(g, other);
        if (!name || std::find(equal.begin(), equal.end(), other) != equal.end()) continue;
        if (g.compare(TSR_EQ, names[k], *name) != TSR_TRUE) continue;
        if (other < index) return false;  // it has had its turn
        equal.push_back(other);
        names.push_back(*name);
      }
    const Bucket bucket = buckets.of(symbol.hint);
    const int64_t low = std::max(bucket.low, symbol.min), high = std::min(bucket.high, symbol.max);
    Sizes sizes(g, equal, bucket.padded ? high : buckets.largest());
    const Proof proof = prove(g, sizes, reorder_sums);
    if (!proof.refused.empty()) return refused(proof.refused);
    if (proof.steps.empty()) return false;
    const std::string why = "bucket " + std::to_string(low) + ".." + (high == INT64_MAX ? "" : std::to_string(high));
    for (const tsr_dim name : names) {
      g.require(TSR_GE, name, low, why.c_str());
      if (high != INT64_MAX) g.require(TSR_LE, name, high, why.c_str());
    }
    if (!bucket.padded) {  // an entry of their own, so that sizes which have a bucket go there
      if (symbol.hint > 0) refused("it is " + std::to_string(symbol.hint) + ", more than the largest bucket");
      return true;
    }
    if (const std::string failed = rebuild(g, proof, sizes); !failed.empty()) {
      refused(failed);
    } else if (t::log_enabled("dynamic")) {
      t::log("dynamic", "bucket: " + what + " in " + std::to_string(low) + ".." + std::to_string(high) + " is padded to " +
                            std::to_string(high) + ", " + std::to_string(symbol.hint) + " in this call");
    }
    return true;
  }

  // The symbol as a size; nothing when no size mentions it.
  static std::optional<tsr_dim> size_of(t::Graph g, uint32_t symbol) {
    for (size_t i = 0; i < g.tables().num_exprs; ++i) {
      const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, g.tables().exprs, g.tables().expr_stride, i);
      if (e.op == TSR_DIM_SYMBOL && e.symbol == symbol) return TSR_DIM_OF_EXPR(static_cast<uint32_t>(i));
    }
    return std::nullopt;
  }
};

}  // namespace
}  // namespace tessera::bucket

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  tessera::bucket::Buckets(plugin.options);  // options that make no sense are refused when the plugin is loaded
  plugin.add_pass("bucket", std::make_unique<tessera::bucket::BucketPass>());
}
