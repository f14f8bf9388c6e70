// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/metrics.h"

#include <array>

#include "libckpt/net/metrics/process.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {
namespace {

using metrics::Series;

constexpr std::array kPhases = {wire::JobPhase::kStarting, wire::JobPhase::kRunning, wire::JobPhase::kStandby,
                                wire::JobPhase::kPaused,   wire::JobPhase::kExited,  wire::JobPhase::kMoved};

}  // namespace

Metrics::Metrics(const std::string& node, Sources sources)
    : sources_(std::move(sources)), registry_({{"node", node}}) {
  metrics::add_process_metrics(registry_, "agent");
  observe_node();
  observe_movers();
  observe_transfers();
}

void Metrics::observe_node() {
  registry_.gauge("gpumigrate_agent_coordinator_connected",
                  "1 while the agent is connected to its coordinator.", {},
                  [this](Series& out) { out.add(sources_.connected() ? 1 : 0); });
  registry_.gauge("gpumigrate_agent_nvml_answers",
                  "1 if NVML answered the last query, 0 if it failed or did not answer in time.", {},
                  [this](Series& out) { out.add(sources_.inventory.last().problem.empty() ? 1 : 0); });
  registry_.gauge("gpumigrate_agent_instances", "Instances of jobs on the node, by phase.", {"phase"},
                  [this](Series& out) {
                    std::map<wire::JobPhase, double> count;
                    for (const auto& job : sources_.jobs.all()) ++count[job->instance().phase];
                    for (const wire::JobPhase phase : kPhases)
                      out.add({std::string(wire::to_string(phase))}, count[phase]);
                  });
}

void Metrics::observe_movers() {
  registry_.gauge("gpumigrate_agent_mover_serving",
                  "1 while the GPU's mover is ready for transfers; absent before the mover first starts.",
                  {"gpu"}, [this](Series& out) {
                    for (const auto& [gpu, mover] : sources_.movers)
                      out.add({std::to_string(gpu)}, mover->serving() ? 1 : 0);
                  });
  registry_.observe(metrics::Kind::kCounter, "gpumigrate_agent_mover_starts_total",
                    "Starts of the GPU's mover; more than one means that the mover was restarted.", {"gpu"},
                    [this](Series& out) {
                      for (const auto& [gpu, mover] : sources_.movers)
                        out.add({std::to_string(gpu)}, static_cast<double>(mover->starts()));
                    });
}

void Metrics::observe_transfers() {
  registry_.observe(
      metrics::Kind::kCounter, "gpumigrate_agent_sent_bytes_total",
      "Bytes of chunks, before encoding, that the node's movers have sent; updated during a transfer.", {},
      [this](Series& out) { out.add(static_cast<double>(sources_.transfers.sent_bytes())); });
  const auto sum = [this](const char* name, const char* help, std::uint64_t wire::MigrationProgress::*field) {
    registry_.gauge(name, help, {}, [this, field](Series& out) {
      release_closed();
      double all = 0;
      for (const auto& [id, progress] : sources_.transfers.last())
        all += static_cast<double>(progress.*field);
      out.add(all);
    });
  };
  sum("gpumigrate_agent_remaining_bytes", "Bytes that migrations away from the node still have to copy.",
      &wire::MigrationProgress::remaining_bytes);
  sum("gpumigrate_agent_dirty_bytes_per_second", "Rate at which the jobs that leave the node change memory.",
      &wire::MigrationProgress::dirty_bytes_per_second);
  sum("gpumigrate_agent_throughput_bytes_per_second", "Rate at which the node's movers send.",
      &wire::MigrationProgress::throughput_bytes_per_second);
  registry_.gauge("gpumigrate_agent_transfers", "Migrations away from the node that have begun to copy.", {},
                  [this](Series& out) {
                    release_closed();
                    out.add(static_cast<double>(sources_.transfers.last().size()));
                  });
}

}  // namespace ckpt::agent
