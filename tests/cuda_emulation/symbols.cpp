/* The names of kernels and their variables in shared memory, from the symbols of this program. */
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>

#include "symbols.h"

namespace emulation {

namespace {

/* The program's file, mapped for ever. */
const unsigned char *map_program() {
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat found;
  void *map = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &found) == 0) {
    map = mmap(nullptr, static_cast<size_t>(found.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  }
  if (fd >= 0) {
    close(fd);
  }
  return map == MAP_FAILED ? nullptr : static_cast<const unsigned char *>(map);
}

/* How far the program lies from the addresses in its file. The first module is the program. */
uintptr_t program_offset() {
  uintptr_t offset = 0;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *to) {
        *static_cast<uintptr_t *>(to) = info->dlpi_addr;
        return 1;
      },
      &offset);
  return offset;
}

/* Call f(symbol, its name) for each symbol of the program, until it returns true. */
template <typename Function> void each_symbol(const Function &f) {
  static const unsigned char *const program = map_program();
  if (!program) {
    return;
  }
  const auto *const header = reinterpret_cast<const ElfW(Ehdr) *>(program);
  const auto *const sections = reinterpret_cast<const ElfW(Shdr) *>(program + header->e_shoff);
  for (int i = 0; i < header->e_shnum; i++) {
    const ElfW(Shdr) &s = sections[i];
    const auto *const symbols = reinterpret_cast<const ElfW(Sym) *>(program + s.sh_offset);
    for (size_t k = 0; s.sh_type == SHT_SYMTAB && k < s.sh_size / sizeof(*symbols); k++) {
      const unsigned char *const names = program + sections[s.sh_link].sh_offset;
      if (f(symbols[k], reinterpret_cast<const char *>(names + symbols[k].st_name))) {
        return;
      }
    }
  }
}

const char *mangled_name(const void *function) {
  const uintptr_t wanted = reinterpret_cast<uintptr_t>(function) - program_offset();
  const char *found = nullptr;
  each_symbol([&](const ElfW(Sym) &symbol, const char *name) {
    found = symbol.st_value == wanted && (symbol.st_info & 15) == STT_FUNC ? name : nullptr;
    return found != nullptr;
  });
  return found;
}

/* A function "_Z3f.." has its variables in "_ZZ3f..E..". */
std::vector<variable> find_variables(const char *kernel) {
  std::vector<variable> found;
  const std::string begin = std::string("_Z") + (kernel + 1) + 'E';
  each_symbol([&](const ElfW(Sym) &symbol, const char *name) {
    const bool is_own = strncmp(name, begin.c_str(), begin.size()) == 0;
    const bool is_any = strncmp(name, "_ZZ", 3) == 0 && !strstr(name, "_kernel");
    if ((symbol.st_info & 15) == STT_TLS && (is_own || is_any)) {
      found.push_back({symbol.st_value, symbol.st_size});
    }
    return false;
  });
  return found;
}

} // namespace

const char *function_name(const void *function) {
  const char *const mangled = mangled_name(function);
  const char *const name =
      mangled ? abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr) : nullptr;
  return name ? name : mangled ? mangled : "a kernel";
}

const std::vector<variable> &shared_variables(const void *kernel) {
  static std::mutex lock;
  static auto *const known = new std::map<const void *, std::vector<variable>>;
  const std::lock_guard<std::mutex> guard(lock);
  const auto at = known->find(kernel);
  if (at != known->end()) {
    return at->second;
  }
  const char *const name = mangled_name(kernel);
  if (!name) {
    fputs("CUDA emulation: the program has no symbols; do not strip it\n", stderr);
    abort();
  }
  return (*known)[kernel] = find_variables(name);
}

} // namespace emulation
