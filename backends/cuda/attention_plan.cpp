// SPDX-License-Identifier: Apache-2.0
// The library recognises attention by its operations: two products around a softmax (Dao 2023), and of the gradient the five
// products between which the weights are computed again.
#include "attention_plan.hpp"

#include <limits>

namespace tessera::cuda {

namespace {

// Ids of a problem's tensors.
enum AttentionId : int64_t {
  kIdQ = 1,
  kIdK,
  kIdV,
  kIdY,
  kIdLse,
  kIdDy,
  kIdDq,
  kIdDk,
  kIdDv,
  kIdMask,
  kIdDelta,
  kIdSums,
  kIdScale,
  kIdHidden,
  kIdOne
};

constexpr float kHidden = -std::numeric_limits<float>::infinity(), kOne = 1;

struct Shapes {
  DnnGraph::Shape q, k, v, y, o;                // as they lie
  DnnGraph::Shape dq, dk, dv, dyy;              // dense
  DnnGraph::Shape k_columns, v_columns;         // k and v with rows and elements exchanged
  DnnGraph::Shape scores, scores_turned, rows;  // of queries and keys, keys and queries, one number a query
  explicit Shapes(const AttentionProblem& p)
      : q(strided(p.batch, p.heads, p.queries, p.depth, p.q)),
        k(strided(p.batch, p.key_heads, p.keys, p.depth, p.k)),
        v(strided(p.batch, p.key_heads, p.keys, p.width, p.v)),
        y(strided(p.batch, p.heads, p.queries, p.width, p.y)),
        o(strided(p.batch, p.heads, p.queries, p.width, p.o)),
        dq(DnnGraph::dense(p.batch, p.heads, p.queries, p.depth)),
        dk(DnnGraph::dense(p.batch, p.key_heads, p.keys, p.depth)),
        dv(DnnGraph::dense(p.batch, p.key_heads, p.keys, p.width)),
        dyy(DnnGraph::dense(p.batch, p.heads, p.queries, p.width)),
        k_columns(turned(k)),
        v_columns(turned(v)),
        scores(DnnGraph::dense(p.batch, p.heads, p.queries, p.keys)),
        scores_turned(turned(scores)),
        rows(DnnGraph::dense(p.batch, p.heads, p.queries, 1)) {}

 private:
  static DnnGraph::Shape strided(int64_t a, int64_t b, int64_t c, int64_t d, const int64_t* strides) {
    return {{a, b, c, d}, {strides[0], strides[1], strides[2], 1}};
  }
  static DnnGraph::Shape turned(DnnGraph::Shape s) {
    std::swap(s.sizes[2], s.sizes[3]);
    std::swap(s.strides[2], s.strides[3]);
    return s;
  }
};

size_t floats(int64_t n) { return static_cast<size_t>(n + 63) / 64 * 64 * sizeof(float); }

}  // namespace

std::string to_text(const AttentionProblem& p) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  std::string out = number(p.batch) + " x " + number(p.heads) + " heads";
  if (p.key_heads != p.heads) out += " (" + number(p.key_heads) + " of keys)";
  out += " of " + number(p.queries) + " x " + number(p.keys) + " by " + number(p.depth);
  if (p.width != p.depth) out += " and " + number(p.width);
  out += std::string(", ") + dnn_type_name(p.type) + (p.causal ? ", causal" : "") + (p.masked() ? ", mask" : "");
  return out + (p.backward ? ", gradient" : "");
}

DnnGraph::Node AttentionPlan::modify(DnnGraph& g, DnnGraph::Node products) const {
  const Shapes s(p_);
  DnnGraph::Node out = g.pointwise(kDnnMul, kDnnF32, products, g.scalar(kIdScale), nullptr, g.inside(kDnnF32, s.scores));
  if (!p_.masked()) return out;
  const DnnGraph::Shape mask = DnnGraph::dense(p_.mask[0], p_.mask[1], p_.mask[2], p_.mask[3]);
  return g.pointwise(kDnnAdd, kDnnF32, out, g.tensor(kIdMask, p_.type, mask), nullptr, g.inside(kDnnF32, s.scores));
}

DnnGraph::Node AttentionPlan::hide(DnnGraph& g, DnnGraph::Node scores) const {
  if (!p_.causal) return scores;
  const Shapes s(p_);
  const auto position = [&](int64_t axis) {
    return g.pointwise(kDnnPosition, kDnnF32, scores, nullptr, nullptr, g.inside(kDnnI32, s.scores), axis);
  };
  const DnnGraph::Node query = position(2), key = position(3);
  const DnnGraph::Node sees = g.pointwise(kDnnGreaterOrEqual, kDnnBool, query, key, nullptr, g.inside(kDnnBool, s.scores));
  return g.pointwise(kDnnSelect, kDnnF32, scores, g.scalar(kIdHidden), sees, g.inside(kDnnF32, s.scores));
}

