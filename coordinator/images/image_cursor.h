// SPDX-License-Identifier: Apache-2.0
// The order of the list of images, and a position in it that stays valid when the image at that position is
// removed. Value types; pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "coordinator/images/images.h"

namespace ckpt::coordinator {

// An image as shown to users.
struct ListedImage {
  Image image;
  std::int64_t job_ended_ms = 0;  // Unix time of the job's end; 0: the job has not ended, or its end is not
                                  // known
  std::int64_t order_ms = 0;      // the order of images without a number: a later image has a higher value
  std::uint64_t parent = 0;
  Incarnation incarnation = 0;
  std::uint64_t written_bytes = 0;
  bool damaged = false;
  std::int64_t pause_ns = -1;  // the pause for the image; negative: not known
  // The bytes of the image in memory and on disk, if the checkpoint store has a memory tier.
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
};

// Returns whether `a` is before `b`: by job, oldest first. Images are ordered by the coordinator's own count.
// Images without such a number are ordered by incarnation and barrier.
[[nodiscard]] bool is_older(const ListedImage& a, const ListedImage& b);

struct ImageCursor {
  JobId job = 0;
  std::uint64_t sequence = 0;
  Incarnation incarnation = 0;
  std::int64_t order_ms = 0;
  std::uint64_t version = 0;
  std::string where;  // the place of the image: a node or a folder
};

// These functions convert a cursor to and from text such as "j3.7.1.1700000000000.12@node-a".
[[nodiscard]] std::string cursor_text(const ListedImage& at);
[[nodiscard]] std::optional<ImageCursor> parse_image_cursor(std::string_view text);
[[nodiscard]] bool is_behind(const ListedImage& listed, const ImageCursor& cursor);

}  // namespace ckpt::coordinator
