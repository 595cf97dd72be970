// SPDX-License-Identifier: Apache-2.0
#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tessera::command {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(1);

bool has_colour(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) && !(no_color && *no_color) && term && std::strcmp(term, "dumb") != 0;
}

// Columns that UTF-8 text takes, as far as one per code point holds.
size_t width(std::string_view s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string bar(size_t done, size_t total) {
  constexpr size_t kColumns = 20;
  const size_t full = std::min(done, total) * kColumns / total;
  return "[" + std::string(full, '#') + std::string(kColumns - full, ' ') + "]";
}

}  // namespace

std::string styled(Style style, std::string_view text, int fd) {
  static constexpr const char* codes[] = {"", "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[33m"};
  if (style == Style::kPlain || !has_colour(fd)) return std::string(text);
  return codes[static_cast<size_t>(style)] + std::string(text) + "\033[0m";
}

size_t terminal_width() {
  winsize size{};
  if (isatty(1) && ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

Table::Table(std::string alignment, std::vector<std::string> header) : alignment_(std::move(alignment)) {
  rows_.push_back(std::move(header));
}

void Table::row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::text() const {
  std::vector<size_t> widths(alignment_.size());
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size() && c < widths.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  std::string out;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string cell = c < rows_[r].size() ? rows_[r][c] : "";
      const std::string pad(widths[c] - std::min(widths[c], width(cell)), ' ');
      if (c > 0) line += "  ";
      line += alignment_[c] == 'r' ? pad + cell : cell + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += (r == 0 ? styled(Style::kBold, line) : line) + "\n";
  }
  return out;
}

Progress::Progress(bool plain) : terminal_(!plain && isatty(2)), plain_(plain) {
  if (terminal_ || plain_) thread_ = std::thread([this] { watch(); });
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    clear_line();
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Progress::phase(std::string what) {
  if (!terminal_ && !plain_) return;
  const std::lock_guard lock(mutex_);
  clear_line();
  what_ = std::move(what);
  work_.clear();
  done_ = total_ = 0;
  since_ = Clock::now();
  shown_ = false;
  wake_.notify_all();
}

void Progress::part(size_t done, size_t total) {
  if (!terminal_ && !plain_) return;
  const std::lock_guard lock(mutex_);
  done_ = done;
  total_ = total;
}

void Progress::part_of(std::string_view work, size_t done, size_t total) {
  if (!terminal_ && !plain_) return;
  const std::lock_guard lock(mutex_);
  const bool ended = done == total;
  const std::string_view now = ended ? std::string_view() : work;
  if (plain_ && !ended && now != work_) shown_ = false;  // a line of its own
  work_ = now;
  done_ = ended ? 0 : done;
  total_ = ended ? 0 : total;
  wake_.notify_all();
}

void Progress::finish() {
  if (!terminal_ && !plain_) return;
  const std::lock_guard lock(mutex_);
  clear_line();
  what_.clear();
}

void Progress::clear_line() {
  if (terminal_ && shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

void Progress::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (what_.empty() || (plain_ && shown_)) {
      wake_.wait(lock);
      continue;
    }
    const auto elapsed = Clock::now() - since_;
    if (elapsed < kPatience) {
      wake_.wait_for(lock, kPatience - elapsed);
      continue;
    }
    const std::string line = work_.empty() ? what_ : what_ + ": " + work_;
    if (plain_) {
      std::fprintf(stderr, "tessera: %s\n", line.c_str());
    } else {
      std::fprintf(stderr, "\r\033[K%s ... %.0f s", line.c_str(), std::chrono::duration<double>(elapsed).count());
      if (total_ > 0) std::fprintf(stderr, " %s %zu of %zu", bar(done_, total_).c_str(), done_, total_);
    }
    shown_ = true;
    std::fflush(stderr);
    if (!plain_) wake_.wait_for(lock, std::chrono::milliseconds(250));
  }
}

}  // namespace tessera::command
