// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster/recovery.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/api/named_job.h"
#include "coordinator/api/optional_text.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

// The delay before a job that left its node is recorded as left behind, because no node reports that it runs
// there. The node that now runs the job may be about to connect.
constexpr std::chrono::seconds kLeftGrace{30};

// Checks whether the instance has run, or is about to run, as the job. A standby has not run as the job.
bool is_the_job(const wire::JobInstance& instance) {
  if (instance.phase == wire::JobPhase::kRunning || instance.phase == wire::JobPhase::kPaused) return true;
  return instance.role == wire::JobRole::kFresh &&
         (instance.phase == wire::JobPhase::kStarting || instance.phase == wire::JobPhase::kExited);
}

}  // namespace

Recovery::Recovery(Dependencies deps)
    : deps_(std::move(deps)), window_(deps_.events, deps_.executor, [this] { on_window(); }) {
  deps_.catalog.let_recognise(false);
  deps_.catalog.recognised().subscribe(
      [this](const std::string& node, const std::string& cluster) { on_cluster_recognised(node, cluster); });
}

void Recovery::on_window() {
  deps_.catalog.let_recognise(window_.is_open());
  if (!window_.is_open()) return;
  shown_.clear();
  for (const auto& [name, node] : deps_.nodes.all()) {
    if (!node.connected()) continue;
    count_ids(node);
    on_inventory(node);
  }
}

void Recovery::count_ids(const Node& node) {
  if (auto counted = deps_.store.count_above(node.newest_job, node.newest_migration); !counted)
    spdlog::error("the id counters were not raised above the ids of node {}: {}", node.row.name,
                  counted.error().to_string());
}

void Recovery::on_ready(const Node& node) {
  if (window_.is_open()) count_ids(node);
  std::erase_if(not_described_, [&](const Instance& known) { return std::get<0>(known) == node.row.name; });
  deps_.gang_moves.on_ready(node);
  begin_inspection(node);
}

void Recovery::on_inventory(const Node& node) {
  for (const wire::JobInstance& instance : node.instances) find_later(node, instance);
  find_left(node);
  begin_inspection(node);
}

void Recovery::on_instance(const Node& node, const wire::JobInstance& instance) {
  find_later(node, instance);
  if (is_of_unknown_job(node, instance)) begin_inspection(node);
}

void Recovery::on_cluster_recognised(const std::string& node, const std::string& cluster) {
  Found found;
  found.kind = "cluster";
  found.node = node;
  found.text =
      fmt::format("the images on {} belong to cluster {}: this coordinator now uses the id of that cluster",
                  node, cluster);
  deps_.events.add("cluster-recognised", found.text, node);
  note(std::move(found));
}

bool Recovery::is_of_unknown_job(const Node& node, const wire::JobInstance& instance) const {
  return deps_.jobs.find(instance.job) == nullptr && !deps_.store.gave(instance.job) &&
         is_the_job(instance) &&
         !not_described_.contains({node.row.name, instance.job, instance.incarnation});
}

bool Recovery::is_known(const wire::OpenHandover& open) const {
  if (open.of_ranks && deps_.gang_moves.lacks_record(open.migration)) return false;
  return deps_.migrations.knows(open.migration);
}

bool Recovery::has_unknown_handover(const Node& node, JobId job) const {
  return std::any_of(node.handovers.begin(), node.handovers.end(),
                     [&](const wire::OpenHandover& open) { return open.job == job && !is_known(open); });
}

void Recovery::begin_inspection(const Node& node) {
  if (!node.describes || inspecting_.contains(node.row.name)) return;
  const bool handovers = std::any_of(node.handovers.begin(), node.handovers.end(),
                                     [&](const wire::OpenHandover& open) { return !is_known(open); });
  const bool unknown_instances =
      std::any_of(node.instances.begin(), node.instances.end(),
                  [&](const wire::JobInstance& instance) { return is_of_unknown_job(node, instance); });
  if (!handovers && !unknown_instances) return;
  if (!window_.is_open()) return show_unknown_jobs(node);
  inspecting_.insert(node.row.name);
  control::spawn(deps_.executor, "inspection of the jobs on " + node.row.name, inspect(node.row.name));
}

