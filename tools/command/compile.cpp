// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <iostream>
#include <set>

#include "inputs.hpp"
#include "json.hpp"
#include "options.hpp"
#include "session.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tessera::command {

namespace {

struct FirstCall {
  double ms;
  int64_t peak_bytes;
};

FirstCall first_call(const Session& s, const InputArguments& arguments) {
  const Inputs inputs = make_inputs(s.signature, arguments);
  const std::vector<tsr_device> devices = devices_of(s.executable);
  memory_peak(devices, true);
  const double start = now_ms();
  const std::vector<embed::Tensor> outputs = s.executable.run(fresh(s.signature, inputs));
  return {now_ms() - start, memory_peak(devices, false)};
}

std::set<std::string> keys_of(const embed::Context& context) {
  std::set<std::string> keys;
  const Json answer = Json::parse(context.cache_list());
  for (const Json& e : answer["entries"]) keys.insert(e["key"].get<std::string>());
  return keys;
}

}  // namespace

int compile_model(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  InputArguments input;
  std::string model, dir;
  std::vector<std::string> shapes;
  bool progress_lines = false;
  options.positional("MODEL", &model);
  context.add_to(options);
  options.value("cache-dir", "DIR", &dir, "The cache's folder; as TESSERA_CACHE_DIR.");
  options.list("shapes", "s0=8,s1=128", &shapes,
               "Values of the model's symbolic sizes with which it is run once, on random inputs: what cannot run fails now.");
  options.list("inputs,i", "FILE", &input.files,
               "Inputs of the call that the model is compiled for, as for run: those that shapes are computed from become "
               "constants.");
  options.flag("progress", &progress_lines, "Say on stderr, in plain lines, what takes more than a second.");
  if (!options.parse(args)) return kOk;
  if (!dir.empty()) setenv("TESSERA_CACHE_DIR", dir.c_str(), 1);

  const std::set<std::string> before = keys_of(embed::Context(context.options()));  // throws when nothing would be kept
  Progress progress(progress_lines);
  const InputArguments given = input;
  const Session s = open_session(context, model, progress, given.files.empty() ? nullptr : &input);
  double compile_ms = s.compile_ms;
  Json runs = Json::array();
  for (const std::string& shape : shapes) {
    InputArguments call = given;
    for (const std::string& part : split(shape, ',')) call.dims.push_back(part);
    progress.phase("running with " + shape);
    const auto run = [&] {
      if (given.files.empty()) try {
          return first_call(s, call);
        } catch (const embed::Error& e) {
          if (e.code() != "TSR-T026") throw;
        }
      // What is compiled depends on the call: on values of its inputs, or on sizes that contradict what the model assumes.
      const Session own = open_session(context, model, progress, &call);
      compile_ms += own.compile_ms;
      return first_call(own, call);
    };
    const FirstCall first = run();
    runs.push_back({{"shapes", shape}, {"first_call_ms", first.ms}, {"peak_bytes", first.peak_bytes}});
  }
  progress.finish();
  const size_t added = keys_of(s.context).size() - before.size();
  const std::string location = Json::parse(s.context.cache_list())["location"];
  if (options.json()) {
    print_json("tessera.compile/1",
               {{"model", model}, {"cache", location}, {"compile_ms", compile_ms}, {"entries_added", added}, {"runs", runs}});
    return kOk;
  }
  std::cout << (added > 0 ? "compiled " : "nothing to add for ") << model << " in " << ms_text(compile_ms)
            << "; cache: " << location << "\n";
  if (!runs.empty()) {
    Table table("lrr", {"shapes", "first call", "peak memory"});
    for (const Json& r : runs)
      table.row({r["shapes"], ms_text(r["first_call_ms"].get<double>()), bytes_text(r["peak_bytes"].get<double>())});
    std::cout << "\n" << table.text();
  }
  return kOk;
}

}  // namespace tessera::command
