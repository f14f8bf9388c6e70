// SPDX-License-Identifier: Apache-2.0
// The source's facts about one file that the program has open or mapped, or about a folder.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/host_process/files/file_identity.h"

namespace ckpt::agent::host {

enum class FileUse : std::uint8_t {
  kRead = 1,  // opened for reading, or mapped but neither written nor a program
  kWritten,   // opened or mapped for writing
  kProgram,   // mapped file with a build id
  kFolder,    // opened folder, or a working directory
  kDevice,    // character device, which must have the same numbers at the target
  kOther,     // a named pipe
};
[[nodiscard]] constexpr bool is_known(FileUse use) {
  return use >= FileUse::kRead && use <= FileUse::kOther;
}

// Checks whether the file is a regular file.
[[nodiscard]] constexpr bool has_content(FileUse use) {
  return use == FileUse::kRead || use == FileUse::kWritten || use == FileUse::kProgram;
}

struct FileFact {
  // Version 2 adds identity and content. An older source does not send them.
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::string_view kName = "FileFact";
  FileUse use = FileUse::kRead;
  std::string path;
  std::uint64_t bytes = 0;
  std::uint64_t device = 0;
  std::string build_id;
  FileIdentity identity;
  bool kernels_own = false;  // file in /proc or /sys, which describes its node and has no content to compare
  bool is_mount = false;     // true if a mount at the file's path replaces the file in its folder
  bool shares_memory = false;  // mapped for writing, so the file is memory of the program
  std::string digest;          // digest of `bytes` bytes (content_digest.h); empty if the file was not read
  bool sampled = false;        // true if the digest covers samples only
  template <class A>
  decltype(auto) fields(A& a) {
    return a(use, path, bytes, device, build_id, identity, kernels_own, is_mount, shares_memory, digest,
             sampled);
  }
  friend bool operator==(const FileFact&, const FileFact&) = default;
};

// A folder that contains files of the list.
struct FolderFact {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "FolderFact";
  std::string path;
  FileIdentity identity;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(path, identity);
  }
};

}  // namespace ckpt::agent::host
