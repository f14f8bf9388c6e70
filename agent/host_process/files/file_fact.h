// SPDX-License-Identifier: Apache-2.0
// The facts that a move's source knows of one file that the program has open or mapped, or of a folder.
// Threads: values. Errors: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/host_process/files/file_identity.h"

namespace ckpt::agent::host {

enum class FileUse : std::uint8_t {
  kRead = 1,  // opened for reading, or mapped and neither written nor a program
  kWritten,   // opened or mapped for writing
  kProgram,   // mapped, with a build id
  kFolder,    // opened, or a working directory
  kDevice,    // a character device: same numbers
  kOther,     // a named pipe
};
[[nodiscard]] constexpr bool is_known(FileUse use) {
  return use >= FileUse::kRead && use <= FileUse::kOther;
}

// A regular file.
[[nodiscard]] constexpr bool has_content(FileUse use) {
  return use == FileUse::kRead || use == FileUse::kWritten || use == FileUse::kProgram;
}

struct FileFact {
  // 2: identity and content; an older source sends none
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::string_view kName = "FileFact";
  FileUse use = FileUse::kRead;
  std::string path;
  std::uint64_t bytes = 0;
  std::uint64_t device = 0;
  std::string build_id;
  FileIdentity identity;
  bool kernels_own = false;    // in /proc or /sys: it describes its node, and has no content to compare
  bool is_mount = false;       // it is mounted at its path, in its folder's place
  bool shares_memory = false;  // mapped for writing: it is memory of the program
  std::string digest;          // of `bytes` bytes (content_digest.h); empty: not read
  bool sampled = false;        // the digest is that of samples
  template <class A>
  decltype(auto) fields(A& a) {
    return a(use, path, bytes, device, build_id, identity, kernels_own, is_mount, shares_memory, digest,
             sampled);
  }
  friend bool operator==(const FileFact&, const FileFact&) = default;
};

// A folder that has files of the list.
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
