// SPDX-License-Identifier: Apache-2.0
// The screen of a drain in the foreground on a terminal: a bar, and a line for each job that moves. The
// percentage never decreases, although rounds send memory again and moves are repeated.
// Threads: one owner. The functions do no I/O and cannot fail.
#pragma once

#include <string>
#include <vector>

#include "libckpt/api/drain.h"
#include "libckpt/api/migration.h"
#include "tools/gpumigrate/client/progress.h"

namespace ckpt::cli {

class DrainScreen {
 public:
  // Returns the screen. `migrations` has the newest migrations (docs/api.md). No line is longer than
  // `columns`.
  std::string view(const api::Drain& drain, const std::vector<api::Migration>& migrations,
                   std::size_t columns);

 private:
  // Returns the progress of the whole drain in percent; at most 99 while it is open.
  int percent(const api::Drain& drain, const std::vector<api::Migration>& migrations);
  std::string head(const api::Drain& drain, int done, std::size_t columns) const;

  Progress progress_;
  int highest_ = 0;
};

}  // namespace ckpt::cli
