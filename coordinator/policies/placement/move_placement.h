// SPDX-License-Identifier: Apache-2.0
// The place to which a running job moves, or where a job continues from an image. Pure functions: the caller
// describes the GPUs, the needs of the job and its state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {

// Memory that is promised to jobs on their way to a GPU, one entry per job.
using PromisedMemory = std::vector<std::pair<Place, std::uint64_t>>;

struct MigratePlan {
  std::optional<Place> to;
  std::string reason;    // why the move is not possible
  bool passing = false;  // the obstacle may pass once a job ends or starts, or a node reconnects
  bool no_gpu = false;   // no candidate is suitable
  std::vector<Candidate> candidates;
  std::vector<std::string> warnings;  // the warnings of a dry run
};

// A running job for which a move is planned.
struct MovingJob {
  std::string name;
  Place from;
  std::string obstacle;           // why the job cannot be moved now; empty: it can be moved
  bool stays_put = false;         // the obstacle lies in the job itself and is permanent
  bool nodes_may_return = false;  // nodes that are not connected yet may connect soon
};

// A job for which a start from an image is planned.
struct ReturningJob {
  std::string name;
  std::optional<Place> held;         // the GPU whose memory the job, if it runs, releases before it continues
                                     // from the image
  std::uint64_t shown_bytes = 0;     // the memory of the job that free_bytes of that GPU excludes
  std::uint64_t expected_bytes = 0;  // the memory that the job is expected to need there
  std::string image_node;            // the node that stores the image; empty: every node reads it alike
};

// Adds the promised memory, and the jobs for which it is promised, to the views of the GPUs.
void count_promised(const PromisedMemory& promised, std::vector<GpuView>& gpus);
// Returns the candidates for a move away from `from`. The job does not count against its own node.
[[nodiscard]] std::vector<Candidate> rank_targets(std::vector<GpuView> gpus, const PlacementRequest& request,
                                                  const Place& from);
[[nodiscard]] MigratePlan plan_move(std::vector<GpuView> gpus, const PlacementRequest& request,
                                    const MovingJob& job);
// Plans the start from an image. GPUs of `image_node` are preferred: there the image is read without using
// the network.
[[nodiscard]] MigratePlan plan_return(std::vector<GpuView> gpus, const PlacementRequest& request,
                                      const ReturningJob& job);

}  // namespace ckpt::coordinator
