// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/gang_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace ckpt::coordinator {
namespace {

constexpr std::string_view kAddress = "MASTER_ADDR=";
constexpr std::string_view kPort = "MASTER_PORT=";

const std::string* find_variable(const wire::JobSpec& spec, std::string_view name) {
  const auto at = std::find_if(spec.env.begin(), spec.env.end(),
                               [name](const std::string& entry) { return entry.starts_with(name); });
  return at == spec.env.end() ? nullptr : &*at;
}

// Returns the host in the node's address: "10.0.0.1" for "10.0.0.1:4711". The brackets of "[fe80::1]:4711"
// are removed.
std::string host_of(const Node& node) {
  const std::string& address = node.row.peer_address;
  std::string host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

bool is_loopback(const std::string& host) {
  return host.empty() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Parses the port that an agent sent, which is not trusted. Returns 0 if the text is not a port.
std::uint32_t port_in(std::string_view text) {
  std::uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool good = error == std::errc{} && end == text.data() + text.size() && port <= 65535;
  return good ? port : 0;
}

// Returns the place where the rank runs, or is about to run.
Place place_of(const Job& rank) {
  const bool comes = rank.operation && rank.operation->goal == OperationGoal::kRunning;
  return comes ? Place(rank.operation->to_node, rank.operation->to_gpu) : rank.place();
}

}  // namespace

Result<void> GangRendezvous::check(const wire::JobSpec& spec, const std::vector<Place>& places) const {
  wire::JobSpec tried = spec;
  return add_address(tried, places);
}

Result<void> GangRendezvous::add_address(wire::JobSpec& spec, const std::vector<Place>& places) const {
  const std::string& first = places.front().node;
  const auto other = std::find_if(places.begin(), places.end(),
                                  [&first](const Place& place) { return place.node != first; });
  if (other == places.end() || find_variable(spec, kAddress) != nullptr) return ok();
  const Node* meets = deps_.nodes.find(first);
  const Node* comes = deps_.nodes.find(other->node);
  if (meets == nullptr || comes == nullptr)
    return Error(ErrorCode::kUnavailable, fmt::format("Node {} is no longer known", first));
  const std::string host = host_of(*meets);
  if (is_loopback(host) && !is_loopback(host_of(*comes)))
    return Error(
        ErrorCode::kRefused,
        fmt::format("The ranks would use the rendezvous address {} of node {}, which {} cannot reach: set "
                    "`peer_listen` in the first node's agent.toml, or give MASTER_ADDR with --env",
                    host, first, other->node));
  spec.env.push_back(std::string(kAddress) + host);
  return ok();
}

control::Task<Result<wire::JobSpec>> GangRendezvous::complete(wire::JobSpec spec) const {
  const Job* own = deps_.jobs.find(spec.job);
  if (own == nullptr) co_return job_was_removed(spec.job);
  const auto ranks = deps_.jobs.ranks_of(own->whole());
  std::vector<Place> places;
  for (const Job* rank : ranks) places.push_back(place_of(*rank));
  if (ranks.empty() || ranks.front()->rank_number() != 0)
    co_return Error(ErrorCode::kNotFound, "There is no rank 0 of " + own->whole_name());
  CKPT_CO_TRYV(add_address(spec, places));
  if (find_variable(spec, kPort) != nullptr) co_return spec;
  const JobId first = ranks.front()->id;
  CKPT_CO_TRY(port, co_await port_of(first, spec.job == first));
  if (port != 0) spec.env.push_back(std::string(kPort) + std::to_string(port));
  co_return spec;
}

control::Task<Result<std::uint32_t>> GangRendezvous::port_of(JobId first, bool starts) const {
  const Job* job = deps_.jobs.find(first);
  const bool comes = job->operation && job->operation->goal == OperationGoal::kRunning;
  if (comes && job->operation->stage != OperationStage::kStarting)
    co_return Error(ErrorCode::kUnavailable, "Rank 0 of " + job->whole_name() + " has not started yet");
  if (job->rendezvous_incarnation == job->incarnation) co_return job->rendezvous_port;
  if (starts) co_return 0;
  wire::DescribeJob request;
  request.job = first;
  request.incarnation = job->incarnation;
  const Incarnation incarnation = job->incarnation;
  CKPT_CO_TRY(facts, co_await deps_.calls.describe(place_of(*job).node, std::move(request)));
  const std::string* text = find_variable(facts.spec, kPort);
  const std::uint32_t port = text == nullptr ? 0 : port_in(std::string_view(*text).substr(kPort.size()));
  job = deps_.jobs.find(first);
  if (port == 0 || job == nullptr || job->incarnation != incarnation)
    co_return Error(ErrorCode::kUnavailable,
                    "Rank 0 of " + facts.spec.gang.name + " has no port for its rendezvous yet");
  if (job->rendezvous_incarnation == incarnation) co_return job->rendezvous_port;
  // The port is stored before another rank receives it, because rank 0 may have to be started a second time.
  Job changed = *job;
  changed.rendezvous_incarnation = incarnation;
  changed.rendezvous_port = port;
  CKPT_CO_TRYV(deps_.jobs.replace(std::move(changed)));
  co_return port;
}

}  // namespace ckpt::coordinator
