// SPDX-License-Identifier: Apache-2.0
// The ONNX frontend: .onnx files into graphs. docs/onnx.md says what it takes, docs/onnx_mapping.md how each operator is
// expressed.
#include <string>

#include "errors.hpp"
#include "importer.hpp"
#include "model.hpp"
#include "tensors.hpp"
#include "tessera/plugin.hpp"
#include "wire.hpp"

namespace tessera::onnx {
namespace {

class Onnx final : public sdk::Frontend {
  const char* description() const override { return "ONNX models"; }
  std::vector<const char*> extensions() const override { return {".onnx"}; }
  bool can_import() const override { return true; }

  // There is no magic number: a file whose first fields are those of a ModelProto in ascending order is likely one.
  int probe(std::string_view head) override {
    const auto* p = reinterpret_cast<const unsigned char*>(head.data());
    if (head.size() < 4 || p[0] != 0x08 || p[1] == 0 || p[1] > 0x7f) return 0;  // field 1: ir_version
    return p[2] == 0x12 || p[2] == 0x1a || p[2] == 0x22 || p[2] == 0x28 || p[2] == 0x32 || p[2] == 0x3a || p[2] == 0x42 ? 40
                                                                                                                        : 0;
  }

  void import(std::string_view bytes, const char* path, sdk::Graph g) override {
    // The weights stay where the file is mapped, as long as the graph lives; bytes that are no file are copied.
    const std::string name = path ? path : "<onnx>";
    auto file = MappedFile::open(name, nullptr);
    if (file && file->bytes().size() == bytes.size())
      bytes = file->bytes();
    else
      file = nullptr;
    ModelProto model;
    try {
      model = read_model(bytes);
    } catch (const Malformed& e) {
      fail(kMalformed, name + ": byte " + std::to_string(e.at - bytes.data()) + ": " + e.what + "; expected an ONNX model",
           "the file is truncated or damaged, or is no ONNX file: export it again");
    }
    if (!model.has_graph) fail(kStructure, name + ": the model has no graph", "the file is empty or no ONNX file");
    Tensors tensors(g, name, std::move(file));
    try {
      Importer(g, model, tensors, name).run();
    } catch (const Malformed& e) {
      fail(kMalformed, name + ": byte " + std::to_string(e.at - bytes.data()) + ": " + e.what,
           "the file is damaged: export it again");
    }
  }
};

}  // namespace
}  // namespace tessera::onnx

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_frontend("onnx", std::make_unique<tessera::onnx::Onnx>());
}
