// SPDX-License-Identifier: Apache-2.0
// Models whose tensors live on a device: a call copies nothing but what its caller asks for.
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#ifdef TESSERA_TEST_SENTENCES
#include "encoder.hpp"
#endif
#include "memory/buffer.hpp"
#include "support.hpp"

namespace copies_test {

using namespace tessera::test;
namespace core = tessera::core;

namespace {

// To the device, to the host, within the device.
using Copies = std::array<int64_t, 3>;
constexpr Copies kNone = {0, 0, 0};

Copies copies() {
  const core::Device::Copies c = core::device(e::device("sim:0")).copies();
  return {c.to_device, c.to_host, c.within};
}

// Those that are made while `f` runs.
template <class F>
Copies during(F&& f) {
  const Copies before = copies();
  f();
  Copies made = copies();
  for (size_t i = 0; i < made.size(); ++i) made[i] -= before[i];
  return made;
}

// As a user has it: weights and activations of two layers, on `device`.
std::string perceptron(const std::string& device) {
  const auto type = [&](const char* sizes) { return std::string("f32[") + sizes + "]" + device; };
  return "graph @mlp(%x: " + type("s0, 8") + ", %w: " + type("16, 8") + " param \"w\", %b: " + type("16") +
         " param \"b\", %v: " + type("4, 16") + " param \"v\", %c: " + type("4") + " param \"c\") -> (" + type("s0, 4") +
         ") symbols { s0: 1.. } {\n  %h = linear %x, %w, %b\n  %r = relu %h\n  %l = linear %r, %v, %c\n" +
         "  %k = constant {value = dense<f32[4]: [0.5, 1.0, 2.0, 4.0]>}\n  %m = mul %l, %k\n  %y = softmax %m\n  return %y\n}";
}

}  // namespace

TEST_CASE("an MLP on a device copies nothing") {
  for (const e::Context* context : {&sim(), &graphs()}) {
    const e::Executable p = compile(*context, perceptron("@sim:0")), want = compile(host(), perceptron(""));
    std::vector<e::Tensor> in = {{}, numbers({16, 8}, 1), numbers({16}, 2), numbers({4, 16}, 3), numbers({4}, 4)}, on_device(5);
    for (size_t i = 1; i < in.size(); ++i) on_device[i] = in[i].copy_to(e::device("sim:0"));
    for (const int64_t batch : {3, 3, 5, 1}) {
      in[0] = numbers({batch, 8}, static_cast<uint64_t>(batch) + 9);
      on_device[0] = in[0].copy_to(e::device("sim:0"));
      std::vector<e::Tensor> out;
      CHECK(during([&] { out = p.run(on_device); }) == kNone);
      CHECK(out[0].desc().device == e::device("sim:0"));
      bool same = false;
      CHECK(during([&] { same = same_bits(out[0], want.run(in)[0]); }) == Copies{0, 1, 0});  // its own
      CHECK(same);
    }
  }
}

#ifdef TESSERA_TEST_SENTENCES

namespace {

// The tiny encoder as an ONNX file, in a folder that goes with it.
struct EncoderFile {
  std::filesystem::path folder;
  std::string onnx;
  EncoderFile() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_encoder_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder = name;
    for (const auto& f : std::filesystem::directory_iterator(TESSERA_TEST_SENTENCES)) std::filesystem::copy(f, folder);
    onnx = sentences::write_encoder(folder.string()).onnx;
  }
  ~EncoderFile() { std::filesystem::remove_all(folder); }
};

std::vector<e::Tensor> tokens(int64_t batch, int64_t length, uint64_t seed) {
  const std::vector<int64_t> sizes = {batch, length};
  std::vector<e::Tensor> in = {e::Tensor::create(TSR_I64, sizes), e::Tensor::create(TSR_I64, sizes)};
  for (int64_t i = 0; i < batch * length; ++i) {
    static_cast<int64_t*>(in[0].data())[i] = static_cast<int64_t>((static_cast<uint64_t>(i) * 7 + seed) % 30);
    static_cast<int64_t*>(in[1].data())[i] = i % length < length - i / length % 2;
  }
  return in;
}

e::Context with_onnx(const std::string& order, const std::string& top = "", const std::string& plugins = "",
                     const std::string& sections = "") {
  e::ContextOptions o;
  o.config_text = top +
                  "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.onnx\", \"tessera.backend.reference\", "
                  "\"tessera.backend.sim\"" +
                  plugins + "]\n[backends]\norder = [" + order + "]\n" + sections;
  o.plugin_dirs = {TESSERA_PLUGIN_DIR};
  return e::Context(o);
}

}  // namespace

// The model itself puts the heads of each of its two layers side by side again: a transposition, and a reshape of what it
// gives.
constexpr Copies kOfItsOwn = {0, 0, 2};

