// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/at_once.h"

#include <memory>

#include "libckpt/net/control/spawn.h"

namespace ckpt::control {
namespace {

struct Running {
  Running(std::size_t count, const asio::any_io_executor& executor)
      : left(count), done(executor, asio::steady_timer::time_point::max()) {}
  std::size_t left;
  asio::steady_timer done;
};

// An object whose destructor counts a task as ended, so that a task that throws is counted, too.
class Ending {
 public:
  explicit Ending(std::shared_ptr<Running> running) : running_(std::move(running)) {}
  ~Ending() {
    if (--running_->left == 0) running_->done.cancel();
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  std::shared_ptr<Running> running_;
};

Task<> run_one(Task<> task, std::shared_ptr<Running> running) {
  const Ending ending(std::move(running));
  co_await std::move(task);
}

}  // namespace

Task<> at_once(asio::any_io_executor executor, std::string name, std::vector<Task<>> tasks) {
  const auto running = std::make_shared<Running>(tasks.size(), executor);
  for (Task<>& task : tasks) spawn(executor, name, run_one(std::move(task), running));
  while (running->left > 0) co_await running->done.async_wait(kTuple);
}

}  // namespace ckpt::control
