// SPDX-License-Identifier: Apache-2.0
// Taking snapshots: by order, and by protection's schedule.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "coordinator/images/image_table.h"
#include "coordinator/placement/placement.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestSnapshot{60};
constexpr std::chrono::minutes kLongestTurn{10};   // of what occupies a job: a migration, another snapshot
constexpr std::chrono::seconds kLongestPause{10};  // of a job that nothing holds any more
constexpr std::int64_t kMinTransparentMs = 300'000;
constexpr std::uint32_t kKeptWithoutProtection = 2;

// A snapshot costs it a thin checkpoint and restore in place.
bool pays_for_host_state(const Job& job) {
  return job.spec.way != wire::Way::kCooperative;
}

std::optional<double> expected_pause(const Job& job) {
  if (job.snapshot) return static_cast<double>(job.snapshot->pause_ns) / kNanosPerMs;
  return job.last_downtime_ms;
}

// Its node has said that there is no image: that is no outcome that nobody knows.
Error known_failure(const Error& said) {
  return {ErrorCode::kAborted, said.to_string()};
}

std::string pause_text(const std::optional<double>& pause) {
  return pause ? fmt::format("each snapshot is expected to stop it for {:.1f} ms", *pause)
               : "how long each snapshot stops it is not known yet: one `snapshot` tells";
}

}  // namespace

Result<ImageTable::Destination> ImageTable::destination_of(const std::string& to) const {
  Destination destination;
  if (to.empty()) return destination;
  if (to.starts_with('/')) {
    destination.folder = to;
    while (destination.folder.size() > 1 && destination.folder.back() == '/') destination.folder.pop_back();
    return destination;
  }
  if (parts_.nodes.find(to) == nullptr)
    return Error(ErrorCode::kNotFound, "There is no node \"" + to + "\"; a folder begins with '/'");
  destination.node = to;
  return destination;
}

std::string ImageTable::why_no_snapshot(const Job& job) const {
  if (snapshots_.contains(job.id)) return "a snapshot of it is being taken";
  if (const Migration* open = parts_.migrations.open_of(job.id))
    return "migration " + migration_text(open->id) + " of it is open";
  const std::string state = parts_.service.job_state(job);
  return state == "running" ? "" : "it is " + state;
}

// Until no migration of it is open and no snapshot is being taken. Whatever has paused it lets it go on a
// moment after it is over.
control::Task<Result<void>> ImageTable::wait_until_free(JobId id) {
  const auto deadline = steady_clock::now() + kLongestTurn;
  auto paused_until = steady_clock::now() + kLongestPause;
  while (true) {
    const Job* job = parts_.jobs.find(id);
    if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
    const std::string state = parts_.service.job_state(*job);
    const bool held = snapshots_.contains(id) || parts_.migrations.open_of(id) != nullptr;
    if (held || state != "paused") paused_until = steady_clock::now() + kLongestPause;
    const bool passes =
        held || state == "starting" || (state == "paused" && steady_clock::now() < paused_until);
    const std::string obstacle = why_no_snapshot(*job);
    if (obstacle.empty()) co_return ok();
    if (!passes || steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kRefused,
                      "No image of job " + job->spec.name + " can be taken: " + obstacle);
    co_await wait_for_news();
  }
}

Result<wire::TakeSnapshot> ImageTable::order_of(const Job& job, const Destination& to, bool end_after) {
  CKPT_TRY(sequence, numbers_.next());
  wire::TakeSnapshot order;
  order.sequence = sequence;
  order.job = job.id;
  order.incarnation = job.incarnation;
  order.folder = to.folder;
  order.vault_job = catalog_.vault_job_of(job);
  order.keep = job.protection ? job.protection->keep : kKeptWithoutProtection;
  order.spec = job.spec;
  order.spec.incarnation = job.segments.back().incarnation;
  for (std::size_t i = 0; i < std::min(order.spec.ranks.size(), job.ranks.size()); ++i)
    order.spec.ranks[i].gpu_index = job.ranks[i].place.gpu;
  order.end_after = end_after;
  return order;
}

