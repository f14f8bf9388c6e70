// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/libckpt/store/local/power_cut_files.h"

#include <algorithm>

namespace ckpt::checkpoint_store::test {
namespace {

constexpr std::size_t kSector = 512;

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

Error missing(const std::string& path) {
  return {ErrorCode::kNotFound, path + " does not exist"};
}
Error dead() {
  return {ErrorCode::kIo, "The power is off"};
}

void overwrite(std::vector<std::byte>& bytes, std::uint64_t at, std::span<const std::byte> with) {
  if (bytes.size() < at + with.size()) bytes.resize(at + with.size());
  std::copy(with.begin(), with.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

class PowerCutFile : public File {
 public:
  PowerCutFile(PowerCutFiles& disk, std::string path, std::shared_ptr<PowerCutFiles::Node> node)
      : disk_(disk), path_(std::move(path)), node_(std::move(node)), life_(disk.life_) {}

  Result<void> write_at(std::uint64_t at, std::span<const std::byte> bytes) override {
    if (life_ != disk_.life_) return dead();
    if (disk_.space_ && disk_.total_bytes() + bytes.size() > *disk_.space_)
      return Error(ErrorCode::kRefused, "No space for " + path_);
    // The write during which the power fails may be stored in part.
    const bool was_dead = disk_.dead_;
    auto on = disk_.step();
    if (on || !was_dead) node_->unsynced.push_back({at, {bytes.begin(), bytes.end()}});
    if (!on) return on;
    overwrite(node_->seen, at, bytes);
    return ok();
  }
  Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> out) const override {
    if (life_ != disk_.life_ || disk_.dead_) return dead();
    const std::size_t count = at < node_->seen.size() ? std::min(out.size(), node_->seen.size() - at) : 0;
    std::copy_n(node_->seen.begin() + static_cast<std::ptrdiff_t>(at), count, out.begin());
    return count;
  }
  Result<std::uint64_t> size() const override { return node_->seen.size(); }
  Result<void> sync() override {
    if (life_ != disk_.life_) return dead();
    CKPT_TRYV(disk_.step());
    if (disk_.is_left_out(path_)) return ok();
    node_->durable = node_->seen;
    node_->unsynced.clear();
    return ok();
  }

 private:
  PowerCutFiles& disk_;
  const std::string path_;
  const std::shared_ptr<PowerCutFiles::Node> node_;
  const std::uint64_t life_;
};

class PowerCutLock : public FileLock {
 public:
  PowerCutLock(PowerCutFiles& disk, std::string path)
      : disk_(disk), path_(std::move(path)), life_(disk.life_) {}
  ~PowerCutLock() override {
    if (life_ == disk_.life_) disk_.locks_.erase(path_);
  }

 private:
  PowerCutFiles& disk_;
  const std::string path_;
  const std::uint64_t life_;
};

Result<void> PowerCutFiles::step() {
  if (dead_) return dead();
  operations_++;
  if (left_ && (*left_)-- == 0) {
    dead_ = true;
    return dead();
  }
  return ok();
}

bool PowerCutFiles::is_left_out(const std::string& path) const {
  return std::any_of(left_out_.begin(), left_out_.end(),
                     [&](const std::string& text) { return path.ends_with(text); });
}

Result<std::shared_ptr<PowerCutFiles::Node>> PowerCutFiles::find(const std::string& path) const {
  if (dead_) return dead();
  const auto found = seen_.find(path);
  if (found == seen_.end()) return missing(path);
  return found->second;
}

void PowerCutFiles::apply(Names& names, const NameChange& change) {
  if (!change.removed.empty()) names.erase(change.removed);
  if (!change.added.empty()) names[change.added] = change.node;
}

void PowerCutFiles::change(const std::string& folder, NameChange change) {
  apply(seen_, change);
  folders_[folder].unsynced.push_back(std::move(change));
}

Result<std::unique_ptr<File>> PowerCutFiles::create(const std::string& path) {
  CKPT_TRYV(step());
  auto node = std::make_shared<Node>();
  change(folder_of(path), {"", path, node});
  return std::unique_ptr<File>(std::make_unique<PowerCutFile>(*this, path, std::move(node)));
}

Result<std::unique_ptr<File>> PowerCutFiles::open(const std::string& path) {
  CKPT_TRY(node, find(path));
  return std::unique_ptr<File>(std::make_unique<PowerCutFile>(*this, path, node));
}

Result<void> PowerCutFiles::rename(const std::string& from, const std::string& to) {
  CKPT_TRY(node, find(from));
  CKPT_TRYV(step());
  change(folder_of(to), {from, to, node});
  return ok();
}

Result<void> PowerCutFiles::remove(const std::string& path) {
  CKPT_TRYV(find(path));
  CKPT_TRYV(step());
  change(folder_of(path), {path, "", nullptr});
  return ok();
}

Result<void> PowerCutFiles::make_folder(const std::string& path) {
  if (seen_.contains(path)) return ok();
  CKPT_TRYV(step());
  auto node = std::make_shared<Node>();
  node->is_folder = true;
  change(folder_of(path), {"", path, std::move(node)});
  return ok();
}

Result<void> PowerCutFiles::remove_folder(const std::string& path) {
  return remove(path);
}

Result<std::vector<FolderEntry>> PowerCutFiles::list(const std::string& path) {
  CKPT_TRYV(find(path));
  std::vector<FolderEntry> entries;
  for (const auto& [name, node] : seen_)
    if (name != path && folder_of(name) == path)
      entries.push_back({name.substr(path == "." ? 0 : path.size() + 1), node->is_folder, node->seen.size()});
  return entries;
}

Result<void> PowerCutFiles::sync_folder(const std::string& path) {
  CKPT_TRYV(step());
  if (is_left_out(path)) return ok();
  Folder& folder = folders_[path];
  for (const NameChange& change : folder.unsynced) apply(folder.durable, change);
  folder.unsynced.clear();
  return ok();
}

Result<std::unique_ptr<FileLock>> PowerCutFiles::lock(const std::string& path) {
  if (dead_) return dead();
  if (!locks_.insert(path).second) return Error(ErrorCode::kRefused, path + " is held by another process");
  return std::unique_ptr<FileLock>(std::make_unique<PowerCutLock>(*this, path));
}

void PowerCutFiles::restart(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::set<Node*> nodes;
  Names names;
  for (auto& [path, folder] : folders_) {
    // Some of the unsynced changes reached the disk. A rename that did not reach the disk leaves the old name
    // unchanged.
    for (const NameChange& change : folder.unsynced)
      if (random() % 2 == 0) apply(folder.durable, change);
    folder.unsynced.clear();
    for (const auto& [name, node] : folder.durable) names[name] = node;
  }
  // Files of a lost folder are lost, too.
  for (auto name = names.begin(); name != names.end();)
    name = folder_of(name->first) != "." && !names.contains(folder_of(name->first)) ? names.erase(name)
                                                                                    : std::next(name);
  for (auto& [name, node] : names) {
    if (!nodes.insert(node.get()).second) continue;
    for (const Write& write : node->unsynced) {
      const std::uint64_t fate = random() % 4;
      if (fate == 0) continue;
      for (std::size_t at = 0; at < write.bytes.size(); at += kSector) {
        if (fate == 1 && random() % 2 == 0) continue;  // a torn write: this sector is missing
        const auto sector = std::span(write.bytes).subspan(at, std::min(kSector, write.bytes.size() - at));
        overwrite(node->durable, write.at + at, sector);
      }
    }
    node->unsynced.clear();
    node->seen = node->durable;
  }
  seen_ = names;
  std::erase_if(folders_,
                [&](const auto& folder) { return folder.first != "." && !names.contains(folder.first); });
  for (auto& [path, folder] : folders_)
    std::erase_if(folder.durable, [&](const auto& entry) { return !names.contains(entry.first); });
  restart_program();
}

void PowerCutFiles::restart_program() {
  locks_.clear();
  left_.reset();
  dead_ = false;
  life_++;
}

void PowerCutFiles::forget(const std::string& folder) {
  const auto below = [&](const std::string& path) {
    return path == folder || path.starts_with(folder + "/");
  };
  std::erase_if(seen_, [&](const auto& entry) { return below(entry.first); });
  std::erase_if(folders_, [&](const auto& entry) { return below(entry.first); });
  for (auto& [path, names] : folders_) {
    std::erase_if(names.durable, [&](const auto& entry) { return below(entry.first); });
    std::erase_if(names.unsynced,
                  [&](const NameChange& change) { return below(change.added) || below(change.removed); });
  }
}

std::vector<std::string> PowerCutFiles::all_files() const {
  std::vector<std::string> paths;
  for (const auto& [path, node] : seen_)
    if (!node->is_folder) paths.push_back(path);
  return paths;
}

std::vector<std::byte>& PowerCutFiles::bytes_of(const std::string& path) {
  return seen_.at(path)->seen;
}

std::uint64_t PowerCutFiles::total_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [path, node] : seen_) bytes += node->seen.size();
  return bytes;
}

}  // namespace ckpt::checkpoint_store::test
