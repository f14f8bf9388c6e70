// SPDX-License-Identifier: Apache-2.0
// The checkpoint store of another node, as files: the client of a FileServer. A CheckpointStore that uses it
// sends and receives only data that it would read and write on a disk. Names are compared here, so existing
// content is not sent.
//
// Threads: as files.h; each running operation has its own connection, up to eight. Ownership: the session
// ends with this object; its Files must be destroyed before that. Errors: those of the other node's files
// (files.h). kUnavailable: the node cannot be reached, or the link broke. Then all later calls fail as well,
// since the open files are lost.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/store/local/files.h"
#include "libckpt/store/peer/file_messages.h"
#include "libckpt/store/peer/frame_stream.h"

namespace ckpt::checkpoint_store {

class RemoteFiles : public Files {
 public:
  struct Settings {
    std::string address;
    std::vector<std::byte> token;
    std::string folder;  // the local name of the checkpoint store, with which all paths begin
  };
  static Result<std::unique_ptr<RemoteFiles>> connect(Settings settings);
  ~RemoteFiles() override;

  Result<std::unique_ptr<File>> create(const std::string& path) override;
  Result<std::unique_ptr<File>> open(const std::string& path) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<void> make_folder(const std::string& path) override;
  Result<void> remove_folder(const std::string& path) override;
  Result<std::vector<FolderEntry>> list(const std::string& path) override;
  Result<void> sync_folder(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override;

 private:
  class Remote;
  class Lock;
  struct Answer {
    FileReply reply;
    std::size_t payload_bytes = 0;
  };
  explicit RemoteFiles(Settings settings) : settings_(std::move(settings)) {}
  Result<FrameStream> dial() const;
  Result<std::unique_ptr<FrameStream>> borrow();
  void give_back(std::unique_ptr<FrameStream> stream);
  void lost(const Error& reason);
  Result<Answer> call(const FileRequest& request, std::span<const std::byte> payload = {},
                      std::span<std::byte> buffer = {});
  Result<void> act(FileOp op, const std::string& path, const std::string& to = {});
  Result<FileRequest> request_for(FileOp op, const std::string& path) const;
  Result<std::unique_ptr<File>> open_as(FileOp op, const std::string& path);

  const Settings settings_;
  FrameKey key_;
  std::uint64_t session_ = 0;
  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::vector<std::unique_ptr<FrameStream>> idle_;
  std::size_t connections_ = 0;
  std::optional<Error> lost_;
};

}  // namespace ckpt::checkpoint_store
