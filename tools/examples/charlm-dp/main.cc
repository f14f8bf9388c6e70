// SPDX-License-Identifier: Apache-2.0
// charlm-dp: charlm on several ranks, data-parallel over NCCL (--help). Each rank computes its share of the
// same batch, and gradients are summed over all ranks. Equal seeds and numbers of ranks give equal weights,
// bit for bit, if NCCL adds in a fixed order.
#include "tools/examples/charlm-dp/step_graph.h"
#include "tools/examples/charlm/model.h"
#include "tools/examples/charlm/text.h"
#include "tools/examples/charlm/training.h"
#include "tools/examples/ranks/ranks.h"
#include "tools/examples/ranks/training_of_ranks.h"

namespace ckpt::examples {
namespace {

constexpr std::uint32_t kMaxRanks = 16;  // the maximum number of ranks; a rank's share is then still a
                                         // multiple of 4 places

struct Options {
  TrainingOptions training;
  bool shards = false;
  bool graphs = false;
};

Options parse_options(int argc, char** argv) {
  Options options;
  CommandLine app("Trains a character-level language model with Adam on 1, 2, 4, 8 or 16 ranks, over NCCL.");
  add_training_options(app, options.training);
  app.add_flag("--shards", options.shards,
               "Each rank updates its share of the weights: gradients are reduced and scattered, and weights "
               "are gathered");
  app.add_flag("--graphs", options.graphs,
               "Capture the gradients and their sum as a graph, and capture it again after each move");
  parse_or_exit(app, argc, argv);
  check_training_options(options.training);
  return options;
}

class Trainer {
 public:
  Trainer(const Options& options, const Ranks& ranks, Text text)
      : options_(options),
        ranks_(ranks),
        text_(std::move(text)),
        shape_(Shape::choose(options.training.parameters, text_.alphabet.size())),
        session_(!options.training.common.without_ckpt),
        model_(session_, shape_, text_.tokens.size(), kBatch / ranks.count),
        communicator_(session_, ranks),
        shared_(sizeof(Shared)) {}

  void run() { train("charlm-dp", *this, session_, communicator_, progress_, ranks_, options_.training); }
  void initialise() { model_.initialise(options_.training.seed, text_.tokens); }
  [[nodiscard]] std::string digest() const { return model_.digest(); }
  [[nodiscard]] std::uint64_t parameters() const { return shape_.parameters(); }
  void step() {
    progress_.pace.begin_step();
    const std::vector<std::uint64_t> batch = progress_.batches.next(text_.tokens.size());
    const auto places = static_cast<std::ptrdiff_t>(batch.size() / ranks_.count);
    const auto begin = batch.begin() + static_cast<std::ptrdiff_t>(ranks_.rank) * places;
    model_.take({begin, begin + places});
    if (options_.graphs)
      graph_.run(communicator_.epoch(), [this] { compute(); });
    else
      compute();
    Shared shared;
    shared.loss = model_.loss_sum() / kBatch;
    shared.ends = ranks_.rank == 0 && Progress::is_asked_to_end(options_.training) ? 1 : 0;
    upload(shared_.get(), &shared, sizeof shared);
    communicator_.sum(shared_.get(), sizeof shared / sizeof(double), ncclFloat64);
    update();
    download(&shared, shared_.get(), sizeof shared);
    progress_.end_step(shared.loss, options_.training);
    progress_.was_asked_to_end = shared.ends > 0;
    session_.barrier();
  }

 private:
  // Values that are summed over all ranks in each step.
  struct Shared {
    double loss = 0;
    double ends = 0;  // 1 on rank 0 after a request to exit, otherwise 0; the sum informs all ranks
  };

  // Returns a rank's share of the gradients. The number of weights is a multiple of 64.
  [[nodiscard]] std::size_t share() const { return model_.gradient_count() / ranks_.count; }

  void compute() {
    model_.compute();
    if (options_.shards)
      communicator_.sum_shares(model_.gradients(), share());
    else
      communicator_.sum(model_.gradients(), model_.gradient_count(), ncclFloat32);
  }

  void update() {
    const std::uint64_t step = progress_.step + 1;
    if (!options_.shards) return model_.update(step);
    model_.update(step, ranks_.rank * share(), share());
    communicator_.gather_shares(model_.weights(), share());
  }

  const Options& options_;
  const Ranks ranks_;
  const Text text_;
  const Shape shape_;
  Gpu gpu_;
  Session session_;
  Model model_;
  Communicator communicator_;
  StepGraph graph_;  // destroyed before the communicator
  LocalMemory shared_;
  Progress progress_;
};

void run(const Options& options) {
  const Ranks ranks = Ranks::from_environment();
  if (ranks.count > kMaxRanks || kBatch % (4 * ranks.count) != 0)
    fail("WORLD_SIZE: 1, 2, 4, 8 or 16", kUsage);
  Text text = load_text(options.training.text);
  if (text.tokens.size() < 2 * kContext) fail("the text is too short");
  Trainer(options, ranks, std::move(text)).run();
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  ckpt::examples::run(ckpt::examples::parse_options(argc, argv));
  return 0;
}
