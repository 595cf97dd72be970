// SPDX-License-Identifier: Apache-2.0
#include "plugin/manifest.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "config/document.hpp"
#include "config/keys.hpp"
#include "config/options.hpp"
#include "plugin/plugin_host.hpp"
#include "plugin/sha256.hpp"

namespace tessera::core {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWrittenBy = "manifests are written by tessera_add_plugin(); rebuild the plugin";

bool is_lower_word(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

// "acme.backend.npu": lower-case words joined by dots, at least two.
bool is_plugin_id(std::string_view id) {
  bool word = false, dot = false;
  for (const char c : id) {
    if (c == '.') {
      if (!word) return false;
      dot = true;
      word = false;
    } else if (is_lower_word(c)) {
      word = true;
    } else {
      return false;
    }
  }
  return word && dot;
}

bool is_option_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), is_lower_word) && !(name[0] >= '0' && name[0] <= '9');
}

bool is_hash(std::string_view hash) {
  constexpr std::string_view prefix = "sha256:";
  return hash.size() == prefix.size() + 64 && hash.starts_with(prefix) &&
         hash.find_first_not_of("0123456789abcdef", prefix.size()) == hash.npos;
}

// Reads one manifest; every fault goes to manifest.faults.
class Reader {
 public:
  Reader(Manifest& manifest, const TomlNode& root) : m_(manifest), root_(root) {}

  void read() {
    const TomlNode *plugin = nullptr, *options = nullptr;
    for (const TomlNode& top : root_.items) {
      if (top.key == "plugin" && top.kind == TomlNode::kTable)
        plugin = &top;
      else if (top.key == "options" && top.kind == TomlNode::kArray)
        options = &top;
      else if (top.key == "plugin" || top.key == "options")
        wrong(top, "'" + top.key + "' is " + describe(top) + ", expected " +
                       (top.key == "plugin" ? "a [plugin] section" : "[[options]] tables"));
      else
        unknown_.push_back({&top, top.key});
    }
    if (!plugin) {
      m_.faults.add(TSR_USER, "TSR-P003", m_.path + ":1: found no [plugin] section", kWrittenBy);
      return;
    }
    read_plugin(*plugin);
    if (options) read_options(*options);
    // A newer SDK may have appended keys; the handshake decides whether this host can run its plugin.
    if (m_.abi_minor > TSR_ABI_MINOR) return;
    for (const auto& [node, key] : unknown_) wrong(*node, "unknown key '" + key + "'" + did_you_mean(node->key, known_));
  }

 private:
  void wrong(const TomlNode& at, const std::string& what) {
    m_.faults.add(TSR_USER, "TSR-P003", m_.path + ":" + std::to_string(at.line) + ": " + what, kWrittenBy);
  }
  void bad_option(const TomlNode& at, const std::string& what) {
    m_.faults.add(TSR_USER, "TSR-P012", m_.path + ":" + std::to_string(at.line) + ": " + what,
                  "correct the OPTIONS_FILE of the plugin and rebuild it");
  }

  const TomlNode* field(const TomlNode& table, const char* key, TomlNode::Kind kind, bool required = true) {
    known_.emplace_back(key);
    const TomlNode* node = table.find(key);
    if (!node) {
      if (required) wrong(table, std::string("[plugin] has no '") + key + "'");
      return nullptr;
    }
    m_.lines[key] = node->line;
    if (node->kind == kind) return node;
    wrong(*node, std::string("'") + key + "' is " + describe(*node) + ", expected " +
                     (kind == TomlNode::kString ? "a string"
                      : kind == TomlNode::kInt  ? "an int"
                                                : "an array of strings"));
    return nullptr;
  }
  void text(const TomlNode& table, const char* key, std::string* out) {
    if (const TomlNode* node = field(table, key, TomlNode::kString)) *out = node->s;
  }
  void number(const TomlNode& table, const char* key, int64_t* out) {
    const TomlNode* node = field(table, key, TomlNode::kInt);
    if (!node) return;
    if (node->i < 0 || node->i > UINT32_MAX)
      wrong(*node, std::string("'") + key + "' is " + std::to_string(node->i) + ", expected 0..4294967295");
    else
      *out = node->i;
  }
  void texts(const TomlNode& table, const char* key, bool required, std::vector<std::string>* out) {
    const TomlNode* node = field(table, key, TomlNode::kArray, required);
    Value value;
    if (!node) return;
    if (!to_value(*node, &value)) return wrong(*node, std::string("'") + key + "' is not an array of strings");
    *out = std::move(value.strings);
  }

