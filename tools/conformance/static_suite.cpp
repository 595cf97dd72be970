// SPDX-License-Identifier: Apache-2.0
// L0: the plugin as two files. Nothing is loaded; the library is read as ELF.
#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "subject.hpp"
#include "suites.hpp"

namespace tessera::conformance {
namespace {

// The parts of a 64-bit little-endian ELF library that the rules are about.
struct Library {
  std::vector<std::string> exported, needed;
  uint64_t flags_1 = 0;
  bool text_relocations = false, executable_stack = false;
};

class ElfReader {
 public:
  explicit ElfReader(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Failed(path + " cannot be read");
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    const auto& header = at<Elf64_Ehdr>(0, 1)[0];
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
      throw Failed(path + " is no 64-bit ELF library");
    segments_ = at<Elf64_Phdr>(header.e_phoff, header.e_phnum);
    num_segments_ = header.e_phnum;
  }

  Library read() const {
    Library out;
    out.executable_stack = true;  // what the linker assumes when nothing is said
    const Elf64_Dyn* dynamic = nullptr;
    size_t entries = 0;
    for (size_t i = 0; i < num_segments_; ++i) {
      const Elf64_Phdr& s = segments_[i];
      if (s.p_type == PT_GNU_STACK) out.executable_stack = (s.p_flags & PF_X) != 0;
      if (s.p_type != PT_DYNAMIC) continue;
      entries = s.p_filesz / sizeof(Elf64_Dyn);
      dynamic = at<Elf64_Dyn>(s.p_offset, entries);
    }
    if (!dynamic) throw Failed("the library has no dynamic section");
    uint64_t strings = 0, string_bytes = 0, symbols = 0, hash = 0;
    for (size_t i = 0; i < entries && dynamic[i].d_tag != DT_NULL; ++i) {
      const Elf64_Dyn& d = dynamic[i];
      if (d.d_tag == DT_STRTAB) strings = offset_of(d.d_un.d_ptr);
      if (d.d_tag == DT_STRSZ) string_bytes = d.d_un.d_val;
      if (d.d_tag == DT_SYMTAB) symbols = offset_of(d.d_un.d_ptr);
      if (d.d_tag == DT_FLAGS_1) out.flags_1 = d.d_un.d_val;
      if (d.d_tag == DT_TEXTREL) out.text_relocations = true;
      if (d.d_tag == DT_GNU_HASH) hash = offset_of(d.d_un.d_ptr);
    }
    const char* text = at<char>(strings, string_bytes);
    const auto string = [&](uint64_t o) {
      return o < string_bytes ? std::string(text + o, strnlen(text + o, string_bytes - o)) : "";
    };
    for (size_t i = 0; i < entries && dynamic[i].d_tag != DT_NULL; ++i)
      if (dynamic[i].d_tag == DT_NEEDED) out.needed.push_back(string(dynamic[i].d_un.d_val));
    if (!hash || !symbols) return out;
    const size_t count = number_of_symbols(hash);
    const Elf64_Sym* table = at<Elf64_Sym>(symbols, count);
    for (size_t i = 1; i < count; ++i) {
      const auto bind = ELF64_ST_BIND(table[i].st_info);
      const bool visible = ELF64_ST_VISIBILITY(table[i].st_other) == STV_DEFAULT;
      if (table[i].st_shndx != SHN_UNDEF && bind != STB_LOCAL && visible) out.exported.push_back(string(table[i].st_name));
    }
    return out;
  }

 private:
  template <class T>
  const T* at(uint64_t offset, uint64_t count) const {
    if (offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T))
      throw Failed("the library is cut off or damaged");
    return reinterpret_cast<const T*>(bytes_.data() + offset);
  }
  uint64_t offset_of(uint64_t address) const {
    for (size_t i = 0; i < num_segments_; ++i) {
      const Elf64_Phdr& s = segments_[i];
      if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
        return address - s.p_vaddr + s.p_offset;
    }
    throw Failed("the library is cut off or damaged");
  }
  // Defined symbols lie behind the last bucket's chain: https://flapenguin.me/elf-dt-gnu-hash
  size_t number_of_symbols(uint64_t hash) const {
    const auto* head = at<uint32_t>(hash, 4);
    const uint32_t buckets = head[0], first = head[1], words = head[2];
    const uint64_t bucket_at = hash + 16 + uint64_t{words} * 8;
    const auto* bucket = at<uint32_t>(bucket_at, buckets);
    uint32_t last = 0;
    for (uint32_t i = 0; i < buckets; ++i) last = std::max(last, bucket[i]);
    if (last < first) return first;
    const uint64_t chain_at = bucket_at + uint64_t{buckets} * 4;
    while (!(at<uint32_t>(chain_at + uint64_t{last - first} * 4, 1)[0] & 1)) ++last;
    return size_t{last} + 1;
  }

  std::vector<char> bytes_;
  const Elf64_Phdr* segments_ = nullptr;
  size_t num_segments_ = 0;
};

void check_manifest(Subject& s) {
  for (const Manifest::Fault& f : s.manifest().faults)
    throw Failed("[" + f.code + "] " + f.message + (f.hint.empty() ? "" : "\n  hint: " + f.hint));
  for (const Manifest::Option& o : s.manifest().options)
    if (o.name.empty()) throw Failed("an option has no name");
}

void check_exports(Subject& s) {
  std::string others;
  bool query = false;
  for (const std::string& name : ElfReader(s.manifest().library).read().exported) {
    if (name == "tsr_plugin_query")
      query = true;
    else
      others += (others.empty() ? "" : ", ") + name;
  }
  if (!query) throw Failed("found no exported symbol tsr_plugin_query");
  if (!others.empty())
    throw Failed("found more exported symbols than tsr_plugin_query: " + others.substr(0, 400) +
                 "\n  hint: tessera_add_plugin() hides them; they would shadow those of other libraries");
}

void check_libraries(Subject& s) {
  for (const std::string& name : ElfReader(s.manifest().library).read().needed) {
    if (name.starts_with("libtessera"))
      throw Failed("found " + name + " among the libraries that it needs; a plugin gets everything from the host's tables");
    if (name.starts_with("libomp.so") || name.starts_with("libiomp5"))
      throw Failed("found " + name +
                   " among the libraries that it needs: a second OpenMP runtime in the process"
                   "\n  hint: loops run through tsr_host_core.parallel");
  }
}

void check_linking(Subject& s) {
  const Library l = ElfReader(s.manifest().library).read();
  if (!(l.flags_1 & DF_1_NODELETE))
    throw Failed(
        "it is not linked with -z nodelete\n  hint: tessera_add_plugin() does; a library that has run a parallel region must "
        "stay mapped");
  if (l.text_relocations) throw Failed("it has relocations in code (DT_TEXTREL)\n  hint: compile with -fPIC");
  if (l.executable_stack) throw Failed("it asks for an executable stack\n  hint: link with -z noexecstack");
}

}  // namespace

void add_static_checks(Subject&, Checks& out) {
  out.push_back({0, "static/manifest",
                 "The manifest holds every key, describes the library beside it, and declares its options soundly.",
                 check_manifest});
  out.push_back({0, "static/exports", "The library exports tsr_plugin_query and nothing else.", check_exports});
  out.push_back({0, "static/libraries", "The library links neither libtessera nor an OpenMP runtime beside the host's.",
                 check_libraries});
  out.push_back({0, "static/linking",
                 "The library stays mapped (-z nodelete), has no relocations in code and no executable stack.", check_linking});
}

}  // namespace tessera::conformance
