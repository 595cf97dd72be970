// SPDX-License-Identifier: Apache-2.0
#include "dispatch/profile_store.hpp"

#include <filesystem>

#include "cache/cache.hpp"
#include "dispatch/frame.hpp"
#include "plugin/sha256.hpp"
#include "support/limits.hpp"

namespace tessera::core {

namespace {

// Programs are told apart by their names: "main.cpp:12" is in many of them.
std::string program() {
  static const std::string name = [] {
    std::error_code code;
    return std::filesystem::read_symlink("/proc/self/exe", code).filename().string();
  }();
  return name;
}

std::string key_of(const Frame& frame) {
  return sha256_hex("tessera profile 1\n" + program() + "\n" + frame.name() + "\n" + frame.place());
}

DynamicProfile::State dynamic_or_unset(bool dynamic) { return dynamic ? DynamicProfile::kDynamic : DynamicProfile::kUnset; }

bool anything_dynamic(const DynamicProfile::Source& s) {
  if (s.rank_state == DynamicProfile::kDynamic || s.strides.state == DynamicProfile::kDynamic ||
      s.scalar.state == DynamicProfile::kDynamic)
    return true;
  for (const DynamicProfile::Number& n : s.sizes)
    if (n.state == DynamicProfile::kDynamic) return true;
  return false;
}

}  // namespace

std::string encode_profile(const DynamicProfile& profile) {
  ByteWriter w;
  bool any = false;
  for (const auto& [path, s] : profile.sources()) {
    if (!anything_dynamic(s)) continue;
    any = true;
    w.text(path);
    w.u8(s.rank_state);
    w.u32(s.rank);
    w.u8(s.strides.state == DynamicProfile::kDynamic);
    w.u8(s.scalar.state == DynamicProfile::kDynamic);
    w.u32(static_cast<uint32_t>(s.sizes.size()));
    for (const DynamicProfile::Number& n : s.sizes) w.u8(n.state == DynamicProfile::kDynamic);
  }
  return any ? w.take() : std::string();
}

std::string decode_profile(std::string_view payload, DynamicProfile* out) {
  ByteReader in(payload);
  DynamicProfile read;
  while (!in.done()) {
    std::string path;
    uint8_t rank_state = 0, strides = 0, scalar = 0;
    DynamicProfile::Source s;
    uint32_t sizes = 0;
    if (!in.text(&path) || !in.u8(&rank_state) || rank_state > DynamicProfile::kDynamic || !in.u32(&s.rank) ||
        s.rank > kMaxRank || !in.u8(&strides) || !in.u8(&scalar) || !in.u32(&sizes) || sizes > kMaxRank)
      return "it is malformed";
    s.rank_state = static_cast<DynamicProfile::State>(rank_state);
    s.strides.state = dynamic_or_unset(strides != 0);
    s.scalar.state = dynamic_or_unset(scalar != 0);
    for (uint32_t i = 0; i < sizes; ++i) {
      uint8_t dynamic = 0;
      if (!in.u8(&dynamic)) return "it is malformed";
      DynamicProfile::Number n;
      n.state = dynamic_or_unset(dynamic != 0);
      s.sizes.push_back(n);
    }
    read.merge(path, s);
  }
  for (const auto& [path, s] : read.sources()) out->merge(path, s);
  return {};
}

void ProfileStore::load(Cache* cache, const Frame& frame, DynamicProfile& profile) {
  if (loaded_ || !cache || !cache->keeps(CacheKind::kProfile)) return;
  loaded_ = true;
  const std::string key = key_of(frame);
  const auto payload = cache->get(CacheKind::kProfile, key);
  if (!payload) return;
  if (const std::string why = decode_profile(*payload, &profile); !why.empty())
    cache->refuse(CacheKind::kProfile, key, why);
  else
    known_ = *payload;
}

void ProfileStore::save(Cache* cache, const Frame& frame, const DynamicProfile& profile) {
  if (!cache || !cache->keeps(CacheKind::kProfile)) return;
  std::string found = encode_profile(profile);
  if (found.empty() || found == known_) return;
  const std::string key = key_of(frame);
  if (const auto now = cache->get(CacheKind::kProfile, key); now && *now != known_) {
    DynamicProfile both = profile;
    if (decode_profile(*now, &both).empty()) found = encode_profile(both);
  }
  cache->put(CacheKind::kProfile, key, found);
  known_ = std::move(found);
}

}  // namespace tessera::core