void Recovery::show_unknown_jobs(const Node& node) {
  for (const wire::OpenHandover& open : node.handovers) {
    if (is_known(open)) continue;
    Found found;
    found.kind = "switch";
    found.node = node.row.name;
    found.job = open.job;
    found.migration = open.migration;
    found.text = fmt::format("migration {} is open on {}", migration_text(open.migration), node.row.name);
    show_only(std::move(found), open.migration);
  }
  for (const wire::JobInstance& instance : node.instances) {
    if (!is_of_unknown_job(node, instance)) continue;
    Found found;
    found.kind = "job";
    found.node = node.row.name;
    found.job = instance.job;
    found.text = fmt::format("{} runs on {}, and the coordinator's store has no record of it",
                             job_text(instance.job), node.row.name);
    show_only(std::move(found), instance.incarnation);
  }
}

void Recovery::show_only(Found found, Incarnation incarnation) {
  if (shown_.size() >= kMaxFound || !shown_.emplace(found.node, found.job, incarnation).second) return;
  found.text += ": it is not accepted (run `gpumigrate cluster recover --for 10m` to accept the job)";
  found.taken_in = false;
  deps_.events.add("job-not-taken-in", found.text, found.node, found.job, found.migration);
  note(std::move(found));
}

// Handovers are recovered first, because a handover decides about the instances that it created.
control::Task<> Recovery::inspect(std::string node) {
  co_await recover_handovers(node);
  co_await admit_unknown_instances(node);
  inspecting_.erase(node);
}

control::Task<> Recovery::recover_handovers(std::string name) {
  const Node* node = deps_.nodes.find(name);
  const std::vector<wire::OpenHandover> open =
      node == nullptr ? std::vector<wire::OpenHandover>() : node->handovers;
  for (const wire::OpenHandover& one : open) {
    if (is_known(one) || !window_.is_open()) continue;
    wire::DescribeHandover request;
    request.migration = one.migration;
    request.side = one.side;
    request.of_ranks = one.of_ranks;
    auto facts = co_await deps_.calls.describe(name, std::move(request));
    Result<void> outcome = facts ? recover(name, *std::move(facts)) : facts.error();
    if (!outcome)
      spdlog::warn("migration {} of node {} is missing in the coordinator's store, and was not recovered: {}",
                   migration_text(one.migration), name, outcome.error().to_string());
  }
}

Result<void> Recovery::recover(const std::string& node, wire::HandoverFacts facts) {
  const MigrationId id = facts.migration;
  JobId job = facts.job;
  if (facts.move.empty()) {
    CKPT_TRYV(deps_.migration_runner.recover(
        node, migration::HandoverInfo(id, job, facts.base, std::move(facts.ranks), std::move(facts.plan))));
  } else {
    CKPT_TRY(move, wire::decode<gang::GangInfo>(facts.move));
    if (move.migration != id)
      return Error(ErrorCode::kProtocol,
                   "The node described a different move of ranks from the one that was requested");
    job = move.gang;
    CKPT_TRYV(deps_.gang_moves.recover(node, std::move(move)));
  }
  Found found;
  found.kind = "switch";
  found.node = node;
  found.job = job;
  found.migration = id;
  found.text =
      fmt::format("migration {} is open on {}: the coordinator requests the records of all its nodes",
                  migration_text(id), node);
  note(std::move(found));
  return ok();
}

