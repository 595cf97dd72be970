// SPDX-License-Identifier: Apache-2.0
// Graphviz as a child process, without a shell: nothing links it, and nothing needs it.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "trace/diagram.hpp"

extern char** environ;

namespace tessera::core {

namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kNotInstalled = "'dot' is not installed (apt-get install graphviz)";

// Its exit status; -1: unknown, as another part of the program has waited for it or waits for no child at all; -2: it took too
// long.
int wait_for(pid_t child, Clock::time_point deadline) {
  auto pause = std::chrono::microseconds(500);
  for (int status = 0;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    if (ended < 0 && errno != EINTR) return -1;
    if (Clock::now() >= deadline) {
      kill(child, SIGKILL);
      while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
      return -2;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(20000));
  }
}

}  // namespace

std::string draw_diagram(const std::string& dot_file, const std::string& svg_file, double seconds) {
  const std::string unfinished = svg_file + ".part";
  std::array<std::string, 5> words = {"dot", "-Tsvg", "-o", unfinished, dot_file};
  std::array<char*, 6> argv{};
  std::transform(words.begin(), words.end(), argv.begin(), [](std::string& w) { return w.data(); });
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed == ENOENT) return kNotInstalled;
  if (failed) return std::string("'dot' cannot be started: ") + std::strerror(failed);
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const int status = wait_for(child, Clock::now() + limit);
  std::error_code missing;
  if (status == -2) {
    std::filesystem::remove(unfinished, missing);
    char text[64];
    std::snprintf(text, sizeof text, "'dot' takes more than %g s", seconds);
    return text;
  }
  if (status <= 0) {
    std::filesystem::rename(unfinished, svg_file, missing);
    if (!missing) return {};
  }
  std::filesystem::remove(unfinished, missing);
  return status == 127 ? kNotInstalled : "'dot' fails with status " + std::to_string(status);
}

}  // namespace tessera::core