  void read_plugin(const TomlNode& p) {
    const std::string file_name = m_.id;
    text(p, "id", &m_.id);
    if (const TomlNode* id = p.find("id"); id && id->kind == TomlNode::kString && !is_plugin_id(id->s)) {
      wrong(*id, "the id is '" + id->s + "', expected lower-case words joined by dots, such as acme.backend.npu");
      m_.id = file_name;
    }
    text(p, "version", &m_.version);
    text(p, "vendor", &m_.vendor);
    text(p, "stability", &m_.stability);
    if (!m_.stability.empty() && m_.stability != "stable" && m_.stability != "experimental")
      wrong(*p.find("stability"), "stability is '" + m_.stability + "', expected stable or experimental");
    text(p, "library", &m_.library);
    // Beside the manifest and nowhere else: a manifest must not be able to open arbitrary files.
    if (m_.library.find('/') != std::string::npos || m_.library == ".." || (m_.library.empty() && p.find("library")))
      wrong(*p.find("library"), "library is '" + m_.library + "', expected the name of a file in the same directory");
    m_.library_path = (fs::path(m_.path).parent_path() / m_.library).string();
    text(p, "hash", &m_.hash);
    if (const TomlNode* hash = p.find("hash"); hash && hash->kind == TomlNode::kString && !is_hash(m_.hash))
      wrong(*hash, "hash is '" + m_.hash + "', expected sha256: and 64 hex digits");
    text(p, "platform", &m_.platform);
    number(p, "abi_major", &m_.abi_major);
    number(p, "abi_minor", &m_.abi_minor);
    number(p, "ir_min", &m_.ir_min);
    number(p, "ir_max", &m_.ir_max);
    text(p, "sanitizer", &m_.sanitizer);
    texts(p, "provides", true, &m_.provides);
    texts(p, "needs", false, &m_.needs);
    for (size_t i = 0; i < m_.provides.size(); ++i) {
      const std::string& item = m_.provides[i];
      const size_t colon = item.find(':');
      if (colon == item.npos || colon + 1 == item.size() || kind_from_name(item.substr(0, colon)) == 0)
        wrong(*p.find("provides"), "provides holds '" + item + "', expected KIND:NAME, such as pass:cse");
      if (std::find(m_.provides.begin(), m_.provides.begin() + static_cast<ptrdiff_t>(i), item) !=
          m_.provides.begin() + static_cast<ptrdiff_t>(i))
        wrong(*p.find("provides"), "provides holds '" + item + "' twice");
    }
    for (const TomlNode& item : p.items)
      if (std::find(known_.begin(), known_.end(), item.key) == known_.end()) unknown_.push_back({&item, "plugin." + item.key});
  }

  void read_options(const TomlNode& list) {
    for (const TomlNode& item : list.items) {
      if (item.kind != TomlNode::kTable) {
        bad_option(item, "'options' holds " + describe(item) + ", expected [[options]] tables");
        continue;
      }
      OptionDecl decl;
      if (read_option(item, &decl)) m_.options.push_back(std::move(decl));
    }
  }

