// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/machine_options.h"

#include "tools/gpumigrate/doctor.h"
#include "tools/gpumigrate/job_doctor.h"
#include "tools/gpumigrate/local/cluster.h"

namespace ckpt::cli {
namespace {

void add_local(CommandTree& tree) {
  const auto o = std::make_shared<LocalOptions>();
  Command local = tree.add_parent("local", "A cluster on this machine, under GPUMIGRATE_HOME");
  local.require_subcommand();
  Command up =
      tree.add(local, "up", "Start a coordinator and agents", [o](Context& c) { return local_up(c, *o); });
  up.add_example("gpumigrate local up --nodes 2", "Start a cluster on this machine");
  up.add_option("--nodes", o->nodes, "Nodes (2)");
  up.add_option("--gpus", o->gpus, "GPUs of each node (1)");
  up.add_option("--gpu-memory", o->gpu_memory, "Memory of each software GPU (8GiB)").called("SIZE");
  add_wait_limit(up, o->timeout, "what was started goes on");
  Command down = tree.add(local, "down", "Stop jobs, agents and coordinator",
                          [o](Context& c) { return local_down(c, o->timeout); });
  add_wait_limit(down, o->timeout, "what was told to end goes on ending");
  tree.add(local, "status", "Show what runs", local_status);
}

}  // namespace

void add_machine_commands(CommandTree& tree) {
  tree.begin_family("This machine");
  add_local(tree);
  const auto agent_config = std::make_shared<std::string>();
  const auto job = std::make_shared<std::string>();
  Command asked =
      tree.add(tree.app(), "doctor", "Show what this machine can do, and what is missing for the rest",
               [agent_config, job](Context& c) {
                 return job->empty() ? doctor(c, *agent_config) : doctor_of_job(c, *job);
               });
  asked.add_example("gpumigrate doctor --job train", "See what stands in the way of moving a running job");
  asked
      .add_option("--agent-config", *agent_config,
                  "The settings (agent.toml) of a node's agent, which goes by what is found")
      .called("FILE");
  asked.add_option("--job", *job, "Show what stands in the way of moving this job, wherever it runs")
      .called("JOB");
}

}  // namespace ckpt::cli
