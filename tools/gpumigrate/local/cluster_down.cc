// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/local/certificates.h"
#include "tools/gpumigrate/local/cluster.h"
#include "tools/gpumigrate/local/state.h"
#include "tools/gpumigrate/local/waiting.h"

namespace ckpt::cli {
namespace {

constexpr std::chrono::milliseconds kGrace{10'000};

bool is_live(const api::Job& job) {
  return !has_ended(job) && job.state != "unreachable";
}

// Requests that all jobs stop, and then waits for each job. Returns the number of jobs. end_processes()
// terminates a job that does not stop, together with its keeper.
Result<int> stop_jobs(Context& context, Wait& wait) {
  wait.now_for("the jobs to end");
  auto jobs = context.coordinator.get_all("/v1/jobs", "jobs");
  if (auto end = wait.end()) return *std::move(end);
  if (!jobs) return 0;
  std::vector<std::string> stopping;
  for (const auto& job : record::list_from_answer<api::Job>(*jobs)) {
    if (!is_live(job)) continue;
    const std::string path = "/v1/jobs/" + path_part(job.id);
    const auto stopped = context.coordinator.post(path + "/stop", {{"grace_ms", kGrace.count() / 2}});
    if (stopped && !record::from_answer<api::Job>(*stopped).silent_node) stopping.push_back(path);
  }
  // Jobs stop at the same time, so they share one limit.
  const auto until = std::chrono::steady_clock::now() + kGrace;
  for (const std::string& path : stopping) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    (void)context.coordinator.get(
        path + "/wait?timeout_ms=" + std::to_string(std::max<std::int64_t>(1, left.count())));
    if (auto end = wait.end()) return *std::move(end);
  }
  return static_cast<int>(stopping.size());
}

// Terminates the agents first, because they need the coordinator, and then the coordinator. Then it
// terminates processes that outlive the daemons, by design (keepers and their jobs) or after a crash.
Result<void> end_processes(Context& context, const LocalState& state, Wait& wait) {
  const auto by = [&](int descriptor, std::chrono::milliseconds time) {
    return wait_readable(context, wait, {descriptor}, time);
  };
  std::vector<ProcessId> agents;
  for (const LocalNode& node : state.nodes) agents.push_back(node.process);
  wait.now_for("the agents to end");
  CKPT_TRYV(end_all(agents, SIGTERM, kGrace, by));
  wait.now_for("the coordinator to end");
  CKPT_TRYV(end_all({state.coordinator}, SIGTERM, kGrace, by));
  wait.now_for("the remaining processes of jobs to end");
  CKPT_TRYV(end_all(find_by_environment(cluster_marker(context.home())), SIGTERM, kGrace / 2, by));
  return end_all(find_by_environment(cluster_marker(context.home())), SIGKILL, kGrace / 2, by);
}

Result<int> down(Context& context, Wait& wait) {
  CKPT_TRY(known, load_local(context.home()));
  const std::vector<ProcessId> marked = find_by_environment(cluster_marker(context.home()));
  if ((!known || known->coordinator.pid == 0) && marked.empty()) {
    context.note("There is no local cluster at " + context.home());
    return static_cast<int>(kDone);
  }
  CKPT_TRY(lock, acquire_lock(context, wait));
  (void)lock;  // the lock is held until the function returns
  const LocalState state = known.value_or(LocalState{});
  CKPT_TRY(jobs, is_alive(state.coordinator) ? stop_jobs(context, wait) : Result<int>(0));
  CKPT_TRYV(end_processes(context, state, wait));
  wait.clear();
  LocalState stopped = state;
  stopped.coordinator = {};
  stopped.nodes.clear();
  CKPT_TRYV(save_local(context.home(), stopped));
  if (context.json) {
    context.print({{"home", context.home()}, {"jobs_stopped", jobs}, {"nodes_stopped", state.nodes.size()}});
  } else {
    context.out << "stopped: " << jobs << " jobs, " << state.nodes.size() << " nodes, the coordinator\n"
                << std::flush;
  }
  return static_cast<int>(kDone);
}

// Returns the state of each process. `metrics` is the URL for Prometheus, or null if the process has none.
Json status_of(const std::string& home, const LocalState& state) {
  Json list = Json::array();
  const auto add = [&](const std::string& name, const ProcessId& process, const std::string& address) {
    const Json metrics = address.empty() ? Json() : Json("https://" + address + "/metrics");
    list.push_back({{"name", name}, {"pid", process.pid}, {"runs", is_alive(process)}, {"metrics", metrics}});
  };
  add("coordinator", state.coordinator, state.api_address);
  for (const LocalNode& node : state.nodes) {
    const auto address = read_file(home + "/nodes/" + node.name + "/metrics.address", 256);
    add(node.name, node.process, address ? *address : "");
  }
  return list;
}

}  // namespace

int local_down(Context& context, const std::string& timeout) {
  auto wait =
      Wait::begin(context,
                  {"the cluster to end",
                   "processes that were signalled still exit; `gpumigrate local down` stops the rest"},
                  timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  auto result = down(context, **wait);
  return result ? *result : report_wait(context, **wait, result.error());
}

int local_status(Context& context) {
  auto known = load_local(context.home());
  if (!known) return report(context, known.error());
  const std::optional<LocalState>& state = *known;
  if (!state || state->coordinator.pid == 0) {
    return report(context, Error(ErrorCode::kUnavailable, "There is no local cluster at " + context.home() +
                                                              "; `gpumigrate local up` starts one"));
  }
  const Json list = status_of(context.home(), *state);
  const tls::CertFiles shown = metrics_certificate(context.home());
  bool all = true;
  for (const Json& process : list) all = all && flag_of(process, "runs");
  if (context.json) {
    context.print(
        {{"home", context.home()},
         {"software_gpu", state->software},
         {"gpus", state->gpus},
         {"gpu_memory", state->gpu_memory},
         {"metrics_token_file", context.home() + "/coordinator/metrics-token"},
         {"metrics_certificate", {{"ca", shown.ca}, {"certificate", shown.certificate}, {"key", shown.key}}},
         {"processes", list}});
    return all ? kDone : kRefused;
  }
  Table table({{"PROCESS", {.min_width = 8}}, {"PID", {.right = true}}, "STATE", {"METRICS", {.rank = 1}}});
  for (const Json& process : list) {
    table.add({text_of(process, "name"), text_of(process, "pid"),
               flag_of(process, "runs") ? "running" : "ended", text_of(process, "metrics")});
  }
  context.out << table.text(context.layout()) << std::flush;
  if (!all) context.note("`gpumigrate local up` restarts the ended processes");
  return all ? kDone : kRefused;
}

}  // namespace ckpt::cli
