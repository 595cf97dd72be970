// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "check.hpp"
#include "suites.hpp"
#include "worker.hpp"

namespace tessera::conformance {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr size_t kDeathsOfGroup = 3, kDeathsOfRun = 40;

class Runner {
 public:
  explicit Runner(const RunOptions& o) : o_(o) {}

  Run run() {
    const auto start = Clock::now();
    if (list("list 0")) {
      perform(1);
      const auto loads =
          std::find_if(run_.results.begin(), run_.results.end(), [](const Result& r) { return r.name == kLoads; });
      if (loads != run_.results.end() && loads->status == Status::kPassed) {
        std::vector<Result> known = std::move(run_.results);
        if (list("list 1")) {
          for (Result& r : run_.results)
            for (const Result& k : known)
              if (k.name == r.name) r = k;
          perform(static_cast<size_t>(std::max<int64_t>(o_.jobs, 1)));
        } else {
          known.push_back(run_.results.back());
          run_.results = std::move(known);
        }
      } else if (loads != run_.results.end()) {
        run_.missing_hardware = loads->status == Status::kSkipped;
      }
    }
    expect();
    run_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(run_);
  }

 private:
  struct Slot {  // a worker and the check that it runs
    std::unique_ptr<Worker> worker;
    size_t check = 0;
    bool busy = false;
    Clock::time_point started;
  };
  [[nodiscard]] Clock::duration timeout() const { return std::chrono::milliseconds(static_cast<int64_t>(o_.timeout * 1e3)); }

  std::unique_ptr<Worker> start() {
    auto w = std::make_unique<Worker>(o_.command_line);
    w->send(list_);
    const auto answer = w->receive(Clock::now() + timeout() + std::chrono::seconds(60));
    if (answer) return w;
    if (w->state() == Worker::State::kAlive) w->kill_now();
    start_failure_ = "a process that only lists the checks ended with " + w->death() + text_block(w->printed());
    return nullptr;
  }

  // Fills in the checks of this stage. False: even that has failed, which is the one result then.
  bool list(const std::string& command) {
    list_ = command;
    run_.results.clear();
    Result failure{0, "kit/list", "The checks that apply to this plugin can be listed.", "", Status::kFailed, 0};
    auto w = std::make_unique<Worker>(o_.command_line);
    w->send(command);
    const auto answer = w->receive(Clock::now() + timeout() + std::chrono::seconds(60));
    if (!answer) {
      const bool hangs = w->state() == Worker::State::kAlive;
      w->kill_now();
      failure.text = (hangs ? "it hangs" : "it ends its process with " + w->death()) +
                     std::string(" while its ops are looked at") + text_block(w->printed());
    } else if (const Json d = Json::parse(*answer); d.contains("error")) {
      failure.text = d.at("error");
    } else {
      numbers_.clear();
      for (const Json& c : d.at("checks")) {
        Result r;
        r.level = c.at(0);
        r.name = c.at(1);
        r.about = c.at(2);
        numbers_.emplace(r.name, numbers_.size());
        // Whether it loads is asked whatever the filter says: everything else rests on it.
        if (o_.filter.empty() || matches(r.name, o_.filter) || r.name == kLoads) run_.results.push_back(std::move(r));
      }
      idle_ = std::move(w);
      return true;
    }
    run_.results.push_back(failure);
    if (o_.each) o_.each(failure);
    return false;
  }

  static std::string text_block(const std::string& printed) { return printed.empty() ? "" : "\n  it printed:\n" + printed; }

  // Everything that has no result yet.
  void perform(size_t jobs) {
    std::deque<size_t> todo;
    for (size_t i = 0; i < run_.results.size(); ++i)
      if (run_.results[i].status == Status::kNotRun) todo.push_back(i);
    total_ = todo.size();
    done_ = 0;
    std::vector<Slot> slots(std::min(jobs, std::max<size_t>(todo.size(), 1)));
    slots[0].worker = std::move(idle_);
    for (;;) {
      bool any = false;
      for (Slot& s : slots) {
        while (!s.busy && !todo.empty() && !next(s, todo)) {}
        any = any || s.busy;
      }
      if (!any) break;
      wait(slots);
      for (Slot& s : slots)
        if (s.busy) look(s);
    }
    for (Slot& s : slots) end(s);
  }

  // Gives a worker the next check, or settles it without one; true: a worker is at it.
  bool next(Slot& s, std::deque<size_t>& todo) {
    const size_t i = todo.front();
    todo.pop_front();
    Result& r = run_.results[i];
    if (const size_t deaths = deaths_[group_of(r.name)]; deaths >= kDeathsOfGroup || all_deaths_ >= kDeathsOfRun) {
      r.text = deaths >= kDeathsOfGroup
                   ? "not run: " + group_of(r.name) + " has ended its process " + std::to_string(deaths) + " times"
                   : "not run: " + std::to_string(all_deaths_) + " checks have ended their processes";
      settle(i, Status::kNotRun);
      return false;
    }
    if (!s.worker) s.worker = start();
    if (!s.worker) {
      r.text = start_failure_;
      ++all_deaths_;
      settle(i, Status::kFailed);
      return false;
    }
    if (o_.progress) o_.progress(done_, total_, r.name);
    s.check = i;
    s.busy = true;
    s.started = Clock::now();
    s.worker->send("run " + std::to_string(numbers_.at(r.name)));
    return true;
  }

