// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tessera/dtypes.hpp"

namespace tessera::cudagraphs {

namespace {

namespace t = tessera::sdk;

// Memory of one node, where the device does not tell: kernel nodes of CUDA take up to this much.
constexpr int64_t kNodeBytes = 10 << 10;

std::string graph_text(const std::string& name, const std::string& what) { return "graph '" + name + "' " + what; }

// What a row queues: its kernel, or its copy.
struct Queued {
  const t::DeviceTable& device;
  const Row& row;
  const tsr_launch& launch;
  static tsr_error* queue(void* ctx, tsr_stream* stream) {
    const auto& q = *static_cast<const Queued*>(ctx);
    if (!q.row.kernel)
      return q.device.table().copy_strided(q.device.self(), q.device.index(), &q.launch.outputs[0], &q.launch.inputs[0],
                                           stream);
    tsr_launch l = q.launch;
    l.stream = stream;
    return q.row.kernel->launch(q.row.kernel->self, &l);
  }
};

// A copy between tensors without gaps, as a call. Nothing: it is a strided one.
std::optional<tsr_device_call> plain_copy(const tsr_launch& l) {
  const tsr_tensor &to = l.outputs[0], &from = l.inputs[0];
  if (!(to.flags & TSR_TENSOR_CONTIGUOUS) || !(from.flags & TSR_TENSOR_CONTIGUOUS)) return std::nullopt;
  int64_t bits = dtype_bits(to.dtype);
  for (uint32_t i = 0; i < to.rank; ++i) bits *= to.sizes[i];
  tsr_device_call c{};
  c.struct_size = sizeof c;
  c.kind = bits > 0 ? TSR_CALL_COPY : TSR_CALL_EMPTY;
  c.name = "copy";
  c.to = to.data;
  c.from = from.data;
  c.bytes = static_cast<size_t>((bits + 7) / 8);
  return c;
}

tsr_device_call empty_call() {
  tsr_device_call c{};
  c.struct_size = sizeof c;
  c.kind = TSR_CALL_EMPTY;
  c.name = "nothing";
  return c;
}

// Calls f with each piece of work of a row as data: one at least. False: it can only be captured.
template <class F>
bool each_call(const Row& r, const tsr_launch& l, F f) {
  if (!r.kernel) {
    const auto copy = plain_copy(l);
    if (copy) f(*copy);
    return copy.has_value();
  }
  if (!r.kernel->describe) return false;
  struct Context {
    F& f;
    size_t calls;
  } ctx{f, 0};
  t::check(r.kernel->describe(
      r.kernel->self, &l,
      [](void* p, const tsr_device_call* c) noexcept {
        auto& x = *static_cast<Context*>(p);
        ++x.calls;
        return t::guarded([&] { x.f(*c); });
      },
      &ctx));
  if (ctx.calls == 0) f(empty_call());  // who waits for it waits for what it would have waited for
  return true;
}

}  // namespace

bool GraphSet::Node::same(const tsr_device_call& c) const {
  return call.kind == c.kind && call.function == c.function && std::equal(c.grid, c.grid + 3, call.grid) &&
         std::equal(c.block, c.block + 3, call.block) && std::equal(c.cluster, c.cluster + 3, call.cluster) &&
         call.shared_bytes == c.shared_bytes && call.to == c.to && call.from == c.from && call.bytes == c.bytes &&
         call.value == c.value && arguments.size() == c.argument_bytes &&
         (c.argument_bytes == 0 || std::memcmp(arguments.data(), c.arguments, c.argument_bytes) == 0);
}

void GraphSet::Node::keep(const tsr_device_call& c) {
  call = c;
  const char* bytes = static_cast<const char*>(c.arguments);
  arguments.assign(bytes, bytes + c.argument_bytes);
  call.arguments = nullptr, call.layout = nullptr, call.name = nullptr;  // of the callee
}

void GraphSet::drop() {
  arena_.remove(this);
  built_ = false;
  if (graphs_.empty()) return;
  const t::DeviceTable& d = arena_.device;
  try {
    arena_.wait();
  } catch (const t::Error&) {}  // the device has failed, and says so to whoever queues work
  for (tsr_device_graph* g : graphs_)
    if (g) d.table().graph_destroy(d.self(), d.index(), g);
  graphs_.clear();
  nodes_.clear();
}

void GraphSet::build_segment(const Segment& s, tsr_device_graph* g, const std::vector<Row>& rows, const tsr_executor_call& call,
                             bool chain) {
  const t::DeviceTable& d = arena_.device;
  const auto last_of = [&](size_t row) { return nodes_[row].back().number; };
  for (size_t i = s.begin; i < s.end; ++i) {
    const Row& r = rows[i];
    const tsr_launch& l = t::launch_of(call, i);
    std::vector<uint32_t> after;
    if (chain) {
      if (i > s.begin) after.push_back(last_of(i - 1));
    } else {
      for (const uint32_t w : r.waits)
        if (w >= s.begin) after.push_back(last_of(w));
    }
    const bool described = each_call(r, l, [&](const tsr_device_call& c) {
      Node node;
      t::check(
          d.table().graph_add(d.self(), d.index(), g, &c, after.data(), static_cast<uint32_t>(after.size()), &node.number));
      node.keep(c);
      after.assign(1, node.number);
      nodes_[i].push_back(std::move(node));
    });
    if (described) continue;
    Queued q{d, r, l};
    Node node;
    node.captured = true;
    t::check(d.table().graph_add_captured(d.self(), d.index(), g, Queued::queue, &q, after.data(),
                                          static_cast<uint32_t>(after.size()), &node.number));
    nodes_[i].push_back(std::move(node));
  }
  t::check(d.table().graph_instantiate(d.self(), d.index(), g));
}

void GraphSet::build(const std::vector<Row>& rows, const tsr_executor_call& call, bool chain, int64_t limit) {
  const t::DeviceTable& d = arena_.device;
  nodes_.assign(rows.size(), {});
  graphs_.assign(segments_.size(), nullptr);
  int64_t bytes = 0;
  uint64_t nodes = 0;
  double seconds = 0;
  try {
    for (size_t k = 0; k < segments_.size(); ++k) {
      if (segments_[k].direct) continue;
      t::check(d.table().graph_create(d.self(), d.index(), &graphs_[k]));
      build_segment(segments_[k], graphs_[k], rows, call, chain);
      tsr_device_graph_info info{};
      info.struct_size = sizeof info;
      t::check(d.table().graph_info(d.self(), d.index(), graphs_[k], &info));
      bytes += info.bytes >= 0 ? info.bytes : static_cast<int64_t>(info.nodes) * kNodeBytes;
      nodes += info.nodes;
      seconds += info.seconds;
    }
  } catch (...) {
    drop();
    throw;
  }
  built_ = true;
  arena_.admit(this, bytes, limit);
  if (t::log_enabled("cudagraphs")) {
    const auto direct = std::count_if(segments_.begin(), segments_.end(), [](const Segment& s) { return s.direct; });
    t::log("cudagraphs", graph_text(name_, "is built: " + std::to_string(nodes) + " nodes in " +
                                               std::to_string(segments_.size() - static_cast<size_t>(direct)) + " graphs, " +
                                               std::to_string(direct) + " steps beside them, " +
                                               std::to_string(static_cast<int64_t>(seconds * 1e6)) + " us to instantiate"));
  }
}

size_t GraphSet::set_row(tsr_device_graph* g, size_t row, const Row& r, const tsr_launch& l) {
  const t::DeviceTable& d = arena_.device;
  std::vector<Node>& nodes = nodes_[row];
  if (nodes[0].captured) {
    Queued q{d, r, l};
    t::check(d.table().graph_set_captured(d.self(), d.index(), g, nodes[0].number, Queued::queue, &q));
    return 1;
  }
  size_t n = 0, set = 0;
  const auto other = [] { return t::Error(TSR_BUG, "TSR-R044", "a step has other calls than before"); };
  const bool described = each_call(r, l, [&](const tsr_device_call& c) {
    if (n == nodes.size()) throw other();
    Node& node = nodes[n++];
    if (node.same(c)) return;
    t::check(d.table().graph_set(d.self(), d.index(), g, node.number, &c));
    node.keep(c);
    ++set;
  });
  if (!described || n != nodes.size()) throw other();
  return set;
}

size_t GraphSet::set(const std::vector<Row>& rows, const tsr_executor_call& call, const std::vector<char>& changed) {
  size_t set_nodes = 0;
  // Captured work goes first: if a call has another form, then there.
  for (const bool captured : {true, false})
    for (size_t k = 0; k < segments_.size(); ++k) {
      if (segments_[k].direct) continue;
      for (size_t i = segments_[k].begin; i < segments_[k].end; ++i) {
        if (!changed[i] || nodes_[i][0].captured != captured) continue;
        try {
          set_nodes += set_row(graphs_[k], i, rows[i], t::launch_of(call, i));
        } catch (const t::Error& e) {
          if (e.code == "TSR-R044") return i;
          drop();  // some nodes have new parameters, some old ones
          throw;
        }
      }
    }
  if (set_nodes > 0 && t::log_enabled("cudagraphs"))
    t::log("cudagraphs", graph_text(name_, "has " + std::to_string(set_nodes) + " nodes set"));
  return rows.size();
}

void GraphSet::launch(const std::vector<Row>& rows, const tsr_executor_call& call, tsr_stream* stream) {
  const t::DeviceTable& d = arena_.device;
  arena_.used(this);
  arena_.order(stream);
  for (size_t k = 0; k < segments_.size(); ++k) {
    if (segments_[k].direct) {
      Queued q{d, rows[segments_[k].begin], t::launch_of(call, segments_[k].begin)};
      t::check(Queued::queue(&q, stream));
    } else {
      t::check(d.table().graph_launch(d.self(), d.index(), graphs_[k], stream));
    }
  }
  arena_.launched(stream);
}

PlanGraph::~PlanGraph() {
  std::lock_guard lock(arena_.mutex);
  sets_.clear();
}

std::vector<Segment> PlanGraph::segments() const {
  std::vector<Segment> out;
  for (size_t i = 0; i < direct_.size(); ++i) {
    const bool direct = direct_[i] != 0;
    if (direct || out.empty() || out.back().direct)
      out.push_back({i, i + 1, direct});
    else
      out.back().end = i + 1;
  }
  return out;
}

// The set that this call fits, with its nodes set; a new one where there is none.
GraphSet* PlanGraph::fitting(const std::vector<Row>& rows, const tsr_executor_call& call, const std::vector<char>& changed) {
  std::erase_if(sets_, [](const auto& s) { return !s->built(); });  // they were given up
  const std::vector<char> all(rows.size(), 1);
  std::vector<size_t> misfits;
  for (auto s = sets_.begin(); s != sets_.end(); ++s) {
    const size_t misfit = (*s)->set(rows, call, s == sets_.begin() ? changed : all);
    if (misfit == rows.size()) {
      sets_.splice(sets_.begin(), sets_, s);
      return s->get();
    }
    misfits.push_back(misfit);
  }
  if (sets_.size() >= kMostSets) {
    sets_.clear();
    for (const size_t i : misfits) direct_[i] = 1;
    if (t::log_enabled("cudagraphs"))
      t::log("cudagraphs", graph_text(name_, "is built anew: steps whose calls take other forms for other sizes, such as '" +
                                                 std::string(rows[misfits[0]].kernel ? rows[misfits[0]].kernel->name : "copy") +
                                                 "', are launched between two graphs"));
  }
  auto fresh = std::make_unique<GraphSet>(arena_, name_, segments());
  fresh->build(rows, call, chain_, limit_);
  sets_.push_front(std::move(fresh));
  return sets_.front().get();
}

void PlanGraph::run(const std::vector<Row>& rows, const tsr_executor_call& call, const std::vector<char>& changed,
                    tsr_stream* stream) {
  fitting(rows, call, changed)->launch(rows, call, stream);
}

}  // namespace tessera::cudagraphs
