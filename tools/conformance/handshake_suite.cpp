// SPDX-License-Identifier: Apache-2.0
// L1: the handshake, with this host and with hosts that are older, newer, and shorter.
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "subject.hpp"
#include "suites.hpp"

namespace tessera::conformance {
namespace {

using Json = nlohmann::ordered_json;

// Hosts that a plugin keeps a pointer to must outlive it, so they are never freed, and the list of them keeps a leak check
// quiet. The tail behind the struct stands for fields of a newer host.
struct FakeHost {
  tsr_host host;
  char tail[256];
};
FakeHost& fake_host() {
  static auto* const kept = new std::vector<FakeHost*>;
  auto* f = new FakeHost{*e::api().host, {}};
  kept->push_back(f);
  std::memset(f->tail, 0xA5, sizeof f->tail);
  return *f;
}

// Asks, reads what the host reads, and gives the plugin its true host back.
void ask(Subject& s, const tsr_host* host, const char* what) {
  const tsr_plugin_desc* d = s.query()(host);
  const std::string named = std::string("asked by ") + what + ": ";
  if (d) {  // NULL is an answer too: it cannot serve this host
    if (d->struct_size < offsetof(tsr_plugin_desc, destroy))
      throw Failed(named + "found a description of " + std::to_string(d->struct_size) +
                   " bytes, shorter than the first stable version");
    if (d->abi_major == TSR_ABI_MAJOR && d->abi_minor_min > d->abi_minor)
      throw Failed(named + "found abi_minor_min " + std::to_string(d->abi_minor_min) + " above abi_minor " +
                   std::to_string(d->abi_minor));
    if (d->abi_major == TSR_ABI_MAJOR && (!d->id || s.manifest().id != d->id))
      throw Failed(named + "found the id '" + (d->id ? d->id : "NULL") + "', expected '" + s.manifest().id + "'");
  }
  if (!s.query()(e::api().host)) throw Failed(named + "afterwards tsr_plugin_query returns NULL to this host");
}

void loads(Subject& s) {
  const Json d = Json::parse(e::text_of(e::api().plugin_check, s.manifest().path.c_str()));
  for (const Json& f : d.at("faults")) {
    const std::string text = "[" + f.value("code", "") + "] " + f.value("message", "") +
                             (f.value("hint", "").empty() ? "" : "\n  hint: " + f.value("hint", ""));
    if (f.value("family", "") == "environment" && s.settings().overrides.empty()) throw Skipped(text);
    if (f.value("family", "") != "environment") throw Failed(text);
  }
  // With the options that the settings change.
  try {
    (void)s.context("\"" + std::string(s.judge()) + "\"");
  } catch (const e::Error& x) {
    if (x.family() == TSR_ENVIRONMENT) throw Skipped(x.what());
    throw;
  }
}

void description(Subject& s) {
  const tsr_plugin_desc* a = s.query()(e::api().host);
  if (!a) throw Failed("tsr_plugin_query returned NULL");
  const auto same = [](const char* x, const std::string& y, const char* what) {
    if (!x || y != x)
      throw Failed("its " + std::string(what) + " is '" + (x ? x : "NULL") + "', that of the manifest '" + y + "'");
  };
  same(a->id, s.manifest().id, "id");
  same(a->version, s.manifest().version, "version");
  same(a->vendor, s.manifest().vendor, "vendor");
  same(a->sanitizer, s.manifest().sanitizer, "sanitizer");
  if (!a->build_info || !*a->build_info) throw Failed("build_info is empty: it is part of cache keys, and tells builds apart");
  if (s.query()(e::api().host) != a) throw Failed("two calls of tsr_plugin_query give two descriptions; expected a static one");
}

void hosts(Subject& s) {
  FakeHost& older = fake_host();
  older.host.abi_minor = 0;
  older.host.version = "0.0.1";
  ask(s, &older.host, "a host of ABI minor version 0");
  FakeHost& newer = fake_host();
  newer.host.struct_size = sizeof(FakeHost);
  newer.host.abi_minor = 1000;
  newer.host.version = "99.0.0";
  ask(s, &newer.host, "a host of ABI minor version 1000 with fields that are not known yet");
  FakeHost& other = fake_host();
  other.host.abi_major = TSR_ABI_MAJOR + 1;
  ask(s, &other.host, "a host of another ABI major version");
  FakeHost& brief = fake_host();
  brief.host.struct_size = offsetof(tsr_host, sanitizer);
  brief.host.core = nullptr;
  brief.host.graph = nullptr;
  brief.host.capture = nullptr;
  ask(s, &brief.host, "a host whose struct ends before its tables");
}

void instances(Subject& s) {
  const tsr_plugin_desc* d = s.query()(e::api().host);
  if (!d) throw Failed("tsr_plugin_query returned NULL");
  const DirectOptions options(s.manifest(), s.settings().overrides);
  const auto create = [&] {
    void* instance = nullptr;
    if (const std::string what = text_of_error(d->create(e::api().host, options.get(), &instance)); !what.empty())
      throw Failed("create failed: " + what);
    return instance;
  };
  const auto list = [&](void* instance) {
    const tsr_factory* items = nullptr;
    size_t count = 0, stride = 0;
    if (const std::string what = text_of_error(d->factories(instance, &items, &count, &stride)); !what.empty())
      throw Failed("factories failed: " + what);
    if (count && (!items || stride < sizeof(tsr_factory)))
      throw Failed("factories gave " + std::to_string(count) +
                   " items without memory or of a stride below that of the first version");
    std::string out;
    for (size_t i = 0; i < count; ++i) out += std::string(TSR_AT(tsr_factory, items, stride, i)->name) + "\n";
    return out;
  };
  void *a = create(), *b = create();
  if (list(a) != list(b)) throw Failed("two instances with the same options list different factories");
  if (!d->destroy) throw Failed("it has no destroy");
  d->destroy(a);
  if (list(b).empty()) throw Failed("after one instance was destroyed, the other lists no factories");
  d->destroy(b);
  void* again = create();
  list(again);
  d->destroy(again);
}

// What stands in a manifest's range is taken, or refused with a code; nothing else happens.
void options(Subject& s) {
  if (s.manifest().options.empty()) throw Skipped("it declares no options");
  for (const Manifest::Option& o : s.manifest().options) {
    Settings with = s.settings();
    with.overrides.push_back(s.manifest().section() + "." + o.name + "=" + o.fallback);
    Subject other(with);
    try {
      (void)other.context("\"" + std::string(s.judge()) + "\"");
    } catch (const e::Error& x) {
      throw Failed("option " + o.name + " set to its own default " + o.fallback + ": " + x.what());
    }
  }
}

}  // namespace

void add_handshake_checks(Subject&, Checks& out) {
  out.push_back({1, kLoads, "The host takes it through every step of loading, and through destroying.", loads});
  out.push_back({1, "handshake/description", "What it says of itself is what its manifest says, and static.", description});
  out.push_back({1, "handshake/hosts",
                 "Asked by an older, a newer, an incompatible or a shorter host it answers with a description or NULL.",
                 hosts});
  out.push_back({1, "handshake/instances", "Two instances live beside each other and are destroyed in any order.", instances});
  out.push_back({1, "handshake/options", "Every option takes its own default.", options});
}

}  // namespace tessera::conformance
