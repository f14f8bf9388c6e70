// SPDX-License-Identifier: Apache-2.0
// stress: many threads that allocate, free, copy, load modules, and launch kernels, graphs and host callbacks
// on many streams at once (--help). They check all their memory. The program does not use libckpt. With the
// shim in front of the driver, moved or not, it must find no error. For equal --seed and --steps it must
// print the same line.
#include <signal.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "libckpt/command_line/command_line.h"
#include "tests/programs/stress/worker.h"
#include "tools/common/units.h"
#include "tools/examples/common/command_line.h"

namespace ckpt::examples {
namespace {

constexpr unsigned kMaxThreads = 256;
constexpr double kDefaultSeconds = 10;

struct Options {
  unsigned threads = 8;
  unsigned streams = 32;
  double seconds = 0;  // time limit; 0: until --steps or a signal
  Plan plan;           // plan of one thread, but memory_bytes is for all threads
};

// Returns a thread's bytes of device memory. The first thread has half of the total, and therefore the
// largest allocations.
std::uint64_t share_of(const Options& options, unsigned thread) {
  const std::uint64_t all = options.plan.memory_bytes;
  if (options.threads == 1) return all;
  return thread == 0 ? all / 2 : all / 2 / (options.threads - 1);
}

Options parse_options(int argc, char** argv) {
  CommandLine app("Allocates, copies, launches and checks on many threads and streams at once");
  Options options;
  std::string limit = "64MiB";
  std::string memory = "1GiB";
  std::uint64_t seed = 1;
  app.add_option("--threads", options.threads, "Threads (8)").in_range(1U, kMaxThreads);
  app.add_option("--streams", options.streams, "Streams of all threads together (32)").in_range(1, 4096);
  Option seconds =
      app.add_option("--seconds", options.seconds, "How long; 0: until a signal (10)").in_range(0.0, 1e6);
  Option steps = app.add_option("--steps", options.plan.steps, "Steps of each thread, in place of --seconds")
                     .excludes(seconds);
  app.add_option("--most-bytes", limit, "The largest allocation (64MiB)");
  app.add_option("--memory", memory, "Device memory of all threads together (1GiB)");
  app.add_option("--seed", seed, "Other seed, other steps (1)");
  app.add_option("--print-every", options.plan.print_every,
                 "Steps of the first thread between its lines (never)");
  app.add_option("--break-at", options.plan.break_at,
                 "Step at which each thread changes a byte of its memory, to see it found (never)");
  parse_or_exit(app, argc, argv);
  if (!seconds.is_given() && !steps.is_given()) options.seconds = kDefaultSeconds;
  options.plan.max_bytes = value_or_usage("--most-bytes", tools::parse_size(limit));
  options.plan.memory_bytes = value_or_usage("--memory", tools::parse_size(memory));
  options.plan.seed = seed;
  if (options.plan.max_bytes == 0) fail("--most-bytes: must not be 0", kUsage);
  if (share_of(options, 0) < options.plan.max_bytes)
    fail("--memory: the first thread's half of it must hold one allocation of --most-bytes", kUsage);
  return options;
}

Plan plan_of(const Options& options, unsigned thread) {
  Plan plan = options.plan;
  plan.streams = std::max(
      1U, options.streams / options.threads + (thread < options.streams % options.threads ? 1U : 0U));
  plan.memory_bytes = share_of(options, thread);
  plan.max_bytes = std::max<std::uint64_t>(1, std::min(plan.max_bytes, plan.memory_bytes));
  plan.seed = Random(options.plan.seed * kMaxThreads + thread).next();
  if (thread != 0) plan.print_every = 0;
  return plan;
}

// Waits until all threads have ended (the last of them raises SIGUSR1), the time is over, or a signal
// requests the end.
void wait_for_end(const sigset_t& signals, double seconds) {
  if (seconds <= 0) {
    int number = 0;
    sigwait(&signals, &number);
    return;
  }
  timespec left{};
  left.tv_sec = static_cast<time_t>(seconds);
  left.tv_nsec = static_cast<long>((seconds - static_cast<double>(left.tv_sec)) * 1e9);
  sigtimedwait(&signals, nullptr, &left);
}

Tally sum(const std::vector<Tally>& tallies) {
  Tally all;
  for (const Tally& tally : tallies) {
    all.steps += tally.steps;
    for (std::size_t i = 0; i < kFinders.size(); ++i) all.errors[i] += tally.errors[i];
    all.checks += tally.checks;
    all.allocations += tally.allocations;
    all.modules += tally.modules;
    all.callbacks += tally.callbacks;
    all.graph_launches += tally.graph_launches;
    all.codes = all.codes * 31 + tally.codes;
  }
  return all;
}

void print(const Options& options, const OptionalDriver& driver, const Tally& all) {
  char codes[17];
  std::snprintf(codes, sizeof codes, "%016llx", static_cast<unsigned long long>(all.codes));
  nlohmann::ordered_json found_by = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kFinders.size(); ++i) found_by[kFinders[i]] = all.errors[i];
  const nlohmann::ordered_json result = {{"errors", all.all_errors()},
                                         {"errors_found_by", found_by},
                                         {"checks", all.checks},
                                         {"steps", all.steps},
                                         {"threads", options.threads},
                                         {"streams", options.streams},
                                         {"allocations", all.allocations},
                                         {"modules", all.modules},
                                         {"callbacks", all.callbacks},
                                         {"graph_launches", all.graph_launches},
                                         {"codes", codes},
                                         {"left_out", driver.left_out}};
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
  const OptionalDriver driver = OptionalDriver::probe();
  std::atomic<bool> stop = false;
  std::atomic<unsigned> running = options.threads;
  std::vector<Tally> tallies(options.threads);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] {
      check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
      tallies[i] = Worker(plan_of(options, i), driver).run(stop);
      if (--running == 0) ::kill(::getpid(), SIGUSR1);
    });
  }
  if (options.plan.print_every != 0) {
    std::printf("ready\n");
    std::fflush(stdout);
  }
  wait_for_end(signals, options.seconds);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const Tally all = sum(tallies);
  print(options, driver, all);
  return all.all_errors() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  return ckpt::examples::run(ckpt::examples::parse_options(argc, argv));
}