  bool read_option(const TomlNode& t, OptionDecl* decl) {
    const size_t before = m_.faults.size();
    const TomlNode* name = t.find("name");
    if (!name || name->kind != TomlNode::kString || !is_option_name(name->s)) {
      bad_option(name ? *name : t, "an option has no 'name' of lower-case letters, digits and '_'");
      return false;
    }
    decl->name = name->s;
    const std::string what = "option '" + decl->name + "': ";
    if (std::any_of(m_.options.begin(), m_.options.end(), [&](const OptionDecl& o) { return o.name == decl->name; }))
      bad_option(*name, what + "is declared twice");
    const TomlNode* type = t.find("type");
    if (!type || type->kind != TomlNode::kString || !parse_option_type(type->s, &decl->type)) {
      bad_option(type ? *type : t,
                 what + "type is " + (type ? describe(*type) : "missing") + ", expected int, float, bool, string or strings");
      return false;
    }
    const bool numeric = decl->type == OptionType::kInt || decl->type == OptionType::kFloat;
    for (const TomlNode& f : t.items) {
      if (f.key == "min" || f.key == "max") {
        const double v = f.kind == TomlNode::kInt ? static_cast<double>(f.i) : f.f;
        if (!numeric || (f.kind != TomlNode::kInt && f.kind != TomlNode::kFloat) || std::isnan(v))
          bad_option(f, what + f.key + " is " + describe(f) + ", expected a number, and only for int and float");
        else
          (f.key == "min" ? decl->min : decl->max) = v;
      } else if (f.key == "choices") {
        Value value;
        const bool strings = decl->type == OptionType::kString || decl->type == OptionType::kStrings;
        if (!strings || !to_value(f, &value) || value.type != OptionType::kStrings || value.strings.empty())
          bad_option(f, what + "choices is " + describe(f) + ", expected an array of strings, and only for string and strings");
        else
          decl->choices = std::move(value.strings);
      } else if (f.key == "help") {
        if (f.kind != TomlNode::kString) bad_option(f, what + "help is " + describe(f) + ", expected a string");
        decl->help = f.s;
      } else if (f.key == "also") {
        if (f.kind != TomlNode::kString || !is_option_name(f.s) || is_known_section(f.s))
          bad_option(f, what + "also is " + describe(f) +
                            ", expected a name of lower-case letters, digits and '_' that is none of Tessera's sections");
        decl->also = f.s;
      } else if (f.key != "name" && f.key != "type" && f.key != "default" && m_.abi_minor <= TSR_ABI_MINOR) {
        bad_option(f, what + "unknown key '" + f.key + "'" +
                          did_you_mean(f.key, {"name", "type", "default", "min", "max", "choices", "help", "also"}));
      }
    }
    if (decl->min > decl->max) bad_option(t, what + "min is above max");
    const TomlNode* fallback = t.find("default");
    if (!fallback) {
      bad_option(t, what + "has no default");
    } else if (m_.faults.size() == before) {
      Value value;
      if (!to_value(*fallback, &value)) {
        bad_option(*fallback, what + "default is " + describe(*fallback) + ", expected " + with_article(decl->type));
      } else {
        const std::string problem = check_value(*decl, &value);
        if (!problem.empty()) bad_option(*fallback, what + "default: " + problem);
      }
      decl->fallback = std::move(value);
    }
    // What one key of a config sets cannot mean two things, nor be two things where it is not set.
    if (const KeyDecl* own = m_.faults.size() == before ? find_key(decl->also) : nullptr;
        own && (own->type != decl->type || own->fallback != decl->fallback))
      bad_option(*t.find("also"), what + "also is '" + decl->also + "', a key of Tessera's own that is " +
                                      with_article(own->type) + " and by default " + to_text(own->fallback) + "; this is " +
                                      with_article(decl->type) + ", by default " + to_text(decl->fallback));
    return m_.faults.size() == before;
  }

  Manifest& m_;
  const TomlNode& root_;
  std::vector<std::string> known_;
  std::vector<std::pair<const TomlNode*, std::string>> unknown_;
};

}  // namespace

std::string Manifest::place(const std::string& key) const {
  const auto at = lines.find(key);
  return at == lines.end() ? path : path + ":" + std::to_string(at->second);
}

std::string host_platform() {
#if defined(__linux__)
  std::string system = "linux";
#elif defined(__APPLE__)
  std::string system = "darwin";
#else
  std::string system = "unknown";
#endif
#if defined(__x86_64__)
  return system + "-x86_64";
#elif defined(__aarch64__)
  return system + "-aarch64";
#else
  return system + "-unknown";
#endif
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  Manifest m;
  m.path = path;
  m.id = fs::path(path).stem().string();
  try {
    const TomlNode root = parse_toml(text, path);
    Reader(m, root).read();
  } catch (const Error& e) {
    m.faults.add(TSR_USER, "TSR-P002", e.message(), kWrittenBy);
  }
  return m;
}

