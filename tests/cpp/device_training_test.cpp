// SPDX-License-Identifier: Apache-2.0
// Modules, optimisers and training steps whose tensors lie on a device, against the same on the host.
#include <catch2/catch.hpp>
#include <cmath>

#include "support.hpp"

using namespace tessera;

namespace {

// Both sides in one context: the device runs the reference's kernels, so that only their order of sums can differ.
const Context& sim() {
  static const Context c = Context::from_text(
      "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.cpp\", \"tessera.backend.reference\", "
      "\"tessera.backend.sim\"]\n[backends]\norder = [\"sim\", \"reference\"]\n[sim]\nmemory_mb = 256\n");
  return c;
}
const Context& host() {
  static const Context c = Context::from_text(
      "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.cpp\", \"tessera.backend.reference\"]\n"
      "[backends]\norder = [\"reference\"]\n");
  return c;
}

constexpr int64_t kWidth = 16, kHeads = 2, kVocabulary = 32, kLength = 8;

struct Block : nn::Module<Block> {
  nn::LayerNorm norm1{kWidth}, norm2{kWidth};
  nn::Linear qkv{kWidth, 3 * kWidth}, projection{kWidth, kWidth}, up{kWidth, 2 * kWidth}, down{2 * kWidth, kWidth};
  Block() {
    add("norm1", norm1), add("norm2", norm2);
    add("qkv", qkv), add("projection", projection);
    add("up", up), add("down", down);
  }
  Tensor forward(const Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1);
    const Tensor joined = qkv(norm1(x));
    const auto part = [&](int64_t i) {
      return joined.narrow(2, i * kWidth, kWidth).view({batch, length, kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const Tensor y = F::scaled_dot_product_attention(part(0), part(1), part(2), {}, true);
    const Tensor h = x + projection(y.transpose(1, 2).reshape({batch, length, kWidth}));
    return h + down(F::gelu(up(norm2(h)), "tanh"));
  }
};

struct Gpt : nn::Module<Gpt> {
  nn::Embedding tokens{kVocabulary, kWidth}, positions{kLength, kWidth};
  nn::ModuleList<Block> blocks;
  Gpt() {
    blocks.emplace();
    blocks.emplace();
    add("tokens", tokens), add("positions", positions), add("blocks", blocks);
  }
  Tensor loss(const Tensor& ids, const Tensor& targets, double p, Generator* g) {
    Tensor x = tokens(ids) * 0.1 + positions(arange(ids.size(1)));
    if (p > 0) x = F::dropout(x, p, true, g);
    for (Block& b : blocks) x = b(x);
    return F::cross_entropy(F::linear(x, tokens.weight).reshape({-1, kVocabulary}), targets.reshape({-1}));
  }
};

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> state;
  size_t programs = 0;
};

enum Kind { plain, careful };  // careful: accumulation, loss scaling, dropout, mixed precision

Trained train(const Context& context, const char* name, Kind kind) {
  const ContextScope scope(context);
  const Device device(name);
  manual_seed(3);
  Gpt model;
  model.to(device);
  optim::AdamW optimizer(model, {.lr = 1e-2, .weight_decay = 0.1});
  optim::Accumulator sums(model);
  optim::LossScaler scaler(1024);
  scaler.to(device);
  Generator drop(5, device), data(7);
  auto step = compile(
      [](Gpt& m, optim::AdamW& o, const Tensor& ids, const Tensor& targets) {
        const Tensor loss = m.loss(ids, targets, 0, nullptr);
        std::vector<Tensor> g = grad(loss, m);
        optim::clip_grad_norm(g, 0.5);
        o.step(m, g);
        return loss;
      },
      {.fullgraph = true, .dynamic = Dynamic::no, .name = "step", .context = context});
  auto careful_step = compile(
      [](Gpt& m, optim::AdamW& o, optim::Accumulator& a, optim::LossScaler& s, Generator& g, const Tensor& ids,
         const Tensor& targets, bool last) {
        Tensor loss;
        {
          const Autocast products(bf16);
          loss = m.loss(ids, targets, 0.1, &g);
        }
        a.add(grad(s.scale(loss), m));
        if (last) {
          std::vector<Tensor> gradients = a.take(2);
          const Tensor finite = s.unscale(gradients);
          optim::clip_grad_norm(gradients, 0.5);
          o.step(m, gradients, finite);
        }
        return loss;
      },
      {.fullgraph = true, .dynamic = Dynamic::no, .name = "careful_step", .context = context});
  Trained out;
  for (int i = 0; i < 6; ++i) {
    optimizer.set_lr(optim::warmup_cosine(i, 2, 6, 1e-2));
    const Tensor text = randint(0, kVocabulary, {2, kLength + 1}, i64, &data);
    const Tensor ids = text.narrow(1, 0, kLength).contiguous().to(device),
                 targets = text.narrow(1, 1, kLength).contiguous().to(device);
    const Tensor loss = kind == plain ? step(model, optimizer, ids, targets)
                                      : careful_step(model, optimizer, sums, scaler, drop, ids, targets, i % 2 == 1);
    CHECK(loss.device() == device);
    out.losses.push_back(loss.item<double>());
  }
  for (const auto& [key, t] : model.state_dict()) {
    CHECK(t.device() == device);
    out.state.emplace(key, t.to(Device()));
  }
  for (const auto& [key, t] : optimizer.named_buffers()) CHECK(t->device() == device);
  CHECK(optimizer.steps() == (kind == plain ? 6 : 3));
  out.programs = entries(kind == plain ? step.describe() : careful_step.describe());
  return out;
}

void check_equal(Kind kind, double bound) {
  const Trained device = train(sim(), "sim:0", kind), cpu = train(host(), "cpu", kind);
  CHECK(device.programs == cpu.programs);
  if (kind == plain) CHECK(device.losses.back() < device.losses.front());
  for (size_t i = 0; i < cpu.losses.size(); ++i) CHECK(std::abs(device.losses[i] - cpu.losses[i]) <= bound * cpu.losses[i]);
  for (const auto& [key, t] : cpu.state) {
    INFO(key);
    CHECK((device.state.at(key) - t).abs().max().item<double>() <= bound * (1 + t.abs().max().item<double>()));
  }
}

}  // namespace

TEST_CASE("a GPT trains on a device as on the host: AdamW, clipping, a schedule") { check_equal(plain, 1e-5); }

TEST_CASE("accumulation, loss scaling, dropout and bf16 products on a device give the host's numbers") {
  check_equal(careful, 1e-4);
}

TEST_CASE("a module moves with its parameters, buffers and ties, and takes a state from anywhere") {
  const ContextScope scope(sim());
  const Device device("sim");
  CHECK(device == Device("sim:0"));
  struct Tied : nn::Module<Tied> {
    Tensor a = randn({2, 3}), b = a, running = zeros({3});
    Tied() {
      add("a", a), add("b", b);
      add_buffer("running", running);
    }
    Tensor forward(const Tensor& x) { return x.matmul(a.t()); }
  } m;
  m.requires_grad_();
  const std::vector<float> before = values(m.a);
  m.to("sim");
  CHECK(m.a.device() == device);
  CHECK(m.running.device() == device);
  CHECK(m.a.handle() == m.b.handle());
  CHECK(m.a.requires_grad());
  CHECK(m.num_parameters() == 6);
  CHECK(values(m.a) == before);
  CHECK(values(zeros_like(m.a)) == std::vector<float>(6, 0.f));
  CHECK(ones_like(m.a).device() == device);
  m.load_state_dict({{"a", ones({2, 3})}, {"b", ones({2, 3})}, {"running", ones({3})}});
  CHECK(m.a.device() == device);
  CHECK(values(m.running) == std::vector<float>(3, 1.f));
  m.to(Device());
  CHECK(m.a.device() == Device());
  CHECK(values(m.a) == std::vector<float>(6, 1.f));
}

TEST_CASE("a generator draws on a device what it draws on the host, also where its state lies elsewhere") {
  const ContextScope scope(sim());
  const Device device("sim:0");
  const auto f = compile([](const Tensor& x, Generator& g) { return F::dropout(x, 0.5, true, &g); },
                         {.fullgraph = true, .name = "drop", .context = sim()});
  Generator here(9), there(9, device), far(9);
  const Tensor x = randn({4, 8});
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> want = values(f(x, here));
    CHECK(values(f(x.to(device), there)) == want);
    CHECK(values(f(x.to(device), far)) == want);
    CHECK(far.state.device() == Device());
  }
  CHECK(here.state.to_vector<uint64_t>() == there.to(Device()).state.to_vector<uint64_t>());
}
