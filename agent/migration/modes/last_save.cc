// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/last_save.h"

#include <optional>

#include "agent/migration/modes/thin_rank.h"

namespace ckpt::agent {
namespace {

struct LastSave {
  explicit LastSave(const asio::any_io_executor& executor) : done(executor) {}
  std::optional<Result<void>> result;
  AsyncEvent done;
};

// Pauses the rank. A pause that another operation has requested continues to belong to that operation. In
// that case only the steps that need no pause follow.
Task<> pause_rank(const std::shared_ptr<KeeperLink>& keeper) {
  const auto exchange = keeper->begin_pause();
  (void)co_await keeper->finish_pause(*exchange);
}

// Exports all memory, because a rank releases only memory that its keeper holds. The export lasts as long as
// `exchange` exists. A pause in progress belongs to another operation, and is sufficient.
Task<Result<void>> export_all(KeeperLink::Exchange& exchange) {
  for (;;) {
    CKPT_CO_TRY(answer, co_await exchange.next(kMaxLastSave));
    const local::Body& body = answer.message.body;
    if (std::holds_alternative<local::ExportEnd>(body)) co_return ok();
    if (const auto* batch = std::get_if<local::ExportBatch>(&body)) {
      local::ExportAck ack;
      ack.sequence = batch->sequence;
      answer.descriptors.clear();
      exchange.send(local::Body(ack));
    } else if (const auto* freed = std::get_if<local::RegionFreed>(&body)) {
      local::RegionFreedAck ack;
      ack.id = freed->id;
      ack.generation = freed->generation;
      exchange.send(local::Body(ack));
    }
  }
}

Task<Result<void>> save_plain(ContextHelper& contexts, pid_t pid, context::ProcessState state) {
  if (state == context::ProcessState::kRunning) {
    CKPT_CO_TRYV(co_await contexts.lock(pid, kMaxLastSave));
  }
  co_return co_await contexts.checkpoint(pid, kMaxLastSave);
}

Task<Result<void>> save_now(MigrationContext& context, std::shared_ptr<Job> job) {
  const auto keeper = job->keeper();
  if (!keeper) co_return ok();
  CKPT_CO_TRY(status, co_await keeper->attach());
  // A process that was dumped, or that was not yet called back after a dump, has already saved its context.
  if (status.session_pid == 0 || status.phase == local::Phase::kDumped) co_return ok();
  if (status.stopped != 0)
    co_return Error(ErrorCode::kRefused, "The process is stopped because its lease has expired");
  const auto pid = static_cast<pid_t>(status.session_pid);
  CKPT_CO_TRY(state, co_await context.contexts.state(pid));
  if (state == context::ProcessState::kCheckpointed) co_return ok();
  if (job->record().spec.mode != MigrationMode::kTransparent)
    co_return co_await save_plain(context.contexts, pid, state);
  std::unique_ptr<KeeperLink::Exchange> exported;
  if (status.phase == local::Phase::kRunning) {
    exported = keeper->begin_export();
    (void)co_await export_all(*exported);
    co_await pause_rank(keeper);
  }
  if (job->ended()) co_return ok();
  co_return co_await save_context(context, job);
}

Task<> save_and_report(MigrationContext& context, std::shared_ptr<Job> job, std::shared_ptr<LastSave> save) {
  save->result = co_await save_now(context, job);
  save->done.notify();
}

}  // namespace

Task<Result<void>> save_before_kill(MigrationContext& context, std::shared_ptr<Job> job) {
  auto save = std::make_shared<LastSave>(context.executor);
  control::spawn(context.executor, "save before a kill", save_and_report(context, job, save));
  const auto until = std::chrono::steady_clock::now() + kMaxLastSave;
  bool in_time = true;
  while (in_time && !save->result) in_time = co_await save->done.wait(until);
  if (save->result) co_return std::move(*save->result);
  co_return Error(ErrorCode::kTimedOut, "The driver has not saved the context of job j" +
                                            std::to_string(job->id()) + " within " +
                                            std::to_string(kMaxLastSave.count()) + " ms");
}

}  // namespace ckpt::agent
