// SPDX-License-Identifier: Apache-2.0
#include "worker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "check.hpp"
#include "suites.hpp"

extern char** environ;

namespace tessera::conformance {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

Json outcome_of(const Check& check, Subject& subject) {
  const auto start = Clock::now();
  Json out = {{"status", "pass"}, {"text", ""}};
  const auto set = [&](const char* status, const std::string& text) {
    out["status"] = status;
    out["text"] = text;
  };
  try {
    check.run(subject);
  } catch (const Failed& x) {
    set("fail", x.what());
  } catch (const Skipped& x) {
    set("skip", x.what());
  } catch (const std::exception& x) {
    set("fail", x.what());
  } catch (...) {
    set("fail", "something that is no std::exception was thrown");
  }
  out["ms"] = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return out;
}

bool write_line(int fd, const std::string& text) {
  const std::string line = text + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = write(fd, line.data() + at, line.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

int serve_worker(Subject& subject, int answers) {
  Checks checks;
  bool loaded = false;
  const auto answer = [&](const Json& document) {
    return write_line(answers, document.dump(-1, ' ', false, Json::error_handler_t::replace));
  };
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "quit") break;
    try {
      if (line.starts_with("list ")) {
        loaded = line == "list 1";
        checks = all_checks(subject, loaded);
        Json list = Json::array();
        for (const Check& c : checks) list.push_back({c.level, c.name, c.about});
        if (!answer({{"checks", std::move(list)}})) return 1;
      } else if (line.starts_with("run ")) {
        const size_t index = std::stoul(line.substr(4));
        const Json outcome = outcome_of(checks.at(index), subject);
        std::fflush(nullptr);
        if (!answer(outcome)) return 1;
      }
    } catch (const std::exception& x) {
      if (!answer({{"error", x.what()}})) return 1;
    }
  }
  checks.clear();
  subject.close();
  return 0;
}

Worker::Worker(std::vector<std::string> command_line) {
  int commands[2], answers[2];
  if (pipe2(commands, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0)
    throw e::Error(TSR_ENVIRONMENT, "TSR-E012", std::string("no pipe for a worker: ") + std::strerror(errno));
  std::FILE* file = std::tmpfile();
  if (!file)
    throw e::Error(TSR_ENVIRONMENT, "TSR-E012", std::string("no temporary file for a worker: ") + std::strerror(errno));
  output_ = fcntl(fileno(file), F_DUPFD_CLOEXEC, 3);
  std::fclose(file);
  fcntl(output_, F_SETFL, fcntl(output_, F_GETFL) | O_APPEND);

  // All that the child needs is made before fork: behind it only what is safe in a process with threads.
  std::vector<char*> argv;
  for (std::string& s : command_line) argv.push_back(s.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** v = environ; *v; ++v)
    if (!std::string_view(*v).starts_with(std::string(kWorkerVariable) + "=")) variables.emplace_back(*v);
  variables.push_back(std::string(kWorkerVariable) + "=" + std::to_string(answers[1]));
  std::vector<char*> envp;
  for (std::string& s : variables) envp.push_back(s.data());
  envp.push_back(nullptr);
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    dup2(commands[0], STDIN_FILENO);
    dup2(output_, STDOUT_FILENO);
    dup2(output_, STDERR_FILENO);
    fcntl(answers[1], F_SETFD, 0);
    execve("/proc/self/exe", argv.data(), envp.data());
    _exit(127);
  }
  close(commands[0]);
  close(answers[1]);
  commands_ = commands[1];
  answers_ = answers[0];
  if (pid_ < 0) throw e::Error(TSR_ENVIRONMENT, "TSR-E012", std::string("a worker cannot be started: ") + std::strerror(errno));
}

Worker::~Worker() {
  kill_now();
  close(commands_);
  close(answers_);
  close(output_);
}

void Worker::send(const std::string& command) {
  output_from_ = lseek(output_, 0, SEEK_END);
  write_line(commands_, command);  // that it has ended is what receive() finds
}

std::optional<std::string> Worker::receive(Clock::time_point deadline) {
  for (;;) {
    if (const size_t end = pending_.find('\n'); end != pending_.npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    if (state_ == State::kEnded) return std::nullopt;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    struct pollfd p = {answers_, POLLIN, 0};
    const int ready = poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    char buffer[65536];
    const ssize_t n = read(answers_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      bury();
    else
      pending_.append(buffer, static_cast<size_t>(n));
  }
}

// The answers' end is closed: the process ends, or hangs while it does.
void Worker::bury() {
  int status = 0;
  for (int i = 0; i < 1000; ++i) {
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      death_ = how_it_ended(status);
      ended_well_ = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      state_ = State::kEnded;
      return;
    }
    usleep(10000);
  }
  kill_now();
  death_ = "hangs while it ends";
}

void Worker::kill_now() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
  pid_ = -1;
  death_ = how_it_ended(status);
  state_ = State::kEnded;
}

std::string Worker::printed() const {
  const int64_t end = lseek(output_, 0, SEEK_END), from = std::max(output_from_, end - 2000);
  std::string text(static_cast<size_t>(std::max<int64_t>(end - from, 0)), '\0');
  const ssize_t n = pread(output_, text.data(), text.size(), from);
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return text;
}

}  // namespace tessera::conformance
