// SPDX-License-Identifier: Apache-2.0
// The flat folder of CRIU's image as one memory file, as it travels as a migration's host state, and back. The file:
//   magic u64 | version u32 | count u32 | count x { bytes u64, name char[56] } | contents, one after the other
// Threads: any; both copy all the content and block, so the agent calls them by offload(). Ownership: files are the caller's.
// Errors: kCorrupt for a file that is not such a pack (it comes from another node: nothing in it is believed), kRefused for a folder that
// does not fit one, kOutOfMemory, kIo. A pack that was refused may leave files in the folder; the caller removes the folder.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::uint32_t kMostPackedFiles = 65536;

struct PackedImage {
  PackedImage() = default;
  UniqueFd file;
  std::uint64_t bytes = 0;
};

Result<PackedImage> pack_folder(const std::string& folder);

// `folder` exists and is empty. `bytes` is the size the peer stated; the file must have it, and the contents must fill it.
Result<void> unpack_folder(int file, std::uint64_t bytes, const std::string& folder);

}  // namespace ckpt::agent::host