TEST_CASE("a sentence encoder follows the tensors of its calls to a device, and copies nothing there") {
  const EncoderFile file;
  const e::Context context = with_onnx("\"sim\", \"reference\""), reference = with_onnx("\"reference\"");
  const e::Model model(context, file.onnx), want(reference, file.onnx);
  for (int call = 0; call < 3; ++call)
    for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{2, 5}, {3, 7}}) {
      const auto in = tokens(batch, length, static_cast<uint64_t>(call));
      const std::vector<e::Tensor> on_device = {in[0].copy_to(e::device("sim:0")), in[1].copy_to(e::device("sim:0"))};
      std::vector<e::Tensor> out;
      const Copies made = during([&] { out = model(on_device); });
      if (call > 0) CHECK(made == kOfItsOwn);  // the first one compiles, and brings the weights
      REQUIRE(out.size() == 1);
      CHECK(out[0].desc().device == e::device("sim:0"));
      const auto expected = want(in);
      CHECK(same_bits(out[0], expected[0]));
      // On the host the same file is another program.
      const auto on_host = model(in);
      CHECK(on_host[0].desc().device == 0);
      CHECK(same_bits(on_host[0], expected[0]));
    }
  // Tokens on the device, a mask of the host: the mask crosses, and nothing else.
  const auto in = tokens(2, 5, 9);
  const e::Tensor ids = in[0].copy_to(e::device("sim:0"));
  (void)model(std::vector<e::Tensor>{ids, in[1]});
  std::vector<e::Tensor> out;
  CHECK(during([&] { out = model(std::vector<e::Tensor>{ids, in[1]}); }) == Copies{1, 0, kOfItsOwn[2]});
  CHECK(same_bits(out[0], want(in)[0]));
  // Where the config names a device, tensors of the host cross on the way in and the result on the way out; those of the device
  // need neither.
  const e::Model placed(with_onnx("\"sim\", \"reference\"", "device = \"sim:0\"\n"), file.onnx);
  (void)placed(in);
  CHECK(during([&] { out = placed(in); }) == Copies{2, 1, kOfItsOwn[2]});
  CHECK(out[0].desc().device == 0);
  CHECK(same_bits(out[0], want(in)[0]));
  const e::Tensor mask = in[1].copy_to(e::device("sim:0"));
  (void)placed(std::vector<e::Tensor>{ids, mask});
  CHECK(during([&] { out = placed(std::vector<e::Tensor>{ids, mask}); }) == kOfItsOwn);
  CHECK(same_bits(out[0], want(in)[0]));
  // Two devices among the inputs.
  try {
    (void)model(std::vector<e::Tensor>{ids, in[1].copy_to(e::device("sim:1"))});
    FAIL("no error");
  } catch (const e::Error& error) {
    CHECK(error.code() == "TSR-I038");
    CHECK(error.message() == "model 'encoder': input 'input_ids' is on sim:0, input 'attention_mask' on sim:1");
    CHECK(error.hint() == "pass all inputs on one device, or on the host");
  }
}

#ifdef TESSERA_TEST_SIM_TEXT

// Kernels that are generated, as those of any backend over the kernel kit, take no strided operands. Of the heads of attention
// each layer then copies the queries, keys and values, and what it joins them to; unless its products read them by index.
TEST_CASE("a sentence encoder whose kernels are generated copies nothing within the device where products take views along") {
  const EncoderFile file;
  const auto text = [](bool views) {
    return with_onnx("\"sim\", \"reference\"", "", ", \"tessera.pass.fuse\"",
                     std::string("[pipeline]\npasses = [\"fuse\"]\n[sim]\nkernels = \"text\"\n[fuse]\noperand_views = ") +
                         (views ? "true\n" : "false\n"));
  };
  const e::Context along = text(true), apart = text(false), reference = with_onnx("\"reference\"");
  const e::Model model(along, file.onnx), copying(apart, file.onnx), want(reference, file.onnx);
  for (int call = 0; call < 2; ++call)
    for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{2, 5}, {3, 7}, {1, 1}}) {
      const auto in = tokens(batch, length, static_cast<uint64_t>(call));
      const std::vector<e::Tensor> on_device = {in[0].copy_to(e::device("sim:0")), in[1].copy_to(e::device("sim:0"))};
      std::vector<e::Tensor> out, other;
      const Copies made = during([&] { out = model(on_device); }), before = during([&] { other = copying(on_device); });
      if (call > 0) {  // the first one compiles, and brings the weights
        CHECK(made == kNone);
        CHECK(before == Copies{0, 0, length > 1 ? 8 : 0});
      }
      CHECK(same_bits(out[0], other[0]));
      const e::Tensor got = out[0].copy_to(0), expected = want(in)[0];
      for (int64_t i = 0; i < expected.elements(); ++i)
        CHECK(std::abs(static_cast<const float*>(got.data())[i] - static_cast<const float*>(expected.data())[i]) < 1e-5f);
    }
}

#endif

#endif

}  // namespace copies_test