control::Task<> Recovery::admit_unknown_instances(std::string name) {
  while (window_.is_open()) {
    const Node* node = deps_.nodes.find(name);
    if (node == nullptr || !node->connected()) co_return;
    const auto unknown =
        std::find_if(node->instances.begin(), node->instances.end(),
                     [&](const wire::JobInstance& instance) { return is_of_unknown_job(*node, instance); });
    if (unknown == node->instances.end()) co_return;
    wire::DescribeJob request;
    request.job = unknown->job;
    request.incarnation = unknown->incarnation;
    const Instance asked(name, unknown->job, unknown->incarnation);
    auto facts = co_await deps_.calls.describe(name, std::move(request));
    not_described_.insert(asked);  // each instance is requested once per connection
    if (!facts) {
      spdlog::warn(
          "node {} runs {}, which is missing in the coordinator's store, and did not describe it: {}", name,
          job_text(std::get<1>(asked)), facts.error().to_string());
      continue;
    }
    admit_instance(name, std::get<1>(asked), std::get<2>(asked), (*std::move(facts)).spec);
  }
}

void Recovery::admit_instance(const std::string& name, JobId job, Incarnation incarnation,
                              wire::JobSpec spec) {
  const Node* node = deps_.nodes.find(name);
  const wire::JobInstance* instance = node == nullptr ? nullptr : node->find(job, incarnation);
  if (instance == nullptr || deps_.jobs.find(job) != nullptr) return;
  auto admitted = deps_.admission.admit_instance(std::move(spec), *node, *instance);
  if (!admitted)
    return spdlog::error("job {} of node {} was not accepted into the store: {}", job_text(job), name,
                         admitted.error().to_string());
  Found found;
  found.kind = "job";
  found.node = name;
  found.job = job;
  found.text = fmt::format("{} runs on {}: it was accepted into the store", (*admitted)->spec.name, name);
  note(std::move(found));
}

// Finds an instance with a later incarnation than the store has, or one of a job that was recorded as lost
// with this node. Every incarnation in this store was granted by a migration in it, or by the job's own
// restore. So a later incarnation was granted by a migration that the store has lost. The state machines
// decide about a handover that is not settled.
void Recovery::find_later(const Node& node, const wire::JobInstance& instance) {
  const Job* job = deps_.jobs.find(instance.job);
  if (job == nullptr || is_over(instance.phase) || !is_the_job(instance) || instance.unknown) return;
  const Incarnation right = std::max(instance.runs_as, instance.incarnation);
  const bool given_up =
      job->state == JobState::kLost && right == job->incarnation && job->node() == node.row.name;
  if ((right <= job->incarnation && !given_up) || instance.incarnation <= job->fenced || job->operation)
    return;
  if (deps_.migrations.unsettled_of(job->id) || has_unknown_handover(node, job->id)) return;
  Found found;
  found.kind = given_up ? "lost-job" : "later-incarnation";
  found.node = node.row.name;
  found.job = job->id;
  found.text =
      given_up ? fmt::format("{} was recorded as lost together with node {}, but runs there", job->spec.name,
                             node.row.name)
               : fmt::format(
                     "{} runs on {} as incarnation {}; the coordinator's store recorded incarnation {} on {}",
                     job->spec.name, node.row.name, right, job->incarnation, job->node());
  // The store already assigned a lost job to this node. So its continuation needs no open window, because it
  // does not depend on another node's report.
  if (!given_up && !window_.is_open()) return show_only(std::move(found), right);
  deps_.admission.continue_at(job->id, node, instance, !given_up);
  note(std::move(found));
}

void Recovery::find_left(const Node& node) {
  const auto now = std::chrono::steady_clock::now();
  for (const Job& job : deps_.jobs.live()) {
    const Segment& current = job.segments.back();
    if (current.node != node.row.name) continue;
    const wire::JobInstance* instance = node.find(job.id, current.incarnation);
    const bool left = instance != nullptr && instance->phase == wire::JobPhase::kMoved &&
                      holds_gpu(job.state) && !job.operation && !deps_.migrations.unsettled_of(job.id);
    if (!left) {
      left_since_.erase(job.id);
      continue;
    }
    if (now - left_since_.try_emplace(job.id, now).first->second < kLeftGrace) continue;
    left_since_.erase(job.id);
    Found found;
    found.kind = "left";
    found.node = node.row.name;
    found.job = job.id;
    found.text = fmt::format(
        "{} is no longer on {}, and no node has it: `gpumigrate images --job {}` shows its images",
        job.spec.name, node.row.name, job_text(job.id));
    deps_.job_runner.fact(job.id, lifecycle::LeftBehind{});
    note(std::move(found));
  }
}

