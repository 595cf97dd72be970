// SPDX-License-Identifier: Apache-2.0
// ai.onnx.ml: classical models over numbers. Labels that are strings have no tensor here.
#include <algorithm>

#include "../op.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_int;

void array_feature_extractor(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  if (x.rank() == 1) x = b.expand(x, {0});
  const V y = op.in(1);
  op.out(b.gather(x, b.reshape(y, {b.elements(y)}), x.rank() - 1));
}

void binarizer(Op& op) {
  const V x = op.in();
  op.out(op.b.cast(x > op.f("threshold", 0.0), x.dtype()));
}

void scaler(Op& op) {
  Build& b = op.b;
  const V x = b.cast(op.in(), TSR_F32);
  const auto vector = [&](const char* name, double fallback) {
    auto v = op.reals(name, std::vector<double>{fallback});
    const auto n = static_cast<int64_t>(v.size());
    return b.floats(v, TSR_F32, {n});
  };
  op.out((x - vector("offset", 0)) * vector("scale", 1));
}

void normalizer(Op& op) {
  Build& b = op.b;
  const V x = b.cast(op.in(), TSR_F32);
  const std::string norm(op.s("norm", "MAX"));
  const Ints axis = {x.rank() - 1};
  V n;
  if (norm == "MAX")
    n = b.reduce("reduce_max", x.call("abs"), axis, true);
  else
    n = x.call("norm",
               {sdk::attr_float("p", norm == "L1" ? 1 : 2), sdk::attr_ints("axes", axis), sdk::attr_bool("keepdims", true)});
  op.out(select(n == 0.0, x, x / n));
}

void linear_regressor(Op& op) {
  Build& b = op.b;
  const V x = b.cast(op.in(), TSR_F32);
  const int64_t targets = op.i("targets", 1);
  const auto weights = op.reals("coefficients");
  op.expect(targets > 0 && !weights.empty() && static_cast<int64_t>(weights.size()) % targets == 0,
            "the coefficients do not fit the targets");
  if (op.s("post_transform", "NONE") != "NONE") op.unsupported("post_transform " + std::string(op.s("post_transform")));
  V y = b.dot(x, b.floats(weights, TSR_F32, {targets, static_cast<int64_t>(weights.size()) / targets}), {1}, {1});
  const auto bias = op.reals("intercepts", std::vector<double>{});
  if (!bias.empty()) y = y + b.floats(bias, TSR_F32, {static_cast<int64_t>(bias.size())});
  op.out(y);
}

void feature_vectorizer(Op& op) {
  Build& b = op.b;
  std::vector<V> parts;
  for (const V& v : op.inputs()) {
    const V f = b.cast(v, TSR_F32);
    parts.push_back(f.rank() == 1 ? b.expand(f, {0}) : b.reshape(f, {f.size(0), b.floordiv(b.elements(f), f.size(0))}));
  }
  op.out(b.concat(parts, 1));
}

void imputer(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  const bool whole = is_int(x.dtype());
  std::vector<double> values;
  if (whole)
    for (const int64_t v : op.ints("imputed_value_int64s")) values.push_back(static_cast<double>(v));
  else
    values = op.reals("imputed_value_floats");
  op.expect(!values.empty(), "no values to put in");
  const V fill = b.floats(values, x.dtype(), values.size() == 1 ? Ints{} : Ints{static_cast<int64_t>(values.size())});
  const double missing = whole ? static_cast<double>(op.i("replaced_value_int64", 0)) : op.f("replaced_value_float", 0.0);
  op.out(select(!whole && missing != missing ? x.call("is_nan") : x == missing, fill, x));
}

void one_hot_encoder(Op& op) {
  Build& b = op.b;
  if (op.has_attr("cats_strings")) op.fail(kType, "categories that are strings");
  const V x = b.cast(op.in(), TSR_I64);
  op.out(b.cast(b.expand(x, {x.rank()}) == b.known(op.ints("cats_int64s")), TSR_F32));
}

