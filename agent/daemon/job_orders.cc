// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/job_orders.h"

#include <spdlog/spdlog.h>

#include "agent/jobs/adoption.h"
#include "agent/jobs/gang_rendezvous.h"
#include "agent/migration/target_check.h"
#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

constexpr std::chrono::seconds kDescribedWithin{5};

bool adopts(const wire::JobSpec& spec) {
  return spec.mode == MigrationMode::kAdopted;
}

}  // namespace

Task<Result<void>> JobOrders::start(wire::JobSpec spec) {
  CKPT_CO_TRYV(check_spec(parts_.gpus, spec));
  JobRecord record;
  record.incarnation = spec.incarnation;
  record.spec = std::move(spec);
  record.started_unix_ms = wall_clock_ms();
  const JobTable::Prepare prepare_record = [this](JobRecord& of) { return prepare(of); };
  auto started = co_await parts_.jobs.start(std::move(record), std::nullopt, prepare_record);
  if (!started) co_return std::move(started).error();
  const std::shared_ptr<Job> job = *started;
  // The adopted process already runs, so its state is read first. The job can then be moved as soon as the
  // caller has the answer.
  if (adopts(job->record().spec))
    co_await job->described(std::chrono::steady_clock::now() + kDescribedWithin);
  spdlog::info("job started: job {} incarnation {} gpu {}", wire::job_text(job->id()), job->incarnation(),
               job->gpu());
  co_return ok();
}

Task<Result<void>> JobOrders::prepare(JobRecord& record) {
  if (adopts(record.spec)) {
    CKPT_CO_TRYV(co_await check_adopted(record.spec));
    record.device_bytes = device_bytes_of(parts_.inventory.last(), record.spec.adopt_pid);
  }
  if (auto mover = parts_.gpus.mover_of(gpu_of(record.spec.ranks))) (*mover)->start();
  co_return add_rendezvous(record.spec);
}

Task<Result<wire::ProcessFacts>> JobOrders::inspect(wire::InspectProcess request) {
  const AdoptionContext context{parts_.config, parts_.contexts, parts_.jobs, parts_.inventory};
  co_return co_await inspect_process(context, std::move(request));
}

Task<Result<void>> JobOrders::check_adopted(const wire::JobSpec& spec) {
  wire::InspectProcess request;
  request.pid = spec.adopt_pid;
  request.start_ticks = spec.adopt_start_ticks;
  CKPT_CO_TRY(facts, co_await inspect(std::move(request)));
  if (facts.gpu_index == gpu_of(spec.ranks) && facts.uid == spec.uid && facts.gid == spec.gid) co_return ok();
  co_return Error(ErrorCode::kRefused,
                  "Process " + std::to_string(spec.adopt_pid) + " has changed its GPU or user");
}

}  // namespace ckpt::agent
