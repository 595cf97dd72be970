// SPDX-License-Identifier: Apache-2.0
#include "trace/debug_folder.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "config/config.hpp"
#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "support/text.hpp"
#include "tessera/embed.h"

namespace tessera::core {

namespace {

constexpr std::array kRead = {Artifact::kOutputCode, Artifact::kKernelCode, Artifact::kFusion, Artifact::kPerfHints,
                              Artifact::kAutotuning};

std::string with_prefix(std::string_view prefix, std::string_view text) {
  std::string out;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out.append(prefix).append(text.substr(at, end - at)) += '\n';
    at = end + 1;
  }
  return out;
}

// Text that parses: large constants are inputs, as `tessera import` writes them. Nested regions have no such inputs; by the
// megabyte their constants are left out, and then the text is for reading alone.
std::string text_of(const Graph& g) {
  constexpr int64_t kMostNested = 1 << 20;
  bool params = false;
  int64_t nested = 0;  // bytes
  for (tsr_id n = 0; n < g.num_nodes(); ++n) {
    const tsr_node& x = g.node(n);
    const tsr_attr* value = x.alive && g.record_of(n).has(kConstant) ? g.attr(n, "value") : nullptr;
    if (!value || value->kind != TSR_ATTR_TENSOR) continue;
    int64_t elements = 1;
    for (uint32_t k = 0; k < value->tensor->rank; ++k) elements *= value->tensor->sizes[k];
    params = params || (x.parent == 0 && elements > TSR_PRINT_PARAMS_ABOVE);
    if (x.parent != 0) nested += tensor_bytes(static_cast<tsr_dtype>(value->tensor->dtype), elements);
  }
  const bool elide = nested > kMostNested;
  std::string text;
  if (params)
    text += "// Params without a key: constants of more than " + std::to_string(TSR_PRINT_PARAMS_ABOVE) + " elements.\n";
  if (elide)
    text += "// Constants of nested regions, " + bytes_text(static_cast<double>(nested)) +
            ", are elided: this text does not parse.\n";
  return text + print_graph(g, kPrintLocations | kPrintParams | (elide ? kPrintElideConstants : 0u));
}

}  // namespace

DebugFolder::DebugFolder(const Config& config, const Graph& graph)
    : dir_(config.get_string("trace.debug_dir")),
      draws_(config.get_bool("trace.graph_diagram")),
      capture_([this](Artifact artifact, std::string_view text) { said(artifact, text); }, kRead) {
  if (dir_.empty()) dir_ = "tessera_debug";
  std::error_code code;
  std::filesystem::create_directories(dir_, code);
  const std::string base = (std::filesystem::path(dir_) / (file_safe(graph.tables().name) + "_")).string();
  // mkdir makes a folder or says that there is one: the first number that nobody else has taken.
  int failed = EEXIST;
  for (size_t number = 0; failed == EEXIST; ++number) {
    path_ = base + std::to_string(number);
    failed = ::mkdir(path_.c_str(), 0777) == 0 ? 0 : errno;
  }
  if (failed) {
    give_up(std::strerror(failed));
    return;
  }
  log_notice("trace.enabled: each compiled graph leaves a folder in '" + dir_ + "'");
  write("graph.tsr", text_of(graph));
}

DebugFolder::~DebugFolder() {
  if (!draws()) return;
  try {
    const std::string base = path_ + "/graph_diagram";
    std::error_code none;
    if (!std::filesystem::exists(base + ".dot", none)) return;
    if (const std::string why = draw_diagram(base + ".dot", base + ".svg"); !why.empty())
      log_notice("a graph diagram stays a .dot file: " + why + "; by hand: " + kDrawByHand);
  } catch (const std::exception& e) {
    log_warning(std::string("trace.enabled: no diagram: ") + e.what());
  }
}

void DebugFolder::final_graph(const Graph& graph, const std::vector<Placement>& placements) {
  if (path_.empty()) return;
  write("graph_final.tsr", text_of(graph));
  if (draws()) write("graph_diagram.dot", graph_diagram(graph, placements));
}

void DebugFolder::planned(const std::string& steps, const std::string& diagram) {
  write("steps.txt", steps);
  if (draws()) write("graph_diagram.dot", diagram);
}

void DebugFolder::calls(std::string_view text) { write("output_code.cpp", with_prefix("// ", text), true); }

void DebugFolder::failed(std::string_view what) { write("error.txt", std::string(what) + "\n"); }

void DebugFolder::said(Artifact artifact, std::string_view text) {
  if (artifact == Artifact::kKernelCode)
    write("output_code.cpp", std::string(text) + "\n\n", true);
  else if (artifact == Artifact::kAutotuning)
    write("autotuning.log", with_prefix("", text), true);
  else
    write("fusion.log", with_prefix("[" + std::string(artifact_name(artifact)) + "] ", text), true);
}

void DebugFolder::write(const char* file, std::string_view text, bool append) {
  if (path_.empty()) return;
  errno = 0;
  std::ofstream out(path_ + "/" + file, std::ios::binary | (append ? std::ios::app : std::ios::trunc));
  out << text;
  out.close();
  if (!out) give_up(errno ? std::strerror(errno) : "a file cannot be written");
}

void DebugFolder::give_up(const std::string& why) {
  path_.clear();
  static std::mutex mutex;
  static auto* const warned = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (warned->insert(dir_).second)
    log_warning("trace.enabled: nothing more is left in '" + dir_ + "': " + why + "; trace.debug_dir names the folder");
}

}  // namespace tessera::core
