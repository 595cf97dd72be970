// SPDX-License-Identifier: Apache-2.0
#include "environment.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "command.hpp"

extern char** environ;

namespace tessera::command {
namespace {

Json first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  return std::getline(in, line) ? Json(line) : Json();
}
Json processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return {};
}

}  // namespace

Json environment_record() {
  utsname system{};
  uname(&system);
  double load[1] = {0};
  const bool loaded = getloadavg(load, 1) == 1;
  Json variables = Json::object();
  for (char** at = environ; *at; ++at) {
    const std::string one = *at;
    const size_t equals = one.find('=');
    if (equals == one.npos) continue;
    const std::string name = one.substr(0, equals);
    if (name.rfind("TESSERA_", 0) == 0 || name.rfind("OMP_", 0) == 0 || name == "CUDA_VISIBLE_DEVICES")
      variables[name] = one.substr(equals + 1);
  }
  return {{"version", embed::api().version},
          {"cpu", processor()},
          {"cores", std::thread::hardware_concurrency()},
          {"frequency_policy", first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")},
          {"memory_bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"load", loaded ? Json(load[0]) : Json()},
          {"variables", variables}};
}

std::string environment_text(const Json& r) {
  const auto word = [&](const char* key) { return r.at(key).is_string() ? r.at(key).get<std::string>() : "unknown"; };
  std::string out = "tessera " + word("version") + " on " + word("cpu") + ", " + std::to_string(r.at("cores").get<int>()) +
                    " cores, " + word("system");
  for (const auto& [name, value] : r.at("variables").items()) out += ", " + name + "=" + value.get<std::string>();
  return out;
}

}  // namespace tessera::command
