// SPDX-License-Identifier: Apache-2.0
// Determines how a rank with a restored context gets memory (docs/design.md §13). The rank imports memory
// that a mover created, or it creates its own memory, which a mover fills (memory_fill.h). An import costs no
// time, but not every driver supports it. Therefore both methods are tested with two processes
// (gpumigrate-context --probe-remap), once for each driver version and GPU model. The answer is stored in
// HOME/remap.json, and `gpumigrate doctor` repeats the test. An answer that allows neither method is not
// stored, because a temporary fault may have caused it. Otherwise it would refuse all moves from then on. The
// key `remap` of the settings overrides the answer.
// Threads: the event loop. Ownership: the Config and the helper outlive it. Errors: kRefused if neither
// method works.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "agent/context_helper/context_helper.h"
#include "agent/io/async.h"
#include "agent/settings/config.h"
#include "libckpt/base/clock.h"

namespace ckpt::agent {

// The results of the probe. A result is nullopt if the method could not be tested.
struct RemapFacts {
  std::optional<bool> import, own;              // whether a restored process on the same GPU can import
                                                // memory, and whether it can create its own
  std::optional<bool> import_moved, own_moved;  // the same results after a restore on a different GPU
  Nanos save_ns = 0;  // time to save a context with almost no content (save_ns) and to restore it
                      // (restore_ns); 0 if not measured
  Nanos restore_ns = 0;
  std::string problem;
  std::string driver;  // name of the driver (driver_name()) for which the result is valid
  std::string gpu;

  // Returns whether import works, and true if import could not be tested.
  [[nodiscard]] bool imports() const { return import.value_or(true) && import_moved.value_or(true); }
  [[nodiscard]] bool makes() const { return own.value_or(true) && own_moved.value_or(true); }
  // Checks whether the probe tested a method and did not exclude both methods.
  [[nodiscard]] bool has_a_way() const { return (import || own) && (imports() || makes()); }
};
// Converts the facts from JSON; to_json() is the inverse. The JSON is in the facts' file and in "remap" of
// the probe's line. The error is kCorrupt for any other content.
Result<RemapFacts> parse_remap_facts(const nlohmann::ordered_json& json);
nlohmann::ordered_json to_json(const RemapFacts& facts);
// Returns a name such as "13000/580.65.06": the version that a program sees, and the version of NVIDIA's
// kernel module if there is one.
[[nodiscard]] std::string driver_name(int version);
Result<RemapFacts> load_remap_facts(const std::string& home);
Result<void> save_remap_facts(const std::string& home, const RemapFacts& facts);

struct RemapProbe {
  std::string program;                   // path of gpumigrate-context
  std::vector<std::string> environment;  // variables added to this process's environment
  std::string output;                    // file for the program's output, which replaces an earlier file
  Milliseconds timeout{60000};
};
// Probes the driver. Errors mean that the program cannot be started, hangs or has no output. A result that
// the driver lacks an ability is not an error.
Task<Result<RemapFacts>> probe_remap(RemapProbe probe);

class RemapChoice {
 public:
  RemapChoice(const asio::any_io_executor& executor, const Config& config, ContextHelper& contexts,
              std::string program)
      : config_(config), contexts_(contexts), program_(std::move(program)), asking_(executor) {}

  // Probes the driver while a migration prepares, so that no probe runs in a downtime.
  Task<Result<void>> prepare();
  // Returns true if the rank imports memory, and false if the rank creates its own memory. While neither
  // result is known, the function assumes that import works.
  [[nodiscard]] bool imports();
  // Returns the measured times of saving and restoring a context, or null if the probe did not measure them.
  [[nodiscard]] const RemapFacts* context_times() const {
    return facts_ && facts_->save_ns > 0 && facts_->restore_ns > 0 ? &*facts_ : nullptr;
  }
  // Checks whether the setting leaves the method open, so that own memory may be used after a failed import.
  [[nodiscard]] bool is_free() const { return config_.remap == "auto"; }

 private:
  Task<Result<void>> find_out(ContextFacts driver);
  [[nodiscard]] bool holds_for(const ContextFacts& driver) const;

  const Config& config_;
  ContextHelper& contexts_;
  std::string program_;
  std::optional<RemapFacts> facts_;
  AsyncMutex asking_;  // held during a probe; migrations that wait for it in the meantime use the probe's
                       // result
};

}  // namespace ckpt::agent
