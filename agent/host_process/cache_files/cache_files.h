// SPDX-License-Identifier: Apache-2.0
// Files of compiler caches that a program has mapped or open, such as kernels that Triton and PyTorch's
// inductor compiled for the program. The files are on the node's own disk, so another node usually lacks
// them. They travel with the image, and the target creates the files that it lacks. The created files stay at
// the target, as in any cache.
// Threads: any. All functions block for milliseconds (use offload()). Errors: kRefused names the obstacle at
// the target. kCorrupt reports a malformed image. kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxCacheFiles = 4096;
// limit for all cache files of a move; files beyond the limit do not travel
inline constexpr std::uint64_t kMaxCacheBytes = std::uint64_t{256} << 20;

struct CacheFile {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "CacheFile";
  std::string path;
  std::uint64_t bytes = 0;
  std::uint32_t mode = 0;  // the file's permission bits only
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

// Checks whether `path` belongs to one of the cache `folders`. The entry "/tmp/torchinductor_" is the
// beginning of a path. The entry "*/.triton/cache/" matches anywhere in a path.
[[nodiscard]] bool is_cache_file(const std::string& path, const std::vector<std::string>& folders);

// Returns the files in the cache `folders` that the process tree has mapped or open and does not write.
Result<CacheFiles> cache_files_of(pid_t root, const std::vector<std::string>& folders);

// Returns the reason why the file cannot be created at this target. An empty string means that the file can
// be created.
[[nodiscard]] std::string why_not_made(const CacheFile& file, const std::vector<std::string>& folders);
[[nodiscard]] bool is_proper(const CacheFiles& files);

// Copies the files into the image's folder. Call this function at the source, after the dump.
Result<void> save_cache_files(pid_t root, const std::vector<std::string>& folders, const std::string& images);

// The files and folders that make_cache_files() created. They are removed if the restore fails.
struct MadeCacheFiles {
  std::vector<std::string> files;
  std::vector<std::string> folders;
};
// Creates the files that the folder `images` contains. Call this function at the target, before the restore.
// A failure leaves no files behind.
Result<MadeCacheFiles> make_cache_files(const std::string& images, const std::vector<std::string>& folders);
void remove_cache_files(const MadeCacheFiles& made);

}  // namespace ckpt::agent::host
