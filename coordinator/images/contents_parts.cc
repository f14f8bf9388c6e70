// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/contents_parts.h"

#include <spdlog/spdlog.h>

#include <iterator>

namespace ckpt::coordinator {
namespace {

// The most lists that may be incomplete at a time. A node sends the parts of one list in sequence. So more
// incomplete lists come only from nodes that disconnected within a list.
constexpr std::size_t kMaxBegun = 256;

}  // namespace

std::optional<wire::CheckpointStoreContents> ContentsParts::add(const std::string& node,
                                                                wire::CheckpointStoreContents part) {
  const Key key(node, part.folder, part.image_job);
  const auto known = begun_.find(key);
  if (part.part == 0) {
    if (known != begun_.end()) begun_.erase(known);
    if (!part.more) return part;
    if (begun_.size() >= kMaxBegun) begun_.clear();
    begun_.emplace(key, std::move(part));
    return std::nullopt;
  }
  std::size_t waiting = part.images.size();
  for (const auto& [begun, list] : begun_) waiting += std::get<0>(begun) == node ? list.images.size() : 0;
  const bool follows = known != begun_.end() && known->second.part + 1 == part.part;
  if (!follows || waiting > kMaxListedImages) {
    spdlog::warn(
        "a list of the checkpoint store of {} is ignored: part {} is out of order, or the list is too long",
        node, part.part);
    if (known != begun_.end()) begun_.erase(known);
    return std::nullopt;
  }
  wire::CheckpointStoreContents& list = known->second;
  list.part = part.part;
  std::move(part.images.begin(), part.images.end(), std::back_inserter(list.images));
  if (part.more) return std::nullopt;
  wire::CheckpointStoreContents whole = std::move(list);
  begun_.erase(known);
  return whole;
}

}  // namespace ckpt::coordinator
