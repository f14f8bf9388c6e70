// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/log_times.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <ctime>
#include <utility>

#include "agent/jobs/log_limit.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::size_t kRecord = 16;         // size of a record: bytes and time, eight bytes each
constexpr std::size_t kMaxRecords = 65536;  // limit of records; beyond the limit, every second record is
                                            // removed
constexpr std::chrono::seconds kBetweenRecords{1};
constexpr std::chrono::minutes kLongestWait{1};

std::string path_in(const std::string& folder) {
  return folder + "/out.times";
}

std::string encode(std::span<const LogTime> times) {
  std::string text(times.size() * kRecord, '\0');
  for (std::size_t i = 0; i < times.size(); ++i) {
    std::memcpy(text.data() + i * kRecord, &times[i].bytes, 8);
    std::memcpy(text.data() + i * kRecord + 8, &times[i].time_ms, 8);
  }
  return text;
}

std::uint64_t size_of(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
}

// Writes the new records of one instance. The records may be lost with the machine, because no file is
// synced.
class LogTimesWriter {
 public:
  explicit LogTimesWriter(std::string folder) : folder_(std::move(folder)), times_(read_log_times(folder_)) {}

  // Records the log's length. Returns true if a record was written.
  bool note(std::uint64_t bytes) {
    if (bytes <= (times_.empty() ? 0 : times_.back().bytes)) return false;
    times_.push_back({bytes, wall_clock_ms()});
    if (times_.size() > kMaxRecords) {
      thin_out();
      return true;
    }
    write({&times_.back(), 1}, O_APPEND);
    return true;
  }

 private:
  // Removes every second record. The newest record stays, because it has the log's length.
  void thin_out() {
    std::vector<LogTime> remaining;
    for (std::size_t i = times_.size() % 2 == 0 ? 1 : 0; i < times_.size(); i += 2)
      remaining.push_back(times_[i]);
    times_ = std::move(remaining);
    write(times_, O_TRUNC);
  }
  void write(std::span<const LogTime> times, int how) const {
    const UniqueFd file(
        ::open(path_in(folder_).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | how, 0600));
    const std::string records = encode(times);
    if (file) (void)write_all(file.get(), std::as_bytes(std::span(records.data(), records.size())));
  }

  std::string folder_;
  std::vector<LogTime> times_;
};

}  // namespace

std::vector<LogTime> read_log_times(const std::string& folder) {
  std::vector<LogTime> times;
  const auto text = read_file(path_in(folder), (kMaxRecords + 1) * kRecord);
  if (!text) return times;
  for (std::size_t at = 0; at + kRecord <= text->size(); at += kRecord) {
    LogTime time;
    std::memcpy(&time.bytes, text->data() + at, 8);
    std::memcpy(&time.time_ms, text->data() + at + 8, 8);
    if (!times.empty()) {
      if (time.bytes < times.back().bytes) break;                   // the file is damaged
      time.time_ms = std::max(time.time_ms, times.back().time_ms);  // corrects a clock that was set back
    }
    times.push_back(time);
  }
  return times;
}

std::uint64_t first_byte_since(std::span<const LogTime> times, std::int64_t since_ms) {
  const auto later = std::partition_point(times.begin(), times.end(),
                                          [&](const LogTime& time) { return time.time_ms < since_ms; });
  return later == times.begin() ? 0 : std::prev(later)->bytes;
}

namespace {

// Returns the time of the byte at `offset`, as text for the beginning of a line.
std::string time_text(std::span<const LogTime> times, std::uint64_t offset) {
  if (times.empty()) return "- ";
  const auto seen = std::partition_point(times.begin(), times.end(),
                                         [&](const LogTime& time) { return time.bytes <= offset; });
  const std::int64_t ms = seen == times.end() ? wall_clock_ms() : seen->time_ms;
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "- ";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ ", &parts)};
}

}  // namespace

std::string with_times(std::string_view bytes, std::uint64_t offset, bool begins_line,
                       std::span<const LogTime> times, std::size_t max_bytes, std::uint64_t& covers) {
  std::string out;
  covers = 0;
  while (covers < bytes.size()) {
    const std::string time = begins_line ? time_text(times, offset + covers) : "";
    const std::size_t end = std::min(bytes.find('\n', covers), bytes.size() - 1) + 1;
    const std::size_t left = max_bytes - std::min(max_bytes, out.size() + time.size());
    if (left < end - covers && !out.empty()) break;
    const std::size_t count = std::min<std::size_t>(left, end - covers);
    if (count == 0) break;
    out += time;
    out += bytes.substr(covers, count);
    covers += count;
    begins_line = out.back() == '\n';
  }
  return out;
}

Task<> record_log_times(const JobEnvironment& environment, std::weak_ptr<Job> instance) {
  AsyncEvent signal(environment.executor);
  asio::steady_timer rest(environment.executor);
  std::shared_ptr<Job> job = instance.lock();
  if (!job) co_return;
  const std::string log = job->log_path();
  LogTimesWriter writer(job->folder());
  const auto watch = environment.files.watch(log, &signal);  // without a watch, the loop continues after its
                                                             // longest wait
  const std::uint64_t limit = environment.config.job_log_limit_mib << 20;
  bool has_limit = true;
  while (job) {
    const bool is_last = job->ended();  // read before the size, because nothing is written after the instance
                                        // has ended
    Result<std::uint64_t> freed = std::uint64_t{0};
    const auto note = [&] {
      freed = free_old_output(log, limit);
      return writer.note(size_of(log));
    };
    const bool is_new = co_await offload(environment.records, note);
    if (!freed && std::exchange(has_limit, false))
      spdlog::warn("the log of job {} cannot be limited: {}", wire::job_text(job->id()),
                   freed.error().to_string());
    if (is_last) co_return;
    job->add_waiter(&signal);
    job.reset();
    if (is_new) {
      rest.expires_after(kBetweenRecords);
      (void)co_await rest.async_wait(control::kTuple);
    }
    (void)co_await signal.wait(std::chrono::steady_clock::now() + kLongestWait);
    job = instance.lock();
    if (job) job->remove_waiter(&signal);
  }
}

}  // namespace ckpt::agent
