// SPDX-License-Identifier: Apache-2.0
// The progress of a migration in one line that fits a terminal. At 60 columns it shows percent, pause and
// ETA; less important parts are omitted first. A number is shown once it is meaningful. The pause is the
// limit (<=) until the second round ends, and then the estimate (~).
// Threads: one owner for each object. The functions do no I/O and cannot fail.
#pragma once

#include <map>
#include <string>

#include "libckpt/api/migration.h"

namespace ckpt::cli {

// Returns the share of the job's current memory that the target holds, in whole percent and at most 99.
// Returns -1 before and after the copy.
int copied_percent(const api::Migration& migration);

// Returns a bar for the percentage, like "[####                ]".
std::string bar_of(int percent);
// Returns a text like "wire 12/40 MiB/s"; empty: no rate is known.
std::string wire_rate_of(const api::Migration& migration);
// Returns the pause as its limit ("pause <=200 ms") or its estimate ("pause ~123 ms"). Returns "paused" for a
// stop-and-copy move.
std::string pause_of(const api::Migration& migration);
// Returns the remaining time like "ETA 2 s", or "ETA -" if it is unknown.
std::string eta_of(const api::Migration& migration);

// A display that stores the percentage shown for each migration. It never shows a lower percentage, although
// later rounds send memory again.
class Progress {
 public:
  // Returns copied_percent(), but never less than the last value returned for the same migration.
  int percent(const api::Migration& migration);
  // Returns the progress of the migration as a line of at most `columns` columns.
  std::string line(const api::Migration& migration, std::size_t columns);

 private:
  std::map<std::string, int> highest_;
};

}  // namespace ckpt::cli
