// SPDX-License-Identifier: Apache-2.0
// The kernel's log as the second channel of health events, besides NVML. Each record counts once, even over
// restarts of the agent. Each line counts for the GPU that currently has the line's PCI address
// (known_gpus.h). Records from before the first read of the log are old and do not count.
// Threads: the event loop. Ownership: the record and the known GPUs outlive it. Errors: an unreadable log is
// logged, and the channel then reports nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/health/health_record.h"
#include "agent/health/kernel_log_reader.h"
#include "agent/health/known_gpus.h"

namespace ckpt::agent {

class KernelChannel {
 public:
  struct Handlers {
    // Called for each event. `line` is empty for an event without an Xid. The process of the event has not
    // been matched with a job yet.
    std::function<void(SeenEvent)> saw;
    std::function<void()> changed;  // called when the record has changed and must be stored
  };
  KernelChannel(HealthRecord& record, KnownGpus& gpus, Handlers handlers)
      : record_(record), gpus_(gpus), handlers_(std::move(handlers)) {}
  KernelChannel(const KernelChannel&) = delete;
  KernelChannel& operator=(const KernelChannel&) = delete;

  // Starts to read the log at `path`. The value "auto" means /dev/kmsg if it is readable, and an empty path
  // means no log.
  Result<void> start(const asio::any_io_executor& executor, FileWatch& files, std::string path);
  void stop();
  void handle(const health::KernelRecord& record);

 private:
  void handle_event(const health::LogEvent& event, const std::string& text);

  HealthRecord& record_;
  KnownGpus& gpus_;
  Handlers handlers_;
  std::shared_ptr<KernelLogReader> log_;
  health::KernelLogParser parser_;
  bool first_reading_ = false;
};

}  // namespace ckpt::agent
