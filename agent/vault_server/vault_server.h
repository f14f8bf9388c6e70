// SPDX-License-Identifier: Apache-2.0
// The agent's side of gpumigrate-vault: started with the first grant, and again with the next one if it has
// died.
// Threads: the event loop. Ownership: the process ends with this object (its socket closes), and all grants
// with it. Errors: kUnavailable: it does not run, with the reason; those of FileServer.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/io/packet_link.h"
#include "agent/io/process.h"
#include "agent/vault_server/messages.h"

namespace ckpt::agent {

struct VaultServerSettings {
  std::string program;  // gpumigrate-vault
  std::string node;     // this one
  std::string log_path;
  std::string folder;  // the vault
  std::string memory;  // its tier in memory; empty: none
  std::uint64_t memory_limit_bytes = 0;
  std::string host;        // where other nodes reach this one
  std::uint16_t port = 0;  // 0: the kernel chooses
  Milliseconds timeout{10000};
};

struct GrantedVault {
  std::string address;
  std::vector<std::byte> token;
};

class VaultServer : public std::enable_shared_from_this<VaultServer> {
 public:
  static std::shared_ptr<VaultServer> create(const asio::any_io_executor& executor,
                                             VaultServerSettings settings);
  ~VaultServer();
  VaultServer(const VaultServer&) = delete;
  VaultServer& operator=(const VaultServer&) = delete;

  // Sends an order; its id is set here.
  Task<Result<GrantedVault>> grant(vault_server::VaultOrder order);
  // Revokes a grant, also one that is not known.
  Task<Result<void>> revoke(std::vector<std::byte> token);

 private:
  using Answer = vault_server::VaultAnswer;
  struct Pending {
    explicit Pending(const asio::any_io_executor& executor) : changed(executor) {}
    std::optional<Result<Answer>> outcome;
    Signal changed;
  };
  VaultServer(const asio::any_io_executor& executor, VaultServerSettings settings);
  Result<void> launch();
  void on_packet(const Packet& packet);
  void on_gone(const Error& why);
  Task<Result<void>> ready();
  Task<Result<Answer>> ask(vault_server::VaultOrder order);
  Task<Result<Answer>> wait(std::uint64_t id);

  asio::any_io_executor executor_;
  const VaultServerSettings settings_;
  Turn starting_;
  std::string address_;  // once it serves
  std::shared_ptr<ChildProcess> process_;
  std::shared_ptr<PacketLink> link_;  // null: it does not run
  std::uint64_t run_ = 0;             // separates packets and ends of an earlier process
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, std::shared_ptr<Pending>> pending_;  // 0: that it listens
};

}  // namespace ckpt::agent