void AttentionPlan::describe_forward(DnnGraph& g) const {
  const Shapes s(p_);
  const auto scores = [&] { return g.inside(kDnnF32, s.scores); };
  const auto rows = [&] { return g.inside(kDnnF32, s.rows); };
  const DnnGraph::Node q = g.tensor(kIdQ, p_.type, s.q), k = g.tensor(kIdK, p_.type, s.k_columns);
  const DnnGraph::Node x = hide(g, modify(g, g.matmul(q, k, scores())));
  const DnnGraph::Node greatest = g.reduce(kDnnMaximum, x, rows());
  const DnnGraph::Node less = g.pointwise(kDnnSub, kDnnF32, x, greatest, nullptr, scores());
  const DnnGraph::Node weights = g.pointwise(kDnnExp, kDnnF32, less, nullptr, nullptr, scores());
  const DnnGraph::Node sum = g.reduce(kDnnSum, weights, rows());
  const DnnGraph::Node log = g.pointwise(kDnnLog, kDnnF32, sum, nullptr, nullptr, rows());
  g.pointwise(kDnnAdd, kDnnF32, greatest, log, nullptr, p_.lse ? g.tensor(kIdLse, kDnnF32, s.rows) : rows());
  const DnnGraph::Node p = g.pointwise(kDnnDiv, kDnnF32, weights, sum, nullptr, g.inside(p_.type, s.scores));
  g.matmul(p, g.tensor(kIdV, p_.type, s.v), g.tensor(kIdY, p_.type, s.y));
}

void AttentionPlan::describe_backward(DnnGraph& g) const {
  const Shapes s(p_);
  const auto scores = [&] { return g.inside(kDnnF32, s.scores); };
  const DnnGraph::Node q = g.tensor(kIdQ, p_.type, s.q), k = g.tensor(kIdK, p_.type, s.k_columns),
                       v = g.tensor(kIdV, p_.type, s.v_columns), dy = g.tensor(kIdDy, p_.type, s.y),
                       lse = g.tensor(kIdLse, kDnnF32, s.rows);
  // The library has no engine for a graph that reads these sums instead.
  const DnnGraph::Node dyy = g.pointwise(kDnnMul, kDnnF32, dy, g.tensor(kIdY, p_.type, s.o), nullptr, g.inside(kDnnF32, s.dyy));
  const DnnGraph::Node delta = g.pointwise(kDnnMul, kDnnF32, g.reduce(kDnnSum, dyy, g.inside(kDnnF32, s.rows)),
                                           g.scalar(kIdOne), nullptr, g.tensor(kIdDelta, kDnnF32, s.rows));
  // Sums over the heads of queries that share a head of keys.
  const auto over_queries = [&](DnnGraph::Node weights, DnnGraph::Node rows, int64_t id, const DnnGraph::Shape& shape) {
    const DnnGraph::Node turned = g.reshape(weights, g.inside(p_.type, s.scores_turned)), out = g.tensor(id, p_.type, shape);
    if (p_.heads == p_.key_heads) return g.matmul(turned, rows, out);
    const DnnGraph::Shape each = DnnGraph::dense(p_.batch, p_.heads, p_.keys, shape.sizes[3]);
    return g.reduce(kDnnSum, g.matmul(turned, rows, g.inside(p_.type, each)), out);
  };
  const DnnGraph::Node x = modify(g, g.matmul(q, k, scores()));
  const DnnGraph::Node less = hide(g, g.pointwise(kDnnSub, kDnnF32, x, lse, nullptr, scores()));
  const DnnGraph::Node p = g.pointwise(kDnnExp, kDnnF32, less, nullptr, nullptr, scores());
  over_queries(p, dy, kIdDv, s.dv);
  const DnnGraph::Node products = g.matmul(dy, v, scores());
  const DnnGraph::Node dp = g.pointwise(kDnnSub, kDnnF32, products, delta, nullptr, scores());
  const DnnGraph::Node pdp = g.pointwise(kDnnMul, kDnnF32, dp, p, nullptr, scores());
  const DnnGraph::Node ds = g.pointwise(kDnnMul, kDnnF32, pdp, g.scalar(kIdScale), nullptr, g.inside(p_.type, s.scores));
  over_queries(ds, q, kIdDk, s.dk);
  const DnnGraph::Node keys = g.reshape(k, g.inside(p_.type, s.k)), dq = g.tensor(kIdDq, p_.type, s.dq);
  if (!p_.any_order) {
    g.matmul(ds, keys, dq);
  } else {
    const DnnGraph::Node sums = g.matmul(ds, keys, g.tensor(kIdSums, kDnnF32, s.dq));
    g.pointwise(kDnnIdentity, kDnnF32, sums, nullptr, nullptr, dq);
  }
}

