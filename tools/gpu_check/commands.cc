// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/commands.h"

#include <filesystem>

#include "libckpt/base/fd.h"
#include "tools/gpumigrate/local/processes.h"

namespace ckpt::gpu_check {
namespace {

constexpr std::size_t kMaxJson = std::size_t{16} << 20;
constexpr Nanos kTimeToReport = 1'500'000'000;
constexpr const char* kLoopback = "/sys/class/net/lo";

}  // namespace

Result<bench::CommandOutput> run_program(const Setting& setting, const std::vector<std::string>& argv) {
  bench::Command command;
  command.argv = argv;
  command.environment = cli::environment_with({});
  CKPT_TRY(running, bench::RunningCommand::start(command, nullptr));
  // The program's deadline is before the item's. The item is then still alive to name the program in its
  // report.
  return running->finish(setting.deadline - kTimeToReport);
}

Result<Json> last_object(const std::string& text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t newline = text.rfind('\n', end - 1);
    const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with("{")) {
      Json object = Json::parse(line, nullptr, false);
      if (object.is_object()) return object;
    }
    end = newline == std::string::npos ? 0 : newline;
  }
  return Error(ErrorCode::kCorrupt, "There is no JSON object in the program's output");
}

Result<Json> read_json(const std::string& path) {
  CKPT_TRY(text, read_file(path, kMaxJson));
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return Error(ErrorCode::kCorrupt, path + " is no JSON");
  return json;
}

std::string missing_network() {
  if (std::filesystem::exists(kLoopback)) return {};
  return std::string("UCX finds no network device without ") + kLoopback;
}

double seconds_left(const Setting& setting) {
  return static_cast<double>(setting.deadline - now_ns()) / 1e9;
}

}  // namespace ckpt::gpu_check
