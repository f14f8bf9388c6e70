// SPDX-License-Identifier: Apache-2.0
// How a rank whose context was restored gets memory (docs/design.md §13). It imports the memory that a mover
// made, or makes its own, which a mover fills (memory_fill.h). The first is free, and not every driver can do
// it. So it is tried with two processes (gpumigrate-context --probe-remap), once for each driver version and
// GPU model. The answer is in HOME/remap.json, and `gpumigrate doctor` asks again. An answer that allows no
// way is not kept: it may come from a fault of the moment. It would refuse all moves from then on. The key
// `remap` of the settings decides in its place.
// Threads: the event loop. Ownership: the Config and the helper outlive it. Errors: kRefused where neither
// way works.
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

// The result; nullopt: it could not be tried.
struct RemapFacts {
  std::optional<bool> import, own;              // on the same GPU
  std::optional<bool> import_moved, own_moved;  // after a restore on another one
  Nanos save_ns = 0;  // of a context that has next to nothing, and its restore; 0: not measured
  Nanos restore_ns = 0;
  std::string problem;
  std::string driver;  // the driver for which the result holds
  std::string gpu;

  // A method that could not be tried is taken to work.
  [[nodiscard]] bool imports() const { return import.value_or(true) && import_moved.value_or(true); }
  [[nodiscard]] bool makes() const { return own.value_or(true) && own_moved.value_or(true); }
  // The probe tried one, and did not rule out both.
  [[nodiscard]] bool has_a_way() const { return (import || own) && (imports() || makes()); }
};
// The facts as JSON, in their file and in "remap" of the probe's line. kCorrupt for anything else.
Result<RemapFacts> parse_remap_facts(const nlohmann::ordered_json& json);
nlohmann::ordered_json to_json(const RemapFacts& facts);
// "13000/580.65.06": what a program sees, and NVIDIA's kernel module where there is one.
[[nodiscard]] std::string driver_name(int version);
Result<RemapFacts> load_remap_facts(const std::string& home);
Result<void> save_remap_facts(const std::string& home, const RemapFacts& facts);

struct RemapProbe {
  std::string program;                   // gpumigrate-context
  std::vector<std::string> environment;  // added to this process's
  std::string output;                    // a file for its output, made again
  Milliseconds timeout{60000};
};
// Asks the driver. Errors: the program cannot be started, hangs or has no output; a driver that cannot is an
// answer.
Task<Result<RemapFacts>> probe_remap(RemapProbe probe);

class RemapChoice {
 public:
  RemapChoice(const asio::any_io_executor& executor, const Config& config, ContextHelper& contexts,
              std::string program)
      : config_(config), contexts_(contexts), program_(std::move(program)), asking_(executor) {}

  // Queries the driver while a migration prepares: there is no query in a downtime.
  Task<Result<void>> prepare();
  // True: the rank imports memory; false: it makes its own. Import is the choice while neither is known.
  [[nodiscard]] bool imports();
  // The times of saving and restoring a context, as the probe measured them; null where it did not.
  [[nodiscard]] const RemapFacts* context_times() const {
    return facts_ && facts_->save_ns > 0 && facts_->restore_ns > 0 ? &*facts_ : nullptr;
  }
  // An import that fails may be followed by own memory.
  [[nodiscard]] bool is_free() const { return config_.remap == "auto"; }

 private:
  Task<Result<void>> find_out(ContextFacts driver);
  [[nodiscard]] bool holds_for(const ContextFacts& driver) const;

  const Config& config_;
  ContextHelper& contexts_;
  std::string program_;
  std::optional<RemapFacts> facts_;
  Turn asking_;  // one migration queries, those that began with it use the result
};

}  // namespace ckpt::agent
