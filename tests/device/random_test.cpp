// SPDX-License-Identifier: Apache-2.0
// Random programs over one and two devices, run by four threads on changing streams, with memory of the pool and of the caller,
// whose tensors go from one to the other and whose states each thread has of its own.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "support.hpp"

namespace random_test {

using namespace tessera::test;

namespace {

using Random = std::mt19937_64;
int below(Random& r, size_t n) { return static_cast<int>(r() % n); }

// A graph of f32 matrices with 4 or 6 rows and columns. Inputs and outputs are 4 x 6, so that any output can be any input of
// its device.
struct Program {
  struct Value {
    std::string name;
    int rows, columns, device;  // device 2: the host
  };
  std::vector<Value> values;
  std::vector<int> inputs, outputs;         // devices
  bool has_state = false, donated = false;  // the last input, and the last output its new value
  std::string text;

  static std::string type(const Value& v) {
    return "f32[" + std::to_string(v.rows) + ", " + std::to_string(v.columns) + "]" +
           (v.device == 2 ? "" : "@sim:" + std::to_string(v.device));
  }
  static std::string device_name(int d) { return d == 2 ? "cpu" : "sim:" + std::to_string(d); }

  Program(Random& r, int devices) {
    const auto any_device = [&] { return below(r, 6) == 0 ? 2 : below(r, static_cast<size_t>(devices)); };
    std::string body, head;
    const auto add = [&](const std::string& right, int rows, int columns, int device) {
      values.push_back({"%v" + std::to_string(values.size()), rows, columns, device});
      body += "  " + values.back().name + " = " + right + "\n";
      return values.size() - 1;
    };
    const auto at = [&](size_t v, int device) {  // the value on that device
      if (values[v].device == device) return v;
      return add("to_device " + values[v].name + " {device = \"" + device_name(device) + "\"}", values[v].rows,
                 values[v].columns, device);
    };
    for (int i = 0; i < 3; ++i) {
      inputs.push_back(any_device());
      values.push_back({"%v" + std::to_string(i), 4, 6, inputs.back()});
      head += (i ? ", " : "") + values.back().name + ": " + type(values.back());
    }
    if (below(r, 3) == 0) {
      has_state = true;
      donated = below(r, 2) == 0;
      inputs.push_back(below(r, static_cast<size_t>(devices)));
      values.push_back({"%v3", 4, 6, inputs.back()});
      head += ", %v3: " + type(values.back()) + " state \"s\" -> 2" + (donated ? " donated" : "");
    }
    static const char* const kUnary[] = {"relu", "neg", "tanh", "abs", "sigmoid"};
    static const char* const kBinary[] = {"add", "sub", "mul", "maximum"};
    const int steps = 4 + below(r, 10);
    for (int i = 0; i < steps; ++i) {
      const size_t a = static_cast<size_t>(below(r, values.size()));
      const Value v = values[a];
      switch (below(r, 8)) {
        case 0: add(std::string(kUnary[below(r, 5)]) + " " + v.name, v.rows, v.columns, v.device); break;
        case 1:
        case 2: {  // with another of its shape
          std::vector<size_t> like;
          for (size_t k = 0; k < values.size(); ++k)
            if (values[k].rows == v.rows && values[k].columns == v.columns) like.push_back(k);
          const size_t b = at(like[static_cast<size_t>(below(r, like.size()))], v.device);
          add(std::string(kBinary[below(r, 4)]) + " " + v.name + ", " + values[b].name, v.rows, v.columns, v.device);
          break;
        }
        case 3: add("transpose " + v.name + " {perm = [1, 0]}", v.columns, v.rows, v.device); break;
        case 4: {
          std::vector<size_t> fit;
          for (size_t k = 0; k < values.size(); ++k)
            if (values[k].rows == v.columns) fit.push_back(k);
          if (fit.empty()) break;
          const size_t b = at(fit[static_cast<size_t>(below(r, fit.size()))], v.device);
          add("matmul " + v.name + ", " + values[b].name, v.rows, values[b].columns, v.device);
          break;
        }
        case 5: {
          values.push_back({"%c" + std::to_string(values.size()), v.rows, v.columns, 2});
          body += "  " + values.back().name + " = constant {value = dense<f32[" + std::to_string(v.rows) + ", " +
                  std::to_string(v.columns) + "]: splat " + std::to_string(below(r, 9)) + ".5>}\n";
          const std::string c = values.back().name;
          values.pop_back();
          values.push_back({"%v" + std::to_string(values.size()), v.rows, v.columns, v.device});
          body += "  " + values.back().name + " = " + kBinary[below(r, 4)] + " " + v.name + ", " + c + "\n";
          break;
        }
        case 6: at(a, any_device()); break;
        default: {  // the first columns or rows of something
          const int rows = v.rows == 6 ? 4 : v.rows, columns = v.columns == 6 && v.rows != 6 ? 4 : v.columns;
          add("slice " + v.name + " {starts = [0, 0], limits = [" + std::to_string(rows) + ", " + std::to_string(columns) +
                  "], strides = [1, 1]}",
              rows, columns, v.device);
        }
      }
    }
    std::string types, names;
    for (int k = 0; k < (has_state ? 3 : 2); ++k) {
      std::vector<size_t> fit;
      for (size_t i = 0; i < values.size(); ++i)
        if (values[i].rows == 4 && values[i].columns == 6) fit.push_back(i);
      // Late values more often.
      const size_t from = fit.size() > 3 && below(r, 4) ? fit.size() - 3 : 0;
      const size_t o = at(fit[from + static_cast<size_t>(below(r, fit.size() - from))], k == 2 ? inputs.back() : any_device());
      outputs.push_back(values[o].device);
      types += (k ? ", " : "") + type(values[o]);
      names += (k ? ", " : "") + values[o].name;
    }
    text = "graph @g(" + head + ") -> (" + types + ") {\n" + body + "  return " + names + "\n}\n";
  }
};

struct Pair {
  e::Tensor device, host;  // and what it should be
  int where;
};

tsr_device id_of(int d) { return d == 2 ? 0 : e::device("sim:" + std::to_string(d)); }

// Four programs and four threads that share their tensors. Returns what went wrong.
std::string session(uint64_t seed, int devices) {
  Random r(seed);
  Allocator allocator;  // outlives its blocks
  std::vector<Program> programs;
  std::vector<e::Executable> on_device, on_cpu;
  for (int i = 0; i < 4; ++i) {
    programs.emplace_back(r, devices);
    on_device.push_back(compile(r() % 3 == 0 ? graphs() : sim(), programs.back().text));
    on_cpu.push_back(compile(host(), on_host(programs.back().text)));
  }
  std::mutex mutex;
  std::vector<Pair> pool;
  for (int i = 0; i < 9; ++i) {
    const e::Tensor t = numbers({4, 6}, seed * 16 + static_cast<uint64_t>(i));
    pool.push_back({t.copy_to(id_of(i % 3 < devices || i % 3 == 2 ? i % 3 : 0)), t, i % 3 < devices || i % 3 == 2 ? i % 3 : 0});
  }
  std::string wrong;
  const auto work = [&](uint64_t thread) {
    Random random(seed * 4 + thread);
    std::vector<std::unique_ptr<e::Stream>> streams;
    for (int d = 0; d < devices; ++d)
      for (int i = 0; i < 2; ++i) streams.push_back(std::make_unique<e::Stream>(id_of(d)));
    std::vector<Pair> states;  // of each program that has one
    for (const Program& p : programs) {
      const e::Tensor t = numbers({4, 6}, seed * 16 + thread);
      states.push_back(p.has_state ? Pair{t.copy_to(id_of(p.inputs.back())), t.copy_to(0), p.inputs.back()} : Pair{});
    }
    const auto pick = [&](int where) {
      std::lock_guard lock(mutex);
      std::vector<size_t> fit;
      for (size_t i = 0; i < pool.size(); ++i)
        if (pool[i].where == where) fit.push_back(i);
      return pool[fit[static_cast<size_t>(below(random, fit.size()))]];
    };
    const auto put = [&](Pair p) {
      std::lock_guard lock(mutex);
      if (pool.size() < 24) return pool.push_back(std::move(p));
      for (int tries = 0; tries < 24; ++tries) {  // in place of another of its device: each has some, always
        Pair& old = pool[static_cast<size_t>(below(random, pool.size()))];
        if (old.where != p.where) continue;
        std::swap(old, p);
        return;
      }
    };
    for (int i = 0; i < 12; ++i) {
      for (int d = 0; d < devices; ++d) {
        const int s = below(random, 3);
        e::check(e::api().set_current_stream(id_of(d), s == 2 ? nullptr : streams[static_cast<size_t>(2 * d + s)]->handle(),
                                             nullptr));
      }
      if (below(random, 4) == 0) {
        const Pair p = pick(below(random, static_cast<size_t>(devices)));
        const int to = below(random, 2) ? 2 : below(random, static_cast<size_t>(devices));
        put({p.device.copy_to(id_of(to)), p.host, to});
        continue;
      }
      const auto k = static_cast<size_t>(below(random, programs.size()));
      std::vector<e::Tensor> in, reference;
      for (size_t i = 0; i < programs[k].inputs.size(); ++i) {
        const Pair p = i == 3 ? states[k] : pick(programs[k].inputs[i]);
        in.push_back(p.device);
        reference.push_back(p.host);
      }
      std::vector<tsr_stream_handle*> given;
      for (int d = 0; d < devices; ++d) given.push_back(streams[static_cast<size_t>(2 * d + below(random, 2))]->handle());
      tsr_run_options options{};
      options.struct_size = sizeof options;
      options.streams = given.data();
      options.num_streams = given.size();
      options.allocator = below(random, 2) ? &allocator.table : nullptr;
      const auto out = on_device[k].run(in, below(random, 4) == 0 ? &options : nullptr);
      const auto want = on_cpu[k].run(reference);
      in.clear();
      for (size_t j = 0; j < (programs[k].donated ? 2 : out.size()); ++j) {  // a donated state may lie in its new value
        if (below(random, 5) == 0 && !same_bits(out[j], want[j])) {
          std::lock_guard lock(mutex);
          wrong = "output " + std::to_string(j) + " of\n" + programs[k].text;
        }
        put({out[j], want[j], programs[k].outputs[j]});
      }
    }
    for (size_t k = 0; k < programs.size(); ++k)
      if (programs[k].has_state && !same_bits(states[k].device, states[k].host)) {
        std::lock_guard lock(mutex);
        wrong = "the state of\n" + programs[k].text;
      }
    for (int d = 0; d < devices; ++d) e::check(e::api().set_current_stream(id_of(d), nullptr, nullptr));
  };
  std::vector<std::thread> threads;
  std::string thrown;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      try {
        work(t);
      } catch (const std::exception& error) {
        std::lock_guard lock(mutex);
        thrown = error.what();
      }
    });
  for (std::thread& t : threads) t.join();
  if (!thrown.empty()) return thrown;
  for (const Pair& p : pool)
    if (!same_bits(p.device, p.host)) wrong = "a tensor at the end";
  return wrong;
}

}  // namespace

