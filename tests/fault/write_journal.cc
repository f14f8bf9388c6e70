// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/write_journal.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace ckpt::test {
namespace {

namespace fs = std::filesystem;
using checkpoint_store::File;
using checkpoint_store::test::PowerCutFiles;

template <class T>
T must(Result<T> result, const std::string& what) {
  if (!result) throw std::runtime_error(what + ": " + result.error().to_string());
  return *std::move(result);
}
void must(const Result<void>& result, const std::string& what) {
  if (!result) throw std::runtime_error(what + ": " + result.error().to_string());
}

std::vector<std::byte> bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Returns the path as the simulated disk names it: "." is the root.
std::string below(const std::string& path, const std::string& root) {
  if (path == root) return ".";
  if (!path.starts_with(root + "/")) throw std::runtime_error(path + " is not below " + root);
  return path.substr(root.size() + 1);
}

// Files open for writing, by path.
using Opened = std::map<std::string, std::unique_ptr<File>>;

void apply(PowerCutFiles& disk, const JournalEntry& entry, const std::string& root, Opened& opened) {
  const std::string path = below(entry.path, root);
  switch (entry.kind) {
    case JournalKind::kCreate:
      opened[path] = must(disk.create(path), path);
      return;
    case JournalKind::kWrite:
      return must(opened.at(path)->write_at(entry.offset, entry.bytes), path);
    case JournalKind::kSync:
      return must(opened.at(path)->sync(), path);
    case JournalKind::kSyncFolder:
      return must(disk.sync_folder(path), path);
    case JournalKind::kRename:
      return must(disk.rename(path, below(entry.other, root)), path);
    case JournalKind::kRemove:
      return must(disk.remove(path), path);
    case JournalKind::kMakeFolder:
      return must(disk.make_folder(path), path);
    case JournalKind::kRemoveFolder:
      return must(disk.remove_folder(path), path);
  }
  throw std::runtime_error("an entry of no kind");
}

void load_below(PowerCutFiles& disk, const fs::path& folder, const std::string& name) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string leaf = entry.path().filename();
    const std::string path = name == "." ? leaf : name + "/" + leaf;
    if (entry.is_directory()) {
      must(disk.make_folder(path), path);
      load_below(disk, entry.path(), path);
      continue;
    }
    auto file = must(disk.create(path), path);
    must(file->write_at(0, bytes_of(entry.path())), path);
    must(file->sync(), path);
  }
  must(disk.sync_folder(name), name);
}

void store_below(PowerCutFiles& disk, const std::string& name, const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& entry : must(disk.list(name), name)) {
    const std::string path = name == "." ? entry.name : name + "/" + entry.name;
    if (entry.is_folder) {
      store_below(disk, path, folder / entry.name);
      continue;
    }
    const auto& bytes = disk.bytes_of(path);
    std::ofstream(folder / entry.name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
}

}  // namespace

std::vector<JournalEntry> read_journal(const std::string& path) {
  const std::vector<std::byte> bytes = bytes_of(path);
  std::vector<JournalEntry> entries;
  for (std::size_t at = 0; bytes.size() - at >= sizeof(JournalHead);) {
    JournalHead head;
    std::memcpy(&head, bytes.data() + at, sizeof head);
    at += sizeof head;
    const std::uint64_t length = std::uint64_t{head.path_bytes} + head.other_bytes + head.bytes;
    if (bytes.size() - at < length) break;
    const char* text = reinterpret_cast<const char*>(bytes.data()) + at;
    JournalEntry& entry = entries.emplace_back();
    entry.kind = head.kind;
    entry.path.assign(text, head.path_bytes);
    entry.other.assign(text + head.path_bytes, head.other_bytes);
    entry.offset = head.offset;
    at += length;
    entry.bytes.assign(bytes.begin() + static_cast<std::ptrdiff_t>(at - head.bytes),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at));
    entry.end = at;
  }
  return entries;
}

void replay(PowerCutFiles& disk, std::span<const JournalEntry> entries, const std::string& root) {
  Opened opened;
  for (const JournalEntry& entry : entries) apply(disk, entry, root, opened);
}

void load(PowerCutFiles& disk, const std::string& folder) {
  must(disk.make_folder("."), ".");
  load_below(disk, folder, ".");
}

void store(PowerCutFiles& disk, const std::string& folder) {
  fs::remove_all(folder);
  store_below(disk, ".", folder);
}

}  // namespace ckpt::test
