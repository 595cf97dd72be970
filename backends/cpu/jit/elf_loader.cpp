// SPDX-License-Identifier: Apache-2.0
// System V ABI, AMD64 supplement: ELF-64 object files; relocations in table 4.9.
#include "elf_loader.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>

namespace cpu {

namespace {

constexpr size_t kStub = 16;            // jmp *8(%rip): an address follows
constexpr uint64_t kMaxSize = 1 << 28;  // of all sections: references reach 2 GiB

class Pages {
 public:
  explicit Pages(size_t size) : size_(size) {
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED) base_ = static_cast<char*>(p);
  }
  ~Pages() {
    if (base_) munmap(base_, size_);
  }
  Pages(const Pages&) = delete;
  char* base() const { return base_; }

 private:
  char* base_ = nullptr;
  size_t size_;
};

class ElfModule final : public Module {
 public:
  ElfModule(std::unique_ptr<Pages> pages, std::vector<void*> addresses) : pages_(std::move(pages)) {
    addresses_ = std::move(addresses);
  }

 private:
  std::unique_ptr<Pages> pages_;
};

class Object {
 public:
  explicit Object(std::string_view bytes) : bytes_(bytes) {}

  ModulePtr load(const std::vector<std::string>& symbols) {
    if (!read_headers() || !place() || !read_symbols()) return nullptr;
    pages_ = std::make_unique<Pages>(total_);
    if (!pages_->base()) return nullptr;
    for (size_t i = 0; i < sections_.size(); ++i)
      if (at_[i] != kNowhere && sections_[i].sh_type == SHT_PROGBITS && sections_[i].sh_size > 0)
        std::memcpy(pages_->base() + at_[i], bytes_.data() + sections_[i].sh_offset, sections_[i].sh_size);
    for (const Elf64_Shdr& s : sections_)
      if (s.sh_type == SHT_RELA && !relocate(s)) return nullptr;
    std::vector<void*> addresses;
    for (const std::string& name : symbols) {
      const auto found = defined_.find(name);
      if (found == defined_.end()) return nullptr;
      addresses.push_back(pages_->base() + found->second);
    }
    // Code first, then constants: never both writable and executable.
    if (code_ > 0 && mprotect(pages_->base(), code_, PROT_READ | PROT_EXEC) != 0) return nullptr;
    if (total_ > code_ && mprotect(pages_->base() + code_, total_ - code_, PROT_READ) != 0) return nullptr;
    return std::make_shared<ElfModule>(std::move(pages_), std::move(addresses));
  }

 private:
  static constexpr uint64_t kNowhere = UINT64_MAX;

