// SPDX-License-Identifier: Apache-2.0
// Where a job may run: filters first (placement_filters.cc), then a score (placement_scores.cc). Every GPU
// has its reasons, which --dry-run shows. The weights are in docs/site/placement.md. Pure functions.
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

// How near another GPU of the same node is.
struct PeerView {
  std::uint32_t gpu = 0;
  unsigned nvlinks = 0;
  unsigned common_ancestor = 50;  // as NVML counts, 0 (one board) to 50 (across the machine)
};

// A GPU as placement sees it.
struct GpuView {
  Place place;
  bool connected = true;
  bool healthy = true;
  std::string health_reason;
  std::string closed;   // why no new job may come, such as a cordon; empty: it may
  std::string suspect;  // why no new job may come for some minutes: a finding of its own; empty: it may
  std::string model;
  std::string driver;  // version of its node's driver; empty: not known
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t promised_bytes =
      0;  // that jobs on it are expected to take and free_bytes does not lack yet, or that are on their way
  std::uint64_t shown_bytes = 0;  // that jobs on it hold, as of when free_bytes was read
  unsigned jobs = 0;              // live jobs on it, and those on their way
  unsigned node_jobs = 0;         // the same of its node
  unsigned node_migrations = 0;   // open ones that its node is a side of
  bool moves_processes = false;   // its node can dump and restore host processes
  std::string process_reason;     // why not
  bool mig = false;
  bool remap_pending = false;
  bool remap_failed = false;
  std::uint32_t recovery_action = 0;
  std::string rack;             // empty: not known
  DataNetworks networks;        // of its node
  std::int32_t numa_node = -1;  // -1: not known
  std::string fabric;           // NVLink domain beyond its node; empty: none
  std::vector<PeerView> peers;  // of its node

  // The memory that a new job may take.
  [[nodiscard]] std::uint64_t available_bytes() const {
    return free_bytes - std::min(free_bytes, promised_bytes);
  }
};

struct PlacementRequest {
  std::uint64_t memory_bytes = 0;  // needed, without the margin
  std::string memory_why;          // where that number is from; may be empty
  std::uint64_t margin_bytes = 0;
  std::optional<std::string> node;   // only there
  std::optional<std::uint32_t> gpu;  // only that one of `node`
  std::optional<Place> not_here;     // the source of a migration
  std::vector<Place> near;           // the nearer to one of these the better
  std::string preferred_model;       // scores higher; required with `same_model`
  bool same_model = false;
  std::string
      driver;  // with `same_model`: of another branch than this version's it will not do; empty: not known
  DataNetworks networks;  // of the source's node, for a move to another one
  std::string network;    // only over this one of them; empty: any
  bool host_process =
      false;  // not on the source's own node: its host process moves, too (docs/design.md §3, transparent)
};

struct Candidate {
  Place place;
  bool suitable = false;
  bool passing =
      false;  // unsuitable, but only for what may pass by itself: a node that is away, memory in use
  double score = 0;
  std::string cause;  // of an unsuitable one: its first objection in one or two words, like "full"
  std::vector<std::string> reasons;  // suitable: the terms of the score; else: the objection of every filter
};

// Best first, equals by place; the unsuitable ones behind. The order of `gpus` does not matter.
[[nodiscard]] std::vector<Candidate> rank_candidates(const std::vector<GpuView>& gpus,
                                                     const PlacementRequest& request);

// The first objection in one or two words; empty: there is none.
[[nodiscard]] std::string cause_of(const GpuView& gpu, const PlacementRequest& request);
// Why not this one: the objection of every filter. Without memory's for callers that do their own accounting
// (rebalance).
[[nodiscard]] std::vector<std::string> objections(const GpuView& gpu, const PlacementRequest& request);
[[nodiscard]] std::vector<std::string> objections_but_memory(const GpuView& gpu,
                                                             const PlacementRequest& request);

struct ScoreTerm {
  ScoreTerm(double value, std::string text) : points(value), reason(std::move(text)) {}
  double points;
  std::string reason;
};
// The terms of a suitable GPU's score. `gpus`: those that `request.near` names are looked up here.
[[nodiscard]] std::vector<ScoreTerm> score_terms(const GpuView& gpu, const PlacementRequest& request,
                                                 const std::vector<GpuView>& gpus);

// One line: why none of them will do. Up to two GPUs each with its reasons; of more the causes are counted.
[[nodiscard]] std::string why_none(const std::vector<Candidate>& candidates, const PlacementRequest& request);

// "2 cordoned, 1 full": how many GPUs each cause rules out, in the order of the candidates. `other`: the
// cause of a GPU, in place of the candidate's own; empty: the candidate's own.
[[nodiscard]] std::string causes_text(const std::vector<Candidate>& candidates,
                                      const std::function<std::string(const Place&)>& other);
// "node-a:0: cordoned by operator" for each.
[[nodiscard]] std::vector<std::string> obstacles_of(const std::vector<Candidate>& candidates);

// "580" of "580.65.06"; drivers of one branch can exchange checkpoints.
[[nodiscard]] std::string driver_branch(const std::string& version);

// "1.50 GiB".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

}  // namespace ckpt::coordinator
