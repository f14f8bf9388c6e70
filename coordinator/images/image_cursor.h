// SPDX-License-Identifier: Apache-2.0
// The order of the list of images, and a place in it that stays when the image that was there has gone.
// Value types; pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "coordinator/images/images.h"

namespace ckpt::coordinator {

// An image as people see it.
struct ListedImage {
  Image image;
  std::int64_t job_ended_ms = 0;  // 0: it lives, or that is not known
  std::int64_t order_ms = 0;      // where two images have no number: the later one's is higher
  std::uint64_t parent = 0;
  Incarnation incarnation = 0;
  std::uint64_t written_bytes = 0;
  bool damaged = false;
  std::int64_t pause_ns = -1;  // negative: not known
  // Where the vault has a tier in memory: what of it lies where.
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
};

// By job, oldest first: by the coordinator's own count, then, for those without, by incarnation and barrier.
[[nodiscard]] bool is_older(const ListedImage& a, const ListedImage& b);

struct ImageCursor {
  JobId job = 0;
  std::uint64_t sequence = 0;
  Incarnation incarnation = 0;
  std::int64_t order_ms = 0;
  std::uint64_t version = 0;
  std::string where;  // a node, or a folder
};

// "j3.7.1.1700000000000.12@node-a"
[[nodiscard]] std::string cursor_text(const ListedImage& at);
[[nodiscard]] std::optional<ImageCursor> parse_image_cursor(std::string_view text);
[[nodiscard]] bool is_behind(const ListedImage& listed, const ImageCursor& cursor);

}  // namespace ckpt::coordinator
