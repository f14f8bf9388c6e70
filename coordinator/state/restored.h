// SPDX-License-Identifier: Apache-2.0
// The outcome of operations on a job's images, for the requesting client and for the event log.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

// A job that continues from an image.
struct Restored {
  Image image;
  Place place;
  Incarnation incarnation = 0;
  std::int64_t lost_ms = 0;  // the lost work in milliseconds: the time from the image's barrier to the end of
                             // the previous instance
  std::string note;          // why an older image than the newest was used, for the user
  std::string suspect;       // why the image's memory may be wrong, for the user
};

// Exit codes of the requesting command (docs/design.md §10).
inline constexpr int kImageExitFailed = 1;
inline constexpr int kImageExitInterrupted = 2;
inline constexpr int kImageExitRestored = 3;
inline constexpr int kImageExitUnknown = 6;

// Returns the image as text: "j3.v12@node-a", "j3.v12@/mnt/vault".
[[nodiscard]] std::string image_text(const Image& image);

}  // namespace ckpt::coordinator
