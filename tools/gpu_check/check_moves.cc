// SPDX-License-Identifier: Apache-2.0
// The examples moved live between two agents of a cluster of its own, there and back, and compared with a run
// that was never moved: all state that a job has is in its digest. Two GPUs where there are two, else both
// agents share one. A program that knows nothing of gpumigrate, too: with its process, and from one GPU of a
// node to another where there are two.
#include <algorithm>

#include "tools/bench/jobs/cluster.h"
#include "tools/gpu_check/commands.h"

namespace ckpt::gpu_check {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kStateBytes = 1024 * kMiB;
constexpr std::uint64_t kSoftwareBytes = 128 * kMiB;  // where host memory is all there is
constexpr std::uint64_t kQuickBytes = 32 * kMiB;
constexpr std::uint64_t kCharlmBytes = 512 * kMiB;     // more than it has
constexpr std::uint64_t kTorchlikeBytes = 512 * kMiB;  // as well
constexpr std::uint64_t kStepsBefore = 10;

struct Example {
  std::string program;
  std::uint64_t bytes;
  bench::Arguments arguments;  // all that decides the digest
  bench::Arguments pace;       // and what does not
};

Result<std::string> digest_of(const std::string& output) {
  CKPT_TRY(last, last_object(output));
  const auto digest = last.find("digest");
  if (digest == last.end() || !digest->is_string())
    return Error(ErrorCode::kCorrupt, "The example printed no digest");
  return digest->get<std::string>();
}

Json json_of(const bench::Move& move) {
  return {{"result", move.result},
          {"downtime_ms", move.downtime_ms},
          {"bound_ms", move.bound_ms},
          {"bound_by", move.bound_by},
          {"total_ms", move.total_ms},
          {"rounds", move.rounds},
          {"state_bytes", move.state_bytes},
          {"sent_bytes", move.sent_bytes},
          {"wire_bytes", move.wire_bytes},
          {"dirty_bytes", move.dirty_bytes},
          {"link_bytes_per_second", move.link_rate},
          {"scan_bytes_per_second", move.scan_rate},
          {"downtime_breakdown_ms",
           {{"quiesce", move.quiesce_ms},
            {"final", move.final_ms},
            {"verify", move.verify_ms},
            {"commit", move.commit_ms},
            {"context", move.context_ms},
            {"host", move.host_ms},
            {"restore", move.restore_ms},
            {"resume", move.resume_ms}}}};
}

Result<std::string> run_alone(const Setting& setting, const std::string& program,
                              const bench::Arguments& arguments) {
  std::vector<std::string> call = {setting.programs + "/examples/" + program};
  call.insert(call.end(), arguments.begin(), arguments.end());
  CKPT_TRY(output, run_program(setting, call));
  if (output.exit_code != 0)
    return Error(ErrorCode::kAborted, program + " ended with " + std::to_string(output.exit_code) + ": " +
                                          output.err + output.out);
  return digest_of(output.out);
}

Result<Outcome> check_move(const Setting& setting, const Example& example) {
  Outcome outcome;
  if (const std::string missing = missing_network(); !missing.empty()) {
    outcome.status = Status::kImpossible;
    outcome.why = missing;
    return outcome;
  }
  CKPT_TRY(unmoved, run_alone(setting, example.program, example.arguments));
  CKPT_TRY(cluster, bench::Cluster::start(setting.programs, example.bytes));
  if (cluster->software_gpu() != setting.software)
    return Error(ErrorCode::kInternal, "The cluster runs on the other kind of driver");
  bench::Arguments arguments = example.arguments;
  arguments.insert(arguments.end(), example.pace.begin(), example.pace.end());
  CKPT_TRY(job, cluster->run_job(example.program, arguments));
  Json moves = Json::array();
  for (const char* way : {"there", "back"}) {
    CKPT_TRYV(cluster->wait_for_steps(job, kStepsBefore));
    CKPT_TRY(move, cluster->migrate_done(job, {"--live"}));
    moves.push_back(json_of(move));
    outcome.add(std::string("move ") + way, Status::kPassed);
  }
  CKPT_TRYV(cluster->wait(job));
  CKPT_TRY(log, cluster->log(job));
  CKPT_TRY(moved, digest_of(log));
  outcome.add("digest", moved == unmoved ? Status::kPassed : Status::kFailed,
              moved == unmoved ? "" : "moved " + moved + ", unmoved " + unmoved);
  outcome.figures = {{"moves", moves}, {"digest", moved}};
  outcome.sum_up();
  return outcome;
}

// One mode of moving an unmodified program, there and back; nothing of it if this machine cannot.
Result<void> move_plain(bench::Cluster& cluster, const std::string& job, bool swap, Json& moves,
                        Outcome& outcome) {
  const std::string name = swap ? "swap " : "move ";
  if (swap && !cluster.has_second_gpu()) {
    outcome.add("swap", Status::kImpossible, "one GPU");
    return ok();
  }
  CKPT_TRYV(cluster.wait_for_steps(job, kStepsBefore));
  if (!swap) {
    CKPT_TRY(why, cluster.why_not_movable(job));
    if (!why.empty()) {
      outcome.add("move", Status::kImpossible, why);
      return ok();
    }
  }
  for (const bool there : {true, false}) {
    CKPT_TRYV(cluster.wait_for_steps(job, kStepsBefore));
    CKPT_TRY(move, swap ? cluster.swap_done(job, there, {"--live"}) : cluster.migrate_done(job, {"--live"}));
    moves.push_back(json_of(move));
    outcome.add(name + (there ? "there" : "back"), Status::kPassed);
  }
  return ok();
}

Result<Outcome> check_plain(const Setting& setting, const Example& example) {
  Outcome outcome;
  if (const std::string missing = missing_network(); !missing.empty()) {
    outcome.status = Status::kImpossible;
    outcome.why = missing;
    return outcome;
  }
  CKPT_TRY(unmoved, run_alone(setting, example.program, example.arguments));
  CKPT_TRY(cluster, bench::Cluster::start(setting.programs, example.bytes, 2));
  bench::Arguments call = example.arguments;
  call.insert(call.end(), example.pace.begin(), example.pace.end());
  CKPT_TRY(job, cluster->run_plain_job(example.program, call));
  Json moves = Json::array();
  CKPT_TRYV(move_plain(*cluster, job, true, moves, outcome));
  CKPT_TRYV(move_plain(*cluster, job, false, moves, outcome));
  CKPT_TRYV(cluster->wait(job));
  CKPT_TRY(log, cluster->log(job));
  CKPT_TRY(moved, digest_of(log));
  outcome.add("digest behind the shim", moved == unmoved ? Status::kPassed : Status::kFailed,
              moved == unmoved ? "" : "moved " + moved + ", unmoved " + unmoved);
  outcome.figures = {{"moves", moves}, {"digest", moved}};
  outcome.sum_up();
  return outcome;
}

std::uint64_t state_bytes(const Setting& setting) {
  if (setting.quick) return kQuickBytes;
  return setting.software ? kSoftwareBytes : kStateBytes;
}

bench::Arguments charlm_arguments(const Setting& setting, std::uint64_t steps) {
  return {"--params", setting.quick || setting.software ? "200000" : "20000000",
          "--steps",  std::to_string(steps),
          "--seed",   "7"};
}

// charlm's steps take what they take: as many as fill the time of two moves and some more, whatever this GPU
// is.
Result<std::uint64_t> charlm_steps(const Setting& setting, const std::string& program, double wanted_ns) {
  constexpr std::uint64_t kFew = 20, kMore = 120, kMax = 100'000;
  double spent[2] = {};
  for (const std::uint64_t steps : {kFew, kMore}) {
    const Nanos begin = now_ns();
    CKPT_TRYV(run_alone(setting, program, charlm_arguments(setting, steps)));
    spent[steps == kMore] = static_cast<double>(now_ns() - begin);
  }
  const double step = std::max(1e3, (spent[1] - spent[0]) / (kMore - kFew));
  return std::clamp(static_cast<std::uint64_t>(wanted_ns / step), 2 * kMore, kMax);
}

}  // namespace

