// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/run_program.h"

#include <signal.h>

#include <memory>
#include <optional>

namespace ckpt::agent::host {

namespace {

constexpr std::chrono::seconds kDying{5};

}  // namespace

Task<Result<int>> run_program(ProcessSpec spec, Milliseconds timeout) {
  struct Outcome {
    explicit Outcome(const asio::any_io_executor& executor) : ended(executor) {}
    AsyncEvent ended;
    std::optional<int> status;
  };
  const auto executor = co_await asio::this_coro::executor;
  auto outcome = std::make_shared<Outcome>(executor);
  CKPT_CO_TRY(process, ChildProcess::start(executor, spec, [outcome](int status) {
                outcome->status = status;
                outcome->ended.notify();
              }));
  const std::string name = spec.argv[0];
  co_await outcome->ended.wait(std::chrono::steady_clock::now() + timeout);
  if (outcome->status) co_return *outcome->status;
  const pid_t pid = process->pid();
  if (spec.own_session) ::kill(-pid, SIGKILL);
  process->signal(SIGKILL);
  co_await outcome->ended.wait(std::chrono::steady_clock::now() + kDying);
  co_return Error(ErrorCode::kTimedOut, name + " (process " + std::to_string(pid) +
                                            ") was still running after " + std::to_string(timeout.count()) +
                                            " ms and has been killed");
}

}  // namespace ckpt::agent::host
