// SPDX-License-Identifier: Apache-2.0
// Programs for devices whose lanes cannot read each other's registers: each shuffle becomes a store to shared memory, a
// barrier, and a load of what another thread stored.
//
// A shuffle uses one half of a buffer of its type, and the next one in the same body the other half: between a load of one half
// and the next store to it stands the barrier of the shuffle between. Where a body begins, or one inside of it has ended, a
// further barrier stands before the store. Whether all threads of the block come to these barriers is the verifier's to tell
// (P13).
#include <map>

#include "tessera/kit/program/program.hpp"

namespace tessera::kit {
namespace {

class ExchangeRewriter {
 public:
  ExchangeRewriter(Program& p, size_t launch) : p_(p), launch_(launch) {}

  void run() {
    std::vector<uint32_t>* body = &p_.launches[launch_];
    uint32_t loop = kNone;
    while (body->size() == 1) {
      const Statement& x = p_.statements[(*body)[0]];
      if (x.kind != StatementKind::Loop || !is_launch(x.bind)) break;
      loop = (*body)[0];
      if (x.bind > Bind::Cluster) {
        const Expr n = p_.pool.extent(x.axis);
        thread_ = p_.pool.add(p_.pool.mul(thread_, n), p_.pool.axis(x.axis));
        threads_ *= p_.pool.as_number(n).value_or(1);
      }
      body = &p_.statements[loop].body;
    }
    std::vector<uint32_t> list = *body;
    rewrite(list, /*first=*/true);
    (loop == kNone ? p_.launches[launch_] : p_.statements[loop].body) = std::move(list);
  }

 private:
  uint32_t add(Statement s) {
    p_.statements.push_back(std::move(s));
    return static_cast<uint32_t>(p_.statements.size() - 1);
  }
  uint32_t barrier() {
    Statement s;
    s.kind = StatementKind::Barrier;
    return add(std::move(s));
  }

  // Returns whether there was a shuffle. `first`: nothing has used the buffers before.
  bool rewrite(std::vector<uint32_t>& list, bool first) {
    std::vector<uint32_t> out;
    bool any = false, wait = !first;
    std::map<Type, int64_t> uses;
    for (const uint32_t id : list) {
      if (p_.statements[id].kind == StatementKind::Barrier) {
        p_.statements[id].scope = BarrierScope::Block;
        wait = false;
      }
      if (p_.statements[id].kind == StatementKind::Shuffle) {
        if (wait) out.push_back(barrier());
        const Type t = p_.statements[id].inst.type;
        const Expr half = p_.pool.number(uses[t]++ % 2 * threads_);
        Statement store;
        store.inst.op = Op::Store;
        store.inst.id = buffer(t);
        store.inst.index = p_.pool.add(half, thread_);
        store.inst.args[0] = p_.statements[id].inst.args[0];
        out.push_back(add(std::move(store)));
        out.push_back(barrier());
        Statement& x = p_.statements[id];
        Statement load;
        load.inst.op = Op::Load;
        load.inst.type = t;
        load.inst.id = buffer(t);
        load.inst.origin = x.inst.origin;
        load.inst.index = p_.pool.add(half, partner(x));
        x = std::move(load);
        any = true;
        wait = false;
      } else if (!p_.statements[id].body.empty()) {
        std::vector<uint32_t> inner = p_.statements[id].body;
        if (rewrite(inner, false)) any = wait = true;
        p_.statements[id].body = std::move(inner);
      }
      out.push_back(id);
    }
    list = std::move(out);
    return any;
  }

  // The number of the thread whose value is read.
  Expr partner(const Statement& x) {
    IndexPool& pool = p_.pool;
    const Expr lane = pool.mod(thread_, pool.number(p_.wave));
    if (x.exchange == Exchange::From)
      return pool.add(pool.sub(thread_, pool.mod(lane, pool.number(x.lanes))), pool.number(x.lane));
    Expr at = thread_;
    for (int64_t bit = 1; bit < p_.wave; bit *= 2)
      if (x.lane & bit) {
        const Expr set = pool.mod(pool.floordiv(lane, pool.number(bit)), pool.number(2));
        at = pool.add(at, pool.sub(pool.number(bit), pool.mul(pool.number(2 * bit), set)));
      }
    return at;
  }

  uint32_t buffer(Type t) {
    const auto [it, fresh] = buffers_.try_emplace(t, static_cast<uint32_t>(p_.buffers.size()));
    if (fresh) {
      ProgramBuffer b;
      b.name = std::string("exchange_") + type_name(t) + (launch_ > 0 ? "_" + std::to_string(launch_) : "");
      b.memory = Memory::Shared;
      b.type = t;
      b.extent = p_.pool.number(2 * threads_);
      b.launch = static_cast<uint32_t>(launch_);
      p_.buffers.push_back(std::move(b));
    }
    return it->second;
  }

  Program& p_;
  const size_t launch_;
  Expr thread_ = kZero;
  int64_t threads_ = 1;
  std::map<Type, uint32_t> buffers_;
};

}  // namespace

void without_shuffles(Program& p) {
  for (size_t l = 0; l < p.launches.size(); ++l) ExchangeRewriter(p, l).run();
}

}  // namespace tessera::kit
