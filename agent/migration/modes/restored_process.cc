// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/restored_process.h"

#include <spdlog/spdlog.h>

#include "agent/host_process/criu_image/lazy_pages_choice.h"
#include "agent/migration/modes/kept_criu_logs.h"
#include "agent/migration/modes/process_mode.h"
#include "agent/migration/modes/tree_work.h"
#include "libckpt/base/clock.h"

namespace ckpt::agent {
namespace {

// The time limit of a hold. A thin context takes half a second. A larger context takes a second for some GB.
constexpr std::uint64_t kHoldMs = 5000;
constexpr std::uint64_t kBytesPerMs = 1 << 20;
constexpr Nanos kTooLong = 10;  // factor of the expected duration that counts as too long
constexpr Milliseconds kLeastRestore{5000};

// Returns the restore thread of the tree's first process that uses a GPU. The result is 0 if the driver names
// no thread.
Task<pid_t> find_restore_thread(MigrationContext& context, pid_t root) {
  const auto processes = co_await processes_of(context, root);
  if (!processes) co_return 0;
  for (const pid_t pid : *processes) {
    const auto thread = co_await context.contexts.restore_thread(pid);
    if (thread && *thread > 0) co_return *thread;
  }
  co_return 0;
}

}  // namespace

Result<void> check_pause(const JobOperation& operation, Nanos paused_ns) {
  const auto limit = operation.pause_limit();
  if (!limit || paused_ns == 0 || now_ns() - paused_ns < *limit) return ok();
  return Error(ErrorCode::kAborted,
               "The pause exceeded its limit of " + std::to_string(*limit / kNanosPerMs) +
                   " ms before the job ran at the target: the job continues at the source");
}

Result<Milliseconds> restore_time(const wire::CostLine& line, const JobOperation& operation,
                                  const RestoreWork& work) {
  const Milliseconds longest = host::criu_timeout(work.image_bytes);
  if (operation.kind() != JobOperation::Kind::kMigration) return longest;
  CKPT_TRYV(check_pause(operation, work.paused_ns));
  const Nanos expected =
      line.at(static_cast<std::int64_t>(work.restored_bytes)) + line.of_items(restore_cost(work.size));
  const auto unexpected =
      std::chrono::duration_cast<Milliseconds>(std::chrono::nanoseconds(kTooLong * expected));
  Milliseconds time = std::min(longest, std::max(host::criu_minimum(kLeastRestore), unexpected));
  if (const auto limit = operation.pause_limit(); limit && work.paused_ns != 0) {
    const auto left = std::chrono::nanoseconds(work.paused_ns + *limit - now_ns());
    time = std::min(time, std::max(Milliseconds(1), std::chrono::duration_cast<Milliseconds>(left)));
  }
  return time;
}

HostRestore restore_order(const host::Criu& criu, const host::RestoreOptions& options, Milliseconds timeout) {
  HostRestore order;
  order.command = criu.restore_command(options);
  order.pid_file = host::Criu::pid_file(options);
  order.criu_log = host::Criu::restore_log(options);
  order.timeout = timeout;
  if (!options.lazy) return order;
  order.lazy_pages = host::lazy_pages_command(options.images);
  order.lazy_pages_pid_file = host::lazy_pages_pid_file(options.images);
  return order;
}

Task<Result<std::shared_ptr<Job>>> start_restored(MigrationContext& context, const JobOperation& operation,
                                                  JobRecord record, HostRestore order) {
  if (auto old = context.jobs.started_as(operation.job(), operation.next()))
    co_await context.jobs.remove(old);
  const std::string log = order.criu_log;
  auto started = co_await context.jobs.start(std::move(record), std::move(order));
  if (started) co_return started;
  const auto read = [&log] { return host::Criu::find_error(log); };
  const auto reason = co_await offload(context.images, read);
  Error error = std::move(started).error();
  if (reason) error = Error(error.code(), error.to_string() + "; CRIU: " + *reason);
  co_return co_await save_criu_log(context, operation, log, std::move(error));
}

Task<Result<bool>> call_back(MigrationContext& context, std::shared_ptr<KeeperLink> keeper, pid_t root,
                             std::uint64_t device_bytes, std::set<pid_t> stopped) {
  local::Reattach how;
  how.restore_thread = static_cast<std::uint32_t>(co_await find_restore_thread(context, root));
  if (how.restore_thread != 0) {
    how.hold_ms = static_cast<std::uint32_t>(kHoldMs + device_bytes / kBytesPerMs);
  } else {
    spdlog::warn(
        "restored process runs before it is resumed: pid {} reason the driver reports no restore thread",
        root);
    CKPT_CO_TRYV(co_await resume_source(context, root, stopped));
  }
  const Milliseconds limit = co_await time_limit_of(context, root);
  CKPT_CO_TRYV(co_await keeper->reattach(how, limit));
  co_return how.restore_thread != 0;
}

}  // namespace ckpt::agent
