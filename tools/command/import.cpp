// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iostream>

#include "inputs.hpp"
#include "json.hpp"
#include "npz/elements.hpp"
#include "npz/npz.hpp"
#include "session.hpp"
#include "tessera/dtypes.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

// The constants that TSR_PRINT_PARAMS makes inputs, in program order.
std::vector<npz::Array> weights_of(const embed::Graph& graph) {
  std::vector<npz::Array> out;
  const tsr_tables& t = graph.tables();
  for (tsr_id n = TSR_AT(tsr_region, t.regions, t.region_stride, 0)->first; n != TSR_NONE;) {
    const tsr_node& node = *TSR_AT(tsr_node, t.nodes, t.node_stride, n);
    if (std::string_view(node.op) == "constant" && node.num_attrs > 0 && node.attrs[0].kind == TSR_ATTR_TENSOR) {
      const tsr_tensor& value = *node.attrs[0].tensor;
      int64_t elements = 1;
      for (uint32_t d = 0; d < value.rank; ++d) elements *= value.sizes[d];
      if (elements > TSR_PRINT_PARAMS_ABOVE)
        out.push_back(npz::from_elements(TSR_AT(tsr_value, t.values, t.value_stride, node.results[0])->name, value.dtype,
                                         {value.sizes, value.sizes + value.rank}, value.data));
    }
    n = node.next;
  }
  return out;
}

}  // namespace

int import_model(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  InputArguments inputs;
  std::string model, output, weights;
  bool whole = false, locations = false, progress_lines = false;
  options.positional("MODEL", &model);
  context.add_to(options, true, false);
  options.value("output,o", "FILE.tsr", &output, "Write the text there; default: to stdout.");
  options.value(
      "weights", "FILE.npz", &weights,
      "Write constants of more than 64 elements there; the text takes them as params. Default with --output: OUTPUT with the "
      "ending .npz.");
  options.flag("inline", &whole, "All constants in the text instead: it is then complete, and twice as large as the weights.");
  options.list(
      "inputs,i", "FILE", &inputs.files,
      "Inputs of the call that the model is imported for, as for run: those that shapes are computed from become constants.");
  options.list("fix", "NAME", &inputs.fixed, "Make this input a constant, with its value of --inputs.");
  options.flag("locations", &locations, "Say which node of the model each line comes from.");
  options.flag("progress", &progress_lines, "Plain progress lines on stderr.");
  if (!options.parse(args)) return kOk;
  if (whole && !weights.empty())
    throw usage_error("TSR-U003", "--inline leaves nothing for --weights " + weights, "give one of the two");
  if (weights.empty() && !output.empty() && !whole) weights = std::filesystem::path(output).replace_extension(".npz").string();
  if (weights == output && !weights.empty())
    throw usage_error("TSR-U008", "--output and --weights both name " + output, "end the one in .tsr, the other in .npz");

  Progress progress(progress_lines);
  progress.phase("loading plugins");
  const embed::Context c(context.options());
  progress.phase("reading " + model);
  const embed::Graph graph = inputs.files.empty() ? c.load(model) : load_model(c, model, inputs);
  graph.verify();
  progress.phase("writing");
  const std::string text = graph.print((locations ? TSR_PRINT_LOCATIONS : 0) | (whole ? 0 : TSR_PRINT_PARAMS));
  std::vector<npz::Array> arrays;
  if (!weights.empty()) arrays = weights_of(graph);
  if (!arrays.empty()) npz::write(weights, arrays);
  if (!output.empty()) write_file(output, text);
  progress.finish();

  if (options.json())
    print_json("tessera.import/1", {{"model", model},
                                    {"output", output.empty() ? Json() : Json(output)},
                                    {"text", output.empty() ? Json(text) : Json()},
                                    {"weights", arrays.empty() ? Json() : Json(weights)},
                                    {"arrays", arrays.size()}});
  else if (output.empty())
    std::cout << text;
  else
    std::cout << "wrote " << output
              << (arrays.empty()
                      ? ""
                      : " and " + weights + ", " + std::to_string(arrays.size()) + (arrays.size() == 1 ? " array" : " arrays"))
              << "\n";
  return kOk;
}

}  // namespace tessera::command
