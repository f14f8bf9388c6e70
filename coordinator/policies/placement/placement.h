// SPDX-License-Identifier: Apache-2.0
// The choice of a job's GPU: filters first (placement_filters.cc), then a score (placement_scores.cc). Every
// GPU has its reasons, which --dry-run shows. The weights are in docs/site/placement.md. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/policies/placement/networks.h"
#include "coordinator/state/model.h"

namespace ckpt::coordinator {

// The distance to another GPU of the same node.
struct PeerView {
  std::uint32_t gpu = 0;
  unsigned nvlinks = 0;
  unsigned common_ancestor = 50;  // the level of the common ancestor, as NVML counts: 0 (one board) to 50
                                  // (across the machine)
};

// A GPU as placement sees it.
struct GpuView {
  Place place;
  bool connected = true;
  bool healthy = true;
  std::string health_reason;
  std::string closed;   // why the GPU accepts no new job, such as a cordon; empty: it accepts
  std::string suspect;  // why the GPU accepts no new job for some minutes, because of its own finding; empty:
                        // it accepts
  std::string model;
  std::string driver;  // the version of the node's driver; empty: not known
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t promised_bytes =
      0;  // memory that free_bytes still includes: growth expected of jobs on the GPU, and jobs on their way
  std::uint64_t shown_bytes = 0;  // memory of jobs on the GPU at the time when free_bytes was read
  unsigned jobs = 0;              // live jobs on the GPU, and jobs on their way to it
  unsigned node_jobs = 0;         // live jobs on the node, and jobs on their way to it
  unsigned node_migrations = 0;   // open migrations that have the node as a side
  bool moves_processes = false;   // the node can dump and restore host processes
  std::string process_reason;     // why the node cannot dump and restore host processes
  bool gives_namespaces = false;  // the node starts and restores jobs with their own namespaces
  bool mig = false;
  bool remap_pending = false;
  bool remap_failed = false;
  std::uint32_t recovery_action = 0;
  std::string rack;             // the node's rack; empty: not known
  DataNetworks networks;        // the data networks of the GPU's node
  std::int32_t numa_node = -1;  // the GPU's NUMA node; -1: not known
  std::string fabric;           // the NVLink domain beyond the node; empty: none
  std::vector<PeerView> peers;  // the distances to other GPUs of the node

  // Returns the memory that a new job may use.
  [[nodiscard]] std::uint64_t available_bytes() const {
    return free_bytes - std::min(free_bytes, promised_bytes);
  }
};

struct PlacementRequest {
  std::uint64_t memory_bytes = 0;  // the needed memory, without the margin
  std::string memory_reason;       // the source of memory_bytes; may be empty
  std::uint64_t margin_bytes = 0;
  std::optional<std::string> node;   // the only permitted node; nullopt: any node
  std::optional<std::uint32_t> gpu;  // the only permitted GPU of `node`; nullopt: any GPU
  std::optional<Place> not_here;     // an excluded place: the source of a migration
  std::vector<Place> near;           // GPUs that are nearer to one of these places score higher
  std::string preferred_model;       // the model that scores higher; required with `same_model`
  bool same_model = false;
  std::string
      driver;  // with `same_model`, only drivers of this version's branch are suitable; empty: not known
  DataNetworks networks;  // the networks of the source's node, for a move to another node
  std::string network;    // the only permitted network of `networks`; empty: any
  bool host_process =
      false;  // on another node than the source's, the host process moves too (docs/design.md §3,
              // transparent)
  bool own_namespaces = false;  // the job has namespaces of its own
};

struct Candidate {
  Place place;
  bool suitable = false;
  bool passing =
      false;  // unsuitable only because of a temporary obstacle: a disconnected node, or memory in use
  double score = 0;
  std::string cause;  // the first objection to an unsuitable candidate in one or two words, like "full"
  std::vector<std::string> reasons;  // for a suitable candidate, the terms of the score; otherwise, the
                                     // objection of every filter
};

// Returns the suitable candidates, best first, and then the unsuitable ones. Candidates of equal score are
// ordered by place. The order of `gpus` does not matter.
[[nodiscard]] std::vector<Candidate> rank_candidates(const std::vector<GpuView>& gpus,
                                                     const PlacementRequest& request);

// Returns the first objection in one or two words, or an empty string if there is none.
[[nodiscard]] std::string cause_of(const GpuView& gpu, const PlacementRequest& request);
// Returns the objections of all filters against the GPU. objections_but_memory() omits memory, for callers
// that do their own accounting (rebalance).
[[nodiscard]] std::vector<std::string> objections(const GpuView& gpu, const PlacementRequest& request);
[[nodiscard]] std::vector<std::string> objections_but_memory(const GpuView& gpu,
                                                             const PlacementRequest& request);

struct ScoreTerm {
  ScoreTerm(double value, std::string text) : points(value), reason(std::move(text)) {}
  double points;
  std::string reason;
};
// Returns the terms of a suitable GPU's score. `gpus` must contain the places in `request.near`.
[[nodiscard]] std::vector<ScoreTerm> score_terms(const GpuView& gpu, const PlacementRequest& request,
                                                 const std::vector<GpuView>& gpus);

// Returns one line with the reason why no candidate is suitable. Up to two GPUs are listed with their
// reasons. For more GPUs the causes are counted.
[[nodiscard]] std::string why_none(const std::vector<Candidate>& candidates, const PlacementRequest& request);

// Returns how many GPUs each cause rules out, in the order of the candidates: "2 cordoned, 1 full". `other`
// returns a cause that replaces the candidate's own, or an empty string to keep the candidate's own cause.
[[nodiscard]] std::string causes_text(const std::vector<Candidate>& candidates,
                                      const std::function<std::string(const Place&)>& other);
// Returns each candidate's reasons as text: "node-a:0: cordoned by operator".
[[nodiscard]] std::vector<std::string> obstacles_of(const std::vector<Candidate>& candidates);

// Returns the branch of a driver's version: "580" for "580.65.06". Drivers of one branch can exchange
// checkpoints.
[[nodiscard]] std::string driver_branch(const std::string& version);

// Returns the size as text: "1.50 GiB".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

}  // namespace ckpt::coordinator
