// SPDX-License-Identifier: Apache-2.0
// Digests of the content of files that two nodes have each for itself. Up to kMaxWholeBytes all of a file is
// read. Of a larger one (weights of many gigabytes) the first and the last block are read, and blocks at
// places that a random seed chooses. Files together are read up to a limit of bytes and of time.
// Threads: any, one at a time per reader; blocks for as long as it reads (offload()). Errors: none; a file
// that is too short, cannot be read, or is over a limit has the empty digest.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ckpt::agent::host {

inline constexpr std::uint64_t kMaxWholeBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMaxReadBytes = std::uint64_t{1} << 30;  // of the files of one move together
inline constexpr std::chrono::seconds kMaxReadTime{60};

class ContentReader {
 public:
  explicit ContentReader(std::uint64_t seed, std::uint64_t most_bytes = kMaxReadBytes,
                         std::chrono::milliseconds most_time = kMaxReadTime)
      : seed_(seed), left_(most_bytes), end_(std::chrono::steady_clock::now() + most_time) {}

  // SHA-256 of the first `bytes` bytes, hexadecimal. The last digests of files that have not been written for
  // minutes are kept.
  [[nodiscard]] std::string whole(const std::string& path, std::uint64_t bytes);
  // The same of samples of a file of that length.
  [[nodiscard]] std::string sampled(const std::string& path, std::uint64_t bytes);
  // Whether whole() would read so much of a file.
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
