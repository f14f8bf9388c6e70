// SPDX-License-Identifier: Apache-2.0
// The agent's side of gpumigrate-health, the process that calls NVML. The agent watches its heartbeats.
// Missing heartbeats mean that the driver does not answer. Such a process may wait in the kernel, and then
// even SIGKILL has no effect. Therefore the agent signals and abandons the process, and starts a replacement
// after a pause that doubles. The agent keeps only a few processes that did not exit.
// Threads: the event loop. Ownership: the object's destructor closes the helper's socket, so the helper
// exits. Errors: none leave this class. Silence is reported to a handler, and a helper that exits is started
// again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/health_helper/messages.h"
#include "agent/io/packet_link.h"
#include "agent/io/process.h"

namespace ckpt::agent {

struct HealthHelperSettings {
  std::string program;   // path of gpumigrate-health
  std::string library;   // path of NVML
  std::string log_path;  // the helper's standard error is appended to this file
  Milliseconds poll{1000};
  Milliseconds silence{5000};         // time without a heartbeat that counts as silence
  Milliseconds start_silence{60000};  // time limit before the first heartbeat, because loading NVML wakes
                                      // every GPU
  Milliseconds first_backoff{1000};
  Milliseconds max_backoff{60000};
};

class HealthHelper : public std::enable_shared_from_this<HealthHelper> {
 public:
  struct Handlers {
    std::function<void(const nvml_watch::Report&)> report;
    // silent() is called when the driver stops answering, and answers() when it answers again. Each change is
    // reported once.
    std::function<void()> silent;
    std::function<void()> answers;
  };
  static std::shared_ptr<HealthHelper> create(const asio::any_io_executor& executor,
                                              HealthHelperSettings settings, Handlers handlers);
  ~HealthHelper();
  HealthHelper(const HealthHelper&) = delete;
  HealthHelper& operator=(const HealthHelper&) = delete;

  void start();
  // Replaces the helper's process at once. Does nothing while there is no process.
  void renew();
  // Terminates the helper and starts no new one.
  void stop();
  [[nodiscard]] pid_t pid() const noexcept { return process_ ? process_->pid() : 0; }

 private:
  HealthHelper(const asio::any_io_executor& executor, HealthHelperSettings settings, Handlers handlers);
  Result<void> launch();
  void on_packet(const Packet& packet);
  void on_gone(const Error& error);
  void watch_heartbeat();
  void on_silence();
  void drop_process();
  void restart_later();

  asio::any_io_executor executor_;
  HealthHelperSettings settings_;
  Handlers handlers_;
  std::shared_ptr<ChildProcess> process_;
  std::shared_ptr<PacketLink> link_;
  std::vector<std::shared_ptr<ChildProcess>> abandoned_;
  std::uint64_t run_ = 0;  // number of the helper's current run; packets and exits of earlier runs are
                           // ignored
  asio::steady_timer heartbeat_;
  asio::steady_timer restart_;
  Milliseconds backoff_;
  std::string last_failure_;  // text of the last reported failure; a repeated failure with the same text is
                              // not logged again
  bool ready_ = false;
  bool silent_ = false;
  bool stopped_ = false;
};

}  // namespace ckpt::agent
