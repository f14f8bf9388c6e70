// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/exit_report.h"

#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "agent/keeper/rank/adopted_process.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"

namespace ckpt::keeper {

Result<void> write_exit_report(const std::string& folder, const Config& config, const RankState& state,
                               pid_t rank, const std::string& last_save, const std::string& loss) {
  nlohmann::json report{{"job", config.job},
                        {"incarnation", state.incarnation},
                        {"role", role_name(config.role)},
                        {"pid", rank},
                        {"state", "exited"},
                        {"ended_by_keeper", state.ended_by_keeper},
                        {"moved", state.moved},
                        {"ran", state.resumed_ns != 0},
                        {"ended_at_ms", wall_clock_ms()}};
  const int status = state.wait_status;
  if (status == kUnknownStatus)
    report["unknown"] = true;
  else if (WIFEXITED(status))
    report["exit_code"] = WEXITSTATUS(status);
  else if (WIFSIGNALED(status))
    report["signal"] = WTERMSIG(status);
  if (!last_save.empty()) report["last_save"] = last_save;
  if (!loss.empty()) report["loss"] = loss;
  return write_file_durably(folder + "/status.json", report.dump() + "\n");
}

}  // namespace ckpt::keeper
