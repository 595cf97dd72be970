// SPDX-License-Identifier: Apache-2.0
// The op reference, from the records alone.
#include <algorithm>
#include <iostream>
#include <map>

#include "json.hpp"
#include "session.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

std::string words(const Json& strings) {
  std::string out;
  for (const Json& s : strings) out += (out.empty() ? "" : " ") + s.get<std::string>();
  return out;
}

bool has_trait(const Json& op, const char* trait) {
  const Json& traits = op.at("traits");
  return std::find(traits.begin(), traits.end(), trait) != traits.end();
}

std::string where_text(const Json& op) {
  std::string out;
  const Json where = op.value("where", Json::object());
  for (const auto& [variable, dtypes] : where.items()) out += (out.empty() ? "" : "; ") + variable + ": " + words(dtypes);
  return out;
}

std::string properties(const Json& op) {
  std::string out = words(op.at("traits"));
  if (op.value("decomposes", false)) out += std::string(out.empty() ? "" : ", ") + "decomposes";
  if (op.value("gradient", false)) out += std::string(out.empty() ? "" : ", ") + "has a gradient";
  return out;
}

std::string attribute_text(const Json& a) {
  std::string out = a.value("kind", "");
  if (a.value("required", false)) out += ", required";
  if (a.at("default").is_string()) out += ", default " + a.at("default").get<std::string>();
  if (!a.at("choices").empty()) out += ", one of " + words(a.at("choices"));
  return out;
}

void print_details(const Json& op) {
  std::cout << styled(Style::kBold, op.value("signature", "")) << "\n";
  if (const std::string where = where_text(op); !where.empty()) std::cout << "  " << where << "\n";
  std::cout << "\n" << op.value("doc", "") << "\n";
  if (const std::string numerics = op.value("numerics", ""); !numerics.empty()) std::cout << "\nNumerics: " << numerics << "\n";
  if (!op.at("attributes").empty()) {
    std::cout << "\nAttributes:\n";
    for (const Json& a : op.at("attributes")) std::cout << "  " << a.value("name", "") << ": " << attribute_text(a) << "\n";
  }
  std::cout << "\nTraits: " << properties(op) << "\nFrom " << op.value("plugin", "") << ", " << op.value("file", "") << ":"
            << op.value("line", 0) << "\n";
}

// "elementwise_binary.tops" -> "Elementwise binary"
std::string title_of(const std::string& file) {
  std::string out = file.substr(file.find_last_of('/') + 1);
  out = out.substr(0, out.find('.'));
  std::replace(out.begin(), out.end(), '_', ' ');
  if (!out.empty()) out[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(out[0])));
  return out;
}

void print_markdown(const std::vector<Json>& ops) {
  std::map<std::string, std::vector<const Json*>> chapters;
  for (const Json& op : ops) chapters[op.value("file", "")].push_back(&op);
  std::cout << "# Op reference\n\nGenerated from the op records by `tessera ops --markdown`; do not edit. The syntax "
               "of signatures is that of records, see\n"
               "[ir.md](ir.md). "
            << ops.size() << " ops.\n";
  for (const auto& [file, members] : chapters) {
    std::cout << "\n## " << title_of(file) << "\n";
    for (const Json* member : members) {
      const Json& op = *member;
      std::cout << "\n### `" << op.value("name", "") << "`\n\n```\n" << op.value("signature", "") << "\n";
      std::cout << "```\n\n" << op.value("doc", "") << "\n";
      if (const std::string numerics = op.value("numerics", ""); !numerics.empty())
        std::cout << "\nNumerics: " << numerics << "\n";
      if (!op.at("attributes").empty()) {
        std::cout << "\n| Attribute | |\n|---|---|\n";
        for (const Json& a : op.at("attributes"))
          std::cout << "| `" << a.value("name", "") << "` | " << attribute_text(a) << " |\n";
      }
      if (const std::string p = properties(op); !p.empty()) std::cout << "\nTraits: " << p << "\n";
    }
  }
}

}  // namespace

int ops(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  std::string name;
  bool markdown = false, composite = false;
  options.positional("NAME", &name, false);
  context.add_to(options, true, false);
  options.flag("composite", &composite, "Only composites: ops that may be decomposed.");
  options.flag("markdown", &markdown, "The whole reference as Markdown (docs/ops.md).");
  if (!options.parse(args)) return kOk;

  const Json all = Json::parse(embed::Context(context.options()).ops());
  std::vector<Json> chosen;
  std::vector<std::string> names;
  for (const Json& op : all.at("ops")) {
    names.push_back(op.value("name", ""));
    if ((name.empty() || name == names.back()) && (!composite || has_trait(op, "composite"))) chosen.push_back(op);
  }
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
    throw usage_error("TSR-U007", "no loaded op set has an op " + quote(name) + did_you_mean(name, names), "see: tessera ops");
  if (options.json()) {
    print_json("tessera.ops/1", {{"ops", chosen}});
  } else if (markdown) {
    print_markdown(chosen);
  } else if (!name.empty()) {
    for (const Json& op : chosen) print_details(op);
  } else {
    Table table("ll", {"op", "meaning"});
    for (const Json& op : chosen) table.row({op.value("name", ""), op.value("doc", "")});
    std::cout << table.text();
  }
  return kOk;
}

}  // namespace tessera::command
