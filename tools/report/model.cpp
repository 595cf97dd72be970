// SPDX-License-Identifier: Apache-2.0
// Events of each process become compiles with everything that happened in them.
#include <algorithm>
#include <map>

#include "report/report.hpp"

namespace tessera::report {

namespace {

// The keys of `from` that are there, in this order.
Json pick(const Json& from, std::initializer_list<const char*> keys) {
  Json out = Json::object();
  for (const char* key : keys)
    if (const auto at = from.find(key); at != from.end()) out[key] = *at;
  return out;
}

class Builder {
 public:
  Json build(const Traces& traces) {
    int64_t first = INT64_MAX;
    for (const Process& p : traces.processes) first = std::min(first, integer_at(p.header, "unix_us"));
    Json processes = Json::array();
    for (const Process& p : traces.processes) {
      index_ = processes.size();
      processes.push_back(process(p, static_cast<double>(integer_at(p.header, "unix_us")) - static_cast<double>(first)));
    }
    Json problems = Json::array();
    for (const Problem& p : traces.problems) problems.push_back({{"file", p.file}, {"line", p.line}, {"what", p.what}});
    Json out;
    out["summary"] = summary(traces);
    out["problems"] = std::move(problems);
    out["processes"] = std::move(processes);
    out["compiles"] = std::move(compiles_);
    out["events"] = std::move(events_);
    out["small"] = std::move(small_);
    return out;
  }

 private:
  struct Open {
    Json* compile = nullptr;  // null: an op or a constant, which is only counted
    std::string kind, name;
    double begin = 0;
  };

  Json process(const Process& p, double offset) {
    open_.clear();
    last_root_.clear();
    recompiles_.clear();
    offset_ = offset;
    end_ = 0;
    contexts_ = Json::array();
    local_ = Json::array();  // compiles of this process; pointers into it stay valid because it is reserved below
    size_t count = 0;
    for (const Json& e : p.events) count += text_at(e, "event") == "compile_begin";
    local_.get_ref<Json::array_t&>().reserve(count);
    for (const Json& e : p.events) event(e);
    for (Json& c : local_)
      if (!c.empty()) compiles_.push_back(std::move(c));
    Json out = pick(p.header, {"pid", "unix_us", "command", "version"});
    out["file"] = p.file;
    out["offset"] = offset;
    out["us"] = end_;
    out["ended"] = p.ended;
    out["contexts"] = std::move(contexts_);
    return out;
  }

  void event(const Json& e) {
    const std::string kind = text_at(e, "event");
    end_ = std::max(end_, number_at(e, "t") + number_at(e, "us"));
    if (kind == "compile_begin") return begin(e);
    if (kind == "compile_end") return end(e);
    if (kind == "context") return contexts_.push_back(pick(e, {"config", "mode", "loaded"}));
    if (kind == "recompile" || kind == "limit" || kind == "fallback" || kind == "graph_break") return about_function(e, kind);
    Json* c = compile_of(e);
    if (kind == "cache") {
      count(text_at(e, "what"), cache_);
      if (c) add(*c, "cache", pick(e, {"what", "kind", "key", "bytes", "why"}));
      return;
    }
    if (!c) return;
    if (kind == "phase") add(*c, "phases", timed(e, {"name"}));
    if (kind == "pass")
      add(*c, "passes", timed(e, {"name", "position", "verify_us", "changed", "nodes_before", "nodes_after"}));
    if (kind == "kernel") add(*c, "kernels", timed(e, {"op", "backend", "kernel"}));
    if (kind == "graph") add(*c, "graphs", pick(e, {"stage", "pass", "name", "nodes", "text"}));
    if (kind == "log") add(*c, "logs", pick(e, {"artifact", "text"}));
    if (kind == "guards" && e.contains("guards")) (*c)["guards"] = e["guards"];
    if (kind == "steps" && e.contains("executable")) (*c)["executable"] = e["executable"];
  }

  static void add(Json& compile, const char* list, Json item) { compile[list].push_back(std::move(item)); }

  Json timed(const Json& e, std::initializer_list<const char*> keys) const {
    Json out = pick(e, keys);
    out["t"] = offset_ + number_at(e, "t");
    out["us"] = number_at(e, "us");
    return out;
  }

  // The compile that an event belongs to, through those that are only counted.
  Json* compile_of(const Json& e) {
    const auto at = open_.find(integer_at(e, "compile", -1));
    return at == open_.end() ? nullptr : at->second.compile;
  }

