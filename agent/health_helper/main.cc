// SPDX-License-Identifier: Apache-2.0
// gpumigrate-health --nvml LIBRARY [--poll-ms N]: reports NVML's events and states to its agent (messages.h).
// A driver call may never return. Therefore the agent detects a hang by missing heartbeats, and may abandon
// this process. The agent starts the program with one end of a socketpair as descriptor 3. The program exits
// when that socket is closed. It logs to stderr.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <charconv>
#include <cstring>
#include <optional>

#include "agent/health_helper/nvml_watch.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/control/log.h"
#include "libckpt/net/log/daemon_log.h"

namespace ckpt::health_helper {
namespace {

using messages::Kind;
using messages::Report;

constexpr int kErrorPauseMs = 1000;

struct Settings {
  std::string library;
  std::uint32_t poll_ms = 1000;
};

// Sends a report. Returns false if the agent has disconnected.
bool send_report(int socket, const Report& report) {
  const std::vector<std::byte> packet = wire::encode(report);
  ssize_t sent;
  do {
    sent = ::send(socket, packet.data(), packet.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(packet.size());
}

class Watcher {
 public:
  Watcher(int socket, Settings settings, std::unique_ptr<NvmlWatch> watch)
      : socket_(socket),
        settings_(std::move(settings)),
        watch_(std::move(watch)),
        last_(watch_->gpus().size()) {}

  // Runs until the agent disconnects. Events are registered before states are read, so that every change is
  // reported as an event or in a state.
  void run() {
    for (const Report& gpu : watch_->gpus()) send(gpu);
    register_events();
    read_states();
    Report ready;
    ready.kind = Kind::kReady;
    send(ready);
    while (!gone_) step();
  }

 private:
  void register_events() {
    if (auto registered = watch_->register_events(); !registered)
      spdlog::warn("{}", registered.error().to_string());
  }

  void step() {
    Report report;
    if (!watch_->has_events()) {
      // A driver without events counts as answering as long as its states can be read.
      pause(static_cast<int>(settings_.poll_ms));
      read_states();
      return heartbeat();
    }
    switch (watch_->wait(settings_.poll_ms, &report)) {
      case NvmlWatch::Woken::kEvent:
        if (report.kind == Kind::kXid) send(report);
        read_states();
        return heartbeat();
      case NvmlWatch::Woken::kTimeout:
        read_states();
        return heartbeat();
      case NvmlWatch::Woken::kBroken:
        read_states();
        pause(kErrorPauseMs);  // without a pause, a permanent error would keep the loop busy
        return register_events();
    }
  }

  void read_states() {
    for (std::size_t i = 0; i < last_.size(); ++i) {
      const Report state = watch_->state(static_cast<std::uint32_t>(i));
      const bool same = last_[i] && last_[i]->flags == state.flags && last_[i]->recovery == state.recovery &&
                        last_[i]->counters == state.counters;
      if (!same) send(state);
      last_[i] = state;
    }
  }

  void heartbeat() {
    send(Report());
    pause(0);
  }

  void send(const Report& report) {
    if (!send_report(socket_, report)) gone_ = true;
  }

  // Pauses for the time. The pause ends early if the agent disconnects.
  void pause(int milliseconds) {
    pollfd item{socket_, POLLIN, 0};
    if (::poll(&item, 1, milliseconds) > 0) gone_ = true;
  }

  int socket_;
  Settings settings_;
  std::unique_ptr<NvmlWatch> watch_;
  std::vector<std::optional<Report>> last_;
  bool gone_ = false;
};

std::optional<Settings> read_arguments(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = argv[i + 1];
    if (name == "--nvml") {
      settings.library = value;
      continue;
    }
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), settings.poll_ms);
    const bool number = error == std::errc{} && end == value.data() + value.size();
    if (name != "--poll-ms" || !number || settings.poll_ms < 10 || settings.poll_ms > 60000)
      return std::nullopt;
  }
  if (argc % 2 == 0 || settings.library.empty()) return std::nullopt;
  return settings;
}

int run(int socket, Settings settings) {
  auto watch = NvmlWatch::create(settings.library);
  if (!watch) {
    spdlog::error("{}", watch.error().to_string());
    Report failed;
    failed.kind = Kind::kFailed;
    messages::set_text(failed, watch.error().to_string());
    (void)send_report(socket, failed);
    return 1;
  }
  spdlog::info("watching: gpus {}", (*watch)->gpus().size());
  Watcher(socket, std::move(settings), *std::move(watch)).run();
  spdlog::info("the agent has disconnected: exiting");
  return 0;
}

}  // namespace
}  // namespace ckpt::health_helper

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  (void)ckpt::logging::open_log({});  // cannot fail, because the log goes to standard error, which is already
                                      // open
  constexpr int kSocket = ckpt::agent::nvml_watch::kSocketFd;
  const auto settings = ckpt::health_helper::read_arguments(argc, argv);
  struct stat status {};
  if (!settings || ::fstat(kSocket, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    spdlog::error(
        "usage: gpumigrate-health --nvml LIBRARY [--poll-ms 10..60000]; an agent must start it with a socket "
        "as descriptor {}",
        kSocket);
    return 64;
  }
  ::fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  const ckpt::UniqueFd socket(kSocket);
  return ckpt::health_helper::run(socket.get(), *settings);
}
