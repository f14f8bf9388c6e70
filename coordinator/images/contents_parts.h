// SPDX-License-Identifier: Apache-2.0
// Joins the parts of a checkpoint store's list (wire::CheckpointStoreContents). The list takes effect only
// once its last part has arrived.
// Threads: one. Ownership: owned by ImageReports. Errors: none; a list that lacks a part, or is too long, is
// dropped with a warning.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "libckpt/protocol/wire/image_messages.h"

namespace ckpt::coordinator {

inline constexpr std::size_t kMaxListedImages = 100'000;  // the most images in the list of one checkpoint
                                                          // store

class ContentsParts {
 public:
  // Adds a part. Returns the whole list when its last part arrives.
  std::optional<wire::CheckpointStoreContents> add(const std::string& node,
                                                   wire::CheckpointStoreContents part);

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // node, folder and job of a list
  std::map<Key, wire::CheckpointStoreContents> begun_;
};

}  // namespace ckpt::coordinator
