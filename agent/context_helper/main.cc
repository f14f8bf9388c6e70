// SPDX-License-Identifier: Apache-2.0
// gpumigrate-context: has an initialized CUDA driver and sends the driver's checkpoint orders for other
// processes. The agent starts the program with one end of a socketpair as descriptor 3. When the agent exits,
// the program exits after its current order. It logs to stderr. With --probe-remap it only tests how memory
// is restored after a context restore (remap_probe.h). With --probe-gpu it only tests whether a GPU computes
// (gpu_probe.h). With --save PID it only saves a context.
#include <fcntl.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string_view>

#include "agent/context_helper/gpu_probe.h"
#include "agent/context_helper/orders.h"
#include "agent/context_helper/remap_probe.h"
#include "libckpt/base/fault.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/control/log.h"
#include "libckpt/net/log/daemon_log.h"

namespace ckpt::context_helper {
namespace {

constexpr std::uint32_t kMaxLockMs = 5000;

bool send_answer(int socket, const context::Answer& answer) {
  const std::vector<std::byte> packet = wire::encode(answer);
  ssize_t sent;
  do {
    sent = ::send(socket, packet.data(), packet.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(packet.size());
}

// Receives a packet. 0 bytes mean that the agent has disconnected.
Result<std::size_t> receive(int socket, std::span<std::byte> buffer) {
  ssize_t got;
  do {
    got = ::recv(socket, buffer.data(), buffer.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return Error::from_errno("Cannot receive an order");
  return static_cast<std::size_t>(got);
}

void log(const context::Order& order, const context::Answer& answer) {
  if (answer.code != 0) {
    spdlog::warn("{}: took_us {}", context::error_of(answer).to_string(), answer.took_ns / 1000);
  } else {
    spdlog::info("{} of process {}: took_us {}", context::name_of(order.kind), order.pid,
                 answer.took_ns / 1000);
  }
}

Result<void> serve(int socket) {
  const DriverApi* api = nullptr;
  const context::Answer ready = start_driver(api);
  if (!send_answer(socket, ready)) return Error(ErrorCode::kUnavailable, "The agent has disconnected");
  if (api == nullptr) return context::error_of(ready);
  std::vector<std::byte> buffer(context::kMaxOrderBytes + 1);  // one byte larger than an order, so that a
                                                               // longer packet is detected and refused
  for (;;) {
    CKPT_TRY(got, receive(socket, buffer));
    if (got == 0) return Error(ErrorCode::kUnavailable, "The agent has disconnected");
    CKPT_TRY(order, context::parse_order(std::span(buffer).first(got)));
    set_fault_role(std::string("context.") + context::name_of(order.kind));
    fault_point(FaultPoint::kContextOrdered);
    const context::Answer answer = perform(*api, order);
    fault_point(FaultPoint::kContextPerformed);
    log(order, answer);
    if (!send_answer(socket, answer)) return Error(ErrorCode::kUnavailable, "The agent has disconnected");
  }
}

Result<void> perform_one(const DriverApi& api, context::Kind kind, pid_t pid, std::int32_t& value) {
  context::Order order;
  order.kind = kind;
  order.pid = pid;
  order.timeout_ms = kMaxLockMs;
  const context::Answer answer = perform(api, order);
  value = answer.value;
  if (answer.code != 0) return context::error_of(answer);
  return ok();
}

// Saves the context of a process that a keeper is about to kill (agent/keeper/last_save.h).
Result<void> save(pid_t pid) {
  const DriverApi* api = nullptr;
  const context::Answer ready = start_driver(api);
  if (api == nullptr) return context::error_of(ready);
  std::int32_t state = 0;
  std::int32_t unused = 0;
  CKPT_TRYV(perform_one(*api, context::Kind::kState, pid, state));
  if (state == static_cast<std::int32_t>(context::ProcessState::kCheckpointed)) return ok();
  if (state == static_cast<std::int32_t>(context::ProcessState::kRunning)) {
    CKPT_TRYV(perform_one(*api, context::Kind::kLock, pid, unused));
  }
  return perform_one(*api, context::Kind::kCheckpoint, pid, unused);
}

int save_and_report(pid_t pid) {
  const Result<void> saved = save(pid);
  if (saved) return 0;
  spdlog::error("the context of process {} could not be saved: {}", pid, saved.error().to_string());
  return 1;
}

}  // namespace
}  // namespace ckpt::context_helper

int main(int argc, char** argv) {
  const std::string_view flag = argc > 1 ? argv[1] : "";
  if (argc == 2 && flag == "--probe-remap") return ckpt::context_helper::probe_remap();
  if (argc == 2 && flag == ckpt::context_helper::kProbeGpuFlag) return ckpt::context_helper::probe_gpu();
  if (argc == 3 && flag == ckpt::context_helper::kRankFlag)
    return ckpt::context_helper::probe_remap_rank(std::atoi(argv[2]));
  if (argc == 3 && flag == "--save") {
    spdlog::set_default_logger(spdlog::stderr_logger_mt("context"));
    return ckpt::context_helper::save_and_report(std::atoi(argv[2]));
  }
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  (void)ckpt::logging::open_log({});  // cannot fail, because the log goes to standard error, which is already
                                      // open
  constexpr int kSocket = ckpt::agent::context::kSocketFd;
  struct stat status {};
  if (::fstat(kSocket, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    spdlog::error("this program must be started by an agent: descriptor {} is not a socket", kSocket);
    return 64;
  }
  ::fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  const ckpt::UniqueFd socket(kSocket);
  const ckpt::Result<void> ended = ckpt::context_helper::serve(socket.get());
  if (ended.error().code() == ckpt::ErrorCode::kUnavailable) {
    spdlog::info("the agent has disconnected: exiting");
    return 0;
  }
  spdlog::error("ending: {}", ended.error().to_string());
  return 1;
}