  void begin(const Json& e) {
    const int64_t id = integer_at(e, "compile", -1);
    Open o;
    o.kind = text_at(e, "kind");
    o.name = text_at(e, "name");
    o.begin = offset_ + number_at(e, "t");
    if (o.kind == "op" || o.kind == "constant") {
      open_[id] = o;
      return;
    }
    Json c = pick(e, {"kind", "name", "loc", "entry", "thread"});
    c["process"] = index_;
    c["id"] = id;
    const Json stack = e.contains("stack") && e["stack"].is_array() ? e["stack"] : Json::array();
    c["parent"] = stack.empty() || !stack[0].is_object() ? Json() : Json(integer_at(stack[0], "compile", -1));
    if (e.contains("host_stack")) c["host_stack"] = e["host_stack"];
    c["t"] = o.begin;
    c["us"] = nullptr;
    c["ok"] = nullptr;
    if (const auto why = recompiles_.find(o.name + "\n" + text_at(e, "loc") + "\n" + text_at(e, "entry"));
        why != recompiles_.end() && o.kind == "function")
      c["recompile"] = why->second;
    // A graph whose passes were asked for just before is one compile with them.
    const int64_t thread = integer_at(e, "thread");
    if (o.kind == "graph" && c["parent"].is_null())
      if (const auto before = last_root_.find(thread); before != last_root_.end()) {
        Json& passes = *before->second;
        if (text_at(passes, "kind") == "passes" && text_at(passes, "name") == o.name && passes["ok"] == true) {
          for (const char* list : {"phases", "passes", "graphs", "logs", "cache"})
            if (passes.contains(list)) c[list] = std::move(passes[list]);
          c["t"] = passes["t"];
          o.begin = number_at(passes, "t");
          passes = Json::object();
        }
      }
    if (local_.size() >= local_.get_ref<Json::array_t&>().capacity()) return;  // cannot be: reserved for every begin
    local_.push_back(std::move(c));
    o.compile = &local_.back();
    if (o.compile->at("parent").is_null()) last_root_[thread] = o.compile;
    open_[id] = o;
  }

  void end(const Json& e) {
    const auto at = open_.find(integer_at(e, "compile", -1));
    if (at == open_.end()) return;
    const Open& o = at->second;
    // The event is stamped with its end.
    const double us = offset_ + number_at(e, "t") - o.begin;
    if (!o.compile) {
      Json& s = small_[o.kind][o.name];
      if (s.is_null()) s = {{"count", 0}, {"us", 0.0}};
      s["count"] = s["count"].get<int64_t>() + 1;
      s["us"] = s["us"].get<double>() + us;
    } else {
      (*o.compile)["us"] = us;
      (*o.compile)["ok"] = e.contains("ok") && e["ok"] == true;
      if (e.contains("error") && e["error"].is_object()) (*o.compile)["error"] = e["error"];
    }
    open_.erase(at);
  }

  void about_function(const Json& e, const std::string& kind) {
    count(kind, counts_);
    Json out = pick(
        e, {"name", "loc", "entry", "reasons", "advice", "key", "limit", "reason", "code", "place", "what", "why", "hint"});
    out["kind"] = kind;
    out["process"] = index_;
    out["thread"] = integer_at(e, "thread");
    out["t"] = offset_ + number_at(e, "t");
    if (kind == "recompile") {
      recompiles_[text_at(e, "name") + "\n" + text_at(e, "loc") + "\n" + text_at(e, "entry")] = pick(e, {"reasons", "advice"});
    }
    if (kind == "graph_break")
      if (Json* c = compile_of(e)) add(*c, "breaks", pick(e, {"code", "place", "what", "why", "hint"}));
    events_.push_back(std::move(out));
  }

  static void count(const std::string& what, std::map<std::string, int64_t>& counts) { ++counts[what]; }

  Json summary(const Traces& traces) {
    std::map<std::string, int64_t> functions;
    int64_t failed = 0, unfinished = 0;
    double us = 0;
    for (const Json& c : compiles_) {
      count(text_at(c, "name") + "\n" + text_at(c, "loc"), functions);
      failed += c["ok"] == false;
      unfinished += c["ok"].is_null();
      if (c["parent"].is_null()) us += number_at(c, "us");
    }
    Json out;
    out["processes"] = traces.processes.size();
    out["functions"] = functions.size();
    out["compiles"] = compiles_.size();
    out["failed"] = failed;
    out["unfinished"] = unfinished;
    out["compile_us"] = us;
    for (const char* kind : {"recompile", "graph_break", "fallback", "limit"}) out[std::string(kind) + "s"] = counts_[kind];
    Json cache = Json::object();
    for (const auto& [what, n] : cache_) cache[what] = n;
    out["cache"] = std::move(cache);
    out["problems"] = traces.problems.size();
    return out;
  }

  Json compiles_ = Json::array(), events_ = Json::array(), small_ = Json::object(), contexts_, local_;
  std::map<int64_t, Open> open_;
  std::map<int64_t, Json*> last_root_;      // by thread
  std::map<std::string, Json> recompiles_;  // by function and entry
  std::map<std::string, int64_t> counts_, cache_;
  size_t index_ = 0;
  double offset_ = 0, end_ = 0;
};

}  // namespace

Json make_model(const Traces& traces) { return Builder().build(traces); }

}  // namespace tessera::report
