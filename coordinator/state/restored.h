// SPDX-License-Identifier: Apache-2.0
// The outcome of operations on a job's images, for the client that asked, and for the event log.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

// A job that goes on from an image.
struct Restored {
  Image image;
  Place place;
  Incarnation incarnation = 0;
  std::int64_t lost_ms = 0;  // between the image's barrier and the end of the instance before
  std::string note;          // for the user: why an older image than the newest was used
  std::string suspect;       // likewise: why its memory may be wrong
};

// Exit codes of the command that asked (docs/design.md §10).
inline constexpr int kImageExitFailed = 1;
inline constexpr int kImageExitInterrupted = 2;
inline constexpr int kImageExitRestored = 3;
inline constexpr int kImageExitUnknown = 6;

// "j3.v12@node-a", "j3.v12@/mnt/vault".
[[nodiscard]] std::string image_text(const Image& image);

}  // namespace ckpt::coordinator
