// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/list_options.h"

namespace ckpt::cli {
namespace {

// The options of commands for an existing job.
struct JobOptions {
  std::string id;
  std::string grace;
  std::string timeout;
  std::vector<std::string> names;
  LogOptions logs;
  bool all = false;
};

void add_run(CommandTree& tree) {
  const auto o = std::make_shared<RunOptions>();
  Command run = tree.add(tree.app(), "run", "Start a job", [&tree, o](Context& c) {
    o->command = tree.program();
    return run_job(c, *o);
  });
  run.add_option("--name", o->name, "Name of the job");
  run.add_option("--node", o->node, "NODE or NODE:GPU; by default the coordinator chooses").called("PLACE");
  run.add_option("--gpus", o->gpus, "Number of ranks, each with a GPU of one node (1)").in_range(1, 1024);
  run.add_option("--ranks", o->ranks, "Number of ranks, each with a GPU, on as few nodes as possible")
      .in_range(1, 1024);
  run.add_option("--nodes", o->nodes,
                 "Spread the ranks of --ranks evenly over these nodes, like node-a,node-b")
      .called("NODES");
  run.add_option("--communicators", o->communicators,
                 "When the ranks of a move create communicators: overlap (while the ranks compute, the "
                 "default) or in-pause")
      .called("WHEN")
      .one_of({"overlap", "in-pause"});
  run.add_option("--connections", o->connections,
                 "Treatment of TCP connections to other programs: refuse a move to another node (refuse, the "
                 "default) or reset them at the switch (reset)")
      .called("WHAT")
      .one_of({"refuse", "reset"});
  run.add_option("--gpu-memory", o->gpu_memory,
                 "GPU memory to reserve, like 12GiB; a transparent job cannot allocate more")
      .called("SIZE");
  run.add_option("--env", o->env,
                 "Set a variable of the job, or pass one of yours by its NAME; may be repeated")
      .called("NAME=VALUE")
      .one_value_each();
  run.add_option("--env-file", o->env_file, "A file with lines like the values of --env").called("FILE");
  run.add_flag("--env-all", o->env_all,
               "Pass your whole environment, secrets included, except variables that the node sets");
  run.add_option("--cwd", o->cwd, "Folder in which the job starts (the current one)").called("FOLDER");
  run.add_option("--priority", o->priority,
                 "Priority of the job; --preempt moves or parks jobs of lower priority (0)")
      .in_range(-1000, 1000);
  run.add_flag(
      "--cooperative", o->cooperative,
      "The program uses ckpt.h. Without this option a preloaded library makes any CUDA program movable");
  run.add_option(
         "--namespaces", o->namespaces,
         "own: the program gets its own /proc, /dev/shm and System V IPC, which move with it; none (default)")
      .called("WHICH")
      .one_of({"own", "none"});
  run.add_flag("--private-tmp", o->private_tmp,
               "With --namespaces own, the program also gets its own /tmp, which moves with it");
  run.add_flag("--preempt", o->preempt,
               "Free memory: jobs of lower priority are moved live, or else parked until memory is free");
  run.add_flag("--detach", o->detach, "Do not follow the job's output");
  Option dry = run.add_flag("--dry-run", o->dry_run, "Show where the job would start and why; start nothing");
  run.add_flag("-v,--verbose", o->each, "In a dry run, show for each GPU why it can or cannot hold the job")
      .needs(dry);
  run.add_option("--timeout", o->timeout,
                 "Wait at most this long for the start (exit code 124); the job may still start")
      .called("TIME");
  run.add_example("gpumigrate run --name train -- ./train --epochs 3", "Start a job and follow its output");
  run.add_example("gpumigrate run --detach --gpu-memory 12GiB --node node-b -- ./train",
                  "Start a job on a node with reserved memory, and return");
  run.add_example("gpumigrate run --dry-run -- ./train", "See where a job would start, and why");
  run.set_rest("-- PROGRAM [ARGUMENT...]");
  run.set_footer(
      "Without --detach the command shows the job's output and returns its exit code (125 if gpumigrate "
      "fails). Ctrl-C stops the job.\n"
      "The job gets the variables of your environment that programs need (PATH, HOME, LANG, PYTHON*, "
      "CUDA_*, NCCL_*, HF_*, ...), except names that suggest a secret (TOKEN, KEY, ...). The environment "
      "is stored with the job and its images. --env adds a variable. The node sets the variables that "
      "choose libraries and GPUs (LD_LIBRARY_PATH, CUDA_VISIBLE_DEVICES, ...).\n"
      "Standard input is empty. Standard output and standard error are one stream, which `logs` shows.\n"
      "Exit code 127: the program was not found; 126: it is not executable.");
}

void add_adopt(CommandTree& tree) {
  const auto o = std::make_shared<AdoptOptions>();
  Command adopt = tree.add(tree.app(), "adopt", "Turn a running CUDA process into a job",
                           [o](Context& c) { return adopt_process(c, *o); });
  adopt.add_option("pid", o->pid, "Id of the process").required().in_range(2, 1 << 30);
  adopt.add_option("--name", o->name, "Name of the job");
  adopt.add_option("--node", o->node, "Node on which the process runs (this machine)");
  add_wait_limit(adopt, o->timeout, "the process may still be adopted");
  adopt.set_footer(
      "The process keeps running. It has no gpumigrate library in it, so `migrate` stops it for the whole "
      "copy: the driver saves its device memory, and CRIU saves the rest (this needs root). A job that "
      "`gpumigrate run` has started is copied while it runs.");
}

}  // namespace

void add_job_commands(CommandTree& tree) {
  const auto o = std::make_shared<JobOptions>();
  tree.begin_family("Jobs");
  add_run(tree);
  add_adopt(tree);
  add_list(tree, "jobs", "List jobs that have not ended", jobs_list,
           {.all = "Also show jobs that have ended",
            .node = "Only jobs on NODE, or on NODE:GPU",
            .state = "Only jobs in this state, like running; separate several with commas",
            .name = "Only jobs with these names, like \"train*\""})
      .add_example("gpumigrate jobs -o json", "List jobs as JSON, for a script");
  Command describe = tree.add(tree.app(), "describe", "Show everything about a job",
                              [o](Context& c) { return describe_job(c, o->id, o->all); });
  describe.add_option("job", o->id, "Name or id of the job").required();
  describe.add_flag("-a,--all", o->all, "Also show all moves, the instances and the memory by the minute");
  Command logs = tree.add(tree.app(), "logs", "Show a job's output, from before and after its moves",
                          [o](Context& c) { return show_logs(c, o->id, o->logs); });
  logs.add_example("gpumigrate logs train -f", "Follow the output of a job, through all its moves");
  logs.add_option("job", o->id, "Name or id of the job").required();
  logs.add_flag("-f,--follow", o->logs.follow, "Follow the output until the job ends");
  logs.add_option("--tail", o->logs.tail, "Begin with the last LINES lines")
      .called("LINES")
      .in_range(0U, 1'000'000'000U);
  logs.add_option("--rank", o->logs.rank, "Rank to show, if the job has several (0)").in_range(0, 1023);
  logs.add_option("--since", o->logs.since,
                  "Only output since a time, like 10m (ago) or 2026-11-24T03:34:31Z")
      .called("TIME");
  logs.add_flag("--timestamps", o->logs.timestamps,
                "Begin each line with the time at which the job's node read it");
  logs.set_footer(
      "Standard output and standard error are one stream. A time is the moment at which the job's node "
      "read the output, at most a second after the job wrote it.\n"
      "A line in brackets marks a restore from an image: the log may repeat earlier output from there.");
  Command stop = tree.add(tree.app(), "stop", "Stop a job",
                          [o](Context& c) { return stop_job(c, o->id, o->grace, o->timeout); });
  stop.add_example("gpumigrate stop train --grace 30s", "Stop a job");
  stop.add_option("job", o->id, "Name or id of the job").required();
  stop.add_option("--grace", o->grace, "Time between SIGTERM and SIGKILL (10s)").called("TIME");
  stop.add_option("--timeout", o->timeout, "Wait at most this long for the end; the job is still stopped")
      .called("TIME");
  tree.add(tree.app(), "rm", "Remove ended jobs and their output; their images are kept",
           [o](Context& c) { return remove_jobs(c, o->names); })
      .add_option("job", o->names,
                  "Names or ids of ended jobs; a name that several jobs have means the newest one")
      .required();
  Command wait = tree.add(tree.app(), "wait", "Wait for a job's end and return its exit code",
                          [o](Context& c) { return wait_for_job(c, o->id, o->timeout); });
  wait.add_example("gpumigrate wait train", "Wait for a job's end and return its exit code");
  wait.add_option("job", o->id, "Name or id of the job").required();
  wait.add_option("--timeout", o->timeout, "Wait at most this long (exit code 124, like timeout(1))")
      .called("TIME");
}

}  // namespace ckpt::cli
