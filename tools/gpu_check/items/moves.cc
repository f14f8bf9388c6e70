// SPDX-License-Identifier: Apache-2.0
// The items that move the ckpt.h examples. Each example is moved live between two agents of a separate
// cluster, there and back. Its digest is then compared with that of a run that was never moved; a job's
// digest covers all its state. The agents use two GPUs if available, otherwise both share one.
#include <algorithm>

#include "tools/gpu_check/items/examples.h"

namespace ckpt::gpu_check {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kStateBytes = 1024 * kMiB;
constexpr std::uint64_t kSoftwareBytes = 128 * kMiB;  // the state's size if the device memory is host memory
constexpr std::uint64_t kQuickBytes = 32 * kMiB;
constexpr std::uint64_t kCharlmBytes = 512 * kMiB;  // an upper limit of the example's memory
constexpr std::uint64_t kStepsBefore = 10;

struct Example {
  std::string program;
  std::uint64_t bytes;
  bench::Arguments arguments;  // all arguments that affect the digest
  bench::Arguments pace;       // the arguments that do not affect the digest
};

Result<Outcome> check_move(const Setting& setting, const Example& example) {
  Outcome outcome;
  if (std::string missing = missing_network(); !missing.empty()) return not_possible(std::move(missing));
  CKPT_TRY(unmoved, run_alone(setting, example.program, example.arguments));
  CKPT_TRY(cluster, bench::Cluster::start(setting.programs, example.bytes));
  if (cluster->software_gpu() != setting.software)
    return Error(ErrorCode::kInternal, "The cluster runs on the wrong kind of driver (real or software)");
  bench::Arguments arguments = example.arguments;
  arguments.insert(arguments.end(), example.pace.begin(), example.pace.end());
  CKPT_TRY(job, cluster->run_lasting_job(example.program, arguments));
  Json moves = Json::array();
  for (const char* way : {"there", "back"}) {
    CKPT_TRYV(cluster->wait_for_steps(job, kStepsBefore));
    CKPT_TRY(move, cluster->migrate_done(job, {"--live"}));
    moves.push_back(json_of(move));
    outcome.add(std::string("move ") + way, Status::kPassed);
  }
  CKPT_TRYV(cluster->let_end(job));
  CKPT_TRYV(cluster->wait(job));
  CKPT_TRY(log, cluster->log(job));
  CKPT_TRY(moved, digest_of(log));
  compare_digests(moved, unmoved, outcome);
  outcome.figures = {{"moves", moves}, {"digest", moved}};
  outcome.sum_up();
  return outcome;
}

std::uint64_t state_bytes(const Setting& setting) {
  if (setting.quick) return kQuickBytes;
  return setting.software ? kSoftwareBytes : kStateBytes;
}

bench::Arguments charlm_arguments(const Setting& setting, std::uint64_t steps) {
  return {"--params", charlm_parameters(setting), "--steps", std::to_string(steps), "--seed", "7"};
}

// Returns as many steps of charlm as fill the time of two moves and a margin, on any GPU.
Result<std::uint64_t> charlm_steps(const Setting& setting, double wanted_ns) {
  constexpr std::uint64_t kFew = 20, kMore = 120, kMax = 100'000;
  double spent[2] = {};
  for (const std::uint64_t steps : {kFew, kMore}) {
    const Nanos begin = now_ns();
    CKPT_TRYV(run_alone(setting, "charlm", charlm_arguments(setting, steps)));
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
  CKPT_TRY(steps, charlm_steps(setting, 8e9));
  return check_move(setting,
                    {"charlm", kCharlmBytes, charlm_arguments(setting, steps), {"--print-every", "1"}});
}

}  // namespace ckpt::gpu_check
