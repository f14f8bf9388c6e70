// SPDX-License-Identifier: Apache-2.0
// late: the GPU writes to pinned, mapped and registered host memory all the time (--help). Kernels and copies
// are always in flight, while the host writes to the same pages. The program does not use libckpt: wherever
// it is stopped and moved, no write may be lost or repeated.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/programs/late/hold.h"
#include "tests/programs/late/lane.h"
#include "tools/examples/common/command_line.h"

namespace ckpt::examples {
namespace {

using Lanes = std::vector<std::unique_ptr<Lane>>;

struct Options {
  LatePlan plan;
  double seconds = 0;
  std::string hold;  // the kind of Hold; empty: none
};

Options parse_options(int argc, char** argv) {
  CommandLine app("Lets the GPU write to host memory all the time, and checks every write");
  Options options;
  options.plan.rounds = 1000;
  app.add_option("--seconds", options.seconds, "How long; 0: until a signal (0)").in_range(0.0, 1e6);
  app.add_option("--rounds", options.plan.rounds, "Passes of a kernel over its words (1000)")
      .in_range(std::uint64_t{16}, std::uint64_t{1} << 30);
  app.add_option("--print-every", options.plan.print_every, "Steps between two lines (never)");
  app.add_option("--seed", options.plan.seed, "Other seed, other content (0)");
  app.add_option("--break-at", options.plan.break_at,
                 "Step from which on each stream loses a write or does it twice, to see it found (never)");
  app.add_option("--hold", options.hold, "Obstacle to moving the program until SIGUSR1 (none)")
      .one_of({"value", "callback", "copy", "handle"});
  parse_or_exit(app, argc, argv);
  return options;
}

// Creates the lanes. With a Hold there is only one lane, whose calls do not wait for all work of the context.
Lanes make_lanes(const LatePlan& plan, bool held) {
  LatePlan quiet = plan;
  quiet.print_every = 0;
  Lanes lanes;
  lanes.push_back(std::make_unique<AddLane>(plan, HostKind::kAllocated));
  if (held) return lanes;
  lanes.push_back(std::make_unique<AddLane>(quiet, HostKind::kPortable));
  lanes.push_back(std::make_unique<AddLane>(quiet, HostKind::kMapped));
  lanes.push_back(std::make_unique<CopyLane>(quiet, HostKind::kAllocated));
  lanes.push_back(std::make_unique<CopyLane>(quiet, HostKind::kRegistered));
  lanes.push_back(std::make_unique<CopyLane>(quiet, HostKind::kRegisteredPart));
  return lanes;
}

// Performs the host's own writes to these pages, without a driver call that a move could delay.
std::uint64_t touch_all(const Lanes& lanes, const std::atomic<bool>& stop) {
  constexpr std::chrono::microseconds kPace(200);
  std::uint64_t wrong = 0;
  while (!stop) {
    for (const auto& lane : lanes) wrong += lane->touch();
    std::this_thread::sleep_for(kPace);
  }
  return wrong;
}

int wait_for_signal(const sigset_t& signals) {
  int number = 0;
  sigwait(&signals, &number);
  return number;
}

void wait_for_end(const sigset_t& signals, double seconds) {
  if (seconds <= 0) {
    wait_for_signal(signals);
    return;
  }
  timespec left{};
  left.tv_sec = static_cast<time_t>(seconds);
  left.tv_nsec = static_cast<long>((seconds - static_cast<double>(left.tv_sec)) * 1e9);
  sigtimedwait(&signals, nullptr, &left);
}

void print(const LateTally& all) {
  nlohmann::ordered_json found = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kLateNames.size(); ++i) found[kLateNames[i]] = all.errors[i];
  const nlohmann::ordered_json result = {
      {"errors", all.all_errors()}, {"errors_found_by", found}, {"checks", all.checks}, {"steps", all.steps}};
  std::printf("%s\n", result.dump().c_str());
}

int run(const Options& options) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // blocks the signals before the driver starts threads
  const Gpu gpu;
  CUcontext context = nullptr;
  check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  const Lanes lanes = make_lanes(options.plan, !options.hold.empty());
  std::atomic<bool> stop = false;
  std::vector<LateTally> tallies(lanes.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    threads.emplace_back([&, i] {
      check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
      tallies[i] = lanes[i]->run(stop);
    });
  }
  std::uint64_t touched = 0;
  threads.emplace_back([&] { touched = touch_all(lanes, stop); });
  if (options.hold.empty()) {
    wait_for_end(signals, options.seconds);
  } else {
    Hold hold(options.hold, context);
    std::printf("held\n");
    std::fflush(stdout);
    while (wait_for_signal(signals) == SIGUSR1) {
      hold.release();
      std::printf("let go\n");
      std::fflush(stdout);
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  LateTally all;
  for (const LateTally& tally : tallies) all.add(tally);
  all.count(Late::kHost, touched);
  print(all);
  return all.all_errors() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  return ckpt::examples::run(ckpt::examples::parse_options(argc, argv));
}
