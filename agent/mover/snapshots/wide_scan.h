// SPDX-License-Identifier: Apache-2.0
// Fingerprints of memory that does not change, computed by several scans at once. A single launch does
// not use a device's whole memory rate near its beginning and its end. On the software device, it uses one
// core. While the job runs, one scan, narrow(), is used, which obeys a duty.
// Threads: one at a time. Any thread may call cancel(). Ownership: the Device outlives it. Errors: the
// driver's errors. kAborted after cancel(), and if memory of the plan was freed in the meantime (a round
// ahead is then repeated). kCorrupt if a copy differs from the scanned chunk.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "libckpt/datapath/track/scanner.h"

namespace ckpt::mover {

class WideScan {
 public:
  static Result<std::unique_ptr<WideScan>> create(const std::shared_ptr<const track::TrackKernels>& kernels);

  // Scans `chunks`. out.size() must equal chunks.size().
  Result<void> scan(std::span<const track::ChunkRange> chunks, std::span<track::Fingerprint> out);
  [[nodiscard]] track::Scanner& narrow() noexcept { return *scanners_.front(); }
  void cancel();
  void resume();

 private:
  std::vector<std::unique_ptr<track::Scanner>> scanners_;
};

}  // namespace ckpt::mover
