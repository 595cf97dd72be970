// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "json.hpp"
#include "options.hpp"

namespace tessera::command {

int version(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  if (!options.parse(args)) return kOk;
  const tsr_api& api = embed::api();
  const std::string abi = std::to_string(api.abi_major) + "." + std::to_string(api.abi_minor);
  if (options.json())
    print_json("tessera.version/1",
               {{"version", api.version}, {"abi", abi}, {"ir", api.host->ir_version}, {"sanitizer", api.host->sanitizer}});
  else
    std::cout << "tessera " << api.version << ", plugin ABI " << abi << ", IR version " << api.host->ir_version << "\n";
  return kOk;
}

}  // namespace tessera::command
