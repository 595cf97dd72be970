// SPDX-License-Identifier: Apache-2.0
#include "tessera/substitutes.hpp"

#include <unordered_map>

#include "tessera/nn.hpp"
#include "trace.hpp"

namespace tessera::detail {

struct Substitutes {
  struct Place {
    Tensor tensor;
    uintptr_t given;  // what it was when the function began
  };
  std::unordered_map<const Tensor*, Place> places;
  const Trace* trace;  // whose operations see them
  Substitutes* outer;

  static uintptr_t& bits(Tensor& t) { return t.bits_; }
};

constinit thread_local Substitutes* t_substitutes = nullptr;

uintptr_t* substitute_of(const Tensor* t, uintptr_t* own, bool assigns) {
  for (Substitutes* s = t_substitutes; s; s = s->outer) {
    const auto at = s->places.find(t);
    if (at == s->places.end()) continue;
    Substitutes::Place& place = at->second;
    if (s->trace == current_trace()) return &Substitutes::bits(place.tensor);
    if (assigns)
      fail("TSR-F046", "host code that runs between compiled parts assigns a tensor of a module that is being traced",
           "assign it in the traced function, or after the call");
    if (Substitutes::bits(place.tensor) != place.given)
      fail("TSR-F046",
           "host code that runs between compiled parts reads a tensor of a module that the traced function has assigned",
           "give it to the disabled function as an argument");
    return own;
  }
  return own;
}

void give(Tensor& place, const Tensor& traced) {
  place = traced;
  for (Substitutes* s = t_substitutes; s && s->trace == current_trace(); s = s->outer)
    if (const auto at = s->places.find(&place); at != s->places.end()) {
      at->second.given = Substitutes::bits(at->second.tensor);
      return;
    }
}

SubstituteModule::SubstituteModule(nn::ModuleBase& m) : outer_(t_substitutes) {
  auto made = std::make_unique<Substitutes>();
  made->trace = current_trace();
  made->outer = outer_;
  for (const nn::ModuleBase::Leaf& l : m.leaves()) {
    Substitutes::Place& place = made->places[l.tensor];
    place.tensor = *l.tensor;
    place.given = Substitutes::bits(place.tensor);
  }
  t_substitutes = made.release();
}

SubstituteModule::~SubstituteModule() {
  const std::unique_ptr<Substitutes> mine(t_substitutes);
  t_substitutes = outer_;
}

}  // namespace tessera::detail
