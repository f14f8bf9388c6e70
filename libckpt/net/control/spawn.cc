// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/spawn.h"

#include <spdlog/spdlog.h>

#include <exception>

namespace ckpt::control {

void spawn(asio::any_io_executor executor, std::string name, Task<> task,
           std::function<void(Error)> on_failure) {
  asio::co_spawn(executor, std::move(task),
                 [name = std::move(name), on_failure = std::move(on_failure)](std::exception_ptr failure) {
                   if (!failure) return;
                   std::string what = "unknown exception";
                   try {
                     std::rethrow_exception(failure);
                   } catch (const std::exception& e) {
                     what = e.what();
                   } catch (...) {
                   }
                   spdlog::error("task {} failed: {}", name, what);
                   if (on_failure)
                     on_failure(Error(ErrorCode::kInternal, "Task " + name + " failed: " + what));
                 });
}

}  // namespace ckpt::control
