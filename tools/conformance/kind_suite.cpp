// SPDX-License-Identifier: Apache-2.0
// L2 and L3: what plugins of the other kinds owe: stores, frontends, passes, partitioners, executors, op sets.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "draw.hpp"
#include "op_run.hpp"
#include "programs.hpp"
#include "subject.hpp"
#include "suites.hpp"
#include "tensors.hpp"

namespace tessera::conformance {
namespace {

namespace fs = std::filesystem;

// ------------------------------------------------------------------------------------------------------------- stores

class Store {
 public:
  Store(Subject& s, const std::string& name) {
    const tsr_factory* f = s.direct().find(TSR_STORE, name);
    if (!f) throw Failed("factories lists no store '" + name + "', which the manifest promises");
    table_ = static_cast<const tsr_store*>(f->table);
    self_ = f->self;
    info_.struct_size = sizeof info_;
    if (table_->info) check("info", table_->info(self_, &info_));
    if (table_->info && (!info_.location || !*info_.location))
      throw Skipped("it keeps nothing until an option names a place\n  hint: --set " + s.manifest().section() +
                    ".OPTION=VALUE");
    if (table_->info && !info_.writable)
      throw Skipped(std::string("it cannot be written: ") + (info_.why ? info_.why : "no reason given"));
  }
  static void check(const char* function, tsr_error* error) {
    if (const std::string what = text_of_error(error); !what.empty()) throw Failed(std::string(function) + ": " + what);
  }
  void put(const std::string& key, const std::string& bytes) const {
    check("put", table_->put(self_, key.c_str(), bytes.data(), bytes.size()));
  }
  bool get(const std::string& key, std::string& bytes) const {
    int found = -1;
    bytes.clear();
    const auto alloc = [](void* to, size_t n) -> void* {
      static_cast<std::string*>(to)->resize(n);
      return static_cast<std::string*>(to)->data();
    };
    check("get", table_->get(self_, key.c_str(), alloc, &bytes, &found));
    if (found != 0 && found != 1) throw Failed("get set *found to " + std::to_string(found) + ", expected 0 or 1");
    return found == 1;
  }
  void remove(const std::string& key) const { check("remove", table_->remove(self_, key.c_str())); }
  std::map<std::string, uint64_t> list() const {
    std::map<std::string, uint64_t> out;
    check("list", table_->list(
                      self_,
                      [](void* to, const char* key, uint64_t bytes, int64_t) {
                        (*static_cast<std::map<std::string, uint64_t>*>(to))[key] = bytes;
                      },
                      &out));
    return out;
  }
  [[nodiscard]] const tsr_store& table() const { return *table_; }
  void* self() const { return self_; }

