// SPDX-License-Identifier: Apache-2.0
// Copies a template of the SDK (share/tessera/templates/KIND) and fills in its placeholders, in file names too:
//   @NAME@ fold_scales   @CLASS@ FoldScales   @VENDOR@ acme
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>

#include "json.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

namespace fs = std::filesystem;

fs::path template_dir() {
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  const fs::path dir = binary.parent_path().parent_path() / "share" / "tessera" / "templates";
  if (error || !fs::is_directory(dir, error))
    throw Error(TSR_ENVIRONMENT, "TSR-E011", "the templates are not where they belong: " + dir.string(),
                "install Tessera again: cmake --install BUILD --prefix DIR");
  return dir;
}

bool is_word(std::string_view s) {
  const auto good = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !s.empty() && s[0] >= 'a' && s[0] <= 'z' && std::all_of(s.begin(), s.end(), good);
}

// "Fold-Scales" -> "fold_scales", as a suggestion.
std::string as_word(std::string_view s) {
  std::string out;
  for (const char c : s) {
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (is_word(std::string("a") + lower))
      out += lower;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  while (!out.empty() && !is_word(out)) out.erase(0, 1);
  return out;
}

std::string class_name(const std::string& word) {
  std::string out;
  bool up = true;
  for (const char c : word) {
    if (c == '_') {
      up = true;
    } else {
      out += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      up = false;
    }
  }
  return out;
}

std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [key, value] : values)
    for (size_t at = text.find(key); at != text.npos; at = text.find(key, at + value.size()))
      text.replace(at, key.size(), value);
  return text;
}

void check_word(const char* what, const std::string& word) {
  if (is_word(word)) return;
  const std::string better = as_word(word);
  throw usage_error("TSR-U009", std::string(what) + " " + quote(word) +
                                    ": expected lower-case letters, digits and '_', beginning with a letter" +
                                    (better.empty() ? "" : "; did you mean " + quote(better) + "?"));
}

}  // namespace

int scaffold(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  std::string kind, name, dir, vendor = "acme";
  options.positional("KIND", &kind);
  options.positional("NAME", &name);
  options.value("dir,d", "DIR", &dir, "Where the files go: a directory that is empty or not there yet (default: ./NAME).");
  bool kit = false;
  options.flag("kit", &kit, "backend: over the kernel kit, which lowers and fuses.");
  options.value("vendor", "NAME", &vendor, "First part of the plugin's id (default: acme).");
  if (!options.parse(args)) return kOk;
  const std::vector<std::string> kinds = {"op", "pass", "backend", "device", "executor", "partitioner", "store", "frontend"};
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
    throw usage_error("TSR-U001", "tessera new: unknown kind " + quote(kind) + did_you_mean(kind, kinds),
                      "expected " + join(kinds));
  if (kit && kind != "backend")
    throw usage_error("TSR-U003", "--kit is for backends, not for the kind " + quote(kind), "leave it out");
  check_word("NAME", name);
  check_word("--vendor", vendor);
  if (vendor == "tessera")
    throw usage_error("TSR-U009", "--vendor 'tessera' is that of first-party plugins", "choose the name of your organisation");

  const fs::path from = template_dir() / (kit ? "backend_kit" : kind), to = dir.empty() ? fs::path(name) : fs::path(dir);
  std::error_code error;
  if (fs::exists(to, error) && !(fs::is_directory(to, error) && fs::is_empty(to, error)))
    throw usage_error("TSR-U009", to.string() + " exists and is not an empty directory", "choose another one with --dir");
  const std::vector<std::pair<std::string, std::string>> values = {
      {"@NAME@", name}, {"@CLASS@", class_name(name)}, {"@VENDOR@", vendor}};
  std::vector<std::string> files;
  fs::create_directories(to, error);
  if (error)
    throw usage_error("TSR-U008", to.string() + ": cannot be created: " + error.message(),
                      "choose another directory with --dir");
  for (const auto& entry : fs::directory_iterator(from, error)) {
    const fs::path target = to / filled(entry.path().filename().string(), values);
    write_file(target.string(), filled(read_file(entry.path().string()), values));
    files.push_back(target.string());
  }
  if (error || files.empty())
    throw Error(TSR_ENVIRONMENT, "TSR-E011", "the template " + from.string() + " cannot be read", "install Tessera again");
  std::sort(files.begin(), files.end());

  const std::string id = vendor + "." + (kind == "op" ? "opset" : kind) + "." + name;
  if (options.json()) {
    print_json("tessera.new/1", {{"kind", kind}, {"name", name}, {"id", id}, {"directory", to.string()}, {"files", files}});
    return kOk;
  }
  std::cout << "wrote the " << kind << " plugin " << styled(Style::kBold, id) << ":\n";
  for (const std::string& f : files) std::cout << "  " << f << "\n";
  const std::string prefix = template_dir().parent_path().parent_path().parent_path().string();
  std::cout << "\nNext:\n  cd " << to.string() << "\n  cmake -B build -DCMAKE_PREFIX_PATH=" << prefix
            << "\n  cmake --build build && ctest --test-dir build --output-on-failure\n";
  return kOk;
}

}  // namespace tessera::command