// The newest image there, with what its report said. `owner`: whose vault, wherever the job is by now.
SnapshotFacts ImageTable::facts_of(const Job& job, const std::string& owner,
                                   const std::string& folder) const {
  SnapshotFacts facts;
  const std::string vault_job = catalog_.vault_job_of(job);
  const auto listed = catalog_.newest(job.id, [&](const Image& image) {
    return image.folder == folder && image.vault_job == vault_job && (!folder.empty() || image.node == owner);
  });
  if (listed) facts.image = *listed;
  const auto report = reports_.find(job.id);
  if (report == reports_.end() || report->second.folder != folder ||
      report->second.version < facts.image.version)
    return facts;
  const wire::SnapshotReport& r = report->second;
  facts.image.node = owner;
  facts.image.folder = r.folder;
  facts.image.vault_job = r.vault_job;
  facts.image.job = job.id;
  facts.image.version = r.version;
  facts.image.barrier_ms = r.barrier_ms;
  facts.image.state_bytes = r.state_bytes;
  facts.pause_ns = r.pause_ns;
  facts.written_bytes = r.written_bytes;
  facts.waited_bytes = r.waited_bytes;
  return facts;
}

control::Task<Result<void>> ImageTable::take_snapshot(JobId id, Destination to, TaskId task) {
  Job* job = parts_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  if (const std::string obstacle = why_no_snapshot(*job); !obstacle.empty())
    co_return Error(ErrorCode::kRefused, "No image of job " + job->spec.name + " can be taken: " + obstacle);
  CKPT_CO_TRY(order, order_of(*job, to, false));
  const std::string node = job->node();
  const std::string owner = vault_node(*job, to);
  const Incarnation incarnation = order.incarnation;
  snapshots_[id] = Taking(task, node, owner);
  const auto answer =
      co_await order_snapshot(node, owner, std::move(order), std::chrono::milliseconds(kLongestSnapshot));
  const bool failed = snapshots_[id].failed;
  snapshots_.erase(id);
  job = parts_.jobs.find(id);
  parts_.jobs.node_changed();
  if (!answer && answer.assume_error().code() == ErrorCode::kTimedOut)
    control::spawn(parts_.executor, "giving up a snapshot of " + job_text(id),
                   give_up_snapshot(id, node, incarnation));
  if (!answer) co_return failed ? known_failure(answer.assume_error()) : answer.assume_error();
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  Job changed = *job;
  changed.snapshot = facts_of(*job, owner, to.folder);
  if (changed.snapshot->image.version == 0)
    co_return Error(ErrorCode::kProtocol,
                    "Node " + node + " says that the snapshot is taken, and names no image");
  if (ImageTask* shown = tasks_.find(task)) shown->image = changed.snapshot->image;
  co_return parts_.jobs.replace(std::move(changed));
}

control::Task<Result<TaskId>> ImageTable::begin_snapshot(JobId id, std::string to) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  // Without a word it goes where its other images are.
  CKPT_CO_TRY(destination, destination_of(to));
  if (to.empty() && job->protection) destination = kept_at(*job->protection);
  CKPT_CO_TRYV(co_await wait_until_free(id));
  job = parts_.jobs.find(id);
  const TaskId task = tasks_.begin("snapshot", *job, "copying").id;
  control::spawn(parts_.executor, "a snapshot of " + job_text(id),
                 snapshot_task(id, std::move(destination), task));
  co_return task;
}

control::Task<> ImageTable::snapshot_task(JobId id, Destination to, TaskId task) {
  const auto taken = co_await take_snapshot(id, std::move(to), task);
  const Job* job = parts_.jobs.find(id);
  const std::string name = job == nullptr ? job_text(id) : job->spec.name + " (" + job_text(id) + ")";
  if (taken) {
    const ImageTask* shown = tasks_.find(task);
    const std::string image = shown != nullptr && shown->image ? image_text(*shown->image) : "";
    parts_.events.add("snapshot-taken", "image " + image + " of job " + name + " was taken",
                      job == nullptr ? "" : job->node(), id);
    tasks_.finish(task);
    co_return;
  }
  const Error& error = taken.assume_error();
  parts_.events.add("snapshot-failed", "no image of job " + name + ": " + error.to_string(),
                    job == nullptr ? "" : job->node(), id);
  tasks_.fail(task, error,
              error.code() == ErrorCode::kTimedOut || error.code() == ErrorCode::kUnavailable ? 6 : 1);
}

// ---- protection ----

