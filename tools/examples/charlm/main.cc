// SPDX-License-Identifier: Apache-2.0
// charlm: trains a character-level language model on real text (--help). Equal seeds give equal weights, bit
// for bit.
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <thread>

#include "tools/examples/charlm/batches.h"
#include "tools/examples/charlm/model.h"
#include "tools/examples/charlm/text.h"
#include "tools/examples/common/command_line.h"
#include "tools/examples/common/pace.h"

namespace ckpt::examples {
namespace {

struct Options {
  std::string text;
  std::uint64_t parameters = 100'000;
  std::uint64_t steps = 1000;
  std::uint64_t seed = 1;
  std::uint64_t print_every = 50;
  std::int64_t step_ns = 0;
  unsigned threads = 1;
  std::uint64_t host_mib = 0;
  CommonOptions common;
};

constexpr unsigned kMaxThreads = 1024;
constexpr std::uint64_t kMaxHostMib = 1 << 20;

// Host memory with known content, as a program's cache of its data.
class HostMemory {
 public:
  explicit HostMemory(std::uint64_t mib) : words_((mib << 20) / sizeof(std::uint64_t)) {
    for (std::uint64_t i = 0; i < words_.size(); i++) words_[i] = word_at(i);
  }
  [[nodiscard]] bool is_whole() const {
    for (std::uint64_t i = 0; i < words_.size(); i++) {
      if (words_[i] != word_at(i)) return false;
    }
    return true;
  }

 private:
  static std::uint64_t word_at(std::uint64_t i) { return (i + 1) * 0x9e3779b97f4a7c15U; }
  std::vector<std::uint64_t> words_;
};

// Threads beside the one that trains, as a data loader has them; these only wait.
class WaitingThreads {
 public:
  explicit WaitingThreads(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
      threads_.emplace_back([this](std::stop_token stop) {
        std::unique_lock lock(mutex_);
        asked_.wait(lock, stop, [] { return false; });
      });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any asked_;
  std::vector<std::jthread> threads_;
};

// Host state that moves with the job.
struct HostState {
  std::uint64_t step = 0;
  Batches batches;
  double mean_loss = 0;  // over about the last 50 steps
  std::uint64_t moves = 0;
  Pace pace;
};

Options parse_options(int argc, char** argv) {
  Options options;
  double step_ms = 0;
  CommandLine app("Trains a character-level language model with Adam.");
  app.add_option(
      "--text", options.text,
      "The text to learn (the licence texts under /usr/share/common-licenses, or those of the bundle)");
  app.add_option("--params", options.parameters, "About so many parameters (100000)").not_negative();
  app.add_option("--steps", options.steps, "Steps to train (1000)").not_negative();
  app.add_option("--seed", options.seed, "Seed of weights and batches (1)").not_negative();
  app.add_option("--step-ms", step_ms, "A step lasts at least so many milliseconds (0)");
  app.add_option("--threads", options.threads, "Threads; those beside the first one only wait (1)")
      .in_range(1U, kMaxThreads);
  app.add_option("--host-mib", options.host_mib, "MiB of host memory to hold besides, checked at the end (0)")
      .in_range(std::uint64_t{0}, kMaxHostMib);
  app.add_option("--print-every", options.print_every,
                 "Prints step and loss every so many steps (50); 0: never")
      .not_negative();
  add_common_options(app, options.common);
  parse_or_exit(app, argc, argv);
  if (options.parameters < 1000 || options.parameters > 10'000'000'000)
    fail("--params: from 1000 to 10000000000", kUsage);
  if (!(step_ms >= 0) || step_ms > 3.6e6) fail("--step-ms: from 0 to 3600000", kUsage);
  options.step_ns = static_cast<std::int64_t>(step_ms * 1e6);
  return options;
}

void print_step(const HostState& host, const Options& options) {
  if (options.print_every == 0 || host.step % options.print_every != 0) return;
  std::printf("step %llu loss %.4f%s\n", static_cast<unsigned long long>(host.step), host.mean_loss,
              time_note(options.common.print_times).c_str());
  std::fflush(stdout);
}

void print_result(const HostState& host, const Shape& shape, const std::string& digest) {
  const nlohmann::ordered_json result = {
      {"digest", digest},
      {"steps", host.step},
      {"loss", host.mean_loss},
      {"parameters", shape.parameters()},
      {"moves", host.moves},
      {"longest_gap_ms", static_cast<double>(host.pace.longest_gap_ns) / 1e6},
      {"longest_gap_step_ms", static_cast<double>(host.pace.longest_gap_step_ns) / 1e6}};
  std::printf("%s\n", result.dump().c_str());
}

void run(const Options& options) {
  const Text text = load_text(options.text);
  if (text.tokens.size() < 2 * kContext) fail("the text is too short");
  const Shape shape = Shape::choose(options.parameters, text.alphabet.size());
  Gpu gpu;
  const WaitingThreads waiting(options.threads - 1);
  const HostMemory memory(options.host_mib);
  HostState host;
  Session session(!options.common.without_ckpt);
  Model model(session, shape, text.tokens.size());
  session.host_state("charlm", &host, sizeof host);
  if (session.ready()) {
    host.moves++;
  } else {
    model.initialise(options.seed, text.tokens);
    host.batches.random = Random(options.seed + 1);
    host.pace.forget_gap();
  }
  while (host.step < options.steps) {
    host.pace.begin_step();
    const double loss = model.train(host.batches.next(text.tokens.size()), host.step + 1);
    host.step++;
    host.mean_loss = host.step == 1 ? loss : host.mean_loss + (loss - host.mean_loss) / 50;
    host.pace.end_step(host.step, options.step_ns);
    print_step(host, options);
    session.barrier();
  }
  if (!memory.is_whole()) fail("host memory has other content than was written");
  print_result(host, shape, model.digest());
  session.shutdown();
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  ckpt::examples::run(ckpt::examples::parse_options(argc, argv));
  return 0;
}
