// SPDX-License-Identifier: Apache-2.0
// The vault of another node, as files: the client of a FileServer. A Vault that is opened with it reads and
// writes over the link only what it would read and write on a disk. Names are compared here, so content that
// is there already is not sent.
//
// Threads: as files.h; each operation under way has a connection of its own, up to eight. Ownership: ends its
// session with this object; its Files must have gone before.
// Errors: those of the other node's files (files.h). kUnavailable: it cannot be reached, or the link broke.
// Then all later calls fail as well, since the files that were open are gone.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/store/peer/file_messages.h"
#include "libckpt/store/peer/frame_stream.h"
#include "libckpt/store/vault/files.h"

namespace ckpt::vault {

class RemoteFiles : public Files {
 public:
  struct Settings {
    std::string address;
    std::vector<std::byte> token;
    std::string folder;  // what the vault is called here; all paths begin with it
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
  void lost(const Error& why);
  Result<Answer> call(const FileRequest& request, std::span<const std::byte> payload = {},
                      std::span<std::byte> buffer = {});
  Result<void> act(FileOp op, const std::string& path, const std::string& to = {});
  Result<FileRequest> request_for(FileOp op, const std::string& path) const;
  Result<std::unique_ptr<File>> open_as(FileOp op, const std::string& path);

  const Settings settings_;
  FrameKey key_;
  std::uint64_t session_ = 0;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<std::unique_ptr<FrameStream>> idle_;
  std::size_t connections_ = 0;
  std::optional<Error> lost_;
};

}  // namespace ckpt::vault