// Keys and values as parallel vectors; the last of equal keys wins.
void label_encoder(Op& op) {
  Build& b = op.b;
  const auto list = [&](const char* ints, const char* floats, const char* strings, const char* tensor, V* out) {
    if (op.has_attr(strings)) op.fail(kType, std::string("attribute '") + strings + "': there are no strings here");
    if (op.has_attr(ints)) *out = b.known(op.ints(ints));
    if (op.has_attr(floats)) {
      const auto v = op.reals(floats);
      *out = b.floats(v, TSR_F32, {static_cast<int64_t>(v.size())});
    }
    if (op.has_attr(tensor)) *out = op.tensor(tensor);
  };
  V keys, values;
  list("keys_int64s", "keys_floats", "keys_strings", "keys_tensor", &keys);
  list("values_int64s", "values_floats", "values_strings", "values_tensor", &values);
  op.expect(keys && values && keys.rank() == 1 && values.rank() == 1, "keys and values are not two vectors");
  V fallback;
  if (op.has_attr("default_tensor"))
    fallback = b.reshape(op.tensor("default_tensor"), {});
  else
    fallback = b.scalar(is_int(values.dtype()) ? static_cast<double>(op.i("default_int64", -1)) : op.f("default_float", -0.0),
                        values.dtype());
  const V x = op.in(), wide = b.expand(x, {x.rank()});
  V same = wide == keys;
  if (is_float(x.dtype())) same = either(same, both(wide.call("is_nan"), keys.call("is_nan")));
  const int64_t last = x.rank();
  // The position of the last match: the greatest index among those that match, -1 when there is none.
  const V at = b.reduce("reduce_max", select(same, b.range(keys.size(0)), -1.0), {last}, false);
  op.out(select(at < 0.0, fallback, b.gather(values, maximum(at, b.integer(0)), 0)));
}

