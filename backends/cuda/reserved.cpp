// SPDX-License-Identifier: Apache-2.0
#include "reserved.hpp"

#include <algorithm>

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

MemoryProperties properties_of(int device) {
  MemoryProperties p{};
  p.type = 1;  // pinned
  p.location = {1, device};
  return p;
}

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

size_t Reserved::granularity() {
  if (granularity_ == 0) {
    const MemoryProperties p = properties_of(gpu_.index());
    gpu_.check(gpu_.driver().cuMemGetAllocationGranularity(&granularity_, &p, 0), "cuMemGetAllocationGranularity");
  }
  return granularity_;
}

void* Reserved::reserve(size_t bytes) {
  const Gpu::Scope scope(gpu_);
  std::lock_guard lock(mutex_);
  auto range = std::make_unique<Range>();
  range->bytes = rounded(std::max<size_t>(bytes, 1), granularity());
  CUdeviceptr p = 0;
  gpu_.check(gpu_.driver().cuMemAddressReserve(&p, range->bytes, 0, 0, 0), "cuMemAddressReserve");
  void* const out = reinterpret_cast<void*>(p);
  ranges_[out] = std::move(range);
  return out;
}

void Reserved::commit(void* where, size_t bytes, tsr_stream* stream) {
  const Gpu::Scope scope(gpu_);
  const Driver& d = gpu_.driver();
  std::lock_guard lock(mutex_);
  const auto it = ranges_.find(where);
  if (it == ranges_.end() || bytes > it->second->bytes)
    throw t::Error(TSR_BUG, "TSR-B045",
                   "device cuda, commit: expected a reserved range with room for " + std::to_string(bytes) + " bytes");
  Range& range = *it->second;
  const size_t wanted = rounded(bytes, granularity());
  if (wanted < range.committed) {
    // Pages do not go in the order of a stream: whatever is queued may use them.
    gpu_.check(d.cuStreamSynchronize(stream->native), "cuStreamSynchronize");
    return shrink(address_of(where), range, wanted);
  }
  if (wanted == range.committed) return;
  const size_t more = wanted - range.committed;
  const MemoryProperties p = properties_of(gpu_.index());
  Piece piece{0, more};
  CUresult r = d.cuMemCreate(&piece.handle, more, &p, 0);
  if (r == kOutOfMemory) {
    gpu_.trim();
    r = d.cuMemCreate(&piece.handle, more, &p, 0);
  }
  if (r == kOutOfMemory) gpu_.out_of_memory(more);
  gpu_.check(r, "cuMemCreate");
  const CUdeviceptr at = address_of(where) + range.committed;
  r = d.cuMemMap(at, more, 0, piece.handle, 0);
  if (r != kSuccess) d.cuMemRelease(piece.handle);
  gpu_.check(r, "cuMemMap");
  gpu_.mapped(static_cast<int64_t>(more));
  range.pieces.push_back(piece);
  range.committed = wanted;
  const MemoryAccess access{{1, gpu_.index()}, 3};
  gpu_.check(d.cuMemSetAccess(at, more, &access, 1), "cuMemSetAccess");
}

// Pieces are given back whole; one that is cut stays.
void Reserved::shrink(CUdeviceptr base, Range& range, size_t bytes) {
  const Driver& d = gpu_.driver();
  while (!range.pieces.empty() && range.committed - range.pieces.back().bytes >= bytes) {
    const Piece piece = range.pieces.back();
    gpu_.check(d.cuMemUnmap(base + range.committed - piece.bytes, piece.bytes), "cuMemUnmap");
    gpu_.check(d.cuMemRelease(piece.handle), "cuMemRelease");
    gpu_.mapped(-static_cast<int64_t>(piece.bytes));
    range.pieces.pop_back();
    range.committed -= piece.bytes;
  }
}

void Reserved::unreserve(void* where) noexcept {
  if (forked()) return;
  try {
    const Gpu::Scope scope(gpu_);
    std::lock_guard lock(mutex_);
    const auto it = ranges_.find(where);
    if (it == ranges_.end()) return;
    shrink(address_of(where), *it->second, 0);
    gpu_.driver().cuMemAddressFree(address_of(where), it->second->bytes);
    ranges_.erase(it);
  } catch (const std::exception&) {}  // a device that has failed keeps what it has
}

}  // namespace tessera::cuda
