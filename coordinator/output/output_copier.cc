// SPDX-License-Identifier: Apache-2.0
#include "coordinator/output/output_copier.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "coordinator/output/line_begin.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::milliseconds kLongestWait{1000};  // the longest wait for a change of the jobs, because
                                                         // an inventory may also report that instances have
                                                         // ended
constexpr std::chrono::milliseconds kCopyPollInterval{100};
constexpr unsigned kMaxPieces =
    2 * kKeptOutput / wire::kMaxLogBytes;  // the maximum number of queries for one log; a node may answer
                                           // with less than it has

bool writes_no_more(const wire::JobInstance& instance) {
  return instance.phase == wire::JobPhase::kMoved || instance.phase == wire::JobPhase::kExited;
}

}  // namespace

void OutputCopier::start() {
  control::spawn(deps_.executor, "copies of output", run());
}

control::Task<> OutputCopier::run() {
  control::asio::steady_timer timer(deps_.executor);
  while (true) {
    timer.expires_after(kCopyPollInterval);
    co_await timer.async_wait(control::kTuple);
    co_await deps_.jobs.changed().wait_until(Clock::now() + std::min(kLongestWait, deps_.interval));
    // Only copies of removed jobs are removed. Jobs that are unknown after a loss of the store may still be
    // recovered from their nodes.
    co_await deps_.copies.retain_only([this](JobId job) { return !deps_.jobs.was_forgotten(job); });
    copy_from_nodes();
  }
}

void OutputCopier::copy_from_nodes() {
  const auto now = Clock::now();
  const bool is_all = now >= all_next_;
  if (is_all) all_next_ = now + deps_.interval;
  for (const auto& [name, node] : deps_.nodes.all()) {
    if (!node.connected() || busy_.contains(name)) continue;
    std::vector<Wanted> wanted = wanted_of(node, !is_all);
    if (wanted.empty()) continue;
    busy_.insert(name);
    control::spawn(deps_.executor, "copies of the output of node " + name,
                   copy_node(name, std::move(wanted)));
  }
}

// Returns the logs to copy. A node may report instances that it was never assigned. So an instance counts
// only if the job has run on that node.
std::vector<OutputCopier::Wanted> OutputCopier::wanted_of(const Node& node, bool only_final) const {
  std::vector<Wanted> wanted;
  if (deps_.copies.limit() == 0) return wanted;
  for (const wire::JobInstance& instance : node.instances) {
    if (instance.log_bytes == 0 || (only_final && !writes_no_more(instance))) continue;
    const auto copied = deps_.copies.find(instance.job, instance.incarnation);
    if (copied && copied->end >= instance.log_bytes) continue;
    const Job* job = deps_.jobs.find(instance.job);
    const Segment segment(node.row.name, instance.incarnation);
    const bool is_known = job != nullptr && std::any_of(job->segments.begin(), job->segments.end(),
                                                        [&](const Segment& s) { return s == segment; });
    if (is_known) wanted.push_back({instance.job, instance.incarnation, instance.log_bytes});
  }
  return wanted;
}

control::Task<> OutputCopier::copy_all_of(std::string node) {
  const Node* entry = deps_.nodes.find(node);
  if (entry == nullptr || !entry->connected()) co_return;
  co_await copy_node(node, wanted_of(*entry, false));
}

control::Task<> OutputCopier::copy_node(std::string node, std::vector<Wanted> instances) {
  for (const Wanted& instance : instances) {
    const auto copied = co_await copy(node, instance);
    const bool is_silent = !copied && (copied.error().code() == ErrorCode::kTimedOut ||
                                       copied.error().code() == ErrorCode::kUnavailable);
    if (is_silent) break;  // the node does not answer, so the remaining logs are copied the next time
  }
  busy_.erase(node);
}

control::Task<Result<void>> OutputCopier::copy(const std::string& node, Wanted instance) {
  const auto copied = deps_.copies.find(instance.job, instance.incarnation);
  const std::uint64_t newest = instance.end - std::min(instance.end, kKeptOutput);
  const std::uint64_t goes_on_at = copied ? copied->end : 0;
  std::uint64_t offset = std::max(goes_on_at, newest);
  for (unsigned asked = 0; offset < instance.end && asked < kMaxPieces; ++asked) {
    wire::ReadLog request;
    request.job = instance.job;
    request.incarnation = instance.incarnation;
    request.offset = offset;
    request.limit = wire::kMaxLogBytes;
    CKPT_CO_TRY(data, co_await deps_.calls.read_log(node, request));
    if (data.bytes.empty()) break;
    const bool leaves_gap = offset == newest && newest > goes_on_at;
    const std::size_t cut = leaves_gap ? line_begin(data.bytes) : 0;
    offset = data.next_offset();
    const auto appended = co_await deps_.copies.append(instance.job, instance.incarnation, data.offset + cut,
                                                       data.bytes.substr(cut));
    if (!appended && !std::exchange(failed_, true))
      spdlog::error("output of job {} was not copied: {}", job_text(instance.job),
                    appended.error().to_string());
    if (!appended) co_return appended.error();
    failed_ = false;
  }
  co_return ok();
}

}  // namespace ckpt::coordinator
