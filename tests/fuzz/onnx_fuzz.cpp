// SPDX-License-Identifier: Apache-2.0
// Any bytes either give a graph that verifies and that text IR carries unchanged, or a coded error that is the file's fault.
// The mutator knows the wire format: it changes fields and keeps the lengths around them right, so that most of what it makes
// reaches the translations.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "api/api.hpp"
#include "compile/services.hpp"
#include "importer.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"
#include "wire.hpp"

namespace fs = std::filesystem;
namespace onnx = tessera::onnx;
using namespace tessera::core;

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

[[noreturn]] void fault(const std::string& what, const std::string& text) {
  std::fprintf(stderr, "%s\n%s\n", what.c_str(), text.c_str());
  std::abort();
}

std::shared_ptr<Context> make_context() {
  const std::string plugins = (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/tessera/plugins").string();
  const char* dirs[] = {plugins.c_str()};
  tsr_context_options o{};
  o.struct_size = sizeof o;
  o.config_text =
      "name = \"fuzz\"\n[plugins]\nload = [\"tessera.opset.standard\", \"tessera.backend.reference\"]\n[backends]\norder = "
      "[\"reference\"]\n";
  o.plugin_dirs = dirs;
  o.num_plugin_dirs = 1;
  return Context::create(&o, api::host());
}

struct World {
  std::shared_ptr<Context> context = make_context();
  CompileOptions options = api::compile_options(context, context->config(), nullptr);
  std::string path;  // of a model that does not exist, beside a file that external data can name
  World() {
    std::string folder = (fs::temp_directory_path() / "tessera_onnx_fuzz_XXXXXX").string();
    if (!::mkdtemp(folder.data())) std::abort();
    std::ofstream(folder + "/w", std::ios::binary) << std::string(256, '\1');
    path = folder + "/m.onnx";
    static std::string doomed;
    doomed = folder;
    std::atexit([] { fs::remove_all(doomed); });
    tessera::sdk::host_slot() = &api::host();
  }
};

World& world() {
  static auto* w = new World;
  return *w;
}

void import(std::string_view bytes, const std::string& path, Graph& graph) {
  const tessera::sdk::Graph g(graph.handle());
  try {
    const onnx::ModelProto model = onnx::read_model(bytes);
    if (!model.has_graph) return;
    onnx::Tensors tensors(g, path, nullptr);
    onnx::Importer(g, model, tensors, path).run();
  } catch (const onnx::Malformed& m) {
    if (m.at < bytes.data() || m.at > bytes.data() + bytes.size()) fault(m.what, "a place outside the file");
    throw user_error("TSR-X001", m.what);
  }
}

// ---------------------------------------------------------------------------------------------------------------- the mutator

struct Field {
  uint32_t number = 1;
  onnx::Wire wire = onnx::Wire::Bytes;
  uint64_t value = 0;         // Varint
  std::string bytes;          // of the others, unless it is a message
  std::vector<Field> fields;  // of a message
};

// Bytes that read as fields are taken for a message: a name that does is mutated oddly and no harm is done.
bool parse(std::string_view bytes, int depth, std::vector<Field>* out) {
  try {
    for (onnx::Fields f(bytes); f.next();) {
      Field field;
      field.number = f.number();
      field.wire = f.wire();
      if (f.wire() == onnx::Wire::Varint) {
        field.value = static_cast<uint64_t>(f.integer());
      } else if (f.wire() != onnx::Wire::Bytes || depth == 0 || f.payload().empty() || f.payload().size() > 4096 ||
                 !parse(f.payload(), depth - 1, &field.fields)) {
        field.fields.clear();
        field.bytes = f.payload();
      }
      out->push_back(std::move(field));
    }
    return true;
  } catch (const onnx::Malformed&) {
    return false;
  }
}

void varint(uint64_t v, std::string* out) {
  for (; v >= 0x80; v >>= 7) *out += static_cast<char>(v | 0x80);
  *out += static_cast<char>(v);
}

void write(const std::vector<Field>& fields, std::string* out) {
  for (const Field& f : fields) {
    varint(static_cast<uint64_t>(f.number) << 3 | static_cast<uint64_t>(f.wire), out);
    if (f.wire == onnx::Wire::Varint) {
      varint(f.value, out);
      continue;
    }
    std::string inner;
    if (!f.fields.empty()) write(f.fields, &inner);
    const std::string& payload = f.fields.empty() ? f.bytes : inner;
    if (f.wire == onnx::Wire::Bytes) varint(payload.size(), out);
    *out += payload;
  }
}

const std::vector<std::string>& operators() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const onnx::Family family : onnx::families())
      for (const onnx::Record& r : family()) out.emplace_back(r.name);
    return out;
  }();
  return names;
}

