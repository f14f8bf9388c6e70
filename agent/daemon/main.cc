// SPDX-License-Identifier: Apache-2.0
// gpumigrate-agent --config agent.toml runs the agent. --probe reports which requirements of moves this node
// meets (probe.h), and exits. --rehearse HOME runs the rehearsal (rehearsal.h), which an agent starts in a
// child process.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>

#include "agent/daemon/agent.h"
#include "agent/daemon/probe.h"
#include "agent/daemon/rehearsed_process.h"
#include "libckpt/base/fault.h"
#include "libckpt/command_line/command_line.h"
#include "libckpt/net/log/daemon_log.h"

namespace {

int complain(const ckpt::Error& error) {
  std::fprintf(stderr, "gpumigrate-agent: %s\n", error.to_string().c_str());
  return error.code() == ckpt::ErrorCode::kInvalidArgument ? 64 : 1;
}

// Probes with the programs that the settings name, if a settings file is given.
int probe(const std::string& config_path) {
  ckpt::agent::ProbeSettings settings;
  if (!config_path.empty()) {
    auto config = ckpt::agent::load_config(config_path);
    if (!config) return complain(config.error());
    settings.mover_program = config->mover_program;
    settings.criu = config->criu;
    settings.home = config->home;
    settings.environment = config->job_environment;
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("probe"));
  const auto facts = ckpt::agent::probe_node(std::move(settings));
  if (!facts) return complain(facts.error());
  using Json = nlohmann::ordered_json;
  const std::string text = facts->dump(-1, ' ', false, Json::error_handler_t::replace);
  return std::puts(text.c_str()) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  ckpt::CommandLine app("The gpumigrate agent of one node");
  std::string path;
  app.add_option("--config", path, "Settings file of the agent (agent.toml)");
  bool only_probe = false;
  app.add_flag("--probe", only_probe,
               "Print as JSON which requirements for moving jobs this node meets, and exit");
  bool list_settings = false;
  app.add_flag("--list-settings", list_settings, "Print every key of agent.toml with its default, and exit");
  std::string home, criu;
  app.add_option("--rehearse", home).hidden();
  app.add_option("--criu", criu).hidden();
  std::uint64_t rehearsed_bytes = 0;
  app.add_option(ckpt::agent::kRehearsedFlag, rehearsed_bytes).hidden();
  bool rehearsed_many = false;
  app.add_flag(ckpt::agent::kRehearsedManyFlag, rehearsed_many).hidden();
  app.add_version_flag("--version", GPUMIGRATE_VERSION);
  if (const auto end = app.parse(argc, argv)) return end->print();
  if (rehearsed_bytes > 0) return ckpt::agent::be_rehearsed(rehearsed_bytes, rehearsed_many);
  if (!home.empty()) return ckpt::agent::run_rehearsal(home, criu);
  if (only_probe) return probe(path);
  if (list_settings) return std::fputs(ckpt::agent::settings_page().c_str(), stdout) < 0 ? 1 : 0;
  if (path.empty()) return complain({ckpt::ErrorCode::kInvalidArgument, "--config is required"});

  auto config = ckpt::agent::load_config(path);
  if (!config) return complain(config.error());
  auto visible = ckpt::agent::parse_visible_gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
  if (!visible) return complain(visible.error());
  config->visible_gpus = *std::move(visible);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // makes a write that exceeds the file size limit fail like a write to a full
                               // disk
  ckpt::set_fault_role("agent." + config->node);
  try {
    const ckpt::agent::Config& settings = *config;
    if (const auto opened = ckpt::logging::open_log({"agent", settings.log_file, settings.log_level});
        !opened)
      return complain(opened.error());
    auto agent = ckpt::agent::Agent::create(*std::move(config));
    if (!agent) return complain(agent.error());
    if (auto ended = (*agent)->run(); !ended) return complain(ended.error());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpumigrate-agent: %s\n", e.what());
    return 1;
  }
  spdlog::shutdown();
  return 0;
}
