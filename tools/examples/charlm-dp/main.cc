// SPDX-License-Identifier: Apache-2.0
// charlm-dp: charlm on several ranks, data-parallel over NCCL (--help). Each rank computes its share of the same batch,
// and gradients are summed over all ranks. Equal seeds and numbers of ranks give equal weights, bit for bit, as far as
// NCCL adds in one order.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/examples/charlm-dp/ranks.h"
#include "tools/examples/charlm/batches.h"
#include "tools/examples/charlm/model.h"
#include "tools/examples/charlm/text.h"
#include "tools/examples/common/command_line.h"
#include "tools/examples/common/pace.h"

namespace ckpt::examples {
namespace {

constexpr std::uint32_t kMaxRanks = 16;  // a share is a multiple of 4 places

struct Options {
  std::string text;
  std::uint64_t parameters = 100'000;
  std::uint64_t steps = 1000;
  std::uint64_t seed = 1;
  std::uint64_t print_every = 50;
  std::int64_t step_ns = 0;
  bool shards = false;
  CommonOptions common;
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
  CommandLine app("Trains a character-level language model with Adam on 1, 2, 4, 8 or 16 ranks, over NCCL.");
  app.add_option(
      "--text", options.text,
      "The text to learn (the licence texts under /usr/share/common-licenses, or those of the bundle)");
  app.add_option("--params", options.parameters, "About so many parameters (100000)").not_negative();
  app.add_option("--steps", options.steps, "Steps to train (1000)").not_negative();
  app.add_option("--seed", options.seed, "Seed of weights and batches (1)").not_negative();
  app.add_option("--step-ms", step_ms, "A step lasts at least so many milliseconds (0)");
  app.add_option("--print-every", options.print_every,
                 "Prints step and loss every so many steps (50); 0: never")
      .not_negative();
  app.add_flag(
      "--shards", options.shards,
      "Each rank updates its share of the weights: gradients are reduced and scattered, weights gathered");
  add_common_options(app, options.common);
  parse_or_exit(app, argc, argv);
  if (options.parameters < 1000 || options.parameters > 10'000'000'000)
    fail("--params: from 1000 to 10000000000", kUsage);
  if (!(step_ms >= 0) || step_ms > 3.6e6) fail("--step-ms: from 0 to 3600000", kUsage);
  options.step_ns = static_cast<std::int64_t>(step_ms * 1e6);
  return options;
}

class Trainer {
 public:
  Trainer(const Options& options, const Ranks& ranks, Text text)
      : options_(options),
        ranks_(ranks),
        text_(std::move(text)),
        shape_(Shape::choose(options.parameters, text_.alphabet.size())),
        session_(!options.common.without_ckpt),
        model_(session_, shape_, text_.tokens.size(), kBatch / ranks.count),
        loss_(sizeof(double)),
        communicator_(ranks) {}

  void run() {
    session_.host_state("charlm-dp", &host_, sizeof host_);
    if (session_.ready()) {
      host_.moves++;
    } else {
      model_.initialise(options_.seed, text_.tokens);
      host_.batches.random = Random(options_.seed + 1);
      host_.pace.forget_gap();
    }
    while (host_.step < options_.steps) step();
    print_result();
    session_.shutdown();
  }

 private:
  void step() {
    host_.pace.begin_step();
    const std::vector<std::uint64_t> batch = host_.batches.next(text_.tokens.size());
    const auto places = static_cast<std::ptrdiff_t>(batch.size() / ranks_.count);
    const auto begin = batch.begin() + static_cast<std::ptrdiff_t>(ranks_.rank) * places;
    model_.compute({begin, begin + places});
    double loss = model_.loss_sum() / kBatch;
    upload(loss_.get(), &loss, sizeof loss);
    communicator_.sum(loss_.get(), 1, ncclFloat64);
    update();
    download(&loss, loss_.get(), sizeof loss);
    host_.step++;
    host_.mean_loss = host_.step == 1 ? loss : host_.mean_loss + (loss - host_.mean_loss) / 50;
    host_.pace.end_step(host_.step, options_.step_ns);
    print_step();
    session_.barrier();
  }

  // The number of weights is a multiple of 64.
  void update() {
    if (!options_.shards) {
      communicator_.sum(model_.gradients(), model_.gradient_count(), ncclFloat32);
      model_.update(host_.step + 1);
      return;
    }
    const std::size_t share = model_.gradient_count() / ranks_.count;
    communicator_.sum_shares(model_.gradients(), share);
    model_.update(host_.step + 1, ranks_.rank * share, share);
    communicator_.gather_shares(model_.weights(), share);
  }

  void print_step() const {
    if (options_.print_every == 0 || host_.step % options_.print_every != 0) return;
    std::printf("step %llu loss %.4f%s\n", static_cast<unsigned long long>(host_.step), host_.mean_loss,
                time_note(options_.common.print_times).c_str());
    std::fflush(stdout);
  }

  void print_result() const {
    const nlohmann::ordered_json result = {
        {"digest", model_.digest()},
        {"rank", ranks_.rank},
        {"ranks", ranks_.count},
        {"steps", host_.step},
        {"loss", host_.mean_loss},
        {"parameters", shape_.parameters()},
        {"moves", host_.moves},
        {"longest_gap_ms", static_cast<double>(host_.pace.longest_gap_ns) / 1e6},
        {"longest_gap_step_ms", static_cast<double>(host_.pace.longest_gap_step_ns) / 1e6}};
    std::printf("%s\n", result.dump().c_str());
  }

  const Options& options_;
  const Ranks ranks_;
  const Text text_;
  const Shape shape_;
  Gpu gpu_;
  Session session_;
  Model model_;
  LocalMemory loss_;
  Communicator communicator_;
  HostState host_;
};

void run(const Options& options) {
  const Ranks ranks = Ranks::from_environment();
  if (ranks.count > kMaxRanks || kBatch % (4 * ranks.count) != 0)
    fail("WORLD_SIZE: 1, 2, 4, 8 or 16", kUsage);
  Text text = load_text(options.text);
  if (text.tokens.size() < 2 * kContext) fail("the text is too short");
  Trainer(options, ranks, std::move(text)).run();
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  ckpt::examples::run(ckpt::examples::parse_options(argc, argv));
  return 0;
}
