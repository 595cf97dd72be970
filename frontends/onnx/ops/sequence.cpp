// SPDX-License-Identifier: Apache-2.0
// Sequences and optionals inside a graph. Values of a program are tensors: a sequence whose length is known, and an optional
// whose presence is known, are resolved here and leave no trace. As inputs and outputs of a model they have no form.
#include "../dynamic.hpp"
#include "../importer.hpp"

namespace tessera::onnx {
namespace {

constexpr int64_t kMostElements = 4096;  // every one is a value of the graph

const std::vector<V>& elements(Op& op, size_t i) {
  const std::vector<V>* e = Build::elements_of(op.in(i));
  if (!e) op.fail(kType, "input " + std::to_string(i) + " is a tensor; expected a sequence");
  return *e;
}

size_t position(Op& op, size_t input, size_t count, bool end) {
  int64_t p = op.has(input) ? op.number(input) : static_cast<int64_t>(count);
  if (p < 0) p += static_cast<int64_t>(count);
  op.expect(p >= 0 && p < static_cast<int64_t>(count) + (end ? 1 : 0),
            "position " + std::to_string(p) + " of a sequence of " + std::to_string(count));
  return static_cast<size_t>(p);
}

void sequence_empty(Op& op) { op.out(op.b.sequence({})); }
void sequence_construct(Op& op) {
  for (size_t i = 0; i < op.num_inputs(); ++i) (void)op.in(i);  // none is omitted
  op.out(op.b.sequence({op.inputs().begin(), op.inputs().end()}));
}

void sequence_insert(Op& op) {
  std::vector<V> e = elements(op, 0);
  e.insert(e.begin() + static_cast<int64_t>(position(op, 2, e.size(), true)), op.in(1));
  op.out(op.b.sequence(std::move(e)));
}

void sequence_erase(Op& op) {
  std::vector<V> e = elements(op, 0);
  op.expect(!e.empty(), "the sequence is empty");
  e.erase(e.begin() + static_cast<int64_t>(op.has(1) ? position(op, 1, e.size(), false) : e.size() - 1));
  op.out(op.b.sequence(std::move(e)));
}

// A position that is data selects among the elements, which then have one type.
void sequence_at(Op& op) {
  Build& b = op.b;
  const std::vector<V>& e = elements(op, 0);
  if (b.ints(op.in(1))) return op.out(e[position(op, 1, e.size(), false)]);
  op.expect(!e.empty(), "the sequence is empty");
  for (const V& v : e)
    if (Build::elements_of(v) || v.dtype() != e[0].dtype() || v.sizes() != e[0].sizes()) op.need(1);
  const V at = b.reshape(b.cast(op.in(1), TSR_I64), {1});
  const V all = b.op("stack", e);
  op.out(b.squeeze(b.gather(all, select(at < 0.0, at + static_cast<double>(e.size()), at), 0), {0}));
}

void sequence_length(Op& op) { op.out(op.b.known({static_cast<int64_t>(elements(op, 0).size())}, 0)); }

void split_to_sequence(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const int64_t axis = op.axis_attr("axis", 0, x.rank());
  const tsr_dim n = x.size(axis);
  Dims sizes;
  bool keep = true;
  if (!op.has(1)) {
    if (!Build::is_number(n)) op.unsupported("one element per index along a symbolic size");
    op.expect(n <= kMostElements, std::to_string(n) + " elements");
    sizes.assign(static_cast<size_t>(n), 1);
    keep = op.flag("keepdims", true);
  } else if (const auto known = b.ints(op.in(1))) {
    sizes = *known;
    if (op.in(1).rank() == 0) {  // chunks of that size, the last one maybe shorter
      if (!Build::is_number(n) || !Build::is_number(sizes[0])) op.unsupported("chunks of a symbolic size");
      const int64_t each = sizes[0];
      op.expect(each > 0 && n / each <= kMostElements, "chunks of " + std::to_string(each));
      sizes.clear();
      for (int64_t left = n; left > 0; left -= each) sizes.push_back(std::min(each, left));
    }
  } else {
    const int64_t count = vector_length(op, 1);
    V start = b.integer(0);
    std::vector<V> parts;
    for (int64_t i = 0; i < count; ++i) {
      const V length = element(b, op.in(1), i);
      parts.push_back(b.gather(x, start + dynamic_range(b, length), axis));
      start = start + length;
    }
    return op.out(b.sequence(std::move(parts)));
  }
  std::vector<V> parts = sizes.size() == 1 && sizes[0] == n ? std::vector<V>{x} : b.split(x, sizes, axis);
  if (!keep)
    for (V& p : parts) p = b.squeeze(p, {axis});
  op.out(b.sequence(std::move(parts)));
}

void concat_from_sequence(Op& op) {
  Build& b = op.b;
  std::vector<V> e = elements(op, 0);
  op.expect(!e.empty(), "the sequence is empty");
  const bool fresh = op.flag("new_axis");
  const int64_t axis = op.axis(op.i("axis"), e[0].rank() + (fresh ? 1 : 0));
  if (fresh)
    for (V& v : e) v = b.expand(v, {axis});
  op.out(b.concat(e, axis));
}

void sequence_map(Op& op) {
  const GraphProto& body = op.graph("body");
  const std::vector<V>& first = elements(op, 0);
  std::vector<std::vector<V>> results(op.num_outputs());
  for (size_t i = 0; i < first.size(); ++i) {
    std::vector<V> in;
    for (size_t k = 0; k < op.num_inputs(); ++k) {
      const std::vector<V>* e = Build::elements_of(op.in(k));
      op.expect(!e || i < e->size(), "the sequences differ in length");
      in.push_back(e ? (*e)[i] : op.in(k));
    }
    const auto out = op.importer.inline_graph(body, in);
    op.expect(out.size() == results.size(),
              "the body gives " + std::to_string(out.size()) + " values for " + std::to_string(results.size()) + " outputs");
    for (size_t k = 0; k < out.size(); ++k) results[k].push_back(out[k]);
  }
  for (size_t k = 0; k < results.size(); ++k) op.out(op.b.sequence(std::move(results[k])), k);
}

// An optional that is there is its value, one that is not is an omitted one.
void optional(Op& op) {
  if (!op.has(0)) op.unsupported("an optional without a value that is handed on");
  op.out(op.in(0));
}
void optional_has_element(Op& op) { op.out(op.b.known({op.has(0) ? 1 : 0}, 0, TSR_BOOL)); }
void optional_get_element(Op& op) { op.out(op.in(0)); }

}  // namespace

std::span<const Record> sequence_records() {
  static constexpr Record records[] = {
      {"", "SequenceEmpty", sequence_empty},
      {"", "SequenceConstruct", sequence_construct},
      {"", "SequenceInsert", sequence_insert},
      {"", "SequenceErase", sequence_erase},
      {"", "SequenceAt", sequence_at},
      {"", "SequenceLength", sequence_length},
      {"", "SplitToSequence", split_to_sequence},
      {"", "ConcatFromSequence", concat_from_sequence},
      {"", "SequenceMap", sequence_map},
      {"", "Optional", optional},
      {"", "OptionalHasElement", optional_has_element},
      {"", "OptionalGetElement", optional_get_element},
  };
  return records;
}

}  // namespace tessera::onnx
