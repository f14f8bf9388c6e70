// SPDX-License-Identifier: Apache-2.0
// Packs the flat folder of CRIU's image into one memory file, and unpacks it. The file travels as a
// migration's host state. The file:
//   contents, one after the other | count x { bytes u64, name char[56] } |
//   magic u64 | version u32 | count u32
// The table is at the end. Therefore CRIU itself can write the pages of the largest process to their final
// position (place_pages). At the target CRIU reads these pages directly from the pack. The pages are not
// copied at either side.
// Threads: any. Both functions copy all other contents and block, so the agent calls them through offload().
// Ownership: the files belong to the caller. Errors: kCorrupt for a file that is not a pack. The file comes
// from another node and is not trusted. The fuzzed decoder's entry is unpack_folder. kRefused for a folder
// that does not fit into a pack. kOutOfMemory, kIo. A refused pack may leave files in the folder, and the
// caller removes the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::uint32_t kMaxPackedFiles = 65536;
// The minimum size of a file of pages that is linked instead of copied. Only the first file in a pack can be
// linked.
inline constexpr std::uint64_t kLinkedBytes = 1u << 20;

struct PackedImage {
  UniqueFd file;
  std::uint64_t bytes = 0;
};

// Pages that are already at their position in the pack when the pack is created.
struct PlacedPages {
  UniqueFd file;                       // file that becomes the pack; invalid if there are no such pages
  std::string name;                    // name of the link in the folder to which the pages were written
  std::optional<std::uint64_t> bytes;  // size of the pages in bytes; without a value, the whole file consists
                                       // of pages
};

// Returns the name that CRIU gives the pages of the `position`th process (from 0; see estimate_dump).
[[nodiscard]] std::string pages_name(std::size_t position);
// Creates a link to a descriptor of this process. The descriptor must stay open as long as the link is used.
// The link also works within another mount namespace if its folder was opened outside that namespace.
Result<void> link_to_descriptor(int file, const std::string& path);

// Creates a memory file before the dump, and a link to the file in the folder. The file must stay open until
// pack_folder() receives it. page_stream.h is the alternative.
Result<PlacedPages> place_pages(const std::string& folder, std::size_t position);

// Packs the folder, and releases the file of `pages` to the caller as the pack. `pages` come from
// place_pages() or a PageStream, or are empty. The file may be longer than the pack.
Result<PackedImage> pack_folder(const std::string& folder, PlacedPages pages = {});

// Unpacks `file` into `folder`, which exists and is empty. `bytes` is the size that the peer stated. The file
// must have that size, and the contents must fill the file. The first file may become a link to `file` itself
// (/proc/PID/fd/N). In that case `file` must stay open, under the same number, as long as the folder is used.
Result<void> unpack_folder(int file, std::uint64_t bytes, const std::string& folder);

}  // namespace ckpt::agent::host
