// SPDX-License-Identifier: Apache-2.0
#include "plan/constant_forms.hpp"

#include <cstring>

#include "cache/cache.hpp"
#include "cache/digest.hpp"
#include "plan/graph_constants.hpp"
#include "plugin/plugin_host.hpp"
#include "plugin/sha256.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

constexpr size_t kLeastBlob = 64 << 10;  // what is smaller is made faster than a file is opened

std::string named(const std::string& digest, size_t bytes) { return digest + " " + std::to_string(bytes); }
std::string constant_key(const std::string& digest, size_t bytes) { return sha256_hex("constant 1\n" + named(digest, bytes)); }

}  // namespace

ConstantForms::ConstantForms(Cache& cache, const ConstantSources& sources, const GraphConstants& constants,
                             const std::vector<std::string>& digests, const std::string& key)
    : cache_(cache), sources_(sources), checked_key_(sha256_hex("checked 1\n" + key)) {
  for (size_t i = 0; i < digests.size(); ++i) {
    const GraphConstants::Item& item = constants.items()[i];
    digests_[{item.data, item.bytes}] = digests[i];
    captured_[named(digests[i], item.bytes)] = item.data;
  }
  if (!cache_.keeps_blobs()) return;
  if (const auto payload = cache_.get(CacheKind::kChecked, checked_key_)) checked_.decode(*payload);
}

bool ConstantForms::keeps_blobs() const { return cache_.keeps_blobs(); }

std::string ConstantForms::digest(std::string_view constant) {
  std::string& known = digests_[{constant.data(), constant.size()}];
  if (known.empty()) known = content_digest(constant, true);
  return known;
}

const void* ConstantForms::captured(const std::string& digest, size_t bytes) const {
  const auto at = captured_.find(named(digest, bytes));
  return at == captured_.end() ? nullptr : at->second;
}

void ConstantForms::keep(const std::string& digest, std::string_view constant, std::shared_ptr<const void> owner) {
  std::shared_ptr<const Blob> blob;
  if (owner) {
    blob = Blob::borrow(constant, std::move(owner), false);
  } else {
    const std::shared_ptr<Blob> copy = Blob::allocate(constant.size());
    std::memcpy(copy->fill(), constant.data(), constant.size());
    blob = copy;
  }
  made_.emplace_back(constant_key(digest, constant.size()), std::move(blob));
}

std::shared_ptr<const Blob> ConstantForms::kept(const std::string& digest, size_t bytes) {
  return cache_.map(constant_key(digest, bytes), bytes, checked_);
}

std::shared_ptr<const Blob> ConstantForms::find(const Factory& backend, const tsr_tensor& constant, std::string_view form,
                                                size_t bytes, std::string* key) {
  key->clear();
  if (bytes < kLeastBlob || !cache_.keeps_blobs() || !backend.plugin) return nullptr;
  std::string text = "form 1\nplugin " + backend.plugin->id + " " + backend.plugin->hash + " backend " + backend.name;
  text += "\nconstant " + std::to_string(constant.dtype);
  size_t elements = 1;
  for (uint32_t d = 0; d < constant.rank; ++d) {
    text += " " + std::to_string(constant.sizes[d]);
    elements *= static_cast<size_t>(constant.sizes[d]);
  }
  const auto size = static_cast<size_t>(storage_bytes(constant.dtype, static_cast<int64_t>(elements)));
  text += " " + digest({static_cast<const char*>(constant.data), size});
  text += "\nbytes " + std::to_string(bytes) + "\n";
  text += form;
  *key = sha256_hex(text);
  for (const auto& [made, blob] : made_)  // another kernel of this compile
    if (made == *key) return blob;
  return cache_.map(*key, bytes, checked_);
}

bool ConstantForms::store() {
  const bool sound = sources_.unchanged();
  if (sound && (!made_.empty() || checked_.changed())) {
    stored_ = stored_ || !made_.empty();
    const auto checked = std::make_shared<CheckedBlobs>(checked_);
    for (auto& [key, blob] : made_) cache_.put_later(key, blob, checked);
    cache_.put_later(checked_key_, checked);
  }
  made_.clear();
  return sound;
}

}  // namespace tessera::core
