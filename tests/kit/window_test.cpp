// SPDX-License-Identifier: Apache-2.0
// Kernels that compute a window of a tensor give the bits of the whole tensor there, by the interpreter and as compiled text.
#include <catch2/catch.hpp>
#include <cstring>

#include "kit_support.hpp"
#include "tessera/kit/interpret.hpp"
#include "tessera/kit/text.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct WindowCase {
  std::string graph;                  // its input %s, where it has one, comes as a window
  std::vector<int64_t> shape;         // of the tensor
  std::vector<int64_t> symbols = {};  // values of s0, s1, .. in the order in which the piece meets them
};

struct Cut {
  kit::Piece piece;
  std::vector<sdk::Value> windowed;
  std::vector<tsr_dim> shape;
};
Cut cut(core::Graph& graph) {
  const sdk::Graph g(graph.handle());
  Cut out{{g, {}, {}, {}}, {}, {}};
  for (const sdk::Node& n : g.nodes())
    if (!n.is("constant") || n.result().type().elements() != 1) out.piece.nodes.push_back(n);
  for (const tsr_id v : g.inputs()) {
    out.piece.inputs.push_back(g.value(v));
    if (g.value(v).name() != "s") continue;
    out.windowed.push_back(g.value(v));
    for (const tsr_dim d : g.value(v).type().sizes()) out.shape.push_back(d);
  }
  for (const tsr_id v : g.outputs()) out.piece.outputs.push_back(g.value(v));
  return out;
}

void check_windows(const std::vector<WindowCase>& cases) {
  std::vector<std::unique_ptr<core::Graph>> graphs;
  std::vector<kit::Lowered> whole;
  std::vector<kit::LoweredWindow> windows;
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].graph);
    graphs.push_back(parse(cases[i].graph));
    Cut c = cut(*graphs.back());
    if (c.shape.empty()) c.shape.assign(cases[i].shape.begin(), cases[i].shape.end());
    try {
      whole.push_back(kit::lower(c.piece, "whole"));
      windows.push_back(kit::lower_window(c.piece, "k" + std::to_string(i), c.shape, c.windowed));
    } catch (const kit::Unfit& u) {
      FAIL(u.why);
    }
    REQUIRE(windows.back().symbol_dims.size() == cases[i].symbols.size());
    REQUIRE(windows.back().kernel.symbols.size() == windows.back().symbol_at(kit::LoweredWindow::kNumSymbols));
  }
  std::mt19937_64 random(5);
  for (const Level& level : levels()) {
    kit::ModuleText module(kit::cpu_dialect());
    kit::Device device;
    device.vector_bytes = level.vector_bytes;
    for (auto& k : windows) module.add(k.kernel, kit::window_schedule(k.kernel, device));
    const std::string text = module.text();
    const Compiled compiled(text, level.flags);
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<int64_t>& shape = cases[i].shape;
      const int64_t rank = static_cast<int64_t>(shape.size()), all_rows = shape[shape.size() - 2], all_columns = shape.back();
      kit::Kernel &w = windows[i].kernel, &t = whole[i].kernel;
      INFO(cases[i].graph << "\n" << kit::print(w) << "\nvector bytes " << level.vector_bytes);
      Data tensor = make_data(t, cases[i].symbols, 11 * i + 1, false);
      kit::interpret(t, tensor.pointers(), cases[i].symbols);
      const size_t out = t.buffers.size() - 1;
      // Whole, one element, and anything between.
      for (int round = 0; round < 12; ++round) {
        std::vector<int64_t> symbols = cases[i].symbols;
        int64_t place = 0;
        for (int64_t d = 0; d + 2 < rank; ++d) {
          symbols.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(shape[static_cast<size_t>(d)])));
          place = place * shape[static_cast<size_t>(d)] + symbols.back();
        }
        const auto some = [&](int64_t n, int64_t* from) {
          *from = round == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(n));
          return round == 0 ? n : 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(n - *from));
        };
        int64_t row = 0, column = 0;
        const int64_t rows = some(all_rows, &row), columns = some(all_columns, &column), step = rows + round % 3;
        for (const int64_t x : {row, rows, column, columns, step}) symbols.push_back(x);
        INFO("place " << place << " rows " << row << " + " << rows << " columns " << column << " + " << columns);
        Data got = make_data(w, symbols, 3, false);
        for (size_t b = 0; b < out; ++b)
          if (w.buffers[b].extent != w.buffers[out].extent) got.bytes[b] = tensor.bytes[b];
        Data want = got;
        const auto copy = [&](size_t b, Data& to) {
          const auto size = static_cast<size_t>(kit::type_bytes(w.buffers[b].type));
          for (int64_t c = 0; c < columns; ++c)
            for (int64_t r = 0; r < rows; ++r)
              std::memcpy(
                  to.bytes[b].data() + static_cast<size_t>(c * step + r) * size,
                  tensor.bytes[b].data() + static_cast<size_t>((place * all_rows + row + r) * all_columns + column + c) * size,
                  size);
        };
        for (size_t b = 0; b < out; ++b)
          if (w.buffers[b].extent == w.buffers[out].extent) copy(b, got), copy(b, want);
        copy(out, want);
        Data interpreted = got;
        REQUIRE(kit::interpret(w, interpreted.pointers(), symbols) == 0);
        CHECK(difference(w, want, interpreted) == "");
        REQUIRE(run_compiled(compiled, w.name, got, symbols, random) == 0);
        if (const std::string d = difference(w, want, got); !d.empty()) FAIL(d << "\n" << text);
      }
    }
  }
}

