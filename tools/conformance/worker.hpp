// SPDX-License-Identifier: Apache-2.0
// Checks run in processes of their own, so that a plugin that crashes, hangs or ends its process costs one check and not the
// run.
//
// A worker is this program once more, started with the same arguments and kWorkerVariable in its environment. It reads commands
// from its stdin, one a line ("list 0", "list 1", "run 12", "quit"), and answers each with one line of JSON on the descriptor
// that the variable names. What the plugin prints goes to a file, of which a report shows the end.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "subject.hpp"

namespace tessera::conformance {

inline constexpr const char* kWorkerVariable = "TESSERA_CONFORMANCE_WORKER";

// The process that is a worker; returns its exit status.
int serve_worker(Subject&, int answers);

// A worker as its parent sees it. Ends with its object.
class Worker {
 public:
  explicit Worker(std::vector<std::string> command_line);  // of this program, its name included
  ~Worker();
  Worker(const Worker&) = delete;

  void send(const std::string& command);
  // The next answer, if it has come; waits for it at most until `deadline`. Nothing: see state().
  std::optional<std::string> receive(std::chrono::steady_clock::time_point deadline);
  enum class State { kAlive, kEnded };
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] std::string death() const { return death_; }  // how it ended: "signal 11 (Segmentation fault)", "exit status 3"
  [[nodiscard]] bool ended_well() const { return ended_well_; }
  void kill_now();
  // What the plugin has printed since the last command, the last 2,000 characters of it.
  [[nodiscard]] std::string printed() const;
  [[nodiscard]] int descriptor() const { return answers_; }  // readable when an answer has come, or the process has ended

 private:
  void bury();
  int pid_ = -1, commands_ = -1, answers_ = -1, output_ = -1;
  int64_t output_from_ = 0;
  State state_ = State::kAlive;
  bool ended_well_ = false;
  std::string pending_, death_;
};

}  // namespace tessera::conformance
