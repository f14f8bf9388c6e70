// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/device/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace cudasim {
namespace {

constexpr std::uint64_t kPage = 4096;

struct WritableScan {
  std::uint64_t base;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Finds the writable part of a loaded object: its writable segment except the part that became read-only
// after relocation.
int scan_object(dl_phdr_info* info, std::size_t, void* argument) {
  auto* scan = static_cast<WritableScan*>(argument);
  if (info->dlpi_addr != scan->base) return 0;
  std::uint64_t relro_end = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const std::uint64_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_RELRO) relro_end = begin + segment.p_memsz;
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0) continue;
    scan->begin = begin;
    scan->end = begin + segment.p_memsz;
  }
  scan->begin = std::max(scan->begin, relro_end) / kPage * kPage;
  scan->end = (scan->end + kPage - 1) / kPage * kPage;
  return 1;
}

// Visits the addresses of all words of a loaded object that the loader writes: relocations, and the head of
// its jump table.
template <typename Visit>
void for_each_loader_word(void* handle, const Visit& visit) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return;
  std::uint64_t tables[2] = {};
  std::uint64_t bytes[2] = {};
  std::uint64_t jump_table = 0;
  const auto absolute = [map](std::uint64_t value) {
    return value < map->l_addr ? value + map->l_addr : value;
  };
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_RELA) tables[0] = absolute(entry->d_un.d_ptr);
    if (entry->d_tag == DT_RELASZ) bytes[0] = entry->d_un.d_val;
    if (entry->d_tag == DT_JMPREL) tables[1] = absolute(entry->d_un.d_ptr);
    if (entry->d_tag == DT_PLTRELSZ) bytes[1] = entry->d_un.d_val;
    if (entry->d_tag == DT_PLTGOT) jump_table = absolute(entry->d_un.d_ptr);
  }
  for (int i = 0; i < 2; i++) {
    const auto* relocation = reinterpret_cast<const ElfW(Rela)*>(tables[i]);
    for (std::uint64_t j = 0; j < bytes[i] / sizeof *relocation; j++)
      visit(map->l_addr + relocation[j].r_offset);
  }
  for (std::uint64_t i = 0; jump_table != 0 && i < 3; i++) visit(jump_table + i * sizeof(std::uint64_t));
}

// Returns a path that no earlier module had. The loader treats a module with a known name as loaded, and
// descriptor numbers are reused. The path encodes the number as its bits.
std::string path_of(int fd, std::uint64_t number) {
  std::string path = "/proc/self/";
  for (int bit = 0; bit < 32; bit++) path += ((number >> bit) & 1) != 0 ? "./" : "/";
  return path + "fd/" + std::to_string(fd);
}

}  // namespace

