// SPDX-License-Identifier: Apache-2.0
// Where a job may run: filters first, then a score; every GPU comes back with the reasons, which --dry-run shows.
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/model.h"

namespace ckpt::coordinator {

// A GPU as placement sees it.
struct GpuView {
  GpuView() = default;
  Place place;
  bool connected = true;
  bool healthy = true;
  std::string health_reason;
  std::string model;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t promised_bytes = 0;  // asked for by jobs that have not allocated it yet
  unsigned jobs = 0;                 // live jobs on it
  unsigned node_jobs = 0;            // live jobs on its node
  bool moves_processes = false;      // its node can dump and restore host processes
  std::string process_reason;        // why not
};

struct PlacementRequest {
  PlacementRequest() = default;
  std::uint64_t memory_bytes = 0;  // needed, without the margin
  std::uint64_t margin_bytes = 0;
  std::optional<std::string> node;   // only there
  std::optional<std::uint32_t> gpu;  // only that one of `node`
  std::optional<Place> not_here;     // the source of a migration
  std::string preferred_model;       // scores higher; required with `same_model`
  bool same_model = false;
  bool host_process =
      false;  // not on the source's own node: its host process moves, too (DESIGN §3, transparent)
};

struct Candidate {
  Candidate() = default;
  Place place;
  bool suitable = false;
  double score = 0;
  std::vector<std::string> reasons;  // suitable: what made the score; else: every filter that said no
};

// Best first; the unsuitable ones behind.
[[nodiscard]] std::vector<Candidate> rank_candidates(const std::vector<GpuView>& gpus,
                                                     const PlacementRequest& request);

// One line: why none of them will do.
[[nodiscard]] std::string why_none(const std::vector<Candidate>& candidates, const PlacementRequest& request);

// "1.50 GiB".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

}  // namespace ckpt::coordinator
