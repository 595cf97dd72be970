// SPDX-License-Identifier: Apache-2.0
// What people see: colours (on a terminal, unless NO_COLOR is set), tables, and progress on stderr.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera::command {

enum class Style { kPlain, kBold, kDim, kRed, kGreen, kYellow };
// `text` in that style if file descriptor `fd` (1 or 2) is a terminal that shows colours. https://no-color.org
std::string styled(Style style, std::string_view text, int fd = 1);
size_t terminal_width();  // of stdout; 100 when it is no terminal

class Table {
 public:
  // An alignment per column: 'l' or 'r'.
  Table(std::string alignment, std::vector<std::string> header);
  void row(std::vector<std::string> cells);
  std::string text() const;  // every line ends with a newline; columns are two spaces apart

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;  // [0]: the header
};

// Says what is being done, once it has taken more than a second: on a terminal in one line that is rewritten and removed in
// the end, with `plain` as one line per phase and kind of work; otherwise nothing. Phases are announced by one thread.
class Progress {
 public:
  explicit Progress(bool plain);
  ~Progress();
  void phase(std::string what);          // "compiling with configs/a.toml"
  void part(size_t done, size_t total);  // of the current phase
  // The same from any thread, of work that the phase has begun: "measuring schedules". It ends when the two are equal.
  void part_of(std::string_view work, size_t done, size_t total);
  void finish();  // clears the line; later phases start anew

 private:
  void watch();
  void clear_line();
  const bool terminal_, plain_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string what_, work_;
  size_t done_ = 0, total_ = 0;
  std::chrono::steady_clock::time_point since_{};
  bool shown_ = false, stop_ = false;
  std::thread thread_;  // only on a terminal, or with `plain`
};

}  // namespace tessera::command
