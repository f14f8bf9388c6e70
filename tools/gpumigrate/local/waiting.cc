// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/local/waiting.h"

namespace ckpt::cli {

Result<void> wait_readable(Context& context, Wait& wait, const std::vector<int>& descriptors,
                           std::chrono::milliseconds time) {
  if (auto end = wait.end()) return *std::move(end);
  context.coordinator.http().wait_readable(descriptors, std::min(time, wait.next_call()));
  if (auto end = wait.end()) return *std::move(end);
  return ok();
}

Result<LocalLock> acquire_lock(Context& context, Wait& wait) {
  wait.now_for("another `gpumigrate local` at " + context.home());
  for (;;) {
    CKPT_TRY(lock, LocalLock::try_acquire(context.home()));
    if (lock) return *std::move(lock);
    CKPT_TRYV(wait_readable(context, wait, {}, HttpClient::kRedialInterval));
  }
}

}  // namespace ckpt::cli