// Makes module variables accessible to copies, which name them by address. The program must not access module
// variables directly. Therefore their pages become shared memory, and are mapped a second time inside the
// range that the program has reserved.
bool Modules::open_window(std::uint64_t begin, std::uint64_t end, Module* module) {
  const std::uint64_t bytes = end - begin;
  if (next_alias_ + bytes > alias_end_) return false;
  const int fd = ::memfd_create("cudasim-globals", MFD_CLOEXEC);
  if (fd < 0) return false;
  const bool ready = ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
                     ::pwrite(fd, reinterpret_cast<void*>(begin), bytes, 0) == static_cast<ssize_t>(bytes) &&
                     ::mmap(reinterpret_cast<void*>(next_alias_), bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED &&
                     ::mmap(reinterpret_cast<void*>(begin), bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  ::close(fd);
  if (!ready) return false;
  module->windows.push_back({begin, end, next_alias_});
  next_alias_ += bytes;
  return true;
}

void Modules::open_windows(Module* module) {
  link_map* map = nullptr;
  if (::dlinfo(module->handle, RTLD_DI_LINKMAP, &map) != 0) return;
  WritableScan scan{map->l_addr};
  ::dl_iterate_phdr(scan_object, &scan);
  if (scan.begin < scan.end) open_window(scan.begin, scan.end, module);
}

CUresult Modules::load(int fd, std::uint64_t wanted, std::uint64_t* id, std::uint64_t* variables) {
  void* handle = ::dlopen(path_of(fd, next_id_).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  if (::dlsym(handle, "cudasim_module_abi") == nullptr) {
    ::dlclose(handle);
    return CUDA_ERROR_INVALID_IMAGE;
  }
  Module module{handle, {}};
  const std::uint64_t next = next_alias_;
  if (wanted != 0) next_alias_ = wanted;
  open_windows(&module);
  next_alias_ = std::max(next_alias_, next);
  *variables = module.windows.empty() ? 0 : module.windows.front().alias;
  *id = next_id_++;
  modules_[*id] = std::move(module);
  return CUDA_SUCCESS;
}

CUresult Modules::save(std::uint64_t id, int* fd, std::uint64_t* bytes) {
  const auto found = modules_.find(id);
  if (found == modules_.end()) return CUDA_ERROR_INVALID_HANDLE;
  *fd = ::memfd_create("cudasim-variables", MFD_CLOEXEC);
  *bytes = 0;
  for (const Window& window : found->second.windows) {
    const std::uint64_t part = window.end - window.begin;
    if (::pwrite(*fd, reinterpret_cast<void*>(window.begin), part, static_cast<off_t>(*bytes)) !=
        static_cast<ssize_t>(part)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *bytes += part;
  }
  return CUDA_SUCCESS;
}

CUresult Modules::restore(std::uint64_t id, int fd) {
  const auto found = modules_.find(id);
  if (found == modules_.end()) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t at = 0;
  for (const Window& window : found->second.windows) {
    const std::uint64_t bytes = window.end - window.begin;
    std::vector<unsigned char> content(bytes);
    if (::pread(fd, content.data(), bytes, static_cast<off_t>(at)) != static_cast<ssize_t>(bytes))
      return CUDA_ERROR_INVALID_VALUE;
    at += bytes;
    // Words that the loader has written are addresses of this executor: they retain their values.
    for_each_loader_word(found->second.handle, [&](std::uint64_t word) {
      if (word < window.begin || word + sizeof word > window.end) return;
      std::memcpy(content.data() + (word - window.begin), reinterpret_cast<void*>(word), sizeof word);
    });
    std::memcpy(reinterpret_cast<void*>(window.begin), content.data(), bytes);
  }
  return CUDA_SUCCESS;
}

CUresult Modules::unload(std::uint64_t id) {
  const auto found = modules_.find(id);
  if (found == modules_.end()) return CUDA_ERROR_INVALID_HANDLE;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  for (const Window& window : found->second.windows) {
    ::mmap(reinterpret_cast<void*>(window.alias), window.end - window.begin, PROT_NONE, flags, -1, 0);
  }
  ::dlclose(found->second.handle);
  modules_.erase(found);
  return CUDA_SUCCESS;
}

CUresult Modules::function(std::uint64_t id, const char* name, std::uint64_t* address,
                           const cudasim_parameters** parameters) {
  const auto found = modules_.find(id);
  if (found == modules_.end()) return CUDA_ERROR_INVALID_HANDLE;
  void* symbol = ::dlsym(found->second.handle, name);
  const std::string describing = std::string("cudasim_parameters_") + name;
  const void* description = ::dlsym(found->second.handle, describing.c_str());
  if (symbol == nullptr || description == nullptr) return CUDA_ERROR_NOT_FOUND;
  *address = reinterpret_cast<std::uint64_t>(symbol);
  *parameters = static_cast<const cudasim_parameters*>(description);
  return CUDA_SUCCESS;
}

CUresult Modules::global(std::uint64_t id, const char* name, std::uint64_t* address, std::uint64_t* bytes) {
  const auto found = modules_.find(id);
  if (found == modules_.end()) return CUDA_ERROR_INVALID_HANDLE;
  void* symbol = ::dlsym(found->second.handle, name);
  Dl_info info{};
  ElfW(Sym)* entry = nullptr;
  if (symbol == nullptr || ::dladdr1(symbol, &info, reinterpret_cast<void**>(&entry), RTLD_DL_SYMENT) == 0 ||
      entry == nullptr) {
    return CUDA_ERROR_NOT_FOUND;
  }
  const auto at = reinterpret_cast<std::uint64_t>(symbol);
  for (const Window& window : found->second.windows) {
    if (at < window.begin || at + entry->st_size > window.end) continue;
    *address = window.alias + (at - window.begin);
    *bytes = entry->st_size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace cudasim
