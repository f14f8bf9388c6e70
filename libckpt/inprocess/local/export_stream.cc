// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/export_stream.h"

#include <algorithm>

#include "libckpt/inprocess/local/messages.h"

namespace ckpt::local {

void ExportStream::start(std::uint64_t request, const std::vector<std::uint64_t>& regions) {
  const std::uint64_t sequence = sequence_;
  *this = ExportStream();
  sequence_ = sequence;  // the sequence continues, so that an old acknowledgement never matches a new batch
  request_ = request;
  initial_end_due_ = true;
  waiting_.assign(regions.begin(), regions.end());
}

void ExportStream::stop() {
  const std::uint64_t sequence = sequence_;
  *this = ExportStream();
  sequence_ = sequence;
}

void ExportStream::region_added(std::uint64_t id) {
  if (active()) waiting_.push_back(id);
}

bool ExportStream::region_freed(std::uint64_t id, std::uint64_t generation) {
  std::erase(waiting_, id);
  if (sent_.erase(id) == 0) return false;
  freed_.emplace(id, generation);
  return true;
}

std::optional<ExportStream::Batch> ExportStream::next_batch() {
  if (!active() || unacknowledged_ || waiting_.empty()) return std::nullopt;
  Batch batch{++sequence_, {}};
  while (!waiting_.empty() && batch.regions.size() < kMaxDescriptors) {
    batch.regions.push_back(waiting_.front());
    sent_.insert(waiting_.front());
    waiting_.pop_front();
  }
  unacknowledged_ = true;
  return batch;
}

bool ExportStream::consume_initial_end() {
  if (!active() || !initial_end_due_ || unacknowledged_ || !waiting_.empty()) return false;
  initial_end_due_ = false;
  return true;
}

void ExportStream::acknowledged(std::uint64_t sequence) {
  if (sequence == sequence_) unacknowledged_ = false;
}

void ExportStream::free_acknowledged(std::uint64_t id, std::uint64_t generation) {
  freed_.erase({id, generation});
}

}  // namespace ckpt::local
