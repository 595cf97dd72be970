// SPDX-License-Identifier: Apache-2.0
#include "divergence.hpp"

#include <sstream>

#include "accuracy.hpp"
#include "json.hpp"
#include "outputs.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

bool same(const std::vector<embed::Tensor>& x, const std::vector<embed::Tensor>& y, size_t* first = nullptr) {
  for (size_t i = 0; i < x.size() && i < y.size(); ++i)
    if (!compare_outputs(x[i].desc(), y[i].desc()).bits_equal) {
      if (first) *first = i;
      return false;
    }
  return x.size() == y.size();
}

// The passes of a config's pipeline, as TOML.
std::vector<std::string> pipeline_of(const ContextArguments& arguments) {
  const Json d = Json::parse(embed::Context(arguments.options()).explain());
  std::vector<std::string> out;
  for (const Json& p : d.at("passes")) out.push_back("\"" + p.value("name", "") + "\"");
  return out;
}

ContextArguments with_passes(ContextArguments arguments, const std::vector<std::string>& passes, size_t count) {
  std::string list;
  for (size_t i = 0; i < count; ++i) list += (i ? ", " : "") + passes[i];
  arguments.overrides.push_back("pipeline.passes=[" + list + "]");
  return arguments;
}

std::vector<embed::Tensor> outputs_with(const ContextArguments& arguments, const std::string& model, InputArguments& input,
                                        const Inputs& inputs, Progress& progress) {
  const Session s = open_session(arguments, model, progress, &input);
  return on_host(s.executable.run(fresh(s.signature, inputs)));
}

}  // namespace

std::string Divergence::text() const {
  if (!found) return "no pass and no value was found with which they part";
  std::string out = pass.empty() ? "B differs from A without any pass" : "B differs from A from the pass '" + pass + "' on";
  return out + (value.empty() ? "; with every value an output and no pass, none differs"
                              : "; without passes the first value that differs is\n  " + value);
}

std::string with_all_outputs(const std::string& text, std::vector<std::string>& lines) {
  std::istringstream in(text);
  std::string out, values;
  bool head = true, done = false;
  for (std::string line; std::getline(in, line);) {
    if (head) {  // without the types of the outputs; a body begins behind the symbols, if there are any
      const bool opens = line.ends_with("{");
      if (const size_t arrow = line.rfind(") -> ("); arrow != line.npos) line = line.substr(0, arrow + 1) + (opens ? " {" : "");
      head = !opens;
    } else if (!head && !done && line.starts_with("  %")) {
      const size_t equals = line.find(" = ");
      std::istringstream names(line.substr(2, equals - 2));
      for (std::string name; std::getline(names, name, ',');) {
        const size_t begin = name.find('%');
        if (begin == name.npos) continue;
        values += (values.empty() ? "" : ", ") + name.substr(begin);
        lines.push_back(line.substr(2));
      }
    } else if (!head && !done && line.starts_with("  return")) {
      line = "  return " + values;
      done = true;
    }
    out += line + "\n";
  }
  return out;
}

Divergence find_divergence(const ContextArguments& a, const ContextArguments& b, const std::string& model,
                           InputArguments& arguments, const Inputs& inputs, const std::vector<embed::Tensor>& outputs_of_a,
                           Progress& progress) {
  Divergence out;
  const std::vector<std::string> passes = pipeline_of(b);
  const auto differs = [&](size_t count) {
    return !same(outputs_with(with_passes(b, passes, count), model, arguments, inputs, progress), outputs_of_a);
  };
  // With `low` passes they agree, with `high` they do not.
  if (differs(0)) {
    out.found = true;
  } else if (!passes.empty() && differs(passes.size())) {
    size_t low = 0, high = passes.size();
    while (high - low > 1) {
      const size_t middle = (low + high) / 2;
      (differs(middle) ? high : low) = middle;
    }
    out.found = true;
    out.pass = passes[high - 1].substr(1, passes[high - 1].size() - 2);
  }

  std::vector<std::string> lines;
  const auto all_values = [&](const ContextArguments& side) {
    progress.phase("running with every value an output");
    const embed::Context context(with_passes(side, {}, 0).options());
    const embed::Graph g = load_model(context, model, arguments);
    lines.clear();
    embed::Graph every = context.parse(with_all_outputs(g.print(), lines), model);
    const Signature signature(every.tables());
    const embed::Executable x = context.compile_model(std::move(every));
    return on_host(x.run(fresh(signature, inputs)));
  };
  const auto of_a = all_values(a);
  size_t first = 0;
  if (!same(all_values(b), of_a, &first) && first < lines.size()) {
    out.found = true;
    out.value = lines[first];
  }
  return out;
}

}  // namespace tessera::command
