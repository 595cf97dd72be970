// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <ctime>
#include <iostream>

#include "json.hpp"
#include "options.hpp"
#include "session.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tessera::command {

namespace {

std::string date_text(int64_t unix_seconds) {
  const auto t = static_cast<time_t>(unix_seconds);
  tm parts{};
  char text[32];
  if (!gmtime_r(&t, &parts) || strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts) == 0) return "?";
  return text;
}

std::string entries_text(size_t n) { return std::to_string(n) + (n == 1 ? " entry" : " entries"); }

void say_refused(const Json& answer) {
  for (const Json& why : answer.value("reasons", Json::array()))
    std::cerr << styled(Style::kYellow, "refused", 2) << ": " << why.get<std::string>() << "\n";
}

}  // namespace

int cache(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  std::string what, file, dir;
  int64_t max_bytes = 0;
  options.positional("ls|prune|export|import|verify", &what);
  options.positional("FILE", &file, false);
  options.value("cache-dir", "DIR", &dir, "The cache's folder; as TESSERA_CACHE_DIR.");
  options.integer("max-bytes", "N", &max_bytes, 0, INT64_MAX,
                  "prune: remove the least recently used until at most N bytes are left (0: all).");
  context.add_to(options, true, false);
  if (!options.parse(args)) return kOk;
  const bool has_file = what == "export" || what == "import";
  if (!has_file && what != "ls" && what != "prune" && what != "verify")
    throw usage_error("TSR-U001",
                      "unknown subcommand " + quote(what) + did_you_mean(what, {"ls", "prune", "export", "import", "verify"}),
                      "see: tessera help cache");
  if (has_file && file.empty()) throw usage_error("TSR-U003", "cache " + what + ": no FILE given", "see: tessera help cache");
  if (!has_file && !file.empty()) throw usage_error("TSR-U003", "cache " + what + " takes no FILE", "see: tessera help cache");
  if (!dir.empty()) setenv("TESSERA_CACHE_DIR", dir.c_str(), 1);

  const embed::Context c(context.options());
  if (what == "ls") {
    const Json answer = Json::parse(c.cache_list());
    if (options.json()) {
      print_json("tessera.cache_ls/1", answer);
      return kOk;
    }
    Table table("lrl", {"entry", "size", "last used (UTC)"});
    for (const Json& e : answer["entries"])
      table.row(
          {e["key"].get<std::string>().substr(0, 16), bytes_text(e["bytes"].get<double>()), date_text(e["last_used_unix"])});
    if (!answer["entries"].empty()) std::cout << table.text() << "\n";
    std::cout << entries_text(answer["entries"].size()) << ", " << bytes_text(answer["bytes"].get<double>()) << " in "
              << answer["location"].get<std::string>() << "\n";
    return kOk;
  }
  if (what == "prune") {
    const Json answer = Json::parse(c.cache_prune(static_cast<uint64_t>(max_bytes)));
    double bytes = 0;
    for (const Json& e : answer["removed"]) bytes += e["bytes"].get<double>();
    if (options.json())
      print_json("tessera.cache_prune/1", answer);
    else
      std::cout << "removed " << entries_text(answer["removed"].size()) << ", " << bytes_text(bytes) << "\n";
    return kOk;
  }
  if (what == "verify") {
    const Json answer = Json::parse(c.cache_verify());
    say_refused(answer);
    if (options.json())
      print_json("tessera.cache_verify/1", answer);
    else
      std::cout << entries_text(answer["entries"].get<size_t>()) << ", " << bytes_text(answer["bytes"].get<double>())
                << ": sound\n";
    return answer["refused"].get<int64_t>() > 0 ? kCheckFailed : kOk;
  }
  const Json answer = Json::parse(what == "export" ? c.cache_export(file) : c.cache_import(file));
  say_refused(answer);
  if (options.json())
    print_json(what == "export" ? "tessera.cache_export/1" : "tessera.cache_import/1", answer);
  else
    std::cout << (what == "export" ? "exported " : "imported ") << entries_text(answer["entries"].get<size_t>()) << ", "
              << bytes_text(answer["bytes"].get<double>()) << (what == "export" ? " to " : " from ") << file << "\n";
  return answer["refused"].get<int64_t>() > 0 ? kCheckFailed : kOk;
}

}  // namespace tessera::command
