// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <boost/program_options.hpp>
#include <functional>
#include <iostream>
#include <sstream>

#include "terminal.hpp"
#include "text.hpp"

namespace po = boost::program_options;

namespace tessera::command {

struct Options::Impl {
  struct Positional {
    std::string what;
    std::string* out;
    bool required;
  };
  explicit Impl(const Command& c) : command(c), visible("Options", 100, 60) {}
  const Command& command;
  po::options_description visible;
  std::vector<Positional> positionals;
  std::vector<std::string> rest;
  std::vector<std::string> names;  // "--config"
  std::vector<std::function<void()>> checks;
  std::vector<std::unique_ptr<std::string>> words;  // numbers as they were typed
  po::variables_map values;
  bool json = false, help = false;

  std::string long_name(const char* name) {
    const std::string s(name);
    return "--" + s.substr(0, s.find(','));
  }
  void remember(const char* name) { names.push_back(long_name(name)); }
  std::string see() const { return std::string("see: tessera ") + command.name + " --help"; }
};

Options::Options(const Command& command) : impl_(std::make_unique<Impl>(command)) {}
Options::~Options() = default;

void Options::flag(const char* name, bool* out, const char* help) {
  impl_->remember(name);
  impl_->visible.add_options()(name, po::bool_switch(out), help);
}

void Options::value(const char* name, const char* what, std::string* out, const char* help) {
  impl_->remember(name);
  impl_->visible.add_options()(name, po::value<std::string>(out)->value_name(what), help);
}

void Options::choice(const char* name, std::vector<std::string> choices, std::string* out, const char* help) {
  const std::string option = impl_->long_name(name);
  value(name, join(choices, "|").c_str(), out, help);
  impl_->checks.push_back([this, option, choices, out] {
    if (impl_->values.count(option.substr(2)) && std::find(choices.begin(), choices.end(), *out) == choices.end())
      throw usage_error("TSR-U004",
                        option + ": found " + quote(*out) + ", expected " + join(choices, ", ") + did_you_mean(*out, choices));
  });
}

void Options::integer(const char* name, const char* what, int64_t* out, int64_t min, int64_t max, const char* help) {
  const std::string option = impl_->long_name(name);
  std::string* word = impl_->words.emplace_back(std::make_unique<std::string>()).get();
  value(name, what, word, help);
  impl_->checks.push_back([this, option, word, out, min, max] {
    if (!impl_->values.count(option.substr(2))) return;
    const auto v = parse_int(*word);
    if (!v) throw usage_error("TSR-U004", option + ": found " + quote(*word) + ", expected an integer");
    if (*v < min || *v > max) {
      const std::string range =
          max == INT64_MAX ? "at least " + std::to_string(min) : std::to_string(min) + ".." + std::to_string(max);
      throw usage_error("TSR-U005", option + ": found " + *word + ", expected " + range);
    }
    *out = *v;
  });
}

void Options::number(const char* name, const char* what, double* out, double min, double max, const char* help) {
  const std::string option = impl_->long_name(name);
  std::string* word = impl_->words.emplace_back(std::make_unique<std::string>()).get();
  value(name, what, word, help);
  impl_->checks.push_back([this, option, word, out, min, max] {
    if (!impl_->values.count(option.substr(2))) return;
    const auto v = parse_number(*word);
    if (!v) throw usage_error("TSR-U004", option + ": found " + quote(*word) + ", expected a number");
    if (*v < min || *v > max)
      throw usage_error("TSR-U005", option + ": found " + *word + ", expected " + number_text(min) + ".." + number_text(max));
    *out = *v;
  });
}

void Options::list(const char* name, const char* what, std::vector<std::string>* out, const char* help) {
  impl_->remember(name);
  impl_->visible.add_options()(name, po::value<std::vector<std::string>>(out)->value_name(what)->composing(), help);
}

void Options::positional(const char* what, std::string* out, bool required) {
  impl_->positionals.push_back({what, out, required});
}

bool Options::parse(const std::vector<std::string>& args) {
  Impl& m = *impl_;
  flag("json", &m.json, "Write one JSON document to stdout (docs/json.md).");
  flag("help,h", &m.help, "Print this text.");
  po::options_description all;
  all.add(m.visible).add_options()("argument", po::value<std::vector<std::string>>(&m.rest));
  po::positional_options_description position;
  position.add("argument", -1);
  try {
    const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(args).options(all).positional(position).style(style).run(), m.values);
    po::notify(m.values);
  } catch (const po::unknown_option& e) {
    throw usage_error("TSR-U002",
                      std::string("tessera ") + m.command.name + ": unknown option " + quote(e.get_option_name()) +
                          did_you_mean(e.get_option_name(), m.names),
                      m.see());
  } catch (const po::multiple_occurrences& e) {
    throw usage_error("TSR-U003", e.get_option_name() + " is given more than once", m.see());
  } catch (const po::error& e) {  // a missing argument, or one given to a switch
    throw usage_error("TSR-U003", e.what(), m.see());
  }
  if (m.help) {
    std::cout << help();
    return false;
  }
  for (size_t i = 0; i < m.positionals.size(); ++i) {
    const Impl::Positional& p = m.positionals[i];
    if (i < m.rest.size())
      *p.out = m.rest[i];
    else if (p.required)
      throw usage_error("TSR-U003", std::string("tessera ") + m.command.name + ": " + p.what + " is missing", m.see());
  }
  if (m.rest.size() > m.positionals.size())
    throw usage_error(
        "TSR-U003", std::string("tessera ") + m.command.name + ": superfluous argument " + quote(m.rest[m.positionals.size()]),
        m.see());
  for (const auto& check : m.checks) check();
  return true;
}

bool Options::json() const { return impl_->json; }
bool Options::given(const char* name) const { return impl_->values.count(name) && !impl_->values[name].defaulted(); }

std::string Options::help() const {
  std::ostringstream out;
  const Command& c = impl_->command;
  out << "Usage: tessera " << c.name << (*c.arguments ? " " : "") << c.arguments << "\n\n"
      << c.summary << "\n\n"
      << impl_->visible << "\nExample:\n"
      << indent(c.example, 2) << "\n";
  return out.str();
}

}  // namespace tessera::command