std::string window_graph(const std::string& inputs, const std::string& body) {
  return "graph @g(" + inputs + ") {\n" + body + "  return %y\n}\n";
}

}  // namespace

TEST_CASE("windows of what is computed from scores") {
  const std::string s = "%s: f32[2, 3, 37, 50]";
  const std::vector<int64_t> shape = {2, 3, 37, 50};
  check_windows({
      {window_graph(s + ", %c: f32[]", "  %a = div %s, %c\n  %t = tanh %a\n  %y = mul %t, %c\n"), shape},
      {window_graph(
           s + ", %m: f32[3, 1, 1]",
           "  %q = iota {shape = [37, 1], axis = 0, dtype = i64}\n  %k = iota {shape = [1, 50], axis = 1, dtype = i64}\n"
           "  %d = sub %k, %q\n  %f = cast %d {dtype = f32}\n  %b = mul %f, %m\n  %y = add %s, %b\n"),
       shape},
      {window_graph(s + ", %b: f32[3, 37, 50]", "  %y = add %s, %b\n"), shape},
      {window_graph(s + ", %b: f32[2, 1, 50, 37]", "  %t = transpose %b {perm = [0, 1, 3, 2]}\n  %y = add %s, %t\n"), shape},
      {window_graph(s + ", %q: i64[2, 37], %k: i64[2, 50]",
                    "  %u = reshape %q {shape = [2, 1, 37, 1]}\n  %v = reshape %k {shape = [2, 1, 1, 50]}\n  %e = eq %u, %v\n"
                    "  %n = constant {value = dense<f32[]: -inf>}\n  %y = select %e, %s, %n\n"),
       shape},
      {window_graph(
           s + ", %t: f32[86, 3]",
           "  %q = iota {shape = [37, 1], axis = 0, dtype = i64}\n  %k = iota {shape = [1, 50], axis = 1, dtype = i64}\n"
           "  %d = sub %k, %q\n  %o = constant {value = dense<i64[]: 36>}\n  %i = add %d, %o\n  %b = gather %t, %i {axis = 0}\n"
           "  %p = transpose %b {perm = [2, 0, 1]}\n  %y = add %s, %p\n"),
       shape},
      // Through another shape and back.
      {window_graph("%s: f32[6, 37, 50], %b: f32[2, 1, 37, 50]",
                    "  %r = reshape %s {shape = [2, 3, 37, 50]}\n  %a = add %r, %b\n  %y = reshape %a {shape = [6, 37, 50]}\n"),
       {6, 37, 50}},
      {window_graph("%s: f32[40, 70]", "  %y = exp %s\n"), {40, 70}},
      {window_graph("%s: f32[1, 1, 40]", "  %y = neg %s\n"), {1, 1, 40}},
  });
}

TEST_CASE("windows of what broadcasts to the tensor, with no scores among it") {
  check_windows({
      {window_graph("%b: f32[37, 50]", "  %y = exp %b\n"), {37, 50}},
      {window_graph("%q: i64[37, 1], %k: i64[1, 50]", "  %y = le %k, %q\n"), {37, 50}},
  });
}

TEST_CASE("windows of tensors whose sizes are symbols") {
  check_windows(
      {{"graph @g(%s: f32[s0, 3, s1, s2], %b: f32[s1, s2], %q: i64[s1, 1], %k: i64[s2]) {\n"
        "  %e = le %k, %q\n  %a = add %s, %b\n  %n = constant {value = dense<f32[]: -inf>}\n  %y = select %e, %a, %n\n"
        "  return %y\n}\n",
        {2, 3, 19, 33},
        {2, 19, 33}}});
}

TEST_CASE("what is no window") {
  const auto why = [](const std::string& text, std::vector<tsr_dim> shape) -> std::string {
    const auto g = parse(text);
    Cut c = cut(*g);
    try {
      kit::lower_window(c.piece, "k", shape.empty() ? c.shape : shape, c.windowed);
    } catch (const kit::Unfit& u) {
      return u.why;
    }
    return "";
  };
  CHECK(why(window_graph("%s: f32[4, 8]", "  %m = reduce_max %s {axes = [1], keepdims = true}\n  %y = sub %s, %m\n"), {}) ==
        "a window cannot hold a reduction");
  CHECK(why(window_graph("%s: f32[4, 8]", "  %f = flip %s {axes = [1]}\n  %y = add %s, %f\n"), {}) ==
        "it reads another point of the window's tensor than it computes");
  CHECK(why(window_graph("%x: f32[4, 8]", "  %y = neg %x\n"), {4, 9}) == "its result is not of the windows' size");
  CHECK(why(window_graph("%x: f32[2, 4, 8]", "  %y = neg %x\n"), {4, 8}) ==
        "its result has more dimensions than the windows are cut from");
}