Result<Outcome> check_move_hotset(const Setting& setting) {
  const std::uint64_t bytes = state_bytes(setting);
  return check_move(setting, {"hotset",
                              bytes,
                              {"--bytes", std::to_string(bytes), "--hot", "2%", "--pattern", "random",
                               "--steps", setting.quick ? "400" : "500", "--seed", "3"},
                              {"--step-ms", "20", "--print-every", "1"}});
}

Result<Outcome> check_move_serve(const Setting& setting) {
  const std::uint64_t bytes = state_bytes(setting);
  return check_move(setting,
                    {"serve",
                     bytes,
                     {"--weights", std::to_string(bytes / 4 * 3), "--cache", std::to_string(bytes / 4),
                      "--requests", setting.quick ? "150" : "500", "--seed", "5"},
                     {"--request-ms", "20", "--print-every", "1"}});
}

Result<Outcome> check_move_charlm(const Setting& setting) {
  CKPT_TRY(steps, charlm_steps(setting, "charlm", 8e9));
  return check_move(setting,
                    {"charlm", kCharlmBytes, charlm_arguments(setting, steps), {"--print-every", "1"}});
}

Result<Outcome> check_move_plain(const Setting& setting) {
  CKPT_TRY(steps, charlm_steps(setting, "charlm-plain", 12e9));
  return check_plain(
      setting, {"charlm-plain", kCharlmBytes, charlm_arguments(setting, steps), {"--print-every", "1"}});
}

Result<Outcome> check_move_torchlike(const Setting& setting) {
  // Half a minute: the driver's own checkpoint and restore take seconds in each of four moves.
  const bool slow = setting.software;
  return check_plain(
      setting,
      {"torchlike", kTorchlikeBytes, {"--steps", slow ? "300" : "1500"}, {"--step-ms", slow ? "100" : "20"}});
}

}  // namespace ckpt::gpu_check
