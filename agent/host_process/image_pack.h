// SPDX-License-Identifier: Apache-2.0
// The flat folder of CRIU's image as one memory file, as it travels as a migration's host state, and back.
// The file:
//   contents, one after the other | count x { bytes u64, name char[56] } |
//   magic u64 | version u32 | count u32
// The table is at the end. So CRIU itself writes the pages of the largest process where they belong
// (place_pages), and at the target reads them out of the pack. Neither is copied.
// Threads: any; both copy all other contents and block, so the agent calls them by offload(). Ownership:
// files are the caller's.
// Errors: kCorrupt for a file that is not such a pack. It comes from another node, so nothing in it is
// trusted; the decoder's entry is unpack_folder. kRefused for a folder that does not fit one, kOutOfMemory,
// kIo. A pack that was refused may leave files in the folder; the caller removes the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::uint32_t kMaxPackedFiles = 65536;
// A file of pages that is first in a pack and has at least so many bytes is not copied out of it.
inline constexpr std::uint64_t kLinkedBytes = 1u << 20;

struct PackedImage {
  UniqueFd file;
  std::uint64_t bytes = 0;
};

// Pages that lie at their place in the pack before it is made.
struct PlacedPages {
  UniqueFd file;                       // the pack to be; none: there are no such pages
  std::string name;                    // the link in the folder that they were written to
  std::optional<std::uint64_t> bytes;  // none: all of the file
};

// The name that CRIU gives the pages of the `position`th process (from 0; see estimate_dump).
[[nodiscard]] std::string pages_name(std::size_t position);
// A link to a descriptor of this process, which must stay open for as long as it is used.
Result<void> link_to_descriptor(int file, const std::string& path);

// Makes a memory file before the dump, and a link to it in the folder. The file must stay open until
// pack_folder has it. page_stream.h is the alternative.
Result<PlacedPages> place_pages(const std::string& folder, std::size_t position);

// `pages`: of place_pages or a PageStream, or none. The file may be longer than the pack.
Result<PackedImage> pack_folder(const std::string& folder, PlacedPages pages = {});

// `folder` exists and is empty. `bytes` is the size the peer stated; the file must have it, and the contents
// must fill it. The first file may become a link to `file` itself (/proc/PID/fd/N), which must stay open, by
// this number, for as long as the folder is used.
Result<void> unpack_folder(int file, std::uint64_t bytes, const std::string& folder);

}  // namespace ckpt::agent::host
