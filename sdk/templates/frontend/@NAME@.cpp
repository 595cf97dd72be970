// The frontend @NAME@: files ".@NAME@" become graphs. The format is a toy, one line each:
//
//   input x 4 8        an input in f32, with its sizes
//   y = add x x        an op of the loaded op sets and its operands
//   output y
//
// An error in a file is its author's: family TSR_USER, with the place, what was found and what was expected.
#include <tessera/plugin.hpp>

#include <map>
#include <sstream>

namespace {

namespace t = tessera::sdk;

class Import {
 public:
  Import(const char* path, t::Graph graph) : path_(path), graph_(graph) {}

  void line(const std::string& text) {
    ++number_;
    std::istringstream words(text);
    std::string first;
    if (!(words >> first) || first[0] == '#') return;
    if (first == "input") return input(words);
    if (first == "output") return outputs_.push_back(value(word(words, "the name of a value")).id);
    if (word(words, "'='") != "=") fail("found '" + text + "', expected 'NAME = OP OPERANDS'");
    const std::string op = word(words, "the name of an op");
    if (!graph_.api().op_traits(graph_.handle(), op.c_str())) fail("no loaded op set has the op '" + op + "'");
    std::vector<t::Value> operands;
    for (std::string operand; words >> operand;) operands.push_back(value(operand));
    t::Graph::At at;
    at.loc = {path_.c_str(), number_, 1};
    define(first, graph_.create(at, op.c_str(), operands).result());  // sizes and dtypes are checked by the op's record
  }
  void finish() {
    if (outputs_.empty()) fail("the file ends without an output");
    t::check(graph_.api().region_set_outputs(graph_.handle(), 0, outputs_.data(), static_cast<uint32_t>(outputs_.size())));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw t::Error(TSR_USER, "@VENDOR@-1", path_ + ":" + std::to_string(number_) + ": " + what);
  }
  std::string word(std::istringstream& words, const char* expected) const {
    std::string out;
    if (!(words >> out)) fail(std::string("the line ends, expected ") + expected);
    return out;
  }
  t::Value value(const std::string& name) const {
    const auto it = values_.find(name);
    if (it == values_.end()) fail("no value '" + name + "' is defined before");
    return it->second;
  }
  void define(const std::string& name, t::Value v) {
    for (const char c : name)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_')
        fail("found the name '" + name + "', expected letters, digits and '_'");
    if (!values_.emplace(name, v).second) fail("'" + name + "' is defined twice");
    graph_.set_name(v, name.c_str());
  }
  void input(std::istringstream& words) {
    const std::string name = word(words, "the name of an input");
    std::vector<tsr_dim> sizes;
    for (std::string size; words >> size;) {
      char* end = nullptr;
      sizes.push_back(std::strtoll(size.c_str(), &end, 10));
      if (*end || sizes.back() < 0 || sizes.back() > (int64_t{1} << 32) || sizes.size() > 8)
        fail("found the size '" + size + "', expected a number");
    }
    tsr_type type{};
    type.dtype = TSR_F32;
    type.rank = static_cast<uint32_t>(sizes.size());
    type.sizes = sizes.data();
    tsr_id id = TSR_NONE;
    t::check(graph_.api().input_create(graph_.handle(), "x", &type, TSR_INPUT_ARG, nullptr, &id));
    define(name, graph_.value(id));
  }

  std::string path_;
  t::Graph graph_;
  uint32_t number_ = 0;
  std::map<std::string, t::Value> values_;
  std::vector<tsr_id> outputs_;
};

class Frontend final : public t::Frontend {
 public:
  const char* description() const override { return "The toy format of @NAME@"; }
  std::vector<const char*> extensions() const override { return {".@NAME@"}; }
  bool can_import() const override { return true; }
  void import(std::string_view bytes, const char* path, t::Graph graph) override {
    Import reader(path, graph);
    std::istringstream lines{std::string(bytes)};
    for (std::string line; std::getline(lines, line);) reader.line(line);
    reader.finish();
  }
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_frontend("@NAME@", std::make_unique<Frontend>());
}
