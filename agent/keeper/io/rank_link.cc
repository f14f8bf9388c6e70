// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/io/rank_link.h"

#include <unistd.h>

#include <utility>

namespace ckpt::keeper {

std::uint32_t RankLink::count() const {
  return static_cast<std::uint32_t>(others_.size() + (rank_ ? 1 : 0));
}

void RankLink::open(Peer peer, pid_t pid) {
  rank_ = std::move(peer);
  pid_ = pid;
}

void RankLink::add_other(Peer peer, pid_t pid) {
  others_.push_back({std::move(peer), pid});
}

bool RankLink::promote_other() {
  if (others_.empty()) return false;
  open(std::move(others_.front().peer), others_.front().pid);
  others_.erase(others_.begin());
  return true;
}

void RankLink::close() {
  rank_ = Peer();
  others_.clear();
}

void RankLink::drop() {
  rank_ = Peer();
  pid_ = 0;
  owner_.on_rank_gone();
}

void RankLink::send(const local::Message& message, std::vector<UniqueFd> descriptors) {
  if (!rank_) return;
  if (!rank_.send(message, std::move(descriptors)).has_value()) drop();
}

void RankLink::read() {
  if (rank_.wants_to_write() && !rank_.flush().has_value()) return drop();
  while (rank_ && !owner_.is_agent_full()) {
    Result<local::Received> received = rank_.receive();
    if (!received.has_value()) {
      ::dprintf(2, "The rank's connection is dropped: %s\n", received.error().to_string().c_str());
      return drop();
    }
    if (received->transfer == local::Transfer::kClosed) return drop();
    if (received->transfer == local::Transfer::kNothing) return;
    owner_.on_rank_message(*std::move(received));
  }
}

void RankLink::read_other(std::size_t index) {
  const Result<local::Received> received = others_[index].peer.receive();
  if (!received.has_value() || received->transfer == local::Transfer::kClosed)
    others_.erase(others_.begin() + static_cast<std::ptrdiff_t>(index));
}

std::string RankLink::why_not_movable() const {
  if (!others_.empty()) {
    return "The job has " + std::to_string(others_.size() + 1) +
           " processes that use a GPU; jobs with more than one cannot be moved yet";
  }
  return {};
}

void RankLink::mark_not_movable(local::StateSummary& summary) const {
  const std::string cause = why_not_movable();
  if (cause.empty()) return;
  summary.movable = 0;
  summary.reason.assign(cause);
}

}  // namespace ckpt::keeper
