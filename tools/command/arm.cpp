// SPDX-License-Identifier: Apache-2.0
// Parent and child exchange lines of JSON: {"do": "calls", "n": 4} and {"ms": 0.2}, or {"error": {..}}.
#include "arm.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "measure.hpp"

namespace tessera::command {
namespace {

bool write_line(int fd, const std::string& text) {
  const std::string line = text + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = send(fd, line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}
// Nothing at the end of the file.
std::optional<std::string> read_line(int fd) {
  std::string line;
  for (char c;;) {
    const ssize_t n = read(fd, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    if (c == '\n') return line;
    line += c;
  }
}

// Calls of one sample: enough to be well above the clock's resolution and the cost of reading it.
int64_t calls_per_sample(Caller& caller) {
  constexpr double kLeast = 0.2;  // ms
  const double once = std::max(caller.calls(3), 1e-5);
  return once >= kLeast ? 1 : static_cast<int64_t>(kLeast / once) + 1;
}

// What the child does.
class Worker {
 public:
  explicit Worker(ArmPlan plan) : plan_(std::move(plan)) {}

  Json answer(const Json& asked) {
    const std::string what = asked.at("do");
    if (what == "open") return open();
    if (what == "calls") return {{"ms", caller_->calls(asked.at("n").get<int64_t>())}};
    if (what == "guards") return guards();
    return steps();
  }

 private:
  Json open() {
    ContextArguments cold = plan_.context;
    cold.overrides.push_back("force_disable_caches=true");
    const double cold_ms = open_session(cold, plan_.model, progress_, &plan_.inputs).compile_ms;
    session_.emplace(open_session(plan_.context, plan_.model, progress_, &plan_.inputs));
    session_->context.cache_flush();  // what is timed should have the machine for itself
    inputs_ = make_inputs(session_->signature, plan_.inputs);
    caller_.emplace(session_->executable, fresh(session_->signature, *inputs_));
    const double first = caller_->call();
    for (int64_t i = 1; i < plan_.warmup; ++i) caller_->call();
    const Json description = Json::parse(session_->executable.describe());
    return {{"cold_compile_ms", cold_ms},
            {"compile_ms", session_->compile_ms},
            {"first_call_ms", first},
            {"predicted_bytes", number_at(description, Json::json_pointer("/memory/peak_bytes"), 0) +
                                    number_at(description, Json::json_pointer("/memory/constant_bytes"), 0) +
                                    static_cast<double>(inputs_->bytes())},
            {"calls", calls_per_sample(*caller_)},
            {"threads", session_->threads},
            {"kernels", kernels_by_backend(description)}};
  }

  // Calls through dispatch against calls of the executable alone, in blocks as those of A and B: the median of the differences.
  // Null where the model cannot be called so, as with inputs that are constants.
  Json guards() {
    constexpr int kBlocks = 25;
    try {
      const embed::Model model(session_->context, plan_.model);
      DispatchedCaller dispatched(model, fresh(session_->signature, *inputs_), session_->signature.outputs.size(),
                                  devices_of(session_->executable));
      dispatched.calls(2);  // the first one compiles
      const int64_t n = calls_per_sample(*caller_);
      std::vector<double> more;
      for (int i = 0; i < kBlocks; ++i) {
        double difference = -caller_->calls(n);
        difference += dispatched.calls(n);
        difference += dispatched.calls(n);
        more.push_back((difference - caller_->calls(n)) / 2);
      }
      return {{"ms", std::max(0.0, quantile(std::move(more), 0.5))}};
    } catch (const Error&) {
      return {{"ms", nullptr}};
    }
  }

  Json steps() {
    constexpr int kCalls = 10;
    ContextArguments with = plan_.context;
    with.overrides.push_back("runtime.measure_steps=true");
    const Session s = open_session(with, plan_.model, progress_, &plan_.inputs);
    Caller caller(s.executable, fresh(s.signature, *inputs_));
    for (int i = 0; i < kCalls; ++i) caller.call();
    return Json::parse(s.executable.describe());
  }

  ArmPlan plan_;
  Progress progress_{false};
  std::optional<Session> session_;
  std::optional<Inputs> inputs_;
  std::optional<Caller> caller_;
};

[[noreturn]] void serve(ArmPlan plan, int socket) {
  Worker worker(std::move(plan));
  while (const std::optional<std::string> line = read_line(socket)) {
    Json answer;
    try {
      answer = worker.answer(Json::parse(*line));
    } catch (const Error& e) {
      answer = {{"error", {{"family", e.family()}, {"code", e.code()}, {"message", e.message()}, {"hint", e.hint()}}}};
    } catch (const std::exception& e) {
      answer = {{"error", {{"family", TSR_BUG}, {"code", "TSR-B000"}, {"message", e.what()}, {"hint", ""}}}};
    }
    if (!write_line(socket, answer.dump(-1, ' ', true, Json::error_handler_t::replace))) break;
  }
  _exit(0);  // nothing of the parent's is flushed twice
}

}  // namespace

namespace {

// Of a description and the plans nested in it: each(step) for steps that are kernels of a backend.
template <class F>
void each_kernel(const Json& plan, const F& each) {
  for (const Json& step : plan.value("steps", Json::array())) {
    if (step.value("kind", "") == "kernel" && step.value("backend", Json()).is_string()) each(step);
    for (const Json& region : step.value("regions", Json::array())) each_kernel(region, each);
  }
}

void add_one(Json& n) { n = n.is_number() ? n.get<int64_t>() + 1 : 1; }

}  // namespace

Json kernels_by_backend(const Json& description) {
  Json out = Json::object();
  each_kernel(description, [&](const Json& step) { add_one(out[step["backend"].get<std::string>()]); });
  return out;
}

Json left_to_others(const Json& description) {
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, Json>> found;
  each_kernel(description, [&](const Json& step) {
    if (!step.value("refusals", Json()).is_string()) return;
    auto& [count, ops] = found[{step["backend"].get<std::string>(), step["refusals"].get<std::string>()}];
    ++count;
    add_one(ops[step["op"].get<std::string>()]);
  });
  std::vector<std::pair<int64_t, Json>> rows;
  for (auto& [key, value] : found)
    rows.emplace_back(value.first, Json{{"backend", key.first}, {"refusals", key.second}, {"ops", std::move(value.second)}});
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Json out = Json::array();
  for (auto& [count, row] : rows) out.push_back(std::move(row));
  return out;
}

Arm::Arm(ArmPlan plan) : name_(plan.name) {
  int ends[2];
  const auto failed = [&] {
    throw Error(TSR_ENVIRONMENT, "TSR-E018", "no process for side " + name_ + " of the comparison: " + std::strerror(errno));
  };
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) failed();
  pid_ = fork();
  if (pid_ < 0) failed();
  if (pid_ == 0) {
    close(ends[0]);
    serve(std::move(plan), ends[1]);
  }
  close(ends[1]);
  socket_ = ends[0];
}

Arm::~Arm() {
  close(socket_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

Json Arm::ask(const Json& what) {
  const std::optional<std::string> line = write_line(socket_, what.dump()) ? read_line(socket_) : std::nullopt;
  if (!line) {
    int status = 0;
    if (pid_ > 0) waitpid(pid_, &status, 0);
    pid_ = -1;
    throw Error(
        TSR_BUG, "TSR-E018",
        "the process of side " + name_ + " ended " +
            (WIFSIGNALED(status) ? "with signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")"
                                 : "with status " + std::to_string(WEXITSTATUS(status))) +
            ": expected an answer",
        "run its config alone: tessera bench");
  }
  Json answer = Json::parse(*line);
  if (answer.contains("error")) {
    const Json& e = answer["error"];
    throw Error(static_cast<tsr_family>(e.at("family").get<int>()), e.at("code").get<std::string>(),
                "side " + name_ + ": " + e.at("message").get<std::string>(), e.at("hint").get<std::string>());
  }
  return answer;
}

Json Arm::open() { return ask({{"do", "open"}}); }
double Arm::calls(int64_t n) { return ask({{"do", "calls"}, {"n", n}}).at("ms").get<double>(); }
Json Arm::guards() { return ask({{"do", "guards"}}).at("ms"); }
Json Arm::steps() { return ask({{"do", "steps"}}); }

}  // namespace tessera::command
