// SPDX-License-Identifier: Apache-2.0
// A disk whose power can be cut before any operation. It separates the content of its caches, which a running
// program reads, from the content on the disk. After the cut each unsynced write is present, missing or torn,
// whatever came after the write. Each name that was created, renamed or removed in an unsynced folder is
// present or missing. POSIX promises no more than this behavior, and file systems do more.
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

  // Cuts the power after the given number of further changing operations. Every later operation fails.
  void cut_after(std::uint64_t operations) { left_ = operations; }
  void never_cut() { left_.reset(); }
  [[nodiscard]] std::uint64_t operations() const { return operations_; }
  // Reduces the disk to a possible state after the power returns. Open files and locks become invalid.
  void restart(std::uint64_t seed);
  // Simulates a killed program: all its writes remain. Files and locks that are still open become invalid.
  void restart_program();
  // Simulates a tmpfs folder after a power loss.
  void forget(const std::string& folder);
  // Leaves out syncs: from this call on, syncs of paths that end in `text` do nothing.
  void leave_out_syncs_of(const std::string& text) { left_out_.insert(text); }
  // Makes writes beyond this number of bytes fail with kRefused.
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
    std::string removed, added;  // a rename has both names
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

  Names seen_;                             // nodes by path
  std::map<std::string, Folder> folders_;  // the folders' names by path
  std::set<std::string> left_out_;
  std::set<std::string> locks_;
  std::optional<std::uint64_t> left_, space_;
  std::uint64_t operations_ = 0;
  std::uint64_t life_ = 0;
  bool dead_ = false;
};

}  // namespace ckpt::checkpoint_store::test
