// SPDX-License-Identifier: Apache-2.0
// Passes reports about a growing log from the thread that fills it to the event loop. Growth before the loop
// has handled the last report is combined into one report. Therefore at most one report waits, independent of
// the size of the pieces.
// Threads: any thread may call the function. Ownership: shared by its copies. Errors: none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "agent/io/async.h"

namespace ckpt::agent {

// Returns a function that calls `report_growth` on the loop, with the latest size.
[[nodiscard]] inline std::function<void(std::uint64_t)> latest_growth(
    asio::any_io_executor loop, std::function<void(std::uint64_t)> report_growth) {
  struct Report {
    std::atomic<std::uint64_t> filled{0};
    std::atomic<bool> waits{false};
  };
  return [loop = std::move(loop), report_growth = std::move(report_growth),
          report = std::make_shared<Report>()](std::uint64_t filled) {
    report->filled.store(filled);
    if (report->waits.exchange(true)) return;
    asio::post(loop, [report_growth, report] {
      report->waits.store(false);
      report_growth(report->filled.load());
    });
  };
}

}  // namespace ckpt::agent