  template <class T>
  bool read(uint64_t offset, T* out) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) return false;
    std::memcpy(out, bytes_.data() + offset, sizeof(T));
    return true;
  }
  bool inside(uint64_t offset, uint64_t size) const { return offset <= bytes_.size() && size <= bytes_.size() - offset; }

  bool read_headers() {
    Elf64_Ehdr h;
    if (!read(0, &h) || std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_type != ET_REL || h.e_machine != EM_X86_64 ||
        h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shnum == 0)
      return false;
    for (uint64_t i = 0; i < h.e_shnum; ++i) {
      Elf64_Shdr s;
      if (!read(h.e_shoff + i * sizeof s, &s)) return false;
      if (s.sh_type != SHT_NOBITS && !inside(s.sh_offset, s.sh_size)) return false;
      sections_.push_back(s);
    }
    return true;
  }

  // Code, stubs, a new page, constants.
  bool place() {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    at_.assign(sections_.size(), kNowhere);
    uint64_t calls = 0;
    for (const bool code : {true, false}) {
      for (size_t i = 0; i < sections_.size(); ++i) {
        const Elf64_Shdr& s = sections_[i];
        if (!(s.sh_flags & SHF_ALLOC)) continue;
        if (s.sh_flags & (SHF_WRITE | SHF_TLS) || s.sh_type != SHT_PROGBITS || s.sh_size > kMaxSize) return false;
        if (((s.sh_flags & SHF_EXECINSTR) != 0) != code) continue;
        const uint64_t align = std::max<uint64_t>(s.sh_addralign, 1);
        if (align > page || (align & (align - 1)) != 0) return false;
        total_ = (total_ + align - 1) / align * align;
        at_[i] = total_;
        total_ += s.sh_size;
        if (total_ > kMaxSize) return false;
      }
      if (!code) continue;
      for (const Elf64_Shdr& s : sections_)
        if (s.sh_type == SHT_RELA) calls += s.sh_size / sizeof(Elf64_Rela);
      stubs_ = (total_ + kStub - 1) / kStub * kStub;
      stubs_end_ = stubs_ + std::min<uint64_t>(calls, kMaxStubs) * kStub;
      total_ = code_ = (stubs_end_ + page - 1) / page * page;
    }
    return total_ > 0;
  }

  bool read_symbols() {
    const auto table =
        std::find_if(sections_.begin(), sections_.end(), [](const Elf64_Shdr& s) { return s.sh_type == SHT_SYMTAB; });
    if (table == sections_.end() || table->sh_link >= sections_.size()) return false;
    const Elf64_Shdr& strings = sections_[table->sh_link];
    const std::string_view names = bytes_.substr(strings.sh_offset, strings.sh_size);
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); ++i) {
      Symbol symbol;
      Elf64_Sym s;
      if (!read(table->sh_offset + i * sizeof s, &s) || s.st_name > names.size()) return false;
      const std::string_view rest = names.substr(s.st_name);
      const size_t end = rest.find('\0');
      if (end == std::string_view::npos) return false;
      symbol.name = rest.substr(0, end);
      symbol.undefined = s.st_shndx == SHN_UNDEF;
      if (s.st_shndx < sections_.size() && at_[s.st_shndx] != kNowhere && s.st_value <= sections_[s.st_shndx].sh_size) {
        symbol.at = at_[s.st_shndx] + s.st_value;
        if (ELF64_ST_BIND(s.st_info) != STB_LOCAL && !symbol.name.empty()) defined_.emplace(symbol.name, symbol.at);
      }
      symbols_.push_back(symbol);
    }
    return true;
  }

  bool relocate(const Elf64_Shdr& s) {
    if (s.sh_info >= sections_.size()) return false;
    const uint64_t base = at_[s.sh_info], size = sections_[s.sh_info].sh_size;
    if (base == kNowhere) return true;  // of a section that stays out: notes
    for (uint64_t i = 0; i < s.sh_size / sizeof(Elf64_Rela); ++i) {
      Elf64_Rela r;
      if (!read(s.sh_offset + i * sizeof r, &r)) return false;
      const uint64_t type = ELF64_R_TYPE(r.r_info), index = ELF64_R_SYM(r.r_info);
      if ((type != R_X86_64_PC32 && type != R_X86_64_PLT32) || index >= symbols_.size()) return false;
      if (size < 4 || r.r_offset > size - 4) return false;
      const Symbol& symbol = symbols_[index];
      uint64_t target = symbol.at;
      if (target == kNowhere) {
        if (!symbol.undefined || type != R_X86_64_PLT32) return false;
        target = stub(symbol.name);
        if (target == kNowhere) return false;
      }
      const int64_t value = static_cast<int64_t>(target) + r.r_addend - static_cast<int64_t>(base + r.r_offset);
      if (value != static_cast<int32_t>(value)) return false;
      const auto narrow = static_cast<int32_t>(value);
      std::memcpy(pages_->base() + base + r.r_offset, &narrow, sizeof narrow);
    }
    return true;
  }

  // A jump to a function of this process, near enough for a call.
  uint64_t stub(std::string_view name) {
    const auto [it, added] = stub_of_.try_emplace(std::string(name), kNowhere);
    if (!added) return it->second;
    void* function = dlsym(RTLD_DEFAULT, it->first.c_str());
    if (!function || stubs_ + kStub > stubs_end_) return kNowhere;
    static constexpr unsigned char kJump[8] = {0xff, 0x25, 0x02, 0x00, 0x00, 0x00, 0x66, 0x90};  // jmp *2(%rip); a filler
    char* const p = pages_->base() + stubs_;
    std::memcpy(p, kJump, sizeof kJump);
    std::memcpy(p + sizeof kJump, &function, sizeof function);
    it->second = stubs_;
    stubs_ += kStub;
    return it->second;
  }

  struct Symbol {
    std::string_view name;
    uint64_t at = kNowhere;
    bool undefined = false;
  };
  static constexpr uint64_t kMaxStubs = 64;

  std::string_view bytes_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<uint64_t> at_;  // of each section, from the first page
  std::vector<Symbol> symbols_;
  std::map<std::string, uint64_t, std::less<>> defined_, stub_of_;
  uint64_t code_ = 0, total_ = 0, stubs_ = 0, stubs_end_ = 0;
  std::unique_ptr<Pages> pages_;
};

}  // namespace

ModulePtr load_elf(const std::string& object, const std::vector<std::string>& symbols) { return Object(object).load(symbols); }

}  // namespace cpu
