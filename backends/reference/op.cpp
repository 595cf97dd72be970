// SPDX-License-Identifier: Apache-2.0
#include "op.hpp"

#include "tessera/dtypes.hpp"

namespace tessera::reference {

const Spec::Attribute& Op::find(const char* attr) const {
  for (const Spec::Attribute& a : spec_.attributes)
    if (a.name == attr) return a;
  throw sdk::Error(TSR_BUG, "TSR-B002", "op '" + spec_.op + "' has no attribute '" + attr + "'");
}

Index Op::ints(const char* attr) const {
  const auto& v = find(attr).ints;
  return Index(v.data(), static_cast<uint32_t>(v.size()));
}

Index Op::dims(const char* attr) const {
  Index r;
  for (const sdk::LaunchDim& d : find(attr).dims) r.push(d.get(dims_));
  return r;
}

Index Op::axes(const char* attr, uint32_t rank) const {
  Index r = ints(attr);
  for (uint32_t i = 0; i < r.rank(); ++i) r[i] = normal(r[i], rank);
  return r;
}

Tensor Op::tensor(const char* attr) const {
  const Spec::Attribute& a = find(attr);
  tsr_tensor t{};
  t.data = const_cast<char*>(a.bytes.data());
  t.dtype = static_cast<uint32_t>(a.i);
  t.rank = static_cast<uint32_t>(a.sizes.size());
  t.sizes = a.sizes.data();
  return Tensor(t);
}

int64_t Op::checked(Int index, int64_t size, int64_t axis) const {
  if (index < 0 || index >= size)
    fail("TSR-R011",
         "index " + std::to_string(static_cast<int64_t>(index)) + " is out of range for axis " + std::to_string(axis) +
             " of size " + std::to_string(size),
         "indices must be in [0, size); negative ones are not wrapped");
  return static_cast<int64_t>(index);
}

void Op::fail(const char* code, const std::string& message, const char* hint) const {
  throw sdk::Error(TSR_USER, code, spec_.op + ": " + message, hint);
}

Domain domain(uint32_t dtype) {
  if (is_complex(dtype)) return Domain::Complex;
  return is_float(dtype) ? Domain::Real : Domain::Integer;
}

const Entry* find_entry(std::string_view op) {
  static const std::span<const Entry> families[] = {
      elementwise_ops(), special_ops(),       cast_ops(),        shape_ops(),       index_ops(),
      sort_ops(),        reduce_ops(),        contraction_ops(), convolution_ops(), pool_ops(),
      activation_ops(),  normalization_ops(), network_ops(),     resample_ops(),    random_ops(),
  };
  for (const auto& family : families)
    for (const Entry& e : family)
      if (op == e.op) return &e;
  return nullptr;
}

}  // namespace tessera::reference
