// SPDX-License-Identifier: Apache-2.0
// Fingerprints of memory that does not change, by several scans at once. One launch alone leaves some of a
// device's memory rate unused (its ends; on the software device, all cores but one). Beside a job that runs
// it is one scan, narrow(), which keeps a duty.
// Threads: one at a time, but cancel() from any. Ownership: the Device outlives it. Errors: the driver's.
// kAborted after cancel(), and where memory of the plan was freed meanwhile (a round ahead is done again,
// then). kCorrupt: a copy differs from the scanned chunk.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "libckpt/datapath/track/scanner.h"

namespace ckpt::mover {

class WideScan {
 public:
  static Result<std::unique_ptr<WideScan>> create(const std::shared_ptr<const track::TrackKernels>& kernels);

  // out.size() == chunks.size().
  Result<void> scan(std::span<const track::ChunkRange> chunks, std::span<track::Fingerprint> out);
  [[nodiscard]] track::Scanner& narrow() noexcept { return *scanners_.front(); }
  void cancel();
  void resume();

 private:
  std::vector<std::unique_ptr<track::Scanner>> scanners_;
};

}  // namespace ckpt::mover