void Recovery::note(Found found) {
  found.time_ms = wall_clock_ms();
  if (found_.size() >= kMaxFound) found_.pop_front();
  found_.push_back(std::move(found));
}

bool Recovery::handles(const HttpRequest& request) const {
  const auto& path = request.path;
  if (path[1] == "jobs") return path.size() == 4 && path[3] == "confirm" && is_post(request);
  return path[1] == "recovery";
}

control::Task<Result<HttpResponse>> Recovery::handle(HttpRequest request) {
  const auto& path = request.path;
  if (path[1] == "jobs") co_return confirm(request);
  if (path.size() == 3 && path[2] == "open") co_return open_window(request);
  if (path.size() == 3 && path[2] == "close") window_.close("an admin ended the recovery");
  co_return answer();
}

Result<HttpResponse> Recovery::open_window(const HttpRequest& request) {
  constexpr std::int64_t kLongestMs = std::chrono::milliseconds(RecoveryWindow::kLongest).count();
  CKPT_TRY(body, BodyReader::parse(request.body));
  const auto span = body.integer("for_ms", 1'000, kLongestMs);
  CKPT_TRYV(body.finish());
  if (!span) return Error(ErrorCode::kInvalidArgument, "Field \"for_ms\" is missing");
  window_.open(std::chrono::milliseconds(*span));
  return answer();
}

Result<HttpResponse> Recovery::confirm(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  CKPT_TRYV(body.finish());
  CKPT_TRY(named, find_named(deps_.jobs, request.path[2]));
  std::vector<Job*> meant = std::move(named.job.ranks);
  std::erase_if(meant, [](const Job* job) { return !job->unconfirmed; });
  if (meant.empty())
    return Error(ErrorCode::kRefused, "Job " + request.path[2] +
                                          " needs no confirmation: it was not recovered from a node's "
                                          "report, or a user has moved it since");
  for (const Job* job : meant) {
    CKPT_TRYV(deps_.job_runner.order(job->id, lifecycle::Confirmed{"an admin"}));
  }
  return to_response(200, {{"job", request.path[2]}});
}

HttpResponse Recovery::answer() const {
  return to_response(200, record::to_answer(view()));
}

std::vector<api::UndecidedMigration> Recovery::undecided() const {
  std::vector<api::UndecidedMigration> open;
  for (const Migration& m : deps_.migrations.open()) {
    if (!m.forgotten) continue;
    api::UndecidedMigration& one = open.emplace_back();
    one.migration = migration_text(m.id);
    one.job = job_text(m.job);
    for (const std::string& node : {m.from.node, m.to.node}) {
      if (!deps_.nodes.connected(node)) one.away.push_back(node);
    }
  }
  return open;
}

api::Recovery Recovery::view() const {
  api::Recovery view;
  view.open_until = time_if_any(window_.ends_ms());
  for (const Found& one : found_) {
    api::RecoveryFact& fact = view.found.emplace_back();
    fact.time_ms = one.time_ms;
    fact.kind = one.kind;
    fact.node = one.node;
    if (one.job != 0) fact.job = job_text(one.job);
    if (one.migration != 0) fact.migration = migration_text(one.migration);
    fact.text = one.text;
    fact.taken_in = one.taken_in;
  }
  view.undecided = undecided();
  for (const Image& image : deps_.images.of_unknown_jobs()) {
    const auto alone = ImageFinder::check_is_alone(image);
    view.images_of_unknown_jobs.push_back(
        {.job = job_text(image.job),
         .name = name_in(image),
         .image = image_text(image),
         .obstacle = alone ? std::nullopt : std::optional(alone.error().to_string())});
  }
  for (const auto& [name, node] : deps_.nodes.all()) {
    if (!node.connected()) view.nodes_away.push_back(name);
  }
  return view;
}

}  // namespace ckpt::coordinator
