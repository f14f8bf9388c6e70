// SPDX-License-Identifier: Apache-2.0
// A disk whose power can be cut before any operation. It keeps what is in its caches (what a running program
// sees) apart from what is on the disk. After the cut each write that was not synced is there, or is not, or
// is torn, whatever came after it. Each name that was made, renamed or removed in a folder that was not
// synced is there or not. That is all that POSIX promises, and less than file systems do.
//
// Rules can be switched off: a sync that is left out for files or folders whose path ends in a given way.
// Threads: one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "libckpt/store/local/files.h"

namespace ckpt::checkpoint_store::test {

class PowerCutFiles : public Files {
 public:
  Result<std::unique_ptr<File>> create(const std::string& path) override;
  Result<std::unique_ptr<File>> open(const std::string& path) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<void> make_folder(const std::string& path) override;
  Result<void> remove_folder(const std::string& path) override;
  Result<std::vector<FolderEntry>> list(const std::string& path) override;
  Result<void> sync_folder(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override;

  // The power goes after so many more operations that change something; every one after it fails.
  void cut_after(std::uint64_t operations) { left_ = operations; }
  void never_cut() { left_.reset(); }
  [[nodiscard]] std::uint64_t operations() const { return operations_; }
  // Reduces the disk to a state that it may have when the power comes back. Open files and locks are dead.
  void restart(std::uint64_t seed);
  // Only the program was killed: all it wrote is there. Files and locks that are still open are dead.
  void restart_program();
  // A folder of a tmpfs, when the power was off.
  void forget(const std::string& folder);
  // Syncs of paths that end in `text` do nothing from here on.
  void leave_out_syncs_of(const std::string& text) { left_out_.insert(text); }
  // Writes fail with kRefused beyond so many bytes.
  void set_space(std::uint64_t bytes) { space_ = bytes; }

  [[nodiscard]] std::vector<std::string> all_files() const;
  std::vector<std::byte>& bytes_of(const std::string& path);
  [[nodiscard]] std::uint64_t total_bytes() const;

 private:
  friend class PowerCutFile;
  friend class PowerCutLock;
  struct Write {
    std::uint64_t at = 0;
    std::vector<std::byte> bytes;
  };
  struct Node {
    bool is_folder = false;
    std::vector<std::byte> seen, durable;
    std::vector<Write> unsynced;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  struct NameChange {
    std::string removed, added;  // a rename has both
    std::shared_ptr<Node> node;
  };
  struct Folder {
    Names durable;
    std::vector<NameChange> unsynced;
  };

  Result<void> step();
  Result<std::shared_ptr<Node>> find(const std::string& path) const;
  void change(const std::string& folder, NameChange change);
  [[nodiscard]] bool is_left_out(const std::string& path) const;
  static void apply(Names& names, const NameChange& change);

  Names seen_;                             // path -> node
  std::map<std::string, Folder> folders_;  // of names by path
  std::set<std::string> left_out_;
  std::set<std::string> locks_;
  std::optional<std::uint64_t> left_, space_;
  std::uint64_t operations_ = 0;
  std::uint64_t life_ = 0;
  bool dead_ = false;
};

}  // namespace ckpt::checkpoint_store::test
