// SPDX-License-Identifier: Apache-2.0
// The start of trainings with several ranks, their continuation after a move, and their end.
// Threads: one. Ownership: borrows everything for the call. Errors: the program exits.
#pragma once

#include <cstdio>

#include "tools/examples/charlm/training.h"
#include "tools/examples/common/gpu.h"
#include "tools/examples/ranks/ranks.h"

namespace ckpt::examples {

// Trains until the last step. `trainer` has initialise(), step(), digest() and parameters(). Prints the
// rank's last line.
template <class Trainer>
void train(const char* name, Trainer& trainer, Session& session, Communicator& communicator,
           Progress& progress, const Ranks& ranks, const TrainingOptions& options) {
  session.host_state(name, &progress, sizeof progress);
  if (session.ready()) {
    progress.moves++;
  } else {
    trainer.initialise();
    progress.batches.random = Random(options.seed + 1);
    progress.pace.forget_gap();
  }
  communicator.meet();  // a standby joins no rendezvous, and ranks that were restored from images meet again
  while (!progress.is_over(options)) trainer.step();
  auto result = progress.result(trainer.digest(), trainer.parameters());
  result["rank"] = ranks.rank;
  result["ranks"] = ranks.count;
  std::printf("%s\n", result.dump().c_str());
  session.shutdown();
}

}  // namespace ckpt::examples
