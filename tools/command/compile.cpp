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
  std::string model, dir;
  std::vector<std::string> shapes;
  bool progress_lines = false;
  options.positional("MODEL", &model);
  context.add_to(options);
  options.value("cache-dir", "DIR", &dir, "The cache's folder; as TESSERA_CACHE_DIR.");
  options.list("shapes", "s0=8,s1=128", &shapes,
               "Values of the model's symbolic sizes with which it is run once, on random inputs: what cannot run fails now.");
  options.flag("progress", &progress_lines, "Say on stderr, in plain lines, what takes more than a second.");
  if (!options.parse(args)) return kOk;
  if (!dir.empty()) setenv("TESSERA_CACHE_DIR", dir.c_str(), 1);

  const std::set<std::string> before = keys_of(embed::Context(context.options()));  // throws when nothing would be kept
  Progress progress(progress_lines);
  const Session s = open_session(context, model, progress);
  const std::set<std::string> after = keys_of(s.context);
  const size_t added = after.size() - before.size();
  const std::vector<tsr_device> devices = devices_of(s.executable);
  Json runs = Json::array();
  for (const std::string& shape : shapes) {
    InputArguments input;
    for (const std::string& part : split(shape, ',')) input.dims.push_back(part);
    progress.phase("running with " + shape);
    const Inputs inputs = make_inputs(s.signature, input);
    memory_peak(devices, true);
    const double start = now_ms();
    const std::vector<embed::Tensor> outputs = s.executable.run(fresh(s.signature, inputs));
    const double ms = now_ms() - start;
    runs.push_back({{"shapes", shape}, {"first_call_ms", ms}, {"peak_bytes", memory_peak(devices, false)}});
  }
  progress.finish();
  const std::string location = Json::parse(s.context.cache_list())["location"];
  if (options.json()) {
    print_json("tessera.compile/1",
               {{"model", model}, {"cache", location}, {"compile_ms", s.compile_ms}, {"entries_added", added}, {"runs", runs}});
    return kOk;
  }
  std::cout << (added > 0 ? "compiled " : "nothing to add for ") << model << " in " << ms_text(s.compile_ms)
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