TEST_CASE("random programs on devices give the reference's bits") {
  const char* count = std::getenv("TESSERA_DEVICE_SESSIONS");  // of four programs each; 2,500 are the full run
  const uint64_t sessions = count ? std::strtoull(count, nullptr, 10) : 250;
  for (uint64_t seed = 1; seed <= sessions; ++seed) {
    const std::string wrong = session(seed, seed % 2 ? 2 : 1);
    INFO("seed " << seed << ": " << wrong);
    REQUIRE(wrong.empty());
  }
}

TEST_CASE("random programs that name no device give the reference's bits on the one that the config names") {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Random r(seed);
    const Program program(r, 2);
    const std::string text = on_host(program.text);
    const e::Executable on_device = compile(placed(), text), on_cpu = compile(host(), text);
    std::vector<e::Tensor> in;
    for (uint64_t i = 0; i < 3; ++i) in.push_back(numbers({4, 6}, seed * 8 + i));
    std::vector<e::Tensor> reference = in;
    for (auto* all : {&in, &reference})
      if (program.has_state) all->push_back(numbers({4, 6}, seed * 8 + 7));
    const auto out = on_device.run(in), want = on_cpu.run(reference);
    INFO("seed " << seed << ":\n" << text);
    for (size_t j = 0; j < out.size(); ++j) {
      REQUIRE(same_bits(out[j], want[j]));
    }
    REQUIRE(same_bits(in.back(), reference.back()));
  }
}

}  // namespace random_test
