// SPDX-License-Identifier: Apache-2.0
// gpumigrate-checkpoint-store: lets the movers of other nodes read and write this node's checkpoint store.
// Each grant from the agent covers one job (libckpt/store/peer). It is a separate process, because its
// traffic is too much for the agent's event loop, and the agent need not see that data. The agent starts the
// program with one end of a socketpair as descriptor 3. The program exits when the agent does. It logs to
// stderr.
#include <fcntl.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent/checkpoint_server/messages.h"
#include "libckpt/base/fault.h"
#include "libckpt/base/fd.h"
#include "libckpt/command_line/command_line.h"
#include "libckpt/net/control/log.h"
#include "libckpt/net/log/daemon_log.h"
#include "libckpt/store/peer/file_server.h"

namespace ckpt::agent::checkpoint_store_server {
namespace {

Result<void> send_answer(int socket, const CheckpointStoreAnswer& answer) {
  const auto bytes = wire::encode(answer);
  ssize_t sent;
  do {
    sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes.size())) return ok();
  return Error(ErrorCode::kUnavailable, "The agent has disconnected");
}

CheckpointStoreAnswer failed(const Error& error) {
  constexpr std::size_t kMaxText = 2000;
  CheckpointStoreAnswer answer;
  answer.error_code = static_cast<std::uint8_t>(error.code());
  answer.text = error.to_string().substr(0, kMaxText);
  return answer;
}

CheckpointStoreAnswer obey(checkpoint_store::FileServer& server, const CheckpointStoreOrder& order) {
  CheckpointStoreAnswer answer;
  if (!order.revoke.empty()) {
    server.revoke(order.revoke);
  } else {
    checkpoint_store::FileGrant grant;
    grant.job = order.job;
    grant.writes = order.writes;
    grant.into_memory = order.into_memory;
    grant.limit_bytes = order.limit_bytes;
    grant.lasts = std::chrono::milliseconds(order.lasts_ms);
    auto token = server.grant(grant);
    if (!token) answer = failed(token.error());
    if (token) {
      answer.token = *std::move(token);
      fault_point(FaultPoint::kCheckpointStoreServerGranted);
      spdlog::info("access granted: job {} writes {} into_memory {}", order.job, order.writes,
                   order.into_memory);
    }
  }
  answer.id = order.id;
  return answer;
}

Result<void> serve(int socket, checkpoint_store::FileServer::Settings settings) {
  auto created = checkpoint_store::FileServer::create(std::move(settings));
  if (!created) {
    CKPT_TRYV(send_answer(socket, failed(created.error())));
    return std::move(created).error();
  }
  checkpoint_store::FileServer& server = **created;
  CheckpointStoreAnswer ready;
  ready.text = server.address();
  CKPT_TRYV(send_answer(socket, ready));
  spdlog::info("serving: address {}", server.address());
  std::vector<std::byte> room(kMaxPacketBytes);
  while (true) {
    ssize_t got;
    do {
      got = ::recv(socket, room.data(), room.size(), 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return Error::from_errno("Cannot receive an order");
    if (got == 0) return Error(ErrorCode::kUnavailable, "The agent has disconnected");
    CKPT_TRY(order, wire::decode<CheckpointStoreOrder>(std::span(room).first(static_cast<std::size_t>(got))));
    CKPT_TRYV(send_answer(socket, obey(server, order)));
  }
}

}  // namespace
}  // namespace ckpt::agent::checkpoint_store_server

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  ckpt::CommandLine app("Serves a node's checkpoint store to other nodes; started by gpumigrate-agent");
  ckpt::checkpoint_store::FileServer::Settings settings;
  app.add_option("--folder", settings.folder, "Folder of the checkpoint store").required();
  app.add_option("--memory", settings.memory, "In-memory folder of the checkpoint store");
  app.add_option("--memory-limit", settings.memory_limit_bytes,
                 "Size limit of the in-memory folder, in bytes");
  app.add_option("--listen", settings.listen, "IP:PORT").required();
  std::string node;
  app.add_option("--node", node, "The node that owns the checkpoint store").required();
  if (const auto end = app.parse(argc, argv)) return end->print();
  ckpt::set_fault_role("vault." + node);
  (void)ckpt::logging::open_log({});  // cannot fail, because the log goes to standard error, which is already
                                      // open
  constexpr int kSocket = ckpt::agent::checkpoint_store_server::kSocketFd;
  struct stat status {};
  if (::fstat(kSocket, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    spdlog::error("this program must be started by an agent: descriptor {} is not a socket", kSocket);
    return 64;
  }
  ::fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  const ckpt::UniqueFd socket(kSocket);
  const auto ended = ckpt::agent::checkpoint_store_server::serve(socket.get(), std::move(settings));
  if (ended.error().code() == ckpt::ErrorCode::kUnavailable) {
    spdlog::info("the agent has disconnected: exiting");
    return 0;
  }
  spdlog::error("ending: {}", ended.error().to_string());
  return 1;
}
