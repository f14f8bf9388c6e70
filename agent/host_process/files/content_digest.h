// SPDX-License-Identifier: Apache-2.0
// Digests of the content of files that are separate on each node. Files of up to kMaxWholeBytes are read
// completely. For a larger file (weights of many gigabytes), only some blocks are read. These are the first
// and the last block, and blocks at positions that a random seed selects. All files together are read up to a
// limit of bytes and of time.
// Threads: any, one at a time for each reader. A call blocks while it reads (use offload()). Errors: none.
// The digest is empty for a file that is too short, cannot be read, or exceeds a limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ckpt::agent::host {

inline constexpr std::uint64_t kMaxWholeBytes = std::uint64_t{256} << 20;
// The limits for all files of one move together.
inline constexpr std::uint64_t kMaxReadBytes = std::uint64_t{1} << 30;
inline constexpr std::chrono::seconds kMaxReadTime{60};

class ContentReader {
 public:
  explicit ContentReader(std::uint64_t seed, std::uint64_t max_bytes = kMaxReadBytes,
                         std::chrono::milliseconds max_time = kMaxReadTime)
      : seed_(seed), left_(max_bytes), end_(std::chrono::steady_clock::now() + max_time) {}

  // Returns the SHA-256 of the first `bytes` bytes in hexadecimal. The reader caches the last digests of
  // files that have not been written for minutes.
  [[nodiscard]] std::string whole(const std::string& path, std::uint64_t bytes);
  // Returns the SHA-256, in hexadecimal, of samples of a file of `bytes` bytes.
  [[nodiscard]] std::string sampled(const std::string& path, std::uint64_t bytes);
  // Checks whether whole() would read `bytes` bytes of a file.
  [[nodiscard]] bool reads_whole(std::uint64_t bytes) const {
    return bytes <= kMaxWholeBytes && bytes <= left_;
  }

 private:
  class Sum;
  bool add(Sum& sum, int fd, std::uint64_t from, std::uint64_t bytes);

  std::uint64_t seed_;
  std::uint64_t left_;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace ckpt::agent::host
