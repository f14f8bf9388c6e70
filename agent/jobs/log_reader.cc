// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/log_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "agent/jobs/log_limit.h"
#include "agent/jobs/log_times.h"

namespace ckpt::agent {
namespace {

constexpr std::int64_t kMaxFollowNs = std::int64_t{60} * 1'000'000'000;

Result<std::string> read_part(const std::string& path, std::uint64_t offset, std::size_t limit) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) return std::string();
    return Error::from_errno("Cannot open " + path);
  }
  std::string bytes(limit, '\0');
  std::size_t filled = 0;
  while (filled < limit) {
    const ssize_t got =
        ::pread(file.get(), bytes.data() + filled, limit - filled, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Cannot read " + path);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

// Reads bytes, and moves `offset` to the first byte that was not deleted. The check follows the read, because
// the oldest bytes may be deleted during the read.
Result<std::string> read_kept_part(const std::string& path, std::uint64_t& offset, std::size_t limit) {
  while (true) {
    CKPT_TRY(bytes, read_part(path, offset, limit));
    const std::uint64_t first_byte = first_kept_byte(path, offset);
    if (first_byte == offset) return std::move(bytes);
    offset = first_byte;
  }
}

// Checks whether a line begins at `offset`.
Result<bool> begins_line(const std::string& path, std::uint64_t offset) {
  if (offset == 0) return true;
  CKPT_TRY(before, read_part(path, offset - 1, 1));
  return before == "\n";
}

// Answers with the bytes that were read, with times if requested. `whole` is set if the answer reaches the
// log's end.
Result<void> fill(const Job& job, const wire::ReadLog& request, std::string bytes, std::size_t limit,
                  wire::LogData& answer, bool& whole) {
  whole = bytes.size() < limit;
  answer.bytes = std::move(bytes);
  if (!request.with_times || answer.bytes.empty()) return ok();
  CKPT_TRY(begins, begins_line(job.log_path(), answer.offset));
  const std::string raw = std::move(answer.bytes);
  answer.bytes = with_times(raw, answer.offset, begins, read_log_times(job.folder()), limit, answer.covers);
  whole = whole && answer.covers == raw.size();
  return ok();
}

}  // namespace

Task<Result<wire::LogData>> read_log(const JobEnvironment& environment, std::shared_ptr<Job> job,
                                     wire::ReadLog request) {
  const std::size_t limit =
      std::min(request.limit == 0 ? wire::kMaxLogBytes : request.limit, wire::kMaxLogBytes);
  if (request.offset > (std::uint64_t{1} << 62)) {
    co_return Error(ErrorCode::kInvalidArgument, "The log's offset is too large");
  }
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::nanoseconds(std::clamp<std::int64_t>(request.follow_ns, 0, kMaxFollowNs));
  AsyncEvent signal(environment.executor);
  job->add_waiter(&signal);
  auto watch = environment.files.watch(job->log_path(), &signal);  // without a watch, the answer is sent when
                                                                   // the wait times out
  wire::LogData answer;
  answer.request_id = request.request_id;
  answer.offset = request.offset;
  if (request.since_ms > 0)
    answer.offset =
        std::max(answer.offset, first_byte_since(read_log_times(job->folder()), request.since_ms));
  Result<void> outcome = ok();
  for (bool in_time = true;;) {
    const bool was_ended = job->ended();  // read before the bytes, because nothing is written after the
                                          // instance has ended
    auto bytes = read_kept_part(job->log_path(), answer.offset, limit);
    bool whole = false;
    outcome = bytes ? fill(*job, request, *std::move(bytes), limit, answer, whole) : std::move(bytes).error();
    if (!outcome) break;
    answer.ended = was_ended && whole;
    if (!answer.bytes.empty() || was_ended || !in_time || request.follow_ns <= 0) break;
    in_time = co_await signal.wait(until);
  }
  job->remove_waiter(&signal);
  if (!outcome) co_return std::move(outcome).error();
  co_return answer;
}

}  // namespace ckpt::agent