 private:
  const tsr_store* table_;
  void* self_;
  tsr_store_info info_{};
};

// Keys that nobody else has: of this process and check.
std::string key_of(int n) {
  char text[65];
  std::snprintf(text, sizeof text, "c0f0%08x%052x", static_cast<unsigned>(getpid()), static_cast<unsigned>(n));
  return text;
}
std::string content(size_t bytes, int seed) {
  std::string out(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>((i * 131 + i / 255 + static_cast<size_t>(seed) * 7) & 0xff);
  return out;
}

void store_round_trip(const Store& s) {
  std::string bytes;
  if (s.get(key_of(0), bytes)) throw Failed("get finds a key that was never put");
  int n = 1;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{1} << 20}) {
    const std::string key = key_of(n), want = content(size, n);
    s.put(key, want);
    if (!s.get(key, bytes) || bytes != want) throw Failed(std::to_string(size) + " bytes come back changed, or not at all");
    const auto all = s.list();
    if (!all.contains(key)) throw Failed("list leaves out a key that was put");
    s.put(key, content(size / 2 + 3, n + 50));
    if (!s.get(key, bytes) || bytes != content(size / 2 + 3, n + 50))
      throw Failed("put of a key that is there leaves the bytes as they were");
    s.remove(key);
    if (s.get(key, bytes)) throw Failed("get finds a key that was removed");
    if (s.list().contains(key)) throw Failed("list has a key that was removed");
    s.remove(key);  // nothing
    ++n;
  }
}

void store_map(const Store& s) {
  const tsr_store& t = s.table();
  if (!TSR_HAS(&t, tsr_store, put_parts) || !t.map) throw Skipped("it does not map entries");
  const std::string key = key_of(20), a = content(5000, 1), b = content(70000, 2);
  if (t.put_parts) {
    const tsr_part parts[] = {{a.data(), a.size()}, {b.data(), b.size()}};
    Store::check("put_parts", t.put_parts(s.self(), key.c_str(), parts, 2));
  } else {
    s.put(key, a + b);
  }
  std::string bytes;
  if (!s.get(key, bytes) || bytes != a + b) throw Failed("parts that lie one behind the other come back changed");
  tsr_mapping m{};
  m.struct_size = sizeof m;
  int found = 0;
  Store::check("map", t.map(s.self(), key.c_str(), &m, &found));
  if (!found) throw Failed("map does not find a key that get finds");
  if (reinterpret_cast<uintptr_t>(m.bytes) % 4096) throw Failed("map gives bytes that are not aligned to 4096");
  if (m.length != a.size() + b.size() || std::memcmp(m.bytes, (a + b).data(), m.length) != 0)
    throw Failed("map gives other bytes than get");
  s.remove(key);
  if (std::memcmp(m.bytes, (a + b).data(), m.length) != 0)
    throw Failed("bytes of a mapping changed when their key was removed");
  if (m.release) m.release(m.ctx);
  m = tsr_mapping{};
  m.struct_size = sizeof m;
  Store::check("map", t.map(s.self(), key.c_str(), &m, &found));
  if (found) throw Failed("map finds a key that was removed");
}

void store_threads(const Store& s) {
  const std::string key = key_of(30);
  std::vector<std::thread> all;
  std::vector<std::string> what(4);
  for (int k = 0; k < 4; ++k)
    all.emplace_back([&, k] {
      try {
        for (int i = 0; i < 40; ++i) {
          s.put(key, content(20000, k));
          std::string bytes;
          bool known = !s.get(key, bytes);
          for (int w = 0; w < 4; ++w) known = known || bytes == content(20000, w);
          if (!known) throw Failed("get gives bytes that nobody has put: put is not atomic");
        }
      } catch (const std::exception& x) {
        what[static_cast<size_t>(k)] = x.what();
      }
    });
  for (std::thread& t : all) t.join();
  s.remove(key);
  for (const std::string& w : what)
    if (!w.empty()) throw Failed(w);
}

// ---------------------------------------------------------------------------------------------------------- frontends

const tsr_frontend& frontend_table(Subject& s, const std::string& name, void** self) {
  const tsr_factory* f = s.direct().find(TSR_FRONTEND, name);
  if (!f) throw Failed("factories lists no frontend '" + name + "', which the manifest promises");
  *self = f->self;
  return *static_cast<const tsr_frontend*>(f->table);
}

// A file of this process that goes away with its object.
class Scratch {
 public:
  Scratch(const std::string& extension, const std::string& bytes)
      : path_(fs::temp_directory_path() / ("tessera_conformance_" + std::to_string(getpid()) + extension)) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~Scratch() {
    std::error_code error;
    fs::remove(path_, error);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

// Loads bytes as a file. A mistake of theirs is an error of the user's; a bug is a failure whatever the bytes are.
bool loads(const e::Context& c, const std::string& extension, const std::string& bytes, const std::string& what) {
  const Scratch file(extension, bytes);
  try {
    e::Graph g = c.load(file.path());
    g.verify();
    return true;
  } catch (const e::Error& x) {
    if (x.family() == TSR_BUG) throw Failed(what + ": " + x.what() + "\n  expected: an error of the user's, with the place");
    if (x.message().empty()) throw Failed(what + ": the error " + x.code() + " says nothing");
    return false;
  }
}

void frontend_garbage(Subject& s, const std::string& name) {
  void* self = nullptr;
  const tsr_frontend& t = frontend_table(s, name, &self);
  if (t.probe)
    for (const std::string& head : {std::string(), std::string("\0", 1), content(16, 1), content(512, 2)}) {
      const int p = t.probe(self, head.data(), head.size());
      if (p < 0 || p > 100) throw Failed("probe returned " + std::to_string(p) + ", expected 0 to 100");
    }
  if (!t.import || t.num_extensions == 0) throw Skipped("it imports no files");
  const e::Context& c = s.context("\"" + std::string(s.judge()) + "\"");
  for (size_t i = 0; i < t.num_extensions; ++i) {
    const std::string extension = t.extensions[i];
    if (!extension.starts_with(".")) throw Failed("found the extension '" + extension + "', expected a point in front");
    (void)loads(c, extension, "", "an empty file");
    for (const size_t size : {size_t{1}, size_t{7}, size_t{64}, size_t{4096}})
      if (loads(c, extension, content(size, static_cast<int>(size)),
                "a file of " + std::to_string(size) + " bytes of no meaning"))
        throw Failed("a file of " + std::to_string(size) + " bytes of no meaning becomes a graph");
    (void)loads(c, extension, std::string(4096, '\0'), "a file of zeros");
    (void)loads(c, extension, std::string(100000, '('), "a file of 100,000 opening brackets");
  }
}

void frontend_models(Subject& s, const std::string& model) {
  const e::Context& c = s.context("\"" + std::string(s.judge()) + "\"");
  const std::string extension = fs::path(model).extension().string();
  std::ifstream in(model, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const e::Graph g = c.load(model);
  g.verify();
  const std::string text = g.print();
  if (c.parse(text, "printed").print() != text)
    throw Failed(model + ": the graph that was imported is not the one that its own text gives");
  if (c.load(model).print() != text) throw Failed(model + ": imported twice it gives two graphs");
  // The same beside nothing: a model that names files beside it is not taken apart.
  if (!loads(c, extension, bytes, model)) return;
  for (size_t i = 0; i < 24; ++i)
    (void)loads(c, extension, bytes.substr(0, bytes.size() * i / 24),
                model + " cut off after " + std::to_string(bytes.size() * i / 24) + " bytes");
  for (size_t i = 0; i < 96; ++i) {
    std::string changed = bytes;
    const size_t at = (i * 2654435761u) % changed.size();
    changed[at] = static_cast<char>(changed[at] ^ (1 << (i % 8)));
    (void)loads(c, extension, changed,
                model + " with bit " + std::to_string(i % 8) + " of byte " + std::to_string(at) + " changed");
  }
}

// ------------------------------------------------------------------------------------- passes, partitioners, executors

void pass_preserves(Subject& s, const std::string& pass, uint64_t seed) {
  const Program p = random_program(seed, seed % 3 == 2);
  const e::Context& c = s.context("\"" + std::string(s.judge()) + "\"", "\"" + pass + "\"");
  e::Graph g = c.parse(p.text, p.name);
  c.run_passes(g, pass);
  g.verify();
  const std::string text = g.print();
  if (c.parse(text, "after the pass").print() != text)
    throw Failed("what the pass leaves is not what its text says\n" + p.text);
  const auto in = inputs_of(p, 1);
  const auto got = run_to_host(c.compile(std::move(g)), in), want = run_to_host(c.compile(c.parse(p.text, p.name)), in);
  if (const std::string what = far_apart(got, want, 1e-6); !what.empty())
    throw Failed("the pass changes results: " + what + "\n" + p.text + "after the pass:\n" + text);
}

void partitions(Subject& s, const std::string& name) {
  const Program p = training_step();
  const std::string order = "\"eager\"";
  const auto step = [&](const std::string& more) {
    const e::Context& c = s.context(order, "", more);
    return run_to_host(c.compile_model(c.parse(p.text, p.name)), inputs_of(p, 1));
  };
  const auto want = step("");
  bool met = false;
  std::string why;
  for (const char* budget : {"1.0", "0.6", "0.3", "0.0"}) {
    const std::string more = std::string("[partitioner]\nname = \"") + name + "\"\nbudget = " + budget + "\n";
    try {
      if (!same_bits(step(more), want))
        throw Failed(std::string("with budget = ") + budget + " results have other bits than without a partitioner");
      met = true;
    } catch (const e::Error& x) {  // infeasible, said so
      if (x.family() == TSR_BUG) throw Failed(std::string("budget = ") + budget + ": " + x.what());
      why = x.what();
    }
  }
  if (!met) throw Failed("it finds no plan for any budget, not even for that of saving all: " + why);
}

const tsr_executor& executor_table(Subject& s, const std::string& name) {
  const tsr_factory* f = s.direct().find(TSR_EXECUTOR, name);
  if (!f) throw Failed("factories lists no executor '" + name + "', which the manifest promises");
  return *static_cast<const tsr_executor*>(f->table);
}

void executes(Subject& s, const std::string& name, uint64_t seed) {
  const std::string device = executor_table(s, name).device;
  const std::string order = "\"" + device + "\", \"" + s.judge() + "\"";
  const auto context = [&](const std::string& more) -> const e::Context& {
    try {
      return s.context(order, "", more);
    } catch (const e::Error& x) {
      throw Skipped("no loaded plugin runs on its device: " + std::string(x.what()) +
                    "\n  hint: --load ID names a backend for '" + device + "'");
    }
  };
  const e::Context &plain = context(""), &with = context("[executor]\nname = \"" + name + "\"\n");
  const Program p = random_program(seed, seed % 2 == 1);
  const e::Executable a = plain.compile(plain.parse(p.text, p.name)), b = with.compile(with.parse(p.text, p.name));
  for (const int values : {1, 1, 2, 1}) {  // the same tensors again, then others
    const auto in = inputs_of(p, values);
    if (!same_bits(run_to_host(a, in), run_to_host(b, in)))
      throw Failed("its runs give other bits than running step by step\n" + p.text);
  }
  Program other = p;
  if (seed % 2 == 1)
    for (const int64_t rows : {int64_t{2}, int64_t{33}, int64_t{2}}) {
      other.inputs[0][0] = other.inputs[1][0] = other.inputs[3][0] = rows;
      const auto in = inputs_of(other, 3);
      if (!same_bits(run_to_host(a, in), run_to_host(b, in)))
        throw Failed("with " + std::to_string(rows) + " rows its runs give other bits\n" + p.text);
    }
  std::vector<std::thread> all;
  std::vector<std::string> what(3);
  for (int k = 0; k < 3; ++k)
    all.emplace_back([&, k] {
      try {
        const auto in = inputs_of(p, k + 5), want = run_to_host(a, in);
        for (int i = 0; i < 5; ++i)
          if (!same_bits(run_to_host(b, in), want))
            throw Failed("with three threads at once its runs give other bits\n" + p.text);
      } catch (const std::exception& x) {
        what[static_cast<size_t>(k)] = x.what();
      }
    });
  for (std::thread& t : all) t.join();
  for (const std::string& w : what)
    if (!w.empty()) throw Failed(w);
}

// ------------------------------------------------------------------------------------------------------------ op sets

void op_of_set(Subject& s, const Case& c) {
  const std::string text = c.text();
  std::vector<std::string> codes;  // of the errors that it ends with
  const auto on = [&](const char* backend) -> std::vector<e::Tensor> {
    const e::Context& context = s.context(std::string("\"") + backend + "\"");
    try {
      auto out = run_to_host(context.compile(context.parse(text, "case")), dense_operands(c));
      codes.emplace_back();
      return out;
    } catch (const e::Error& x) {
      if (x.family() == TSR_BUG) throw;
      codes.push_back(x.code());
      return {};
    }
  };
  const auto got = on("eager"), want = on("reference");
  if (codes[0] != codes[1])
    throw Failed("on eager it ends with '" + codes[0] + "', on reference with '" + codes[1] + "'\n" + text);
  if (const std::string what = far_apart(got, want, 1e-5); !what.empty())
    throw Failed("on eager and reference it differs: " + what + "\n" + text);
}

}  // namespace

void add_kind_checks(Subject& s, Checks& out) {
  const Manifest& m = s.manifest();
  const auto for_store = [&](const std::string& store, const char* name, const char* about, void (*f)(const Store&)) {
    out.push_back(
        {2, std::string("store/") + name + " " + store, about, [store, f](Subject& subject) { f(Store(subject, store)); }});
  };
  for (const std::string& store : m.names("store")) {
    for_store(store, "round_trip", "What is put comes back until it is removed.", store_round_trip);
    for_store(store, "map", "A mapping has the bytes of get, and keeps them.", store_map);
    for_store(store, "threads", "Puts are atomic: the last one wins whole.", store_threads);
  }
  for (const std::string& frontend : m.names("frontend")) {
    out.push_back({2, "frontend/garbage " + frontend, "Bytes that are no model are an error of the user's.",
                   [frontend](Subject& subject) { frontend_garbage(subject, frontend); }});
    for (const std::string& model : s.settings().models)
      out.push_back({3, "frontend/model " + model,
                     "A model is imported to the same graph each time; damaged, it is an error of the user's.",
                     [model](Subject& subject) { frontend_models(subject, model); }});
  }
  const uint64_t programs = s.settings().level >= 4 ? 200 : 30;
  for (const std::string& pass : m.names("pass"))
    for (uint64_t seed = 1; seed <= programs; ++seed)
      out.push_back({seed <= 30 ? 3 : 4, "pass/" + pass + " program " + std::to_string(seed),
                     "A pass keeps what a program computes.",
                     [pass, seed](Subject& subject) { pass_preserves(subject, pass, seed); }});
  for (const std::string& partitioner : m.names("partitioner"))
    out.push_back({3, "partitioner/" + partitioner,
                   "Whatever is kept or computed again, results have the same bits; a budget that cannot be met is said so.",
                   [partitioner](Subject& subject) { partitions(subject, partitioner); }});
  for (const std::string& executor : m.names("executor"))
    for (uint64_t seed = 1; seed <= (s.settings().level >= 4 ? 40u : 8u); ++seed)
      out.push_back({seed <= 8 ? 3 : 4, "executor/" + executor + " program " + std::to_string(seed),
                     "An executor gives the bits of running step by step.",
                     [executor, seed](Subject& subject) { executes(subject, executor, seed); }});
  if (m.names("opset").empty() || s.settings().level < 3) return;
  const e::Context& context = s.context("\"" + std::string(s.judge()) + "\"");
  std::set<std::string> with_cases;  // those are run for each backend
  for (const Case& c : read_cases(s.settings().cases)) with_cases.insert(c.op);
  for (const OpRecord& r : read_op_records(context.ops())) {
    if (r.plugin != m.id || with_cases.contains(r.name)) continue;
    for (const Case& c : draw_cases(r, 2, [&](const std::string& text) {
           try {
             (void)context.parse(text, "case");
             return true;
           } catch (const e::Error&) {
             return false;
           }
         })) {
      std::string name = "opset/" + r.name;
      for (const Operand& o : c.operands) {
        tsr_tensor t{};
        t.dtype = o.dtype;
        t.rank = static_cast<uint32_t>(o.sizes.size());
        t.sizes = o.sizes.data();
        name += " " + type_text(t);
      }
      out.push_back({3, name + (c.attributes.empty() ? "" : " " + c.attributes),
                     "An op gives the same on the fallback and on the reference.",
                     [c](Subject& subject) { op_of_set(subject, c); }});
    }
  }
}

}  // namespace tessera::conformance
