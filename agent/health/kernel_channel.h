// SPDX-License-Identifier: Apache-2.0
// The kernel's log as the other channel. Each record counts once, over restarts of the agent, too. Each line
// counts for the GPU that is at its PCI address now (known_gpus.h). Records that were in the log before it
// was read for the first time ever is old and counts for nothing.
// Threads: the event loop. Ownership: the record and the known GPUs outlive it. Errors: a log that cannot be
// read is logged; there is none then.
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
    // `line` is empty for an event without an Xid; the process is not looked for yet.
    std::function<void(SeenEvent)> saw;
    std::function<void()> changed;  // something to be kept
  };
  KernelChannel(HealthRecord& record, KnownGpus& gpus, Handlers handlers)
      : record_(record), gpus_(gpus), handlers_(std::move(handlers)) {}
  KernelChannel(const KernelChannel&) = delete;
  KernelChannel& operator=(const KernelChannel&) = delete;

  // `path`: "auto" is /dev/kmsg where it can be read; empty: none.
  Result<void> start(const asio::any_io_executor& executor, FileWatch& files, std::string path);
  void stop();
  void take(const health::KernelRecord& record);

 private:
  void take_event(const health::LogEvent& event, const std::string& text);

  HealthRecord& record_;
  KnownGpus& gpus_;
  Handlers handlers_;
  std::shared_ptr<KernelLogReader> log_;
  health::KernelLogParser parser_;
  bool first_reading_ = false;
};

}  // namespace ckpt::agent
