// SPDX-License-Identifier: Apache-2.0
// NVML as a channel of health events. The other channel is the kernel log. The process gpumigrate-health
// (health_helper.h) sends the events and states that NVML reports of this node's GPUs. The channel turns
// these reports, and silence of the process, into observations.
// Threads: the event loop. Ownership: the known GPUs outlive the channel. Errors: none. If the library is
// missing, the channel reports nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/health/health_helper.h"
#include "agent/health/known_gpus.h"

namespace ckpt::agent {

class NvmlChannel {
 public:
  struct Handlers {
    std::function<void(SeenEvent)> saw;
    std::function<void()> changed;  // called when the state of a GPU changed without an event
  };
  NvmlChannel(KnownGpus& gpus, Handlers handlers) : gpus_(gpus), handlers_(std::move(handlers)) {}
  NvmlChannel(const NvmlChannel&) = delete;
  NvmlChannel& operator=(const NvmlChannel&) = delete;

  void start(const asio::any_io_executor& executor, HealthHelperSettings settings);
  void stop();
  // Handles a new card. The library may not have found the card, because it searches for cards only at its
  // start.
  void cards_changed();
  // Handles a report of the helper.
  void handle(const nvml_watch::Report& report);

 private:
  void on_state(KnownGpu& gpu, const nvml_watch::Report& report);
  void on_silence();
  void on_answers();

  KnownGpus& gpus_;
  Handlers handlers_;
  std::shared_ptr<HealthHelper> helper_;
  std::map<std::uint32_t, std::string> uuids_;  // UUIDs of the GPUs by NVML's numbers
};

}  // namespace ckpt::agent