Manifest read_manifest(const std::string& path) {
  try {
    return parse_manifest(read_text_file(path, 4u << 20), path);
  } catch (const Error& e) {
    Manifest m;
    m.path = path;
    m.id = fs::path(path).stem().string();
    m.faults.add(TSR_ENVIRONMENT, "TSR-P002", e.message(), e.hint());
    return m;
  }
}

void check_manifest(const Manifest& m, Faults& faults) {
  faults.add(m.faults);
  if (!m.faults.empty()) return;
  const auto number = [](int64_t v) { return std::to_string(v); };
  const std::string who = "plugin '" + m.id + "' ";
  if (m.platform != host_platform())
    faults.add(TSR_USER, "TSR-P005",
               m.place("platform") + ": " + who + "is built for " + m.platform + ", expected " + host_platform(),
               "install the build for this machine");
  if (m.abi_major != TSR_ABI_MAJOR)
    faults.add(TSR_USER, "TSR-P006",
               m.place("abi_major") + ": " + who + "is built for plugin ABI " + number(m.abi_major) + "." +
                   number(m.abi_minor) + ", this host has " + number(TSR_ABI_MAJOR) + "." + number(TSR_ABI_MINOR),
               m.abi_major > TSR_ABI_MAJOR ? "use a newer Tessera, or a build of the plugin for this one"
                                           : "rebuild the plugin with this SDK");
  if (m.ir_min > TSR_IR_VERSION || m.ir_max < TSR_IR_VERSION)
    faults.add(TSR_USER, "TSR-P007",
               m.place(m.ir_min > TSR_IR_VERSION ? "ir_min" : "ir_max") + ": " + who + "reads graph IR versions " +
                   number(m.ir_min) + " to " + number(m.ir_max) + ", this host has " + number(TSR_IR_VERSION),
               m.ir_min > TSR_IR_VERSION ? "use a newer Tessera, or a build of the plugin for this one"
                                         : "rebuild the plugin with this SDK");
  if (m.sanitizer != host_sanitizer())
    faults.add(TSR_USER, "TSR-P008",
               m.place("sanitizer") + ": " + who + "is built with sanitizer '" + m.sanitizer + "', this host with '" +
                   host_sanitizer() + "'",
               "two sanitizer run times cannot share a process: build both the same way");
  std::error_code error;
  if (!fs::is_regular_file(m.library_path, error)) {
    faults.add(TSR_ENVIRONMENT, "TSR-P009",
               m.place("library") + ": " + who + "has no library: '" + m.library_path + "' is not a file",
               "install the plugin again; the library belongs beside its manifest");
    return;
  }
  try {
    const std::string found = "sha256:" + sha256_file(m.library_path);
    if (found != m.hash)
      faults.add(TSR_ENVIRONMENT, "TSR-P010",
                 m.place("hash") + ": '" + m.library_path + "' has hash " + found + ", expected " + m.hash,
                 "the library is not the one that this manifest describes: rebuild or reinstall the plugin");
  } catch (const Error& e) {
    faults.add(TSR_ENVIRONMENT, "TSR-P009", m.place("library") + ": " + who + e.message(), e.hint());
  }
}

std::vector<Manifest> find_manifests(std::span<const std::string> dirs) {
  std::vector<Manifest> out;
  for (const std::string& dir : dirs) {
    std::vector<std::string> files;
    std::error_code error;
    for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
      if (it->path().extension() == ".toml") files.push_back(it->path().string());
    std::sort(files.begin(), files.end());  // the order of a directory is not the same everywhere
    const size_t first = out.size();
    for (const std::string& file : files) {
      Manifest m = read_manifest(file);
      const auto earlier = std::find_if(out.begin(), out.end(), [&](const Manifest& o) { return o.id == m.id; });
      if (earlier == out.end()) {
        out.push_back(std::move(m));
      } else if (earlier - out.begin() >= static_cast<ptrdiff_t>(first)) {
        earlier->faults.add(TSR_USER, "TSR-P004", m.place("id") + ": id '" + m.id + "' is also that of " + earlier->place("id"),
                            "remove one of the two manifests");
      }
    }
  }
  return out;
}

}  // namespace tessera::core