AttentionPlan::AttentionPlan(Dnn& dnn, Gpu& gpu, const AttentionProblem& problem, const std::string& choice, bool measure)
    : DnnPlan(dnn, gpu, subject(problem)), p_(problem) {
  Wanted wanted;
  wanted.any_order = p_.any_order;
  wanted.workspace = size_t{1} << 30;
  std::function<double()> timer;
  if (measure) timer = [this] { return seconds_of_run(); };
  choose(
      choice, [this](DnnGraph& g) { p_.backward ? describe_backward(g) : describe_forward(g); }, wanted, timer);
}

size_t AttentionPlan::deltas_bytes() const { return p_.backward ? floats(p_.batch * p_.heads * p_.queries) : 0; }
size_t AttentionPlan::sums_bytes() const {
  return p_.backward && p_.any_order ? floats(p_.batch * p_.heads * p_.queries * p_.depth) : 0;
}

void AttentionPlan::launch(const Tensors& t, void* workspace, CUstream stream) const {
  int64_t ids[16];
  const void* pointers[16];
  size_t count = 0;
  const auto give = [&](int64_t id, const void* p) { ids[count] = id, pointers[count++] = p; };
  give(kIdQ, t.q), give(kIdK, t.k), give(kIdV, t.v), give(kIdScale, &p_.scale);
  if (p_.causal) give(kIdHidden, &kHidden);
  if (p_.masked()) give(kIdMask, t.mask);
  if (p_.backward || p_.lse) give(kIdLse, t.lse);
  if (p_.backward) {
    give(kIdDy, t.dy), give(kIdOne, &kOne), give(kIdDelta, workspace), give(kIdDq, t.dq), give(kIdDk, t.dk), give(kIdDv, t.dv);
    if (p_.any_order) give(kIdSums, static_cast<char*>(workspace) + deltas_bytes());
  }
  give(kIdY, t.y);
  execute({ids, count}, {pointers, count}, static_cast<char*>(workspace) + deltas_bytes() + sums_bytes(), stream);
}

std::string AttentionPlan::record_of(const Gpu& gpu, const std::string& version, const AttentionProblem& p) {
  return algorithm_problem(
      gpu, "cuDNN " + version, "attention, scale " + std::to_string(p.scale),
      {p.batch,     p.heads,   p.key_heads, p.queries, p.keys,    p.depth, p.width, p.type, p.causal, p.lse,  p.backward,
       p.any_order, p.mask[0], p.mask[1],   p.mask[2], p.mask[3], p.q[0],  p.q[1],  p.q[2], p.k[0],   p.k[1], p.k[2],
       p.v[0],      p.v[1],    p.v[2],      p.y[0],    p.y[1],    p.y[2],  p.o[0],  p.o[1], p.o[2]});
}

double AttentionPlan::seconds_of_run() const {
  const auto bytes = [&](int64_t heads, int64_t rows, int64_t columns, int64_t item) {
    return static_cast<size_t>(p_.batch * heads * rows * columns * item);
  };
  const size_t q = bytes(p_.heads, p_.queries, p_.depth, 2), k = bytes(p_.key_heads, p_.keys, p_.depth, 2),
               v = bytes(p_.key_heads, p_.keys, p_.width, 2), y = bytes(p_.heads, p_.queries, p_.width, 2),
               rows = bytes(p_.heads, p_.queries, 1, 4),
               mask = static_cast<size_t>(2 * p_.mask[0] * p_.mask[1] * p_.mask[2] * p_.mask[3]);
  const auto room = [](size_t dense, int64_t batch, int64_t stride) {  // what lies between others' elements is there too
    return std::max(dense, static_cast<size_t>(batch * stride * 2));
  };
  const size_t all[] = {room(q, p_.batch, p_.q[0]),
                        room(k, p_.batch, p_.k[0]),
                        room(v, p_.batch, p_.v[0]),
                        mask,
                        room(y, p_.batch, std::max(p_.y[0], p_.o[0])),
                        rows,
                        room(y, p_.batch, p_.y[0]),
                        q,
                        k,
                        v,
                        workspace_bytes()};
  return seconds(all, [&](void* const* m, CUstream stream) {
    Tensors t{m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9]};
    launch(t, m[10], stream);
  });
}

}  // namespace tessera::cuda
