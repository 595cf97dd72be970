// SPDX-License-Identifier: Apache-2.0
// Manifests: what a plugin says about itself in a TOML file beside its library, written by tessera_add_plugin().
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/faults.hpp"
#include "config/options.hpp"

namespace tessera::core {

struct Manifest {
  std::string id, version, vendor, stability;
  std::string path;          // of the manifest
  std::string library;       // file name, relative to the manifest's directory
  std::string library_path;  // joined
  std::string hash;          // "sha256:<hex>"
  std::string platform;      // "linux-x86_64"
  int64_t abi_major = 0, abi_minor = 0, ir_min = 0, ir_max = 0;
  std::string sanitizer;
  std::vector<std::string> provides;  // "pass:cse"
  std::vector<std::string> needs;     // ids
  std::vector<OptionDecl> options;
  std::map<std::string, uint32_t> lines;  // of the keys of [plugin]
  Faults faults;                          // what parsing found wrong; such a manifest is never loaded

  // "dir/acme.toml:8": where `key` stands, or the file alone.
  std::string place(const std::string& key) const;
};

// Never throws for bad text: the result carries its faults (TSR-P002, P003, P012). An id that could not be read is the
// file's name.
Manifest parse_manifest(std::string_view text, const std::string& path);
Manifest read_manifest(const std::string& path);

// Checks that need no library code: platform, ABI, IR, sanitizer, library file and its hash (TSR-P005 .. P010).
void check_manifest(const Manifest& manifest, Faults& faults);

// Every manifest in the given directories, in order. Within one directory two manifests of one id are a fault (TSR-P004) of
// both; across directories the earlier one wins. A directory that does not exist is passed over.
std::vector<Manifest> find_manifests(std::span<const std::string> dirs);

std::string host_platform();  // "linux-x86_64"

}  // namespace tessera::core
