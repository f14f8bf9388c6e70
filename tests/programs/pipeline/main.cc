// SPDX-License-Identifier: Apache-2.0
// pipeline: a deeper charlm whose stages are ranks (--help). Each stage sends its activations to the next
// stage in micro-batches, and receives their gradients back. Equal seeds and numbers of ranks give equal
// weights, bit for bit.
#include "tests/programs/pipeline/stage.h"
#include "tools/examples/charlm/text.h"
#include "tools/examples/charlm/training.h"
#include "tools/examples/ranks/ranks.h"
#include "tools/examples/ranks/training_of_ranks.h"

namespace ckpt::examples {
namespace {

constexpr std::uint32_t kMaxRanks = 64;

struct Options {
  TrainingOptions training;
  std::uint32_t micro_batches = 4;
};

Options parse_options(int argc, char** argv) {
  Options options;
  CommandLine app(
      "Trains a deep character-level language model whose layers lie on several ranks, over NCCL.");
  add_training_options(app, options.training);
  app.add_option("--micro-batches", options.micro_batches, "Parts of a batch: 1, 2, 4, 8 or 16 (4)");
  parse_or_exit(app, argc, argv);
  check_training_options(options.training);
  if (options.micro_batches == 0 || kBatch % (4 * options.micro_batches) != 0)
    fail("--micro-batches: 1, 2, 4, 8 or 16", kUsage);
  return options;
}

class Trainer {
 public:
  Trainer(const Options& options, const Ranks& ranks, Text text)
      : options_(options),
        ranks_(ranks),
        text_(std::move(text)),
        session_(!options.training.common.without_ckpt),
        stage_(session_, shape(), text_.tokens.size()),
        communicator_(session_, ranks),
        passed_(sizeof(Passed)) {}

  void run() { train("pipeline", *this, session_, communicator_, progress_, ranks_, options_.training); }
  void initialise() { stage_.initialise(options_.training.seed + ranks_.rank, text_.tokens); }
  [[nodiscard]] std::string digest() const { return stage_.digest(); }
  [[nodiscard]] std::uint64_t parameters() const { return stage_.parameters(); }
  void step() {
    progress_.pace.begin_step();
    stage_.begin_step(progress_.batches.next(text_.tokens.size()));
    for (std::uint32_t part = 0; part < options_.micro_batches; ++part) {
      if (!is_first())
        communicator_.receive(stage_.input(part), stage_.crossing(), ncclFloat32, ranks_.rank - 1);
      stage_.forward(part);
      if (!is_last())
        communicator_.send(stage_.output(part), stage_.crossing(), ncclFloat32, ranks_.rank + 1);
    }
    for (std::uint32_t part = options_.micro_batches; part-- > 0;) {
      if (!is_last())
        communicator_.receive(stage_.output_gradient(part), stage_.crossing(), ncclFloat32, ranks_.rank + 1);
      stage_.backward(part);
      if (!is_first())
        communicator_.send(stage_.input_gradient(part), stage_.crossing(), ncclFloat32, ranks_.rank - 1);
    }
    const Passed passed = pass_back();
    stage_.update(progress_.step + 1);
    progress_.end_step(passed.loss, options_.training);
    progress_.was_asked_to_end = passed.ends > 0;
    session_.barrier();
  }

 private:
  // Values that the last rank sends to the first.
  struct Passed {
    double loss = 0;
    double ends = 0;  // 1 if the last rank was requested to exit, otherwise 0
  };

  [[nodiscard]] bool is_first() const { return ranks_.rank == 0; }
  [[nodiscard]] bool is_last() const { return ranks_.rank + 1 == ranks_.count; }
  [[nodiscard]] StageShape shape() const {
    StageShape shape;
    shape.model = Shape::choose(options_.training.parameters, text_.alphabet.size());
    shape.is_first = is_first();
    shape.is_last = is_last();
    shape.rows = kBatch / options_.micro_batches;
    return shape;
  }

  Passed pass_back() {
    constexpr std::size_t kCount = sizeof(Passed) / sizeof(double);
    Passed passed;
    if (is_last()) {
      passed.loss = stage_.loss();
      passed.ends = Progress::is_asked_to_end(options_.training) ? 1 : 0;
      upload(passed_.get(), &passed, sizeof passed);
    } else {
      communicator_.receive(passed_.get(), kCount, ncclFloat64, ranks_.rank + 1);
    }
    if (!is_first()) communicator_.send(passed_.get(), kCount, ncclFloat64, ranks_.rank - 1);
    download(&passed, passed_.get(), sizeof passed);
    return passed;
  }

  const Options& options_;
  const Ranks ranks_;
  const Text text_;
  Gpu gpu_;
  Session session_;
  Stage stage_;
  Communicator communicator_;
  LocalMemory passed_;
  Progress progress_;
};

void run(const Options& options) {
  const Ranks ranks = Ranks::from_environment();
  if (ranks.count > kMaxRanks) fail("WORLD_SIZE: at most 64", kUsage);
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
