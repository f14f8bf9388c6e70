// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/log_reader.h"

#include <algorithm>

#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kUntilFreed{2};
constexpr std::chrono::milliseconds kLookAgain{50};

// The length of an instance's log once nothing is written to it any more.
std::optional<std::uint64_t> final_length(const NodeTable& nodes, const Segment& segment, JobId job) {
  const Node* node = nodes.find(segment.node);
  const wire::JobInstance* instance = node == nullptr ? nullptr : node->find(job, segment.incarnation);
  const bool over = instance != nullptr &&
                    (instance->phase == wire::JobPhase::kMoved || instance->phase == wire::JobPhase::kExited);
  return over ? std::optional(instance->log_bytes) : std::nullopt;
}

// As far as its node has reported.
std::uint64_t reported_length(const NodeTable& nodes, const Segment& segment, JobId job) {
  const Node* node = nodes.find(segment.node);
  const wire::JobInstance* instance = node == nullptr ? nullptr : node->find(job, segment.incarnation);
  return instance == nullptr ? 0 : instance->log_bytes;
}

// Of all instances, as far as their nodes have reported.
std::uint64_t known_length(const NodeTable& nodes, const Job& job) {
  std::uint64_t length = 0;
  for (const Segment& segment : job.segments) length += reported_length(nodes, segment, job.id);
  return length;
}

std::int64_t nanos_until(LogReader::Deadline deadline) {
  const auto left = deadline - steady_clock::now();
  return std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(left).count());
}

}  // namespace

control::Task<Result<LogChunk>> LogReader::read(JobId id, std::uint64_t offset, LogView view,
                                                Deadline deadline) {
  LogChunk chunk;
  chunk.next_offset = offset;
  std::uint64_t begin = 0;  // where the segment starts in the whole log
  std::size_t index = 0;
  const auto freed_until = std::max(deadline, steady_clock::now() + kUntilFreed);
  while (const Job* job = jobs_.find(id)) {
    if (job->state == JobState::kFailed) {
      chunk.ended = true;
      break;
    }
    if (index >= job->segments.size())
      index = job->segments.size() - 1;  // it went back to an earlier instance
    const Segment segment = job->segments[index];
    const auto length = final_length(nodes_, segment, id);
    if (length && index + 1 < job->segments.size() && offset >= begin + *length) {
      begin += *length;
      ++index;
      continue;
    }
    if (index + 1 < job->segments.size() && !nodes_.connected(segment.node)) {
      chunk.missing.insert(segment.node);
      begin += reported_length(nodes_, segment, id);
      offset = chunk.next_offset = std::max(offset, begin);
      ++index;
      continue;
    }
    wire::ReadLog request;
    request.job = id;
    request.incarnation = segment.incarnation;
    request.offset = offset - std::min(begin, offset);
    request.limit = std::min(view.limit, wire::kMaxLogBytes);
    request.follow_ns = nanos_until(deadline);
    request.with_times = view.with_times;
    request.since_ms = view.since_ms;
    CKPT_CO_TRY(data, co_await calls_.read_log(segment.node, request));
    job = jobs_.find(id);
    if (job == nullptr) break;
    const bool last = index + 1 >= job->segments.size();
    offset = begin + data.offset;
    chunk.next_offset = begin + data.next_offset();
    chunk.bytes = std::move(data.bytes);
    chunk.from = segment;
    chunk.length = known_length(nodes_, *job);
    chunk.ended = last && data.ended && is_ended(job->state);
    if (!chunk.bytes.empty() || chunk.ended) break;
    if (data.ended && !last) {
      begin = offset;
      ++index;
      continue;
    }
    // Its successor runs, so its node frees it. Until then it is not known where its log ends.
    const bool is_being_freed = !last && !data.ended;
    const auto until = is_being_freed ? freed_until : deadline;
    const auto now = steady_clock::now();
    if (now >= until) break;
    // The instance has ended, and its successor is not known yet.
    if (data.ended) co_await jobs_.changed().wait_until(until);
    if (is_being_freed) co_await jobs_.changed().wait_until(std::min(until, now + kLookAgain));
  }
  co_return chunk;
}

}  // namespace ckpt::coordinator
