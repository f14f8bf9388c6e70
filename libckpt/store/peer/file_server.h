// SPDX-License-Identifier: Apache-2.0
// Lets other nodes read and write one job each of a checkpoint store, with granted tokens. The client side is
// remote_files.h. A token is the secret of a TLS connection, and is never sent (frame_stream.h).
//
// The server limits connections, the data that each may send, and open files. A connection that has not
// proved within seconds that it has a token is closed. If there are too many of these, the oldest is closed.
// A grant names one job, and whether the job may be written; nothing else in the checkpoint store can be
// changed. The checkpoint store's own files belong to the server: a client may read them and hold the
// checkpoint store's lock. A client that writes must first hold the lock, and writes no more than its grant
// allows. Malicious bytes can only close a connection.
// Threads: one accepts, and one serves each connection; all functions may be called from any thread.
// Ownership: the destructor closes all connections. Errors: create() fails if it cannot listen.
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

namespace ckpt::checkpoint_store {

struct FileGrant {
  std::string job;  // the job's name in the checkpoint store
  bool writes = false;
  bool into_memory =
      false;  // whether new data is stored in memory; if false, it is stored on the disk, and the job's data
              // in memory moves to the disk, too
  std::chrono::milliseconds lasts{0};
  // The maximum size of the job in the checkpoint store, as the sum of its files' lengths; 0 for no limit.
  // During a collection the job may exceed the limit by its former size, but by at most one pack.
  std::uint64_t limit_bytes = 0;
};

class FileServer {
 public:
  struct Settings {
    std::string folder;  // the folder of the checkpoint store
    std::string memory;  // the folder of the memory tier; empty if there is none
    std::uint64_t memory_limit_bytes = 0;
    std::string listen;  // the address to listen at, such as "127.0.0.1:0"
  };
  static Result<std::unique_ptr<FileServer>> create(Settings settings);
  ~FileServer();
  FileServer(const FileServer&) = delete;
  FileServer& operator=(const FileServer&) = delete;

  [[nodiscard]] const std::string& address() const noexcept { return listening_.address; }
  // Grants access and returns the token. Returns kRefused if there are too many grants.
  Result<std::vector<std::byte>> grant(const FileGrant& grant);
  // Revokes a token and closes the connections that used it.
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
    std::shared_ptr<const Granted> granted;  // the grant that the client used, which belongs to the
                                             // connection's thread from the handshake on
    std::shared_ptr<Session> session;        // the session of the client; set once the hello has arrived
    std::atomic<bool> over{false};
  };

  FileServer(Settings settings, ListeningSocket listening, std::shared_ptr<const tls::PskContext> context);
  void accept_all();
  void accept_socket(UniqueFd socket);
  void make_space();
  void bury(bool all);
  void serve(Connection& connection);
  Result<void> greet(Connection& connection);
  Result<std::shared_ptr<Session>> session_of(const Granted& granted, const FileHello& hello);
  // Finds a grant by the identity of its key. Returns null if there is no such grant, or if it has expired.
  std::shared_ptr<const Granted> find(std::string_view identity);

  const Settings settings_;
  ListeningSocket listening_;
  const std::shared_ptr<const tls::PskContext> context_;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;  // guards all members below
  std::list<std::shared_ptr<const Granted>> grants_;
  std::map<std::pair<std::vector<std::byte>, std::uint64_t>, std::weak_ptr<Session>> sessions_;
  std::list<Connection> connections_;
  std::thread accepting_;
};

}  // namespace ckpt::checkpoint_store