  void wait(const std::vector<Slot>& slots) const {
    std::vector<struct pollfd> descriptors;
    auto first = Clock::time_point::max();
    for (const Slot& s : slots) {
      if (!s.busy) continue;
      descriptors.push_back({s.worker->descriptor(), POLLIN, 0});
      first = std::min(first, s.started + timeout());
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(first - Clock::now()).count();
    (void)poll(descriptors.data(), descriptors.size(), static_cast<int>(std::clamp<int64_t>(left + 1, 0, 1000)));
  }

  void look(Slot& s) {
    Result& r = run_.results[s.check];
    if (const auto answer = s.worker->receive(Clock::now())) {
      const Json d = Json::parse(*answer);
      s.busy = false;
      r.ms = d.value("ms", 0.0);
      r.text = d.contains("error") ? d.at("error").get<std::string>() : d.value("text", "");
      const std::string status = d.value("status", "fail");
      if (status == "fail") r.text += text_block(s.worker->printed());
      settle(s.check, status == "pass" ? Status::kPassed : status == "skip" ? Status::kSkipped : Status::kFailed);
      return;
    }
    const bool hangs = s.worker->state() == Worker::State::kAlive;
    if (hangs && Clock::now() < s.started + timeout()) return;
    r.ms = std::chrono::duration<double, std::milli>(Clock::now() - s.started).count();
    const std::string printed = s.worker->printed();
    if (hangs) {
      s.worker->kill_now();
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%g", o_.timeout);
      r.text = std::string("it hangs: no result after ") + seconds + " seconds (--timeout)" + text_block(printed);
    } else {
      r.text = "it ends its process with " + s.worker->death() + text_block(printed);
    }
    s.worker.reset();
    s.busy = false;
    ++deaths_[group_of(r.name)];
    ++all_deaths_;
    settle(s.check, Status::kFailed);
  }

  // A worker ends by returning from main, so that destructors of the plugin and of its library have run.
  void end(Slot& s) {
    if (!s.worker) return;
    s.worker->send("quit");
    (void)s.worker->receive(Clock::now() + timeout());
    const bool hangs = s.worker->state() == Worker::State::kAlive;
    if (hangs || !s.worker->ended_well()) {
      if (hangs) s.worker->kill_now();
      Result r{1,  "handshake/ends", "A process that has loaded the plugin ends as it would without it.",
               "", Status::kFailed,  0};
      r.text = (hangs ? std::string("the process hangs when it ends")
                      : "the process ends with " + s.worker->death() + " when it returns from main") +
               text_block(s.worker->printed());
      const bool known =
          std::any_of(run_.results.begin(), run_.results.end(), [&](const Result& x) { return x.name == r.name; });
      if (!known) {
        run_.results.push_back(r);
        if (o_.each) o_.each(r);
      }
    }
    s.worker.reset();
  }

  void settle(size_t i, Status status) {
    Result& r = run_.results[i];
    r.status = status;
    if (const Expectation* x = expectation_of(o_.expectations, r.name)) {
      if (status == Status::kFailed) {
        r.status = Status::kExpected;
        r.text = "expected: " + x->reason + "\n" + r.text;
      } else if (status == Status::kPassed) {
        r.status = Status::kUnexpectedPass;
        r.text = "it passes, and " + x->where + " says that it fails: " + x->reason + "\n  hint: remove the line";
      }
    }
    ++done_;
    if (o_.each) o_.each(r);
    if (o_.progress) o_.progress(done_, total_, "");
  }

  // Lines of the expectations that name nothing.
  void expect() {
    if (!o_.filter.empty() || o_.sampled || run_.missing_hardware) return;
    for (const Expectation& x : o_.expectations) {
      if (std::any_of(run_.results.begin(), run_.results.end(), [&](const Result& r) { return matches(r.name, x.pattern); }))
        continue;
      run_.results.push_back({0, "kit/expectations " + x.where, "Every line of the expectations names a check.",
                              x.where + ": no check is called '" + x.pattern + "'\n  hint: remove the line, or raise --level",
                              Status::kFailed, 0});
      if (o_.each) o_.each(run_.results.back());
    }
  }

  const RunOptions& o_;
  Run run_;
  std::string list_, start_failure_;
  std::unique_ptr<Worker> idle_;
  std::map<std::string, size_t> deaths_, numbers_;  // numbers_: of a check in the workers' list
  size_t all_deaths_ = 0, done_ = 0, total_ = 0;
};

}  // namespace

const char* word(Status s) {
  switch (s) {
    case Status::kPassed: return "passed";
    case Status::kFailed: return "failed";
    case Status::kSkipped: return "skipped";
    case Status::kExpected: return "failed as expected";
    case Status::kUnexpectedPass: return "passed unexpectedly";
    case Status::kNotRun: return "not run";
  }
  return "?";
}

size_t Run::count(Status s) const {
  return static_cast<size_t>(std::count_if(results.begin(), results.end(), [&](const Result& r) { return r.status == s; }));
}
bool Run::good() const {
  return std::none_of(results.begin(), results.end(), [](const Result& r) { return r.bad(); });
}

bool matches(const std::string& name, const std::string& pattern) {
  size_t n = 0, p = 0, star = pattern.npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Run run_checks(const RunOptions& options) { return Runner(options).run(); }

Checks list_checks(const RunOptions& options) {
  Worker w(options.command_line);
  w.send("list 1");
  const auto answer = w.receive(Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1e3)) +
                                std::chrono::seconds(60));
  const Json d = answer ? Json::parse(*answer) : Json{{"error", "it ends its process, or hangs, while its ops are looked at"}};
  if (d.contains("error"))
    throw e::Error(TSR_BUG, "TSR-U012", "the checks cannot be listed: " + d.at("error").get<std::string>(),
                   "run the test: it says more");
  Checks out;
  for (const Json& c : d.at("checks")) out.push_back({c.at(0), c.at(1), c.at(2), {}});
  return out;
}

}  // namespace tessera::conformance
