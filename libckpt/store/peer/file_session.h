// SPDX-License-Identifier: Apache-2.0
// The session of one client of a FileServer: its open files and locks, and the operations that it requests.
// It is internal to file_server.
// Threads: one thread per connection calls serve(). Ownership: files and locks are released with the session.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "libckpt/store/peer/file_server.h"
#include "libckpt/store/peer/quota.h"

namespace ckpt::checkpoint_store {

[[nodiscard]] FileReply refusal(const Error& error);

class FileServer::Session {
 public:
  Session(Tiers tiers, FileGrant grant, std::vector<std::byte> token);
  [[nodiscard]] const std::vector<std::byte>& token() const noexcept { return token_; }
  // Serves requests until the connection is closed or a message is not a request.
  void serve(FrameStream& stream);

 private:
  struct OpenFile {
    std::shared_ptr<File> file;
    bool writes = false;
    Quota::Handle extent;  // the extent of a file that is being written
  };
  Result<FileReply> perform(const FileRequest& request, std::span<std::byte> payload, std::size_t& out_bytes);
  Result<FileReply> perform_on_file(const FileRequest& request, std::span<std::byte> payload,
                                    std::size_t& out_bytes);
  Result<FileReply> perform_on_path(const FileRequest& request);
  Result<void> change(const FileRequest& request);
  Result<void> check(const FileRequest& request) const;
  Result<OpenFile> find(std::uint64_t handle) const;
  Result<FileReply> create(const std::string& path);
  Result<FileReply> keep(Result<std::unique_ptr<File>> file, Quota::Handle extent);
  // Ensures that the checkpoint store has its own file, which clients only read.
  Result<void> have_checkpoint_store_file(Files& files);
  // Closes all handles of a removed file, so that it is not written any more.
  void close_all(const Quota::Handle& extent);
  Result<FileReply> lock(const std::string& path);
  Result<FileReply> list(const std::string& path);
  [[nodiscard]] std::string full(const std::string& path) const;

  const std::string folder_;
  const FileGrant grant_;
  const std::vector<std::byte> token_;
  std::unique_ptr<Files> files_;
  mutable std::mutex mutex_;  // guards all members below
  std::map<std::uint64_t, OpenFile> open_;
  Quota quota_;
  std::uint64_t lock_handle_ = 0;
  std::unique_ptr<FileLock> lock_;
  std::uint64_t next_ = 1;
};

}  // namespace ckpt::checkpoint_store
