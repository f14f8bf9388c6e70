// SPDX-License-Identifier: Apache-2.0
// Files of compilers' caches that a program has mapped or open, such as kernels that Triton and PyTorch's
// inductor compiled for it. They lie on the node's own disk, so another node mostly lacks them. They travel
// with the image, and the target makes those that it lacks. They stay there, as in any cache.
// Threads: any; all of it blocks for milliseconds (offload()). Errors: kRefused, naming what is in the way at
// the target; kCorrupt for an image that is malformed; kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxCacheFiles = 4096;
inline constexpr std::uint64_t kMaxCacheBytes = std::uint64_t{256} << 20;  // together; others do not travel

struct CacheFile {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "CacheFile";
  std::string path;
  std::uint64_t bytes = 0;
  std::uint32_t mode = 0;  // permission bits only
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(path, bytes, mode, uid, gid);
  }
};

struct CacheFiles {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "CacheFiles";
  std::vector<CacheFile> files;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(files);
  }
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] const CacheFile* find(const std::string& path) const;
};

// `folders`: "/tmp/torchinductor_" is the beginning of a path, "*/.triton/cache/" stands anywhere in one.
[[nodiscard]] bool is_cache_file(const std::string& path, const std::vector<std::string>& folders);

// Returns the files in such folders that the tree has mapped or open and does not write.
Result<CacheFiles> cache_files_of(pid_t root, const std::vector<std::string>& folders);

// Returns why the file cannot be made at this target. Empty: it can.
[[nodiscard]] std::string why_not_made(const CacheFile& file, const std::vector<std::string>& folders);
[[nodiscard]] bool is_proper(const CacheFiles& files);

// Copies the files into the image's folder. Called at the source, after the dump.
Result<void> save_cache_files(pid_t root, const std::vector<std::string>& folders, const std::string& images);

// The files and folders that were made, to be removed if the restore fails.
struct MadeCacheFiles {
  std::vector<std::string> files;
  std::vector<std::string> folders;
};
// Makes the files of that folder. Called at the target, before the restore. A failure leaves nothing.
Result<MadeCacheFiles> make_cache_files(const std::string& images, const std::vector<std::string>& folders);
void remove_cache_files(const MadeCacheFiles& made);

}  // namespace ckpt::agent::host
