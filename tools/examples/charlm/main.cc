// SPDX-License-Identifier: Apache-2.0
// charlm: trains a character-level language model on real text (--help). Equal seeds give equal weights, bit
// for bit.
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <thread>

#include "tools/examples/charlm/model.h"
#include "tools/examples/charlm/text.h"
#include "tools/examples/charlm/training.h"

namespace ckpt::examples {
namespace {

struct Options {
  TrainingOptions training;
  unsigned threads = 1;
  std::uint64_t host_mib = 0;
};

constexpr unsigned kMaxThreads = 1024;
constexpr std::uint64_t kMaxHostMib = 1 << 20;

// Host memory with known content, like a program's cache of its data.
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

// Threads in addition to the training thread, like the threads of a data loader. These threads only wait.
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

Options parse_options(int argc, char** argv) {
  Options options;
  CommandLine app("Trains a character-level language model with Adam.");
  add_training_options(app, options.training);
  app.add_option("--threads", options.threads,
                 "Number of threads; all threads except the first only wait (1)")
      .in_range(1U, kMaxThreads);
  app.add_option("--host-mib", options.host_mib,
                 "MiB of additional host memory to hold and to check at the end (0)")
      .in_range(std::uint64_t{0}, kMaxHostMib);
  parse_or_exit(app, argc, argv);
  check_training_options(options.training);
  return options;
}

void run(const Options& options) {
  const TrainingOptions& training = options.training;
  const Text text = load_text(training.text);
  if (text.tokens.size() < 2 * kContext) fail("the text is too short");
  const Shape shape = Shape::choose(training.parameters, text.alphabet.size());
  Gpu gpu;
  const WaitingThreads waiting(options.threads - 1);
  const HostMemory memory(options.host_mib);
  Progress progress;
  Session session(!training.common.without_ckpt);
  Model model(session, shape, text.tokens.size());
  session.host_state("charlm", &progress, sizeof progress);
  if (session.ready()) {
    progress.moves++;
  } else {
    model.initialise(training.seed, text.tokens);
    progress.batches.random = Random(training.seed + 1);
    progress.pace.forget_gap();
  }
  while (!progress.is_over(training)) {
    progress.pace.begin_step();
    const double loss = model.train(progress.batches.next(text.tokens.size()), progress.step + 1);
    progress.end_step(loss, training);
    progress.was_asked_to_end = Progress::is_asked_to_end(training);
    session.barrier();
  }
  if (!memory.is_whole()) fail("host memory differs from what was written to it");
  std::printf("%s\n", progress.result(model.digest(), shape.parameters()).dump().c_str());
  session.shutdown();
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  ckpt::examples::run(ckpt::examples::parse_options(argc, argv));
  return 0;
}
