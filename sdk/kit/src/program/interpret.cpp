// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/program/interpret.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <random>

#include "../interpret_parts.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

constexpr int32_t kNobody = -1, kSeveral = -2;

// Who touched an element last, for finding what no barrier orders.
struct Touch {
  int32_t block = kNobody, thread = kNobody, wave = kNobody;  // kSeveral: more than one
  uint32_t block_epoch = 0, wave_epoch = 0;
  bool operator==(const Touch&) const = default;
};
struct Cell {
  Touch write, read;
  bool written = false, coming = false;  // coming: a copy is on its way here
};

class ProgramMachine {
 public:
  ProgramMachine(Program& p, std::span<void* const> buffers, std::span<const int64_t> symbols, uint64_t seed)
      : p_(p), symbols_(symbols), random_(seed) {
    value_of_ = [this](uint32_t v) {
      const Type t = p_.statements[v].inst.type;
      const int unused = 64 - type_bytes(t) * 8;
      const uint64_t bits = values_[v][thread_];
      return is_signed(t) ? static_cast<int64_t>(bits << unused) >> unused : static_cast<int64_t>(bits);
    };
    IndexEnv env;
    env.symbols = symbols;
    for (const Program::Require& r : p.require)
      if (p.pool.evaluate(r.size, env) > r.most)
        throw sdk::Error(TSR_BUG, "TSR-K032",
                         "program @" + p.name + " is right for sizes of at most " + std::to_string(r.most) + ", not " +
                             std::to_string(p.pool.evaluate(r.size, env)));
    for (const ProgramBuffer& b : p.buffers) {
      const int64_t n = p.pool.evaluate(b.extent, env);
      extents_.push_back(n);
      memory_.emplace_back();
      cells_.emplace_back();
      const auto bytes = static_cast<size_t>(n) * static_cast<size_t>(type_bytes(b.type));
      if (b.memory == Memory::Global) {
        pointers_.push_back(static_cast<char*>(buffers[pointers_.size()]));
      } else {
        if (b.memory == Memory::Workspace) memory_.back().assign(bytes, static_cast<char>(0xa5));
        pointers_.push_back(memory_.back().data());
      }
      if (b.memory <= Memory::Workspace && !(b.memory == Memory::Global && b.access == Access::In)) {
        cells_.back().resize(static_cast<size_t>(n));
        for (Cell& c : cells_.back()) c.written = b.memory == Memory::Global && b.access == Access::InOut;
      }
    }
    values_.resize(p.statements.size());
  }

  uint32_t run() {
    for (launch_ = 0; launch_ < p_.launches.size(); ++launch_) launch();
    return faults_;
  }

 private:
  [[noreturn]] void fail(uint32_t id, const std::string& what) const {
    const Statement& x = p_.statements[id];
    throw sdk::Error(TSR_BUG, "TSR-K031",
                     "program @" + p_.name + ", launch " + std::to_string(launch_) + ", statement " + std::to_string(id) +
                         (x.kind == StatementKind::Inst ? std::string(" (") + op_name(x.inst.op) + ")" : "") + ", block " +
                         std::to_string(block_) + ", thread " + std::to_string(thread_) + ": " + what);
  }

  // ---- blocks

  void launch() {
    std::vector<uint32_t> grid, inner;
    std::vector<int64_t> counts, sizes;
    const std::vector<uint32_t>* body = &p_.launches[launch_];
    threads_ = 1;
    IndexEnv env;
    env.symbols = symbols_;
    while (body->size() == 1) {
      const Statement& x = p_.statements[(*body)[0]];
      if (x.kind != StatementKind::Loop || !is_launch(x.bind)) break;
      const int64_t n = p_.pool.evaluate(p_.pool.extent(x.axis), env);
      (x.bind <= Bind::Cluster ? grid : inner).push_back(x.axis);
      (x.bind <= Bind::Cluster ? counts : sizes).push_back(n);
      if (x.bind > Bind::Cluster) threads_ *= static_cast<size_t>(n);
      body = &x.body;
    }
    int64_t blocks = 1;
    for (const int64_t n : counts) blocks *= n;
    axes_.assign(threads_ * p_.axis_names.size(), 0);
    for (size_t t = 0; t < threads_; ++t) {
      auto rest = static_cast<int64_t>(t);
      for (size_t i = inner.size(); i-- > 0;) axis(t, inner[i]) = rest % sizes[i], rest /= sizes[i];
    }
    for (auto& v : values_) v.assign(threads_, 0);
    std::vector<int64_t> order(static_cast<size_t>(blocks));
    for (size_t b = 0; b < order.size(); ++b) order[b] = static_cast<int64_t>(b);
    std::shuffle(order.begin(), order.end(), random_);
    // What earlier launches did is over.
    for (auto& cells : cells_)
      for (Cell& c : cells) c.write = c.read = {};
    for (const int64_t b : order) {
      int64_t rest = b;
      block_ = static_cast<int32_t>(b);
      for (size_t i = grid.size(); i-- > 0;) {
        for (size_t t = 0; t < threads_; ++t) axis(t, grid[i]) = rest % counts[i];
        rest /= counts[i];
      }
      run_block(*body);
    }
  }