Result<Protected> ImageTable::protect(JobId id, const ProtectRequest& wish) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  if (is_ended(job->state))
    return Error(ErrorCode::kRefused, "Job " + job->spec.name + " is " + std::string(to_string(job->state)));
  CKPT_TRY(destination, destination_of(wish.to));
  Protected answer;
  answer.expected_pause_ms = expected_pause(*job);
  if (pays_for_host_state(*job)) answer.note = pause_text(answer.expected_pause_ms);
  if (pays_for_host_state(*job) && wish.every_ms < kMinTransparentMs && !wish.force)
    return Error(
        ErrorCode::kRefused,
        fmt::format(
            "Job {} is {}: a snapshot saves and restores its context and its process, and {}. Every 5m "
            "at most, or --force",
            job->spec.name, to_string(job->spec.way), answer.note));
  if (destination.folder.empty() && vault_node(*job, destination) == job->node())
    answer.note += fmt::format(
        "{}its images are in the vault of {}, where it runs: they are of no use when that node is "
        "lost (--to another node, or a folder that several nodes have)",
        answer.note.empty() ? "" : "; ", job->node());
  answer.protection = job->protection.value_or(Protection());
  answer.protection.every_ms = wish.every_ms;
  answer.protection.folder = destination.folder;
  answer.protection.node = destination.node;
  answer.protection.keep = wish.keep;
  answer.protection.failures = 0;
  answer.protection.error.clear();
  if (wish.dry_run) return answer;
  Job changed = *job;
  changed.protection = answer.protection;
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  schedule_.protect(id, wish.every_ms, answer.protection.begun_ms, 0);
  parts_.events.add(
      "job-protected",
      fmt::format("job {} ({}) is protected every {} ms", job->spec.name, job_text(id), wish.every_ms),
      job->node(), id);
  return answer;
}

Result<void> ImageTable::unprotect(JobId id) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || !job->protection)
    return Error(ErrorCode::kRefused,
                 "Job " + (job == nullptr ? job_text(id) : job->spec.name) + " is not protected");
  Job changed = *job;
  changed.protection.reset();
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  schedule_.drop(id);
  parts_.events.add("job-unprotected",
                    "job " + job->spec.name + " (" + job_text(id) + ") is not protected any more",
                    job->node(), id);
  return ok();
}

std::optional<std::string> ImageTable::where_now(JobId id) const {
  const Job* job = parts_.jobs.find(id);
  return job != nullptr && why_no_snapshot(*job).empty() ? std::optional(job->node()) : std::nullopt;
}

control::Task<> ImageTable::protect_once(JobId id) {
  Job* job = parts_.jobs.find(id);
  if (job == nullptr || !job->protection) {
    schedule_.ended(id, wall_clock_ms(), false);
    co_return;
  }
  const std::int64_t begun = wall_clock_ms();
  job->protection->begun_ms = begun;  // durable with how it went
  const Destination to = kept_at(*job->protection);
  const auto taken = co_await take_snapshot(id, to, 0);
  // What a migration, or an end, went before has not failed.
  schedule_.ended(id, wall_clock_ms(), taken.has_value() || !where_now(id));
  note_protected(id, taken);
  parts_.jobs.node_changed();
}

void ImageTable::note_protected(JobId id, const Result<void>& taken) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || !job->protection) return;
  if (!taken && !where_now(id)) return;
  Job changed = *job;
  changed.protection->failures = taken ? 0 : changed.protection->failures + 1;
  changed.protection->error = taken ? "" : taken.assume_error().to_string();
  const unsigned failures = changed.protection->failures;
  if (auto stored = parts_.jobs.replace(std::move(changed)); !stored)
    spdlog::error("how a snapshot of {} went was not stored: {}", job_text(id),
                  stored.assume_error().to_string());
  if (taken || is_ended(job->state)) return;
  parts_.events.add("snapshot-failed",
                    fmt::format("no image of job {} ({}), failure {} in a row: {}", job->spec.name,
                                job_text(id), failures, taken.assume_error().to_string()),
                    job->node(), id);
}

control::Task<> ImageTable::run_schedule() {
  constexpr std::chrono::milliseconds kLongestSleep{1000};  // parked jobs wait for more than events
  while (true) {
    const std::int64_t now = wall_clock_ms();
    for (const JobId id : schedule_.due(now, [this](JobId job) { return where_now(job); })) {
      schedule_.began(id, parts_.jobs.find(id)->node(), now);
      control::spawn(parts_.executor, "protecting " + job_text(id), protect_once(id));
    }
    resume_parked();
    auto sleep = kLongestSleep;
    if (const auto next = schedule_.next_due(now))
      sleep = std::min(sleep, std::chrono::milliseconds(std::max<std::int64_t>(1, *next - now)));
    co_await parts_.jobs.changed().wait_until(steady_clock::now() + sleep);
  }
}

}  // namespace ckpt::coordinator