using Place = std::pair<std::vector<Field>*, size_t>;
void places(std::vector<Field>& fields, std::vector<Place>* out) {
  for (size_t i = 0; i < fields.size(); ++i) {
    out->emplace_back(&fields, i);
    places(fields[i].fields, out);
  }
}

void mutate(std::vector<Field>& fields, std::mt19937& random) {
  std::vector<Place> all;
  places(fields, &all);
  if (all.empty()) return;
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const auto [list, index] = all[below(all.size())];
  Field& field = (*list)[index];
  switch (below(8)) {
    case 0: list->erase(list->begin() + static_cast<std::ptrdiff_t>(index)); return;
    case 1: {  // doubled
      const Field copy = field;
      list->insert(list->begin() + static_cast<std::ptrdiff_t>(index), copy);
      return;
    }
    case 2: std::swap(field, (*list)[below(list->size())]); return;
    case 3: {  // becomes, or is followed by, a part from elsewhere
      const auto [from, at] = all[below(all.size())];
      const Field copy = (*from)[at];
      if (below(2))
        field = copy;
      else
        list->insert(list->begin() + static_cast<std::ptrdiff_t>(index), copy);
      return;
    }
    case 4:
      if (field.wire == onnx::Wire::Bytes) {  // maybe the operator of a node
        field.fields.clear();
        field.bytes = operators()[below(operators().size())];
        return;
      }
      field.number = static_cast<uint32_t>(1 + below(26));
      return;
    default: break;
  }
  if (field.wire == onnx::Wire::Varint) {
    static constexpr int64_t kNumbers[] = {0,   1,   2,       3,         4,         5,         7,         8,         9,
                                           10,  11,  13,      16,        18,        21,        23,        28,        127,
                                           255, 256, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, -1,        -2,        -3,
                                           64,  65,  1 << 16, 1LL << 32, 1LL << 40, 1LL << 61, 1LL << 62, 2500000000};
    field.value = below(3) ? static_cast<uint64_t>(kNumbers[below(std::size(kNumbers))]) : field.value + below(5) - 2;
    return;
  }
  if (!field.fields.empty()) return mutate(field.fields, random);
  std::string grown = field.bytes;
  const size_t size = grown.size();
  grown.resize(field.wire == onnx::Wire::Bytes ? size + 16 : size);
  const size_t now = LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(grown.data()), size, grown.size());
  grown.resize(field.wire == onnx::Wire::Bytes ? now : size);
  field.bytes = grown;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  std::mt19937 random(seed);
  std::vector<Field> fields;
  if (random() % 8 == 0 || !parse({reinterpret_cast<const char*>(data), size}, 12, &fields))
    return LLVMFuzzerMutate(data, size, max_size);
  for (size_t n = 1 + random() % 3; n > 0; --n) mutate(fields, random);
  std::string out;
  write(fields, &out);
  if (out.empty() || out.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World& w = world();
  const ServiceScope scope(w.options);
  try {
    Graph graph(w.context->ops(), "fuzz");
    import({reinterpret_cast<const char*>(data), size}, w.path, graph);
    if (graph.tables().num_nodes == 0) return 0;
    if (graph.in_transaction()) graph.commit();
    verify(graph);
    if (graph.tables().num_nodes > 300) return 0;
    ReadLimits limits;
    limits.splat_bytes = 1 << 20;
    const std::string text = print_graph(graph);
    try {
      const auto back = parse_graph(w.context->ops(), text, "back.tsr", limits);
      if (const std::string d = difference(graph, *back); !d.empty()) fault(d, text);
    } catch (const Error& e) {
      fault(e.what(), text);
    }
  } catch (const Error& e) {
    if (e.family() != TSR_USER) fault(e.what(), "not the user's mistake");
  } catch (const tessera::sdk::Error& e) {
    if (e.family != TSR_USER) fault(e.what(), "not the user's mistake");
  }
  return 0;
}