// All trees walk one level per turn, for as many turns as the deepest tree has levels; leaves stay where they are.
void tree_ensemble(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  const Ints features = op.ints("nodes_featureids"), yes = op.small_ints("nodes_truenodeids"),
             no = op.small_ints("nodes_falsenodeids");
  const Ints yes_leaf = op.ints("nodes_trueleafs"), no_leaf = op.ints("nodes_falseleafs"), roots = op.ints("tree_roots"),
             targets = op.ints("leaf_targetids");
  const V splits = op.tensor("nodes_splits"), weights = op.tensor("leaf_weights"), modes = op.tensor("nodes_modes");
  const auto n = static_cast<int64_t>(features.size()), leaves = static_cast<int64_t>(targets.size());
  const auto fits = [&](const Ints& v) { return static_cast<int64_t>(v.size()) == n; };
  op.expect(fits(yes) && fits(no) && fits(yes_leaf) && fits(no_leaf) && splits.rank() == 1 && splits.size(0) == n &&
                weights.size(0) == leaves && n > 0 && leaves > 0,
            "the lists of nodes or leaves differ in length");
  const int64_t count = op.i("n_targets", 1);
  const auto mode = b.reals(modes);
  op.expect(mode && static_cast<int64_t>(mode->size()) == n && count > 0, "attribute 'nodes_modes' does not fit");
  // Leaf i is node n + i. Depth by walking from the roots; a cycle never ends.
  Ints next_yes(static_cast<size_t>(n)), next_no(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    next_yes[at] = yes[at] + (yes_leaf[at] ? n : 0);
    next_no[at] = no[at] + (no_leaf[at] ? n : 0);
    for (const int64_t to : {next_yes[at], next_no[at]})
      op.expect(to >= 0 && to < n + leaves, "a node leads to one that does not exist");
  }
  std::vector<int64_t> level = roots;
  int64_t depth = 0;
  for (; !level.empty(); ++depth) {
    op.expect(depth <= n, "the trees hold a cycle");
    std::vector<int64_t> below;
    for (const int64_t i : level) {
      op.expect(i >= 0 && i < n + leaves, "a root does not exist");
      if (i >= n) continue;
      below.push_back(next_yes[static_cast<size_t>(i)]);
      below.push_back(next_no[static_cast<size_t>(i)]);
    }
    std::sort(below.begin(), below.end());
    below.erase(std::unique(below.begin(), below.end()), below.end());
    level = std::move(below);
  }
  const auto with_leaves = [&](Ints v, bool self) {  // a leaf leads to itself
    for (int64_t i = 0; i < leaves; ++i) v.push_back(self ? n + i : 0);
    return b.known(v);
  };
  const V to_yes = with_leaves(next_yes, true), to_no = with_leaves(next_no, true), feature = with_leaves(features, false);
  const tsr_dtype t = x.dtype();
  const V threshold = b.concat({b.cast(splits, t), b.full(0, t, {leaves})}, 0);
  Ints kinds;
  for (const double m : *mode) {
    op.expect(m >= 0 && m <= 6, "attribute 'nodes_modes' holds " + std::to_string(m));
    kinds.push_back(static_cast<int64_t>(m));
  }
  const V kind = with_leaves(kinds, false);
  Ints track = op.ints("nodes_missing_value_tracks_true", Ints(static_cast<size_t>(n), 0));
  op.expect(fits(track), "the lists of nodes or leaves differ in length");
  const bool missing = std::any_of(track.begin(), track.end(), [](int64_t v) { return v != 0; });
  // Set membership: row i of the table holds the members of node i, filled up with NaN.
  V members;
  if (std::find(kinds.begin(), kinds.end(), 6) != kinds.end()) {
    const auto list = b.reals(op.tensor("membership_values"));
    op.expect(list.has_value(), "attribute 'membership_values' is missing");
    std::vector<std::vector<double>> sets(1);
    for (const double v : *list)
      if (v != v)
        sets.emplace_back();
      else
        sets.back().push_back(v);
    size_t widest = 1, at = 0;
    for (const auto& s : sets) widest = std::max(widest, s.size());
    op.expect(static_cast<size_t>(n + leaves) < (size_t{1} << 24) / widest, "sets of members that are too large");
    std::vector<double> table(static_cast<size_t>(n + leaves) * widest, __builtin_nan(""));
    for (int64_t i = 0; i < n; ++i)
      if (kinds[static_cast<size_t>(i)] == 6) {
        op.expect(at < sets.size(), "there are fewer sets of members than nodes that test membership");
        std::copy(sets[at].begin(), sets[at].end(), table.begin() + static_cast<int64_t>(static_cast<size_t>(i) * widest));
        ++at;
      }
    members = b.floats(table, t, {n + leaves, static_cast<int64_t>(widest)});
  }
  const auto trees = static_cast<int64_t>(roots.size());
  V at = b.broadcast(b.expand(b.known(roots), {0}), {x.size(0), trees});
  for (int64_t turn = 0; turn + 1 < depth; ++turn) {
    const V value = x.call("take_along_axis", b.gather(feature, at, 0), {attr_int("axis", 1)});
    const V limit = b.gather(threshold, at, 0), k = b.gather(kind, at, 0);
    V go = value <= limit;
    const auto also = [&](double m, const V& c) { go = select(k == m, c, go); };
    const auto used = [&](int64_t m) { return std::find(kinds.begin(), kinds.end(), m) != kinds.end(); };
    if (used(1)) also(1, value < limit);
    if (used(2)) also(2, value >= limit);
    if (used(3)) also(3, value > limit);
    if (used(4)) also(4, value == limit);
    if (used(5)) also(5, negated(value == limit));
    if (members) {
      const Ints last = {2};
      also(6, (b.gather(members, at, 0) == b.expand(value, {2})).call("reduce_any", {sdk::attr_ints("axes", last)}));
    }
    if (missing) go = either(go, both(value.call("is_nan"), b.gather(with_leaves(track, false), at, 0) > 0.0));
    at = select(go, b.gather(to_yes, at, 0), b.gather(to_no, at, 0));
  }
  const V leaf = at - static_cast<double>(n);  // [batch, trees]
  const V score = b.expand(b.gather(b.cast(weights, t), leaf, 0), {2});
  const V here = b.expand(b.gather(b.known(targets), leaf, 0), {2}) == b.range(count);  // [batch, trees, targets]
  V y;
  switch (op.i("aggregate_function", 1)) {
    case 0: y = b.sum(select(here, score, 0.0), {1}) / static_cast<double>(trees); break;
    case 1: y = b.sum(select(here, score, 0.0), {1}); break;
    case 2: y = b.reduce("reduce_min", select(here, score, __builtin_inf()), {1}, false); break;
    case 3: y = b.reduce("reduce_max", select(here, score, -__builtin_inf()), {1}, false); break;
    default: op.fail(kNode, "attribute 'aggregate_function' is " + std::to_string(op.i("aggregate_function")));
  }
  switch (op.i("post_transform", 0)) {
    case 0: break;
    case 1: y = y.call("softmax", {attr_int("axis", 1)}); break;
    case 2: y = y.call("sigmoid"); break;
    default: op.unsupported("post_transform " + std::to_string(op.i("post_transform")));
  }
  op.out(y);
}

}  // namespace

std::span<const Record> ml_records() {
  static constexpr Record records[] = {
      {"ai.onnx.ml", "ArrayFeatureExtractor", array_feature_extractor},
      {"ai.onnx.ml", "Binarizer", binarizer},
      {"ai.onnx.ml", "Scaler", scaler},
      {"ai.onnx.ml", "Normalizer", normalizer},
      {"ai.onnx.ml", "LinearRegressor", linear_regressor},
      {"ai.onnx.ml", "FeatureVectorizer", feature_vectorizer},
      {"ai.onnx.ml", "Imputer", imputer},
      {"ai.onnx.ml", "OneHotEncoder", one_hot_encoder},
      {"ai.onnx.ml", "LabelEncoder", label_encoder},
      {"ai.onnx.ml", "TreeEnsemble", tree_ensemble},
  };
  return records;
}

}  // namespace tessera::onnx
