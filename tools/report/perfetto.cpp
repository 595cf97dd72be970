// SPDX-License-Identifier: Apache-2.0
// The trace-event format: docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Chrome), read by Perfetto
// too.
#include "report/report.hpp"

namespace tessera::report {

namespace {

std::string label(const Json& compile) {
  const std::string entry = text_at(compile, "entry");
  return text_at(compile, "name") + (entry.empty() ? "" : " " + entry);
}

class Writer {
 public:
  explicit Writer(const Json& model) : model_(model) {}

  std::string text() {
    size_t index = 0;
    for (const Json& p : model_["processes"])
      out_.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", index++},
                      {"tid", 0},
                      {"args", {{"name", std::to_string(integer_at(p, "pid")) + " " + text_at(p, "command")}}}});
    for (const Json& c : model_["compiles"]) compile(c);
    for (const Json& e : model_["events"]) {
      Json args = e;
      for (const char* key : {"kind", "process", "thread", "t"}) args.erase(key);
      out_.push_back({{"ph", "i"},
                      {"s", "t"},
                      {"name", text_at(e, "kind") + " " + text_at(e, "name")},
                      {"cat", text_at(e, "kind")},
                      {"ts", number_at(e, "t")},
                      {"pid", integer_at(e, "process")},
                      {"tid", integer_at(e, "thread")},
                      {"args", std::move(args)}});
    }
    return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(out_)}}.dump(-1, ' ', false,
                                                                                  Json::error_handler_t::replace);
  }

 private:
  void compile(const Json& c) {
    Json args = {{"loc", text_at(c, "loc")}};
    for (const char* key : {"guards", "recompile", "error"})
      if (c.contains(key)) args[key] = c[key];
    span(c, c, label(c), text_at(c, "kind"), std::move(args));
    for (const Json& p : list(c, "phases")) span(c, p, text_at(p, "name"), "phase", Json::object());
    for (const Json& p : list(c, "passes")) {
      Json a = p;
      for (const char* key : {"t", "us", "name"}) a.erase(key);
      span(c, p, text_at(p, "name"), "pass", std::move(a));
    }
    for (const Json& k : list(c, "kernels"))
      span(c, k, text_at(k, "op"), "kernel", {{"backend", text_at(k, "backend")}, {"kernel", text_at(k, "kernel")}});
  }

  void span(const Json& c, const Json& at, const std::string& name, const std::string& category, Json args) {
    out_.push_back({{"ph", "X"},
                    {"name", name},
                    {"cat", category},
                    {"ts", number_at(at, "t")},
                    {"dur", number_at(at, "us")},
                    {"pid", integer_at(c, "process")},
                    {"tid", integer_at(c, "thread")},
                    {"args", std::move(args)}});
  }

  static const Json& list(const Json& c, const char* key) {
    static const Json none = Json::array();
    const auto at = c.find(key);
    return at != c.end() && at->is_array() ? *at : none;
  }

  const Json& model_;
  Json out_ = Json::array();
};

}  // namespace

std::string make_perfetto(const Json& model) { return Writer(model).text(); }

}  // namespace tessera::report
