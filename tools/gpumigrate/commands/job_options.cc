// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/list_options.h"

namespace ckpt::cli {
namespace {

// The options of commands about an existing job.
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
  run.add_option("--node", o->node, "NODE or NODE:GPU; otherwise it is chosen").called("PLACE");
  run.add_option("--gpus", o->gpus, "One rank of the job for each of so many GPUs of one node (1)")
      .in_range(1, 1024);
  run.add_option("--ranks", o->ranks, "So many ranks, each with a GPU, on as few nodes as can take them")
      .in_range(1, 1024);
  run.add_option("--nodes", o->nodes, "With --ranks: spread evenly over these nodes, as node-a,node-b")
      .called("NODES");
  run.add_option("--communicators", o->communicators,
                 "When ranks that move make them: overlap (while they compute, default) or in-pause")
      .called("WHEN")
      .one_of({"overlap", "in-pause"});
  run.add_option("--gpu-memory", o->gpu_memory,
                 "GPU memory to keep free for it, like 12GiB; a transparent job gets no more")
      .called("SIZE");
  run.add_option("--env", o->env,
                 "A variable of its environment, or the name of one of yours; may be repeated")
      .called("NAME=VALUE")
      .one_value_each();
  run.add_option("--env-file", o->env_file, "A file with lines of that kind").called("FILE");
  run.add_flag("--env-all", o->env_all,
               "Your whole environment, secrets included, but for what is its node's");
  run.add_option("--cwd", o->cwd, "Folder to start in (this one)").called("FOLDER");
  run.add_option("--priority", o->priority, "The higher, the later it is disturbed (0)")
      .in_range(-1000, 1000);
  run.add_flag(
      "--cooperative", o->cooperative,
      "The program uses ckpt.h; without it any CUDA program is made movable by a library that is preloaded");
  run.add_flag("--preempt", o->preempt,
               "Jobs of lower priority make place: moved live, else parked until there is memory");
  run.add_flag("--detach", o->detach, "Do not follow its output");
  Option dry = run.add_flag("--dry-run", o->dry_run, "Say where it would start and why; start nothing");
  run.add_flag("-v,--verbose", o->each, "With --dry-run: the reasons of each GPU").needs(dry);
  run.add_option("--timeout", o->timeout,
                 "Wait no longer than this until it has started (exit code 124); the order stands")
      .called("TIME");
  run.add_example("gpumigrate run --name train -- ./train --epochs 3", "Start a job and follow its output");
  run.add_example("gpumigrate run --detach --gpu-memory 12GiB --node node-b -- ./train",
                  "Start it on a node, with memory kept free, and return");
  run.add_example("gpumigrate run --dry-run -- ./train", "See where it would start, and why");
  run.set_rest("-- PROGRAM [ARGUMENT...]");
  run.set_footer(
      "Without --detach the job's output is shown and its exit code returned (125 if gpumigrate failed); "
      "Ctrl-C stops the job.\n"
      "The job gets the variables of your environment that programs need (PATH, HOME, LANG, PYTHON*, CUDA_*, "
      "NCCL_*, HF_*, ...), and nothing "
      "whose name tells of a secret (TOKEN, KEY, ...): it is stored with the job and its images. --env adds "
      "to it. What "
      "chooses libraries and GPUs (LD_LIBRARY_PATH, CUDA_VISIBLE_DEVICES, ...) is its node's.\n"
      "Its standard input is empty. Its standard output and standard error are one stream, which `logs` "
      "shows.\n"
      "127: the program is not found; 126: it is not executable.");
}

void add_adopt(CommandTree& tree) {
  const auto o = std::make_shared<AdoptOptions>();
  Command adopt = tree.add(tree.app(), "adopt", "Take in a CUDA process that was not started by gpumigrate",
                           [o](Context& c) { return adopt_process(c, *o); });
  adopt.add_option("pid", o->pid, "Its process id").required().in_range(2, 1 << 30);
  adopt.add_option("--name", o->name, "Name of the job");
  adopt.add_option("--node", o->node, "Where it runs; otherwise it is looked for on this machine");
  add_wait_limit(adopt, o->timeout, "it may still be taken in");
  adopt.set_footer(
      "It runs on as before. It has none of our libraries in it, so `migrate` stops it for the whole copy: "
      "the driver saves its "
      "device memory, CRIU the rest (needs root). What `gpumigrate run` starts is copied while it runs.");
}

}  // namespace

void add_job_commands(CommandTree& tree) {
  const auto o = std::make_shared<JobOptions>();
  tree.begin_family("Jobs");
  add_run(tree);
  add_adopt(tree);
  add_list(tree, "jobs", "List jobs that have not ended", jobs_list,
           {.all = "Also those that have ended",
            .node = "Only those on NODE, or NODE:GPU",
            .state = "Only those in this state, like running; several: running,parked",
            .name = "Only these, like \"train*\""})
      .add_example("gpumigrate jobs -o json", "List jobs, for a script");
  Command describe = tree.add(tree.app(), "describe", "All about a job",
                              [o](Context& c) { return describe_job(c, o->id, o->all); });
  describe.add_option("job", o->id, "Name or id").required();
  describe.add_flag("-a,--all", o->all, "Also all moves, its instances and its memory by the minute");
  Command logs = tree.add(tree.app(), "logs", "A job's output, over all its moves",
                          [o](Context& c) { return show_logs(c, o->id, o->logs); });
  logs.add_example("gpumigrate logs train -f", "Follow the output, over all moves");
  logs.add_option("job", o->id, "Name or id").required();
  logs.add_flag("-f,--follow", o->logs.follow, "Until the job ends");
  logs.add_option("--tail", o->logs.tail, "Begin with so many of its last lines")
      .called("LINES")
      .in_range(0U, 1'000'000'000U);
  logs.add_option("--rank", o->logs.rank, "The rank to show, of a job of several (0)").in_range(0, 1023);
  logs.add_option("--since", o->logs.since, "Output from a time on, like 10m (ago) or 2026-11-24T03:34:31Z")
      .called("TIME");
  logs.add_flag("--timestamps", o->logs.timestamps, "Begin each line with the time at which its node saw it");
  logs.set_footer(
      "Standard output and standard error are one stream. Times are those at which the job's node saw the "
      "output, "
      "at most a second late.\n"
      "A line in brackets marks where the job was restored from an image: the log may repeat what stands "
      "above.");
  Command stop = tree.add(tree.app(), "stop", "Stop a job",
                          [o](Context& c) { return stop_job(c, o->id, o->grace, o->timeout); });
  stop.add_example("gpumigrate stop train --grace 30s", "Stop a job");
  stop.add_option("job", o->id, "Name or id").required();
  stop.add_option("--grace", o->grace, "Between SIGTERM and SIGKILL (10s)").called("TIME");
  stop.add_option("--timeout", o->timeout, "Wait no longer than this for its end; the order stands")
      .called("TIME");
  tree.add(tree.app(), "rm", "Remove ended jobs from the list, with their output; their images stay",
           [o](Context& c) { return remove_jobs(c, o->names); })
      .add_option("job", o->names, "Names or ids; of several ended jobs with a name the newest")
      .required();
  Command wait = tree.add(tree.app(), "wait", "Wait for a job's end and return its exit code",
                          [o](Context& c) { return wait_for_job(c, o->id, o->timeout); });
  wait.add_example("gpumigrate wait train", "Wait for its end; the exit code is its own");
  wait.add_option("job", o->id, "Name or id").required();
  wait.add_option("--timeout", o->timeout, "Give up after this time (exit code 124, as of timeout(1))")
      .called("TIME");
}

}  // namespace ckpt::cli
