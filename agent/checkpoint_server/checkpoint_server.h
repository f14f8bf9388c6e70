// SPDX-License-Identifier: Apache-2.0
// The agent's side of gpumigrate-checkpoint-store. The program is started with the first grant. If it has
// exited, the next grant starts it again.
// Threads: the event loop. Ownership: the object's destructor closes the program's socket, so the program
// exits and all grants become invalid. Errors: kUnavailable contains the reason why the program does not run.
// Errors of FileServer are returned unchanged.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/checkpoint_server/messages.h"
#include "agent/io/packet_link.h"
#include "agent/io/process.h"

namespace ckpt::agent {

struct CheckpointStoreServerSettings {
  std::string program;  // path of gpumigrate-checkpoint-store
  std::string node;     // name of this node
  std::string log_path;
  std::string folder;  // folder of the checkpoint store on this node
  std::string memory;  // folder of the store's tier in memory; empty if there is none
  std::uint64_t memory_limit_bytes = 0;
  std::string host;        // host at which other nodes reach this node
  std::uint16_t port = 0;  // port to listen on; 0 lets the kernel choose
  Milliseconds timeout{10000};
};

struct GrantedCheckpointStore {
  std::string address;
  std::vector<std::byte> token;
};

class CheckpointStoreServer : public std::enable_shared_from_this<CheckpointStoreServer> {
 public:
  static std::shared_ptr<CheckpointStoreServer> create(const asio::any_io_executor& executor,
                                                       CheckpointStoreServerSettings settings);
  ~CheckpointStoreServer();
  CheckpointStoreServer(const CheckpointStoreServer&) = delete;
  CheckpointStoreServer& operator=(const CheckpointStoreServer&) = delete;

  // Sends an order to the program and returns the granted store. The function sets the order's id.
  Task<Result<GrantedCheckpointStore>> grant(checkpoint_store_server::CheckpointStoreOrder order);
  // Revokes a grant. A token without a grant may also be revoked.
  Task<Result<void>> revoke(std::vector<std::byte> token);

 private:
  using Answer = checkpoint_store_server::CheckpointStoreAnswer;
  struct Pending {
    explicit Pending(const asio::any_io_executor& executor) : changed(executor) {}
    std::optional<Result<Answer>> outcome;
    AsyncEvent changed;
  };
  CheckpointStoreServer(const asio::any_io_executor& executor, CheckpointStoreServerSettings settings);
  Result<void> launch();
  void on_packet(const Packet& packet);
  void on_gone(const Error& reason);
  Task<Result<void>> ready();
  Task<Result<Answer>> ask(checkpoint_store_server::CheckpointStoreOrder order);
  Task<Result<Answer>> wait(std::uint64_t id);

  asio::any_io_executor executor_;
  const CheckpointStoreServerSettings settings_;
  AsyncMutex starting_;
  std::string address_;  // address at which the program listens; empty until it listens
  std::shared_ptr<ChildProcess> process_;
  std::shared_ptr<PacketLink> link_;  // link to the program; null if the program is not running
  std::uint64_t run_ = 0;             // number of the program's current run; packets and exits of earlier
                                      // runs are ignored
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, std::shared_ptr<Pending>> pending_;  // pending orders by id; the entry with id 0
                                                               // waits for the message that the program
                                                               // listens
};

}  // namespace ckpt::agent
