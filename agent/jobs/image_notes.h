// SPDX-License-Identifier: Apache-2.0
// The description of a process image, stored as JSON in the folder of CRIU's files.
// Threads: any. Errors: kCorrupt for another node's invalid bytes. kIo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::agent {

struct ImageNotes {
  std::string gpu;  // UUID of the GPU of the process's context
  std::string log;  // path of the process's log at the source; empty if gpumigrate does not own the log
  std::uint64_t device_bytes = 0;  // bytes of device memory that the driver has saved in the image
  bool connections = false;        // true if the image has connections within the program
  friend bool operator==(const ImageNotes&, const ImageNotes&) = default;
};

[[nodiscard]] std::string to_text(const ImageNotes& notes);
Result<ImageNotes> parse_image_notes(std::string_view text);

Result<void> write_image_notes(const std::string& folder, const ImageNotes& notes);
Result<ImageNotes> read_image_notes(const std::string& folder);

}  // namespace ckpt::agent
