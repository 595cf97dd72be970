// SPDX-License-Identifier: Apache-2.0
#include "capture/breaks.hpp"

#include <algorithm>
#include <cstdio>

namespace tessera::core {

namespace {

constexpr BreakReason kReasons[] = {
    {0, BreakKind::kMayChange, "Another reason", "The client that captures the function could not go on recording.",
     "The client gave no reason that this version knows.", "update the library together with the client that captures"},
    {1, BreakKind::kFundamental, "A tensor's value is read as a number",
     "Host code reads the value of a tensor: item<T>(), or a conversion to a number.",
     "The number exists only once the operations before it have run; what the function does next may depend on it.",
     "keep the value a tensor: arithmetic, comparisons, where() and clamp() take 0-d tensors as they take numbers\n"
     "return it and read it outside the compiled function\n"
     "choose between two computations with cond(); repeat one with while_loop() or scan()"},
    {2, BreakKind::kFundamental, "A size that depends on data is read as a number",
     "Host code asks for the number behind a size that the data decides: of nonzero(), masked_select() and what follows from "
     "them.",
     "The size exists only once the operations before it have run.",
     "keep it symbolic: sizes can be added, multiplied and passed to reshape(), narrow() or arange() without a number\n"
     "use where() with a mask instead of selecting elements, so that sizes do not depend on data"},
    {3, BreakKind::kError, "The function threw while it was captured", "An exception left the function during its capture.",
     "Nothing can be compiled from half a function. The exception reaches the caller unchanged; nothing else has changed.",
     "catch it inside the function, or do not throw for these arguments"},
    {10, BreakKind::kFundamental, "A branch on a tensor",
     "Host code branches on a tensor: if (t), while (t), t ? a : b, !t, or item<bool>().",
     "Which way the program goes is known only once the operations before it have run. Each way is compiled when it is first "
     "taken.",
     "compute both and choose: where(t, a, b)\n"
     "cond(t, then_fn, else_fn, args) keeps both branches in one graph\n"
     "while_loop(cond_fn, body_fn, init) keeps a loop whose length depends on data in one graph; scan() one over slices"},
    {11, BreakKind::kFundamental, "All values of a tensor are read",
     "Host code reads a tensor's elements: to_vector<T>(), data<T>() or raw_data().",
     "The elements exist only once the operations before it have run. After reading more of them than a path is worth keeping "
     "for, host code runs at every call.",
     "do with tensor operations what is done with the elements\n"
     "return the tensor and read it outside the compiled function\n"
     "host_call(fn, inputs) for effects such as printing or logging"},
    {12, BreakKind::kAsked, "graph_break() is called", "The program asks for a break here.", "The program says so.",
     "remove the call when the break is not wanted"},
    {13, BreakKind::kAsked, "A disabled function is called", "The program calls a function that disable() wraps.",
     "It runs as it is, at every call, between the compiled parts.",
     "call the function itself when it can be captured\n"
     "host_call(fn, inputs) for effects that need no break"},
    {14, BreakKind::kMayChange, "An operation that no backend takes",
     "None of the function's backends takes the operation, whole or decomposed, and its op set brings no kernel for host "
     "memory.",
     "The operation runs by itself, at every call, on the fallback backend of the config; what comes before and after it is "
     "compiled.",
     "name a backend that takes it behind the others: {.backend = \"cpu,eager\"}, or leave `backend` empty for the config's "
     "order\n"
     "write it with operations that the backend takes"},
    {16, BreakKind::kAsked, "A guarded capture", "guarded() reads a captured variable or a global, behind operations.",
     "The variable is read at every call; what comes before it has to have run by then.",
     "read it before the first operation of the function: then nothing breaks\n"
     "pass the value as an argument"},
    {20, BreakKind::kError, "A graph break inside cond, while_loop or scan",
     "A function given to cond, while_loop or scan reads a value, or breaks the graph in another way.",
     "Such a function becomes a region of one operation; there is nothing to run before the operation is complete.",
     "do not read values inside of it: use where(), or nested cond() and while_loop()"},
    {21, BreakKind::kError, "A client that cannot go on after a break",
     "The capture was not begun by a call of a compiled function.",
     "Only a call has the values that the part before the break needs to run.", "capture by calling the compiled function"},
};

}  // namespace

std::span<const BreakReason> break_reasons() { return kReasons; }

const BreakReason& break_reason(uint32_t code) {
  const auto at = std::find_if(std::begin(kReasons), std::end(kReasons), [&](const BreakReason& r) { return r.code == code; });
  return at == std::end(kReasons) ? kReasons[0] : *at;
}

std::string break_code_text(uint32_t code) {
  char buf[16];
  std::snprintf(buf, sizeof buf, "TSR-G%03u", code);
  return buf;
}

std::string_view break_kind_text(BreakKind kind) {
  switch (kind) {
    case BreakKind::kAsked: return "the program asks for it";
    case BreakKind::kFundamental: return "fundamental: no capture can know this in advance";
    case BreakKind::kMayChange: return "a later version may capture it";
    default: return "an error, with or without fullgraph";
  }
}

std::string place_text(const tsr_loc& loc) {
  return loc.file && *loc.file ? std::string(loc.file) + ":" + std::to_string(loc.line) : "<unknown>";
}

namespace {

template <class F>
void each_line(std::string_view text, F&& f) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    f(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
}

}  // namespace

std::string break_table_markdown() {
  std::string s;
  for (const BreakReason& r : kReasons) {
    s += "\n## " + break_code_text(r.code) + ": " + r.title + "\n\n";
    s += std::string(r.what) + "\n\n";
    s += "*Why*: " + std::string(r.why) + "\n\n";
    s += "*Kind*: " + std::string(break_kind_text(r.kind)) + ".\n\n";
    s += "*What to do*:\n\n";
    each_line(r.fixes, [&](std::string_view fix) { s += "* " + std::string(fix) + "\n"; });
  }
  return s;
}

}  // namespace tessera::core
