// SPDX-License-Identifier: Apache-2.0
// Lets other nodes read and write one job each of a vault, by tokens that were granted: the other half is
// remote_files.h. A token is the secret of a TLS connection, and is never sent (frame_stream.h).
//
// Bounded: connections, what each may send, open files. A connection that has not shown within seconds that it has a
// token is closed; where there are too many of these, the oldest goes. A grant names one job, and whether it may be
// written; nothing else of the vault can be changed. The vault's own files are the server's: a client may read them and
// hold its lock. A client that writes must hold that first, and writes no more than its grant allows. Crafted
// bytes end a connection, no more.
// Threads: one that accepts, one for each connection; all functions from any. Ownership: the destructor ends
// all of it. Errors: create(): where it cannot listen.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "libckpt/store/peer/file_messages.h"
#include "libckpt/store/peer/frame_stream.h"
#include "libckpt/store/peer/tiered_files.h"

namespace ckpt::vault {

struct FileGrant {
  std::string job;  // in the vault
  bool writes = false;
  bool into_memory =
      false;  // what is written; else it goes, and what the job has in memory with it, to the disk
  std::chrono::milliseconds lasts{0};
  // The most that the job may have in the vault, by the lengths of its files; 0: no limit. While it collects it may
  // have as much again as it had, but no more than a pack.
  std::uint64_t limit_bytes = 0;
};

class FileServer {
 public:
  struct Settings {
    std::string folder;  // the vault's
    std::string memory;  // empty: no memory tier
    std::uint64_t memory_limit_bytes = 0;
    std::string listen;  // "127.0.0.1:0"
  };
  static Result<std::unique_ptr<FileServer>> create(Settings settings);
  ~FileServer();
  FileServer(const FileServer&) = delete;
  FileServer& operator=(const FileServer&) = delete;

  [[nodiscard]] const std::string& address() const noexcept { return listening_.address; }
  // The token. kRefused: too many are granted already.
  Result<std::vector<std::byte>> grant(const FileGrant& grant);
  // Connections that showed it are closed.
  void revoke(const std::vector<std::byte>& token);

 private:
  struct Granted {
    FileGrant grant;
    std::vector<std::byte> token;
    FrameKey key;
    std::chrono::steady_clock::time_point until;
  };
  class Session;
  struct Connection {
    FrameStream stream;
    std::thread thread;
    std::shared_ptr<const Granted> granted;  // its thread's, from the handshake on
    std::shared_ptr<Session> session;        // from its hello on
    std::atomic<bool> over{false};
  };

  FileServer(Settings settings, ListeningSocket listening, std::shared_ptr<const tls::PskContext> context);
  void accept_all();
  void take(UniqueFd socket);
  void make_space();
  void bury(bool all);
  void serve(Connection& connection);
  Result<void> greet(Connection& connection);
  Result<std::shared_ptr<Session>> session_of(const Granted& granted, const FileHello& hello);
  // By what a client calls its key; null: there is none, or not any more.
  std::shared_ptr<const Granted> find(std::string_view identity);

  const Settings settings_;
  ListeningSocket listening_;
  const std::shared_ptr<const tls::PskContext> context_;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;  // of all below
  std::list<std::shared_ptr<const Granted>> grants_;
  std::map<std::pair<std::vector<std::byte>, std::uint64_t>, std::weak_ptr<Session>> sessions_;
  std::list<Connection> connections_;
  std::thread accepting_;
};

}  // namespace ckpt::vault
