// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/core/driver_search.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "libckpt/base/fd.h"

namespace ckpt::shim {
namespace {

constexpr std::string_view kSoname = "libcuda.so.1";
constexpr std::string_view kCacheMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kCacheHeaderBytes = 48;
constexpr std::size_t kCacheEntryBytes =
    24;  // the size of an entry: flags, key, value with 4 bytes each, then 12 bytes that identify the
         // machines
constexpr std::size_t kMaxCacheBytes = std::size_t{16} << 20;

// The folders where NVIDIA's installers and container tools put the driver.
constexpr const char* kUsualFolders[] = {
#if defined(__aarch64__)
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
#else
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
#endif
    "/lib64",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/lib",
    "/usr/lib"};

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void add(std::vector<std::string>& paths, std::string path) {
  if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(std::move(path));
}

std::string read_cache() {
  std::string bytes;
  const UniqueFd file(::open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC));
  if (!file) return bytes;
  char part[16384];
  for (ssize_t got = 0; bytes.size() < kMaxCacheBytes && (got = ::read(file.get(), part, sizeof part)) > 0;) {
    bytes.append(part, static_cast<std::size_t>(got));
  }
  return bytes;
}

std::uint32_t word_at(std::string_view bytes, std::size_t offset) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

// Returns the text at `offset`, up to its terminating zero. Returns an empty text if the bytes contain none.
std::string_view text_at(std::string_view bytes, std::uint32_t offset) {
  if (offset >= bytes.size()) return {};
  const std::size_t end = bytes.find('\0', offset);
  return end == std::string_view::npos ? std::string_view() : bytes.substr(offset, end - offset);
}

}  // namespace

std::vector<std::string> paths_in_loader_cache(std::string_view cache, std::string_view soname) {
  std::vector<std::string> paths;
  const std::size_t start = cache.find(kCacheMagic);  // the beginning of the current cache, which an older
                                                      // cache may precede
  if (start == std::string_view::npos) return paths;
  const std::string_view bytes = cache.substr(start);  // offsets are relative to this position
  if (bytes.size() < kCacheHeaderBytes) return paths;
  const std::size_t entries = std::min<std::size_t>(word_at(bytes, kCacheMagic.size()),
                                                    (bytes.size() - kCacheHeaderBytes) / kCacheEntryBytes);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = kCacheHeaderBytes + i * kCacheEntryBytes;
    if (text_at(bytes, word_at(bytes, entry + 4)) != soname) continue;
    const std::string_view path = text_at(bytes, word_at(bytes, entry + 8));
    if (path.starts_with('/')) add(paths, std::string(path));
  }
  return paths;
}

std::vector<std::string> driver_candidates() {
  std::vector<std::string> paths;
  const char* folders = std::getenv("LD_LIBRARY_PATH");
  for (std::string_view rest = folders == nullptr ? "" : folders; !rest.empty();) {
    const std::size_t end = std::min(rest.find_first_of(":;"), rest.size());
    if (end > 0) add(paths, std::string(rest.substr(0, end)) + "/" + std::string(kSoname));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (std::string& path : paths_in_loader_cache(read_cache(), kSoname)) add(paths, std::move(path));
  for (const char* folder : kUsualFolders) add(paths, std::string(folder) + "/" + std::string(kSoname));

  Dl_info self{};
  struct stat own {};
  const bool known = ::dladdr(reinterpret_cast<void*>(&driver_candidates), &self) != 0 &&
                     self.dli_fname != nullptr && ::stat(self.dli_fname, &own) == 0;
  std::erase_if(paths, [&](const std::string& path) {
    struct stat file {};
    return ::stat(path.c_str(), &file) != 0 || (known && same_file(file, own));
  });
  return paths;
}

}  // namespace ckpt::shim
