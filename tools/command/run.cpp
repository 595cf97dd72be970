// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <iostream>

#include "golden.hpp"
#include "inputs.hpp"
#include "json.hpp"
#include "literal.hpp"
#include "outputs.hpp"
#include "session.hpp"
#include "tessera/dtypes.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

const char* kind_name(uint32_t kind) { return kind == TSR_INPUT_PARAM ? "param" : kind == TSR_INPUT_STATE ? "state" : "arg"; }

Json sizes_json(const embed::Tensor& t) { return std::vector<int64_t>(t.sizes().begin(), t.sizes().end()); }

}  // namespace

int run_model(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  InputArguments input;
  std::string model, output, diagram;
  bool memory = false, print = false, check = false, progress_lines = false;
  options.positional("MODEL", &model);
  context.add_to(options);
  input.add_to(options);
  options.value("outputs,o", "OUT.npz", &output, "Write the outputs, by name.");
  options.flag("print", &print, "Print every element of the outputs as text IR constants.");
  options.flag("check", &check, "Compare what --print prints with the lines of MODEL that begin with '//| '.");
  options.flag("memory", &memory, "Print the step table and the memory plan.");
  options.value(
      "diagram", "FILE", &diagram,
      "Draw the compiled graph, its fused groups and what runs where: a .dot for Graphviz, or the .svg that it makes of it.");
  options.flag("progress", &progress_lines, "Say on stderr, in plain lines, what takes more than a second.");
  if (!options.parse(args)) return kOk;
  if (!diagram.empty() && !diagram.ends_with(".dot") && !diagram.ends_with(".svg"))
    throw usage_error("TSR-U004", "--diagram: found " + quote(diagram) + ", expected a file named *.dot or *.svg");

  Progress progress(progress_lines);
  Session s = open_session(context, model, progress, &input);
  if (!diagram.empty()) {
    progress.phase("drawing " + diagram);
    s.executable.write_diagram(diagram);
  }
  progress.phase("preparing inputs");
  const Inputs inputs = make_inputs(s.signature, input);
  const std::vector<tsr_device> devices = devices_of(s.executable);
  memory_peak(devices, true);
  progress.phase("running " + model);
  const double start = now_ms();
  std::vector<embed::Tensor> outputs = s.executable.run(inputs.tensors);
  const double run_ms = now_ms() - start;
  const int64_t peak = memory_peak(devices, false);
  outputs = on_host(std::move(outputs));
  if (!output.empty()) {
    progress.phase("writing " + output);
    write_outputs(output, s.signature, outputs);
  }
  progress.finish();

  if (check) {
    const int status = check_expectation(model, literals(s.signature, outputs));
    if (options.json()) print_json("tessera.run/1", {{"model", model}, {"check", status == kOk}});
    return status;
  }
  if (options.json()) {
    Json dims = Json::object(), ins = Json::array(), outs = Json::array();
    for (size_t i = 0; i < s.signature.symbols.size(); ++i)
      if (!s.signature.symbols[i].unbacked) dims[s.signature.symbols[i].name] = inputs.symbols[i];
    for (size_t i = 0; i < inputs.tensors.size(); ++i) {
      const ValueInfo& v = s.signature.inputs[i];
      ins.push_back({{"name", v.name},
                     {"key", v.key.empty() ? Json() : Json(v.key)},
                     {"kind", kind_name(v.kind)},
                     {"dtype", dtype_name(v.dtype)},
                     {"shape", sizes_json(inputs.tensors[i])},
                     {"source", inputs.from_file[i] ? "file" : "random"}});
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      Json o = {
          {"name", s.signature.outputs[i].name}, {"dtype", dtype_name(outputs[i].dtype())}, {"shape", sizes_json(outputs[i])}};
      if (print) o["value"] = literal(outputs[i].desc());
      outs.push_back(std::move(o));
    }
    Json document = {{"model", model},
                     {"graph", s.signature.graph},
                     {"config", context.config.empty() ? "default" : context.config},
                     {"seed", input.seed},
                     {"dims", dims},
                     {"inputs", ins},
                     {"outputs", outs},
                     {"outputs_file", output.empty() ? Json() : Json(output)},
                     {"load_ms", s.load_ms},
                     {"compile_ms", s.compile_ms},
                     {"pack_ms", s.pack_ms},
                     {"run_ms", run_ms},
                     {"peak_bytes", peak}};
    if (memory) document["executable"] = Json::parse(s.executable.describe());
    print_json("tessera.run/1", document);
    return kOk;
  }
  if (memory) {
    const std::string plan = s.executable.plan();
    const size_t header = plan.find('\n');
    std::cout << styled(Style::kBold, plan.substr(0, header)) << plan.substr(header) << "\n";
  }
  if (print) {
    std::cout << literals(s.signature, outputs);
    return kOk;
  }
  Table table("lll", {"output", "type", "values"});
  for (size_t i = 0; i < outputs.size(); ++i)
    table.row({name_text(s.signature.outputs[i].name), shape_text(outputs[i].desc()), summary(outputs[i].desc())});
  std::cout << table.text() << "\ncompiled in " << ms_text(s.compile_ms + s.pack_ms) << ", ran in " << ms_text(run_ms)
            << ", peak memory " << bytes_text(static_cast<double>(peak)) << "\n";
  if (!output.empty()) std::cout << "wrote " << output << "\n";
  return kOk;
}

}  // namespace tessera::command
