// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/machine_options.h"

#include "tools/gpumigrate/doctor.h"
#include "tools/gpumigrate/job_doctor.h"
#include "tools/gpumigrate/local/cluster.h"

namespace ckpt::cli {
namespace {

void add_local(CommandTree& tree) {
  const auto o = std::make_shared<LocalOptions>();
  Command local = tree.add_parent("local", "Run a cluster on this machine, under GPUMIGRATE_HOME");
  local.require_subcommand();
  Command up =
      tree.add(local, "up", "Start a coordinator and agents", [o](Context& c) { return local_up(c, *o); });
  up.add_example("gpumigrate local up --nodes 2", "Start a cluster on this machine");
  up.add_option("--nodes", o->nodes, "Number of nodes (2)");
  up.add_option("--gpus", o->gpus, "Number of GPUs of each node (1)");
  up.add_option("--gpu-memory", o->gpu_memory, "Memory of each software GPU (8GiB)").called("SIZE");
  add_wait_limit(up, o->timeout, "the cluster continues to start");
  Command down = tree.add(local, "down", "Stop the jobs, the agents and the coordinator",
                          [o](Context& c) { return local_down(c, o->timeout); });
  add_wait_limit(down, o->timeout, "processes that were signalled still exit");
  tree.add(local, "status", "Show the processes of the local cluster", local_status);
}

}  // namespace

void add_machine_commands(CommandTree& tree) {
  tree.begin_family("This machine");
  add_local(tree);
  const auto agent_config = std::make_shared<std::string>();
  const auto job = std::make_shared<std::string>();
  Command asked =
      tree.add(tree.app(), "doctor", "Show which moves this machine supports, and what the other moves need",
               [agent_config, job](Context& c) {
                 return job->empty() ? doctor(c, *agent_config) : doctor_of_job(c, *job);
               });
  asked.add_example("gpumigrate doctor --job train", "See what prevents a running job from moving");
  asked
      .add_option("--agent-config", *agent_config,
                  "Settings (agent.toml) of a node's agent; doctor saves its results for that agent")
      .called("FILE");
  asked.add_option("--job", *job, "Show what prevents this job from moving, on any node").called("JOB");
}

}  // namespace ckpt::cli
