// SPDX-License-Identifier: Apache-2.0
// The items that move examples without ckpt.h. Each example is moved live and compared with a run that was
// never moved. It moves from one GPU of a node to another if there are two (a swap), and with its process
// between two agents.
#include <unistd.h>

#include <fstream>

#include "tools/gpu_check/items/examples.h"

namespace ckpt::gpu_check {
namespace {

constexpr std::uint64_t kGpuBytes = std::uint64_t{512} << 20;  // an upper limit of each example's memory
constexpr std::uint64_t kStepsBefore = 10;
constexpr const char* kEndless = "1000000000";
constexpr double kSecondsKept = 40;  // the seconds that are reserved for the run without a move and for
                                     // stopping the cluster

struct PlainExample {
  std::string program;
  bench::Arguments arguments;  // all arguments that affect the digest, except the number of steps
  bench::Arguments pace;       // the arguments that do not affect the digest
  int rounds = 1;              // round trips of each kind of move
};

// One job that is moved repeatedly while time remains, and exits after its moves.
class PlainMoves {
 public:
  PlainMoves(const Setting& setting, PlainExample example, bench::Cluster& cluster)
      : setting_(setting), example_(std::move(example)), cluster_(cluster), end_(setting.work + "/end") {}

  Result<Outcome> run() {
    bench::Arguments call = example_.arguments;
    call.insert(call.end(), example_.pace.begin(), example_.pace.end());
    call.insert(call.end(), {"--steps", kEndless, "--until", end_});
    CKPT_TRY(job, cluster_.run_plain_job(example_.program, call));
    job_ = job;
    CKPT_TRYV(cluster_.wait_for_steps(job_, kStepsBefore));
    const double seconds = seconds_left(setting_) - kSecondsKept;
    CKPT_TRYV(swap(kSecondsKept + seconds / 2));
    CKPT_TRYV(move(kSecondsKept));
    CKPT_TRYV(compare());
    outcome_.sum_up();
    return std::move(outcome_);
  }

 private:
  Result<void> swap(double seconds_kept) {
    if (!cluster_.has_second_gpu()) {
      outcome_.add("swap", Status::kImpossible, "one GPU");
      return ok();
    }
    return rounds("swap", seconds_kept,
                  [this](bool there) { return cluster_.swap_done(job_, there, {"--live"}); });
  }

  Result<void> move(double seconds_kept) {
    CKPT_TRY(reason, cluster_.why_not_movable(job_));
    if (!reason.empty()) {
      outcome_.add("move", Status::kImpossible, reason);
      return ok();
    }
    return rounds("move", seconds_kept, [this](bool) { return cluster_.migrate_done(job_, {"--live"}); });
  }

  template <typename MoveOnce>
  Result<void> rounds(const std::string& kind, double seconds_kept, const MoveOnce& once) {
    int done = 0;
    for (; done < example_.rounds && (done == 0 || seconds_left(setting_) > seconds_kept); ++done) {
      for (const bool there : {true, false}) {
        CKPT_TRY(move, once(there));
        Json shown = json_of(move);
        shown["kind"] = kind;
        moves_.push_back(std::move(shown));
        CKPT_TRYV(cluster_.wait_for_steps(job_, kStepsBefore));
      }
    }
    outcome_.add(std::to_string(2 * done) + " " + kind + "s", Status::kPassed);
    if (done < example_.rounds)
      outcome_.add(std::to_string(2 * (example_.rounds - done)) + " further " + kind + "s",
                   Status::kImpossible, "no time");
    return ok();
  }

  Result<void> compare() {
    std::ofstream(end_).flush();
    CKPT_TRYV(cluster_.wait(job_));
    CKPT_TRY(log, cluster_.log(job_));
    CKPT_TRY(last, last_object(log));
    CKPT_TRY(moved, digest_of(log));
    bench::Arguments call = example_.arguments;
    call.insert(call.end(), {"--steps", std::to_string(last.at("steps").get<std::uint64_t>())});
    CKPT_TRY(unmoved, run_alone(setting_, example_.program, call));
    compare_digests(moved, unmoved, outcome_);
    outcome_.figures = {{"moves", moves_}, {"steps", last.at("steps")}, {"digest", moved}};
    return ok();
  }

  const Setting& setting_;
  const PlainExample example_;
  bench::Cluster& cluster_;
  const std::string end_;  // the path of the file whose existence ends the program
  std::string job_;
  Json moves_ = Json::array();
  Outcome outcome_;
};

Result<Outcome> check_plain(const Setting& setting, PlainExample example) {
  if (std::string missing = missing_network(); !missing.empty()) return not_possible(std::move(missing));
  CKPT_TRY(cluster, bench::Cluster::start(setting.programs, kGpuBytes, 2));
  return PlainMoves(setting, std::move(example), *cluster).run();
}

int rounds_of(const Setting& setting) {
  return setting.quick ? 1 : 10;
}

// Checks that the software driver refuses NVIDIA's libcudart: the program exits at once, with the reason.
Result<Outcome> check_refusal(const Setting& setting, const std::string& program) {
  CKPT_TRY(output, run_program(setting, {program, "--steps", "1"}));
  if (output.exit_code == 0)
    return Error(ErrorCode::kInternal, "The software GPU runs libcudart: docs/adr/0044 is out of date");
  Outcome outcome = not_possible("NVIDIA's runtime library does not run on the software GPU (docs/adr/0044)");
  outcome.figures = {{"exit_code", output.exit_code}, {"stderr", output.err}};
  return outcome;
}

}  // namespace

Result<Outcome> check_move_plain(const Setting& setting) {
  return check_plain(setting, {"charlm-plain",
                               {"--params", charlm_parameters(setting), "--seed", "7"},
                               {"--print-every", "1", "--step-ms", "20"}});
}

Result<Outcome> check_move_torchlike(const Setting& setting) {
  return check_plain(setting, {"torchlike", {"--seed", "5"}, {"--step-ms", "50"}, rounds_of(setting)});
}

Result<Outcome> check_move_runtime(const Setting& setting) {
  const std::string program = setting.programs + "/examples/runtime";
  if (::access(program.c_str(), X_OK) != 0) return not_possible(kNoRuntimeExample);
  if (setting.software) return check_refusal(setting, program);
  return check_plain(setting, {"runtime", {"--seed", "5"}, {"--step-ms", "50"}, rounds_of(setting)});
}

}  // namespace ckpt::gpu_check
