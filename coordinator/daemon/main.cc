// SPDX-License-Identifier: Apache-2.0
// gpumigrate-coordinator: manages nodes, jobs, placement and migrations of one cluster. Exit codes: 0
// stopped, 1 could not start or was terminated by an error, 64 usage.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "coordinator/daemon/coordinator.h"
#include "coordinator/settings/settings_list.h"
#include "libckpt/base/fault.h"
#include "libckpt/command_line/command_line.h"
#include "libckpt/net/control/loop_watch.h"
#include "libckpt/net/log/daemon_log.h"

namespace {

using ckpt::coordinator::Config;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 64;

// Raises the descriptor limit, because every call that waits for a change uses a descriptor.
void raise_descriptor_limit() {
  constexpr rlim_t kWanted = 16'384;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kWanted) return;
  limit.rlim_cur = std::min(limit.rlim_max, kWanted);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) spdlog::warn("the limit of open files was not raised");
}

int serve(Config config) {
  namespace asio = ckpt::control::asio;
  asio::io_context io(1);
  auto coordinator =
      ckpt::coordinator::Coordinator::create(io, std::move(config), [](const ckpt::Error& error) {
        // The record may or may not be on the disk. Only a new process that reads the journal may continue.
        spdlog::critical("the journal failed: {}; exiting, so that the next start reads it again",
                         error.to_string());
        spdlog::shutdown();
        ::_exit(kExitFailed);
      });
  if (!coordinator) {
    spdlog::critical("cannot start: {}", coordinator.error().to_string());
    return kExitFailed;
  }
  asio::signal_set signals(io, SIGTERM, SIGINT);
  signals.async_wait([&](boost::system::error_code code, int) {
    if (code) return;
    (*coordinator)->stop();
    io.stop();
  });
  auto watch = ckpt::control::LoopWatch::create(io, ckpt::control::settings_of_daemon());
  if (!watch) spdlog::error("the watchdog of the event loop did not start: {}", watch.error().to_string());
  io.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ckpt::CommandLine app("Coordinator of a gpumigrate cluster");
  std::string home;
  std::string config_path;
  std::string log_file;
  app.add_option("--home", home,
                 "folder of the cluster (default: GPUMIGRATE_HOME or ~/.local/share/gpumigrate)");
  app.add_option("--config", config_path, "settings of the coordinator (coordinator.toml)");
  bool list_settings = false;
  app.add_flag("--list-settings", list_settings,
               "Print every key of coordinator.toml with its default, and exit");
  app.add_option("--log-file", log_file, "write the log to this file instead of to standard error");
  app.add_version_flag("--version", GPUMIGRATE_VERSION);
  if (const auto end = app.parse(argc, argv)) return end->print() == 0 ? 0 : kExitUsage;
  if (list_settings)
    return std::fputs(ckpt::coordinator::settings_page().c_str(), stdout) < 0 ? kExitFailed : 0;
  auto config = ckpt::coordinator::load_config(config_path, home);
  if (!config) {
    std::fprintf(stderr, "gpumigrate-coordinator: %s\n", config.error().to_string().c_str());
    return kExitUsage;
  }
  Config& settings = *config;
  if (!log_file.empty()) settings.log_file = log_file;
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit then returns an error, like a full disk
  ckpt::set_fault_role("coordinator");
  try {
    if (const auto opened = ckpt::logging::open_log({"coordinator", settings.log_file, settings.log_level});
        !opened) {
      std::fprintf(stderr, "gpumigrate-coordinator: %s\n", opened.error().to_string().c_str());
      return kExitFailed;
    }
    raise_descriptor_limit();
    return serve(std::move(settings));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpumigrate-coordinator: %s\n", e.what());
    return kExitFailed;
  }
}
