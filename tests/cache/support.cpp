// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "api/api.hpp"

namespace tessera::test {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "tessera-cache-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp: " + name);
  path = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::shared_ptr<core::Context> make_context(const std::string& folder, const std::vector<std::string>& load,
                                            const std::string& text, const std::vector<std::string>& overrides) {
  const char* build = std::getenv("TESSERA_BUILD_DIR");
  const std::string plugins = std::string(build ? build : ".") + "/lib/tessera/plugins";
  std::string config = "[plugins]\nload = [\"tessera.store.disk\"";
  for (const std::string& id : load) config += ", \"" + id + "\"";
  config += "]\n[disk]\npath = \"" + folder + "\"\n" + text;
  std::vector<const char*> set;
  for (const std::string& s : overrides) set.push_back(s.c_str());
  const char* dir = plugins.c_str();
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text = config.c_str();
  options.overrides = set.data();
  options.num_overrides = set.size();
  options.plugin_dirs = &dir;
  options.num_plugin_dirs = 1;
  return core::Context::create(&options, core::api::host());
}

std::vector<std::string> entry_files(const std::string& folder, const std::string& key) {
  std::vector<std::string> out;
  for (const auto& e : std::filesystem::recursive_directory_iterator(folder))
    if (e.is_regular_file() && e.path().filename().string().size() == 64 && (key.empty() || e.path().filename() == key))
      out.push_back(e.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

}  // namespace tessera::test
