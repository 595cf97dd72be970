// SPDX-License-Identifier: Apache-2.0
// trace.enabled: what one compile leaves for people, in a folder of its own. docs/debug_folder.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "log/log.hpp"
#include "trace/diagram.hpp"

namespace tessera::core {

class Config;
class Graph;

// The folder of one compile of this thread, from its beginning to its end. Every file is written as soon as it is known, so
// that a compile that fails or crashes leaves what there was until then. It never fails a compile: what cannot be written is
// one warning per trace.debug_dir and process. Folders are new ones, whatever other threads and processes do.
class DebugFolder {
 public:
  // Writes graph.tsr. While this lives, what backends and passes say on this thread about kernels and fusion goes to files too.
  DebugFolder(const Config& config, const Graph& graph);
  ~DebugFolder();  // draws the diagram
  DebugFolder(const DebugFolder&) = delete;

  void final_graph(const Graph& graph, const std::vector<Placement>& placements);  // graph_final.tsr, graph_diagram.dot
  void planned(const std::string& steps, const std::string& diagram);              // steps.txt, graph_diagram.dot once more
  void calls(std::string_view text);   // the order of calls, a comment of output_code.cpp
  void failed(std::string_view what);  // error.txt

  bool draws() const { return draws_ && !path_.empty(); }
  const std::string& path() const { return path_; }  // "": it cannot be written

 private:
  void write(const char* file, std::string_view text, bool append = false);
  void said(Artifact artifact, std::string_view text);
  void give_up(const std::string& why);

  std::string dir_, path_;
  bool draws_;
  LogCapture capture_;
};

}  // namespace tessera::core
