// SPDX-License-Identifier: Apache-2.0
// The placement filters. Each filter is one function that returns nothing, or an objection for display.
#include <fmt/format.h>

#include <array>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {
namespace {

using Objection = std::optional<std::string>;
using Filter = Objection (*)(const GpuView&, const PlacementRequest&);

Objection not_asked_for(const GpuView& gpu, const PlacementRequest& request) {
  const bool elsewhere =
      request.node && (gpu.place.node != *request.node || (request.gpu && gpu.place.gpu != *request.gpu));
  return elsewhere ? Objection("not requested") : std::nullopt;
}

Objection away(const GpuView& gpu, const PlacementRequest&) {
  return gpu.connected ? std::nullopt : Objection("node is not connected");
}

Objection there_already(const GpuView& gpu, const PlacementRequest& request) {
  return request.not_here == gpu.place ? Objection("the job is there already") : std::nullopt;
}

Objection unhealthy(const GpuView& gpu, const PlacementRequest&) {
  return gpu.healthy ? std::nullopt : Objection("unhealthy: " + gpu.health_reason);
}

Objection closed(const GpuView& gpu, const PlacementRequest&) {
  return gpu.closed.empty() ? std::nullopt : Objection(gpu.closed);
}

Objection suspect(const GpuView& gpu, const PlacementRequest&) {
  return gpu.suspect.empty() ? std::nullopt : Objection(gpu.suspect);
}

// Objects to a GPU for which the driver requests a recovery action. A GPU that is "unhealthy" because of that
// action needs no second objection.
Objection needs_recovery(const GpuView& gpu, const PlacementRequest&) {
  if (gpu.recovery_action == 0 || !gpu.healthy) return std::nullopt;
  return fmt::format("the driver requests recovery action {}", gpu.recovery_action);
}

// Objects to a GPU with memory rows that wait to be remapped. NVIDIA recommends resetting such a GPU before
// any job is moved to it.
Objection needs_remapping(const GpuView& gpu, const PlacementRequest&) {
  if (gpu.remap_failed) return "a faulty row of its memory could not be remapped";
  return gpu.remap_pending ? Objection("it must be reset to remap faulty rows of its memory") : std::nullopt;
}

Objection divided(const GpuView& gpu, const PlacementRequest&) {
  return gpu.mig ? Objection("MIG mode is on: the GPU cannot run a job as a whole") : std::nullopt;
}

Objection other_model(const GpuView& gpu, const PlacementRequest& request) {
  if (!request.same_model || gpu.model == request.preferred_model) return std::nullopt;
  return "model " + gpu.model + ", but the job needs model " + request.preferred_model;
}

Objection other_driver(const GpuView& gpu, const PlacementRequest& request) {
  if (!request.same_model || request.driver.empty() || gpu.driver.empty()) return std::nullopt;
  if (driver_branch(gpu.driver) == driver_branch(request.driver)) return std::nullopt;
  return "driver " + gpu.driver + ", but the job needs branch " + driver_branch(request.driver);
}

Objection moves_no_processes(const GpuView& gpu, const PlacementRequest& request) {
  const bool other_node = !request.not_here || gpu.place.node != request.not_here->node;
  if (!request.host_process || !other_node || gpu.moves_processes) return std::nullopt;
  return "its node cannot accept host processes: " + gpu.process_reason;
}

Objection gives_no_namespaces(const GpuView& gpu, const PlacementRequest& request) {
  if (!request.own_namespaces || gpu.gives_namespaces) return std::nullopt;
  return "its node's older agent gives a job no namespaces of its own: update it";
}

Objection not_reached(const GpuView& gpu, const PlacementRequest& request) {
  if (!request.not_here || gpu.place.node == request.not_here->node) return std::nullopt;
  const auto network = shared_network(request.networks, gpu.networks, request.network);
  return network ? std::nullopt : Objection(network.error().message());
}

// Checks whether the GPU is too small even without any other job.
bool is_too_small(const GpuView& gpu, const PlacementRequest& request) {
  return gpu.total_bytes < request.memory_bytes + request.margin_bytes;
}

Objection too_full(const GpuView& gpu, const PlacementRequest& request) {
  const std::uint64_t needed = request.memory_bytes + request.margin_bytes;
  if (gpu.available_bytes() >= needed) return std::nullopt;
  if (is_too_small(gpu, request))
    return fmt::format("too small: {} in total, but the job needs {}{}", bytes_text(gpu.total_bytes),
                       bytes_text(needed),
                       request.memory_reason.empty() ? "" : " (" + request.memory_reason + ")");
  return fmt::format(
      "{} free{}, but the job needs {}{}", bytes_text(gpu.available_bytes()),
      gpu.promised_bytes > 0 ? " after " + bytes_text(gpu.promised_bytes) + " that are reserved for its jobs"
                             : "",
      bytes_text(needed), request.memory_reason.empty() ? "" : " (" + request.memory_reason + ")");
}

struct NamedFilter {
  Filter filter;
  const char* cause;
};

constexpr std::array<NamedFilter, 14> kFilters{{{not_asked_for, "not requested"},
                                                {away, "not connected"},
                                                {there_already, "current"},
                                                {unhealthy, "unhealthy"},
                                                {closed, "cordoned"},
                                                {suspect, "suspect"},
                                                {needs_recovery, "in need of recovery"},
                                                {needs_remapping, "in need of a reset"},
                                                {divided, "in MIG mode"},
                                                {other_model, "of another model"},
                                                {other_driver, "of another driver"},
                                                {moves_no_processes, "without process moves"},
                                                {gives_no_namespaces, "without namespaces"},
                                                {not_reached, "on another network"}}};

}  // namespace

std::string driver_branch(const std::string& version) {
  return version.substr(0, version.find('.'));
}

std::vector<std::string> objections_but_memory(const GpuView& gpu, const PlacementRequest& request) {
  std::vector<std::string> reasons;
  for (const NamedFilter& named : kFilters) {
    if (auto reason = named.filter(gpu, request)) reasons.push_back(std::move(*reason));
  }
  return reasons;
}

std::string cause_of(const GpuView& gpu, const PlacementRequest& request) {
  for (const NamedFilter& named : kFilters)
    if (named.filter(gpu, request)) return named.cause;
  if (!too_full(gpu, request)) return "";
  return is_too_small(gpu, request) ? "too small" : "full";
}

std::vector<std::string> objections(const GpuView& gpu, const PlacementRequest& request) {
  std::vector<std::string> reasons = objections_but_memory(gpu, request);
  if (auto reason = too_full(gpu, request)) reasons.push_back(std::move(*reason));
  return reasons;
}

}  // namespace ckpt::coordinator