  void run_block(const std::vector<uint32_t>& body) {
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const ProgramBuffer& b = p_.buffers[i];
      if (b.memory < Memory::Shared || b.launch != launch_) continue;
      const auto copies = b.memory == Memory::Register ? threads_ : 1;
      const auto n = static_cast<size_t>(extents_[i]) * copies;
      memory_[i].assign(n * static_cast<size_t>(type_bytes(b.type)), static_cast<char>(0xa5));
      pointers_[i] = memory_[i].data();
      cells_[i].assign(n, {});
    }
    block_epoch_ = 1;
    wave_epochs_.assign(threads_ / static_cast<size_t>(p_.wave) + 1, 1);
    std::vector<uint32_t> all(threads_);
    for (size_t t = 0; t < threads_; ++t) all[t] = static_cast<uint32_t>(t);
    std::shuffle(all.begin(), all.end(), random_);
    running_.clear();
    copies_.assign(threads_, {{}});
    run_body(body, all);
    const bool copying = std::any_of(copies_.begin(), copies_.end(), [](const auto& batches) {
      return std::any_of(batches.begin(), batches.end(), [](const Batch& b) { return !b.empty(); });
    });
    if (copying)
      throw sdk::Error(TSR_BUG, "TSR-K031",
                       "program @" + p_.name + ", launch " + std::to_string(launch_) + ", block " + std::to_string(block_) +
                           ": it ends before its copies to shared memory have arrived");
    if (!running_.empty())
      throw sdk::Error(TSR_BUG, "TSR-K031",
                       "program @" + p_.name + ", launch " + std::to_string(launch_) + ", block " + std::to_string(block_) +
                           ": it ends before its matrix instructions of four waves do");
  }

  // ---- statements, all active threads in step

  void run_body(const std::vector<uint32_t>& body, const std::vector<uint32_t>& active) {
    for (const uint32_t id : body) statement(id, active);
  }

  int64_t& axis(size_t thread, uint32_t a) { return axes_[thread * p_.axis_names.size() + a]; }

  int64_t evaluate(Expr e) {
    const size_t n = p_.axis_names.size();
    return p_.pool.evaluate(e, {{axes_.data() + thread_ * n, n}, symbols_, &value_of_});
  }

  void statement(uint32_t id, const std::vector<uint32_t>& active) {
    const Statement& x = p_.statements[id];
    switch (x.kind) {
      case StatementKind::Loop: {
        std::vector<int64_t> extents;
        int64_t most = 0;
        for (const uint32_t t : active) {
          thread_ = t;
          extents.push_back(evaluate(p_.pool.extent(x.axis)));
          most = std::max(most, extents.back());
        }
        for (int64_t i = 0; i < most; ++i) {
          std::vector<uint32_t> some;
          for (size_t k = 0; k < active.size(); ++k)
            if (i < extents[k]) {
              some.push_back(active[k]);
              axis(active[k], x.axis) = i;
            }
          run_body(x.body, some);
        }
        return;
      }
      case StatementKind::If: {
        std::vector<uint32_t> some;
        for (const uint32_t t : active)
          if (values_[x.inst.args[0]][t]) some.push_back(t);
        if (!some.empty()) run_body(x.body, some);
        return;
      }
      case StatementKind::Barrier: return barrier(id, x, active);
      case StatementKind::Shuffle: return shuffle(id, x, active);
      case StatementKind::Mma: return mma(id, x, active);
      case StatementKind::MmaGroup: return mma_group(id, x, active);
      case StatementKind::MmaWait: return mma_wait(id, x, active);
      case StatementKind::Copy:
        for (const uint32_t t : active) {
          thread_ = t;
          copy(id, x);
        }
        return;
      case StatementKind::CopyEnd:
        for (const uint32_t t : active) copies_[t].emplace_back();
        return;
      case StatementKind::CopyWait:
        for (const uint32_t t : active) {
          thread_ = t;
          copy_wait(x);
        }
        return;
      case StatementKind::Inst:
        for (const uint32_t t : active) {
          thread_ = t;
          inst(id, x.inst);
        }
    }
  }

  std::vector<uint8_t> present(const std::vector<uint32_t>& active) const {
    std::vector<uint8_t> here(threads_, 0);
    for (const uint32_t t : active) here[t] = 1;
    return here;
  }
  size_t wave_of(size_t thread) const { return thread / static_cast<size_t>(p_.wave); }

  void barrier(uint32_t id, const Statement& x, const std::vector<uint32_t>& active) {
    const std::vector<uint8_t> here = present(active);
    if (x.scope == BarrierScope::Block) {
      for (thread_ = 0; thread_ < threads_; ++thread_)
        if (!here[thread_]) fail(id, "this thread does not come to the barrier of its block");
      ++block_epoch_;
      return;
    }
    std::vector<uint8_t> waves(wave_epochs_.size(), 0);
    for (const uint32_t t : active) waves[wave_of(t)] = 1;
    for (thread_ = 0; thread_ < threads_; ++thread_)
      if (waves[wave_of(thread_)] && !here[thread_]) fail(id, "this thread does not come to the barrier of its wave");
    for (size_t w = 0; w < waves.size(); ++w) wave_epochs_[w] += waves[w];
  }

  void shuffle(uint32_t id, const Statement& x, const std::vector<uint32_t>& active) {
    const std::vector<uint8_t> here = present(active);
    std::vector<uint64_t> out(threads_, 0);
    const auto wave = static_cast<size_t>(p_.wave);
    for (const uint32_t t : active) {
      thread_ = t;
      const size_t lane = t % wave;
      const size_t from = x.exchange == Exchange::Xor ? lane ^ static_cast<size_t>(x.lane)
                                                      : lane / static_cast<size_t>(x.lanes) * static_cast<size_t>(x.lanes) +
                                                            static_cast<size_t>(x.lane);
      const size_t other = t - lane + from;
      if (other >= threads_ || !here[other]) fail(id, "lane " + std::to_string(from) + " does not take part in the shuffle");
      out[t] = values_[x.inst.args[0]][other];
    }
    for (const uint32_t t : active) values_[id][t] = out[t];
  }

  // f(first thread) for each group of four waves that takes part.
  template <class F>
  void each_group(uint32_t id, const std::vector<uint32_t>& active, F&& f) {
    const std::vector<uint8_t> here = present(active);
    constexpr auto kThreads = static_cast<size_t>(kGroupThreads);
    for (size_t from = 0; from < threads_; from += kThreads) {
      const size_t end = std::min(threads_, from + kThreads);
      const auto count =
          std::count(here.begin() + static_cast<std::ptrdiff_t>(from), here.begin() + static_cast<std::ptrdiff_t>(end), 1);
      if (count == 0) continue;
      if (count != kGroupThreads) {
        for (thread_ = from; thread_ < end && here[thread_];) ++thread_;
        fail(id, "this thread does not take part in the matrix instruction of its four waves");
      }
      f(from);
    }
  }

  // Elements of an operand that a group reads: for its first thread and its last one, of which one has not written it.
  void read_by_group(uint32_t id, size_t from, const ProgramBuffer& b, Cell& c, int64_t at) {
    for (const size_t t : {from, from + static_cast<size_t>(kGroupThreads) - 1}) {
      thread_ = t;
      touch(id, b, c, at, false);
    }
  }

  // As if it were computed at once; what it reads is being read until the group waits.
  void mma_group(uint32_t id, const Statement& x, const std::vector<uint32_t>& active) {
    each_group(id, active, [&](size_t from) {
      Running now{from, x.fragments[0].buffer, {}};
      std::array<std::vector<float>, 2> factors;
      const auto depth = static_cast<size_t>(x.group.depth);
      for (size_t i = 0; i < 2; ++i) {
        const Fragment& f = x.fragments[i + 1];
        const ProgramBuffer& b = p_.buffers[f.buffer];
        thread_ = from;
        const int64_t first = evaluate(f.at), lines = i == 0 ? kGroupRows : x.group.columns;
        for (size_t t = 1; t < static_cast<size_t>(kGroupThreads); ++t) {
          thread_ = from + t;
          if (evaluate(f.at) != first) fail(id, "this thread names another part of '" + b.name + "' than its group");
        }
        for (int64_t line = 0; line < lines; ++line)
          for (int64_t d = 0; d < x.group.depth; ++d) {
            const int64_t at = first + group_place(line, d, x.group.pitch[i], x.group.turned[i]);
            Cell& c = cells_[f.buffer][static_cast<size_t>(at)];
            read_by_group(id, from, b, c, at);
            now.reads.push_back({f.buffer, at, c.write});
            uint16_t bits;
            std::memcpy(&bits, pointers_[f.buffer] + static_cast<size_t>(at) * sizeof bits, sizeof bits);
            factors[i].push_back(static_cast<float>(constant_float(x.inst.type, bits)));
          }
      }
      for (size_t t = 0; t < static_cast<size_t>(kGroupThreads); ++t)
        for (int64_t e = 0; e < x.group.columns / 2; ++e) {
          thread_ = from + t;
          const size_t row = t / 32 * 16 + t % 32 / 4 + 8 * static_cast<size_t>(e % 4 / 2),
                       column = static_cast<size_t>(e / 4) * 8 + 2 * (t % 4) + static_cast<size_t>(e % 2);
          char* const at = sum_of_group(id, x, e, true);
          float sum;
          std::memcpy(&sum, at, sizeof sum);
          for (size_t d = 0; d < depth; ++d) sum = std::fma(factors[0][row * depth + d], factors[1][column * depth + d], sum);
          std::memcpy(at, &sum, sizeof sum);
        }
      running_.push_back(std::move(now));
    });
  }

  char* sum_of_group(uint32_t id, const Statement& x, int64_t e, bool add) {
    const Fragment& f = x.fragments[0];
    const ProgramBuffer& b = p_.buffers[f.buffer];
    const int64_t at = evaluate(f.at) + e, mine = at + static_cast<int64_t>(thread_) * extents_[f.buffer];
    Cell& c = cells_[f.buffer][static_cast<size_t>(mine)];
    touch(id, b, c, at, false);
    if (add) touch(id, b, c, at, true);
    return pointers_[f.buffer] + static_cast<size_t>(mine) * sizeof(float);
  }

  void mma_wait(uint32_t id, const Statement&, const std::vector<uint32_t>& active) {
    each_group(id, active, [&](size_t from) {
      std::erase_if(running_, [&](const Running& r) {
        if (r.group != from) return false;
        for (const auto& [buffer, at, write] : r.reads) {
          Cell& c = cells_[buffer][static_cast<size_t>(at)];
          if (!(c.write == write))
            fail(id, "element " + std::to_string(at) + " of '" + p_.buffers[buffer].name +
                         "' was written while a matrix instruction read it");
          read_by_group(id, from, p_.buffers[buffer], c, at);
        }
        return true;
      });
    });
  }

  // The elements are there at once, and nobody may touch them until the thread waits.
  void copy(uint32_t id, const Statement& x) {
    const Fragment &to = x.fragments[0], &from = x.fragments[1];
    const ProgramBuffer &a = p_.buffers[to.buffer], &b = p_.buffers[from.buffer];
    const int64_t first = evaluate(to.at), source = evaluate(from.at);
    const bool holds = x.inst.args[0] == kNone || values_[x.inst.args[0]][thread_] != 0;
    const auto check = [&](uint32_t buffer, int64_t at) {
      if (at < 0 || at + x.count > extents_[buffer])
        fail(id, "elements from " + std::to_string(at) + " on of '" + p_.buffers[buffer].name + "' are outside its " +
                     std::to_string(extents_[buffer]));
    };
    check(to.buffer, first);
    if (holds) check(from.buffer, source);  // else zeros are written, and nothing is read
    for (int64_t e = first; e < first + x.count; ++e) {
      Cell& c = cells_[to.buffer][static_cast<size_t>(e)];
      touch(id, a, c, e, true);
      c.coming = true;
      copies_[thread_].back().push_back({to.buffer, e});
    }
    const auto bytes = static_cast<size_t>(type_bytes(b.type));
    char* const at = pointers_[to.buffer] + static_cast<size_t>(first) * bytes;
    if (holds)
      std::memcpy(at, pointers_[from.buffer] + static_cast<size_t>(source) * bytes, static_cast<size_t>(x.count) * bytes);
    else
      std::memset(at, 0, static_cast<size_t>(x.count) * bytes);
  }
  void copy_wait(const Statement& x) {
    std::deque<Batch>& batches = copies_[thread_];  // the last one is not ended yet
    while (static_cast<int64_t>(batches.size()) - 1 > x.count) {
      for (const auto& [buffer, at] : batches.front()) {
        Cell& c = cells_[buffer][static_cast<size_t>(at)];
        c.coming = false;
        c.write = me();
      }
      batches.pop_front();
    }
  }

  // The sums of each wave, by fused multiply-add in the order of the contracted dimension.
  void mma(uint32_t id, const Statement& x, const std::vector<uint32_t>& active) {
    const std::vector<uint8_t> here = present(active);
    const size_t wave = 32;
    for (size_t from = 0; from < threads_; from += wave) {
      size_t lanes = 0;
      for (size_t t = from; t < std::min(threads_, from + wave); ++t) lanes += here[t];
      if (lanes == 0) continue;
      if (lanes != wave) {
        for (thread_ = from; here[thread_];) ++thread_;
        fail(id, "this thread does not take part in the matrix instruction of its wave");
      }
      const auto share = [&](size_t lane, size_t which, int64_t e) {  // of a lane's fragment
        thread_ = from + lane;
        const Fragment& f = x.fragments[which];
        const ProgramBuffer& b = p_.buffers[f.buffer];
        const int64_t at = evaluate(f.at) + e, mine = at + static_cast<int64_t>(thread_) * extents_[f.buffer];
        Cell& c = cells_[f.buffer][static_cast<size_t>(mine)];
        touch(id, b, c, at, false);
        if (which == 0) touch(id, b, c, at, true);
        return pointers_[f.buffer] + static_cast<size_t>(mine) * static_cast<size_t>(type_bytes(b.type));
      };
      const auto factor = [&](size_t lane, size_t which, size_t e) {
        uint16_t bits;
        std::memcpy(&bits, share(lane, which, static_cast<int64_t>(e)), sizeof bits);
        return static_cast<float>(constant_float(x.inst.type, bits));
      };
      for (size_t lane = 0; lane < wave; ++lane)
        for (size_t e = 0; e < 4; ++e) {
          char* const at = share(lane, 0, static_cast<int64_t>(e));
          float sum;
          std::memcpy(&sum, at, sizeof sum);
          for (size_t k = 0; k < 16; ++k) {
            const size_t quad = k % 8 / 2, column = 2 * (lane % 4) + e % 2;
            sum = std::fma(factor(lane / 4 * 4 + quad, 1, k / 8 * 4 + e / 2 * 2 + k % 2),
                           factor(column * 4 + quad, 2, k / 8 * 2 + k % 2), sum);
          }
          std::memcpy(at, &sum, sizeof sum);
        }
    }
  }

  // ---- memory

  bool ordered(const Touch& before) const {
    if (before.thread == kNobody || (before.block == block_ && before.thread == static_cast<int32_t>(thread_))) return true;
    if (before.block != block_) return false;
    if (before.block_epoch < block_epoch_) return true;
    return before.wave == static_cast<int32_t>(wave_of(thread_)) && before.wave_epoch < wave_epochs_[wave_of(thread_)];
  }
  Touch me() const {
    const size_t w = wave_of(thread_);
    return {block_, static_cast<int32_t>(thread_), static_cast<int32_t>(w), block_epoch_, wave_epochs_[w]};
  }
  static std::string name(const Touch& t) {
    return t.thread == kSeveral ? "several threads"
                                : "thread " + std::to_string(t.thread) + " of block " + std::to_string(t.block);
  }
  void touch(uint32_t id, const ProgramBuffer& b, Cell& c, int64_t at, bool store) {
    const auto element = [&] { return "element " + std::to_string(at) + " of '" + b.name + "'"; };
    if (c.coming) fail(id, element() + " is touched while a copy to it is on its way: wait for it first");
    if (!store && !c.written) fail(id, element() + " is read before it is written");
    if (!ordered(c.write)) fail(id, element() + " was written by " + name(c.write) + " and no barrier stands between");
    if (store && !ordered(c.read)) fail(id, element() + " was read by " + name(c.read) + " and no barrier stands between");
    if (store) {
      c.written = true;
      c.write = me();
      c.read = {};
      return;
    }
    Touch now = me();
    if (c.read.thread != kNobody && !ordered(c.read)) {  // readers beside each other
      now.thread = kSeveral;
      if (c.read.wave != now.wave) now.wave = kSeveral;
      if (c.read.block != now.block) now.block = kSeveral;
    }
    c.read = now;
  }

  char* element(uint32_t id, const Inst& x, bool store) {
    const ProgramBuffer& b = p_.buffers[x.id];
    const int64_t at = evaluate(x.index);
    if (at < 0 || at >= extents_[x.id])
      fail(id, "index " + std::to_string(at) + " of '" + b.name + "' is outside its " + std::to_string(extents_[x.id]) +
                   " elements");
    const int64_t mine = b.memory == Memory::Register ? at + static_cast<int64_t>(thread_) * extents_[x.id] : at;
    const size_t group = thread_ - thread_ % static_cast<size_t>(kGroupThreads);
    if (std::any_of(running_.begin(), running_.end(), [&](const Running& r) { return r.group == group && r.sums == x.id; }))
      fail(id, "'" + b.name + "' is touched while a matrix instruction adds to it: wait for it first");
    if (!cells_[x.id].empty()) touch(id, b, cells_[x.id][static_cast<size_t>(mine)], at, store);
    return pointers_[x.id] + static_cast<size_t>(mine) * static_cast<size_t>(type_bytes(b.type));
  }

  void inst(uint32_t id, const Inst& x) {
    uint64_t a[3] = {};
    for (size_t i = 0; i < 3; ++i)
      if (x.args[i] != kNone) a[i] = values_[x.args[i]][thread_];
    uint64_t& value = values_[id][thread_];
    switch (x.op) {
      case Op::Index: value = static_cast<uint64_t>(evaluate(x.index)); return;
      case Op::Load: {
        if (x.args[0] != kNone && !a[0]) {
          value = a[1];
          return;
        }
        uint64_t bits = 0;
        std::memcpy(&bits, element(id, x, false), static_cast<size_t>(type_bytes(x.type)));
        value = x.type == Type::Bool ? bits != 0 : bits;
        return;
      }
      case Op::Store: std::memcpy(element(id, x, true), &a[0], static_cast<size_t>(type_bytes(p_.buffers[x.id].type))); return;
      case Op::Check:
        if (!a[0]) faults_ |= x.id;
        return;
      default: value = apply(x, x.args[0] == kNone ? x.type : p_.statements[x.args[0]].inst.type, a);
    }
  }

  Program& p_;
  std::span<const int64_t> symbols_;
  std::mt19937_64 random_;
  size_t launch_ = 0, threads_ = 1, thread_ = 0;
  int32_t block_ = 0;
  uint32_t block_epoch_ = 1, faults_ = 0;
  std::vector<uint32_t> wave_epochs_;
  std::vector<int64_t> extents_;
  std::vector<std::vector<char>> memory_;
  std::vector<char*> pointers_;
  std::vector<std::vector<Cell>> cells_;       // by buffer; inputs have none
  std::vector<std::vector<uint64_t>> values_;  // by statement and thread
  std::vector<int64_t> axes_;                  // by thread and axis
  struct Running {                             // a matrix instruction of four waves that nobody has waited for
    size_t group;                              // its first thread
    uint32_t sums;
    struct Read {  // an element that it reads, and who had written it
      uint32_t buffer;
      int64_t at;
      Touch write;
    };
    std::vector<Read> reads;
  };
  std::vector<Running> running_;
  using Batch = std::vector<std::pair<uint32_t, int64_t>>;  // elements of buffers
  std::vector<std::deque<Batch>> copies_;                   // by thread
  std::function<int64_t(uint32_t)> value_of_;
};

}  // namespace

uint32_t interpret(Program& p, std::span<void* const> buffers, std::span<const int64_t> symbols, uint64_t seed) {
  return ProgramMachine(p, buffers, symbols, seed).run();
}

}  // namespace tessera::kit
