// SPDX-License-Identifier: Apache-2.0
// The agent's side of gpumigrate-health, the process that sits in NVML. Its heartbeats are watched: when they
// stay away the driver does not answer. Such a process may not even die by SIGKILL (it waits in the kernel).
// So it is ordered to end and left alone, and another is started after a pause that doubles. Only a few that
// did not end are kept at a time.
// Threads: the event loop. Ownership: the process ends with this object (its socket closes). Errors: none
// leave it: silence is reported to a handler, and a helper that ends by itself is started again.
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
  std::string program;   // gpumigrate-health
  std::string library;   // NVML
  std::string log_path;  // its standard error is appended here
  Milliseconds poll{1000};
  Milliseconds silence{5000};         // without a heartbeat
  Milliseconds start_silence{60000};  // before the first: loading NVML wakes every GPU
  Milliseconds first_backoff{1000};
  Milliseconds max_backoff{60000};
};

class HealthHelper : public std::enable_shared_from_this<HealthHelper> {
 public:
  struct Handlers {
    std::function<void(const nvml_watch::Report&)> report;
    // The driver does not answer; answers() is called when it does again. Neither repeats.
    std::function<void()> silent;
    std::function<void()> answers;
  };
  static std::shared_ptr<HealthHelper> create(const asio::any_io_executor& executor,
                                              HealthHelperSettings settings, Handlers handlers);
  ~HealthHelper();
  HealthHelper(const HealthHelper&) = delete;
  HealthHelper& operator=(const HealthHelper&) = delete;

  void start();
  // Replaces the helper's process at once; does nothing while there is none.
  void renew();
  // Ends the helper for good.
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
  std::uint64_t run_ = 0;  // separates packets and ends of an earlier process
  asio::steady_timer heartbeat_;
  asio::steady_timer restart_;
  Milliseconds backoff_;
  std::string last_failure_;  // logged once
  bool ready_ = false;
  bool silent_ = false;
  bool stopped_ = false;
};

}  // namespace ckpt::agent
