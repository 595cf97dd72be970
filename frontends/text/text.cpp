// SPDX-License-Identifier: Apache-2.0
// Reads the text form of the IR (docs/ir.md). The grammar is the host's; this plugin makes it one frontend among others.
#include <tessera/plugin.hpp>

namespace tessera::frontends {
namespace {

class Text final : public sdk::Frontend {
  const char* description() const override { return "Tessera text IR"; }
  std::vector<const char*> extensions() const override { return {".tsr"}; }
  // The first word that is not in a comment decides.
  int probe(std::string_view head) override {
    while (true) {
      const size_t at = head.find_first_not_of(" \t\r\n");
      if (at == head.npos) return 0;
      head.remove_prefix(at);
      if (!head.starts_with("//")) return head.starts_with("graph @") ? 100 : 0;
      const size_t end = head.find('\n');
      if (end == head.npos) return 0;
      head.remove_prefix(end);
    }
  }
  bool can_import() const override { return true; }
  void import(std::string_view bytes, const char* path, sdk::Graph g) override {
    sdk::check(g.api().parse(g.handle(), bytes.data(), bytes.size(), path));
  }
};

}  // namespace
}  // namespace tessera::frontends

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_frontend("text", std::make_unique<tessera::frontends::Text>());
}
