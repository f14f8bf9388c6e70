// SPDX-License-Identifier: Apache-2.0
// How far a migration is, in one line that fits a terminal. Percent, pause and ETA are in it at 60 columns;
// what matters less leaves first. A number is shown once it means something: the pause is the limit (<=)
// until the second round is over, and the estimate (~) from then on.
// Threads: one owner for each object. No I/O; no function fails.
#pragma once

#include <map>
#include <string>

#include "libckpt/api/migration.h"

namespace ckpt::cli {

// The share of the job's memory that the target holds as it is now, in whole percent, at most 99 before the
// end; -1: nothing is copied (yet, or any more).
int copied_percent(const api::Migration& migration);

// "[####                ]"
std::string bar_of(int percent);
// "wire 12/40 MiB/s", empty while there is no rate.
std::string wire_rate_of(const api::Migration& migration);
// "pause <=200 ms", "pause ~123 ms", or "paused".
std::string pause_of(const api::Migration& migration);
// "ETA 2 s", "ETA -".
std::string eta_of(const api::Migration& migration);

// Remembers what it has shown of each migration, since rounds send memory again and no percent goes
// backwards.
class Progress {
 public:
  // As copied_percent(), never below what was returned for it before.
  int percent(const api::Migration& migration);
  // At most `columns` wide.
  std::string line(const api::Migration& migration, std::size_t columns);

 private:
  std::map<std::string, int> highest_;
};

}  // namespace ckpt::cli
