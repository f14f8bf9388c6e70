// SPDX-License-Identifier: Apache-2.0
#include "coordinator/output/log_reader.h"

#include <algorithm>

#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kUntilFreed{2};
constexpr std::chrono::milliseconds kLogPollInterval{50};

// Returns the length of an instance's log once nothing more is written to it.
std::optional<std::uint64_t> final_length(const NodeTable& nodes, const Segment& segment, JobId job) {
  const Node* node = nodes.find(segment.node);
  const wire::JobInstance* instance = node == nullptr ? nullptr : node->find(job, segment.incarnation);
  const bool over = instance != nullptr &&
                    (instance->phase == wire::JobPhase::kMoved || instance->phase == wire::JobPhase::kExited);
  return over ? std::optional(instance->log_bytes) : std::nullopt;
}

// Returns the log's length as far as the node has reported it.
std::uint64_t reported_length(const NodeTable& nodes, const Segment& segment, JobId job) {
  const Node* node = nodes.find(segment.node);
  const wire::JobInstance* instance = node == nullptr ? nullptr : node->find(job, segment.incarnation);
  return instance == nullptr ? 0 : instance->log_bytes;
}

std::int64_t nanos_until(LogReader::Deadline deadline) {
  const auto left = deadline - steady_clock::now();
  return std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(left).count());
}

// Marks each line with "- " in place of its time, which only the node that received the line knows.
std::string without_times(const OutputPart& part) {
  std::string text;
  bool begins_line = part.begins_line;
  for (const char byte : part.bytes) {
    if (begins_line) text += "- ";
    text += byte;
    begins_line = byte == '\n';
  }
  return text;
}

}  // namespace

std::uint64_t LogReader::known_length(const Segment& segment, JobId job) const {
  const auto copied = copies_.find(job, segment.incarnation);
  return std::max(reported_length(nodes_, segment, job), copied ? copied->end : 0);
}

std::uint64_t LogReader::known_length(const Job& job) const {
  std::uint64_t length = 0;
  for (const Segment& segment : job.segments) length += known_length(segment, job.id);
  return length;
}

control::Task<Result<bool>> LogReader::read_copy(Walk& walk, Segment segment, bool is_last) {
  const auto copied = copies_.find(walk.job, segment.incarnation);
  const std::uint64_t wanted = walk.offset_in_instance();
  if (copied && wanted < copied->end) {
    CKPT_CO_TRY(part, co_await copies_.read(walk.job, segment.incarnation, wanted, walk.view.limit));
    if (part.bytes.empty() || part.offset < wanted)
      co_return Error(ErrorCode::kIo, "The copy of job " + job_text(walk.job) + "'s output is damaged");
    if (part.offset > wanted) walk.chunk.missing.insert(segment.node);
    walk.chunk.next_offset = walk.begin + part.offset + part.bytes.size();
    walk.chunk.bytes = walk.view.with_times ? without_times(part) : std::move(part.bytes);
    co_return true;
  }
  const auto length = final_length(nodes_, segment, walk.job);
  const bool is_whole = length && (*length == 0 || (copied && copied->end >= *length));
  const bool is_removed = nodes_.find(segment.node) == nullptr;
  if (is_last && !is_whole && !is_removed) co_return false;
  if (!is_whole && !(is_removed && copied)) walk.chunk.missing.insert(segment.node);
  if (is_last) {
    const Job* job = jobs_.find(walk.job);
    walk.chunk.ended = job != nullptr && is_ended(job->state);
    co_return walk.chunk.ended;
  }
  walk.begin += known_length(segment, walk.job);
  walk.offset = walk.chunk.next_offset = std::max(walk.offset, walk.begin);
  ++walk.index;
  co_return true;
}

control::Task<Result<wire::LogData>> LogReader::ask(const Walk& walk, const Segment& segment,
                                                    Deadline deadline) {
  wire::ReadLog request;
  request.job = walk.job;
  request.incarnation = segment.incarnation;
  request.offset = walk.offset_in_instance();
  request.limit = walk.view.limit;
  request.follow_ns = nanos_until(deadline);
  request.with_times = walk.view.with_times;
  request.since_ms = walk.view.since_ms;
  co_return co_await calls_.read_log(segment.node, request);
}

control::Task<Result<LogChunk>> LogReader::read(JobId id, std::uint64_t offset, LogView view,
                                                Deadline deadline) {
  Walk walk;
  walk.job = id;
  walk.view = view;
  walk.view.limit = std::min(view.limit, wire::kMaxLogBytes);
  walk.offset = walk.chunk.next_offset = offset;
  const auto freed_until = std::max(deadline, steady_clock::now() + kUntilFreed);
  while (const Job* job = jobs_.find(id)) {
    if (job->state == JobState::kFailed) {
      walk.chunk.ended = true;
      break;
    }
    // The reader may be beyond the last instance, because the job was rolled back to an earlier one.
    if (walk.index >= job->segments.size()) walk.index = job->segments.size() - 1;
    const Segment segment = job->segments[walk.index];
    bool last = walk.index + 1 >= job->segments.size();
    const auto length = final_length(nodes_, segment, id);
    if (!last && length && walk.offset >= walk.begin + *length) {
      walk.begin += *length;
      ++walk.index;
      continue;
    }
    const std::uint64_t asked = walk.offset_in_instance();
    auto answer = co_await ask(walk, segment, deadline);
    const bool lacks_log =
        !nodes_.connected(segment.node) || (!answer && answer.error().code() == ErrorCode::kNotFound);
    if (!answer && lacks_log) {
      CKPT_CO_TRY(is_done, co_await read_copy(walk, segment, last));
      if (is_done && walk.chunk.bytes.empty() && !walk.chunk.ended) continue;
      if (is_done) {
        walk.chunk.from = segment;
        if (job = jobs_.find(id); job != nullptr) walk.chunk.length = known_length(*job);
        break;
      }
    }
    if (!answer) co_return std::move(answer).error();
    wire::LogData data = *std::move(answer);
    job = jobs_.find(id);
    if (job == nullptr) break;
    last = walk.index + 1 >= job->segments.size();
    if (view.since_ms == 0) walk.chunk.skipped += data.offset - asked;
    walk.offset = walk.begin + data.offset;
    walk.chunk.next_offset = walk.begin + data.next_offset();
    walk.chunk.bytes = std::move(data.bytes);
    walk.chunk.from = segment;
    walk.chunk.length = known_length(*job);
    walk.chunk.ended = last && data.ended && is_ended(job->state);
    if (!walk.chunk.bytes.empty() || walk.chunk.ended) break;
    if (data.ended && !last) {
      walk.begin = walk.offset;
      ++walk.index;
      continue;
    }
    // The instance's successor runs, so its node is freeing the instance. Until the instance is freed, the
    // end of its log is not known.
    const bool is_being_freed = !last && !data.ended;
    const auto until = is_being_freed ? freed_until : deadline;
    const auto now = steady_clock::now();
    if (now >= until) break;
    // The reader waits for a change, because the instance has ended and its successor is not known yet.
    if (data.ended) co_await jobs_.changed().wait_until(until);
    if (is_being_freed) co_await jobs_.changed().wait_until(std::min(until, now + kLogPollInterval));
  }
  co_return std::move(walk.chunk);
}

}  // namespace ckpt::coordinator
