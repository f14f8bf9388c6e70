// SPDX-License-Identifier: Apache-2.0
// gpumigrate-agent --config agent.toml
#include <signal.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "agent/agent.h"
#include "libckpt/base/fault.h"

namespace {

void open_log(const ckpt::agent::Config& config) {
  auto logger = config.log_file.empty() ? spdlog::stderr_logger_mt("agent")
                                        : spdlog::basic_logger_mt("agent", config.log_file);
  spdlog::set_default_logger(logger);
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l agent %v");
  spdlog::flush_on(spdlog::level::warn);
  spdlog::flush_every(std::chrono::seconds(1));
}

int complain(const ckpt::Error& error) {
  std::fprintf(stderr, "gpumigrate-agent: %s\n", error.to_string().c_str());
  return error.code() == ckpt::ErrorCode::kInvalidArgument ? 64 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The gpumigrate agent of one node");
  std::string path;
  app.add_option("--config", path, "Its settings (agent.toml)")->required();
  app.set_version_flag("--version", GPUMIGRATE_VERSION);
  CLI11_PARSE(app, argc, argv);

  auto config = ckpt::agent::load_config(path);
  if (!config) return complain(config.assume_error());
  auto visible = ckpt::agent::parse_visible_gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
  if (!visible) return complain(visible.assume_error());
  config.assume_value().visible_gpus = std::move(visible).assume_value();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of that write, like a full disk
  ckpt::set_fault_role("agent." + config.assume_value().node);
  try {
    open_log(config.assume_value());
    auto agent = ckpt::agent::Agent::create(std::move(config).assume_value());
    if (!agent) return complain(agent.assume_error());
    if (auto ended = agent.assume_value()->run(); !ended) return complain(ended.assume_error());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpumigrate-agent: %s\n", e.what());
    return 1;
  }
  spdlog::shutdown();
  return 0;
}
