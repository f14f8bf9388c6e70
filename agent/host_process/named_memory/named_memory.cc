// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/named_memory/named_memory.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agent/host_process/criu_image/link_paths.h"
#include "agent/host_process/named_memory/names_alone.h"
#include "agent/host_process/named_memory/shared_folder.h"
#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxIndexBytes = 16u << 20;
constexpr std::size_t kMaxName = 255;
constexpr unsigned kRights = 0777;
const std::string kIndex = "/named-memory.img";
const std::string kMade = "/named-memory-made.img";

std::string content_path(const std::string& images, std::size_t number) {
  return images + "/named-memory-" + std::to_string(number) + ".img";
}

std::string path_of(const std::string& name) {
  return kSharedFolder + name;
}

std::string this_place() {
  struct stat facts {};
  const auto boot = read_file("/proc/sys/kernel/random/boot_id", 64);
  if (!boot || ::stat(kSharedFolder, &facts) != 0) return {};
  return boot->substr(0, boot->find('\n')) + " " + std::to_string(facts.st_dev);
}

Error io_error(const std::string& what) {
  return Error::from_errno(what);
}

std::set<std::uint64_t> inodes_of(const NamedMemory& memory) {
  std::set<std::uint64_t> inodes;
  for (const NamedFile& file : memory.files) inodes.insert(file.inode);
  return inodes;
}

bool describe(NamedFile& file) {
  struct stat facts {};
  if (::lstat(path_of(file.names.front()).c_str(), &facts) != 0 || facts.st_ino != file.inode) return false;
  file.bytes = static_cast<std::uint64_t>(facts.st_size);
  file.mode = facts.st_mode & kRights;
  file.uid = facts.st_uid;
  file.gid = facts.st_gid;
  return true;
}

Result<void> copy(int to, int from, std::uint64_t bytes, const std::string& what) {
  while (bytes > 0) {
    const ssize_t done =
        ::sendfile(to, from, nullptr, std::min<std::uint64_t>(bytes, std::uint64_t{1} << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return io_error("Cannot copy " + what);
    if (done == 0) return Error(ErrorCode::kCorrupt, what + " ends early");
    bytes -= static_cast<std::uint64_t>(done);
  }
  return ok();
}

Result<void> save_content(const NamedFile& file, const std::string& to) {
  const std::string path = path_of(file.names.front());
  const UniqueFd source(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!source) return io_error("Cannot open " + path);
  const UniqueFd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!target) return io_error("Cannot create " + to);
  return copy(target.get(), source.get(), file.bytes, path);
}

Result<void> write_index(const NamedMemory& memory, const std::string& path) {
  const std::vector<std::byte> bytes = wire::encode(memory);
  return write_file_durably(path,
                            std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName && name != "." && name != ".." &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

bool is_proper(const NamedMemory& memory) {
  return memory.files.size() <= kMaxNamedFiles &&
         std::all_of(memory.files.begin(), memory.files.end(), [](const NamedFile& file) {
           return !file.names.empty() && file.names.size() <= kMaxNamesOfFile &&
                  (file.mode & ~kRights) == 0 && !is_link_name(file.names.front()) &&
                  std::all_of(file.names.begin(), file.names.end(), is_name);
         });
}

// Reads the index of the named files. If the index is missing, no file travels.
Result<NamedMemory> read_index(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return NamedMemory();
  CKPT_TRY(text, read_file(path, kMaxIndexBytes));
  CKPT_TRY(memory, wire::decode<NamedMemory>(std::as_bytes(std::span(text))));
  if (is_proper(memory)) return memory;
  return Error(ErrorCode::kCorrupt, "The image's list of shared memory is malformed");
}

std::uint64_t inode_at(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) ? facts.st_ino : 0;
}

Error name_in_use(const std::string& name) {
  return {ErrorCode::kRefused,
          path_of(name) + " already exists at the target: another program created the file"};
}

Result<void> make_file(const NamedFile& file, const std::string& content, const std::string& path) {
  const UniqueFd source(::open(content.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!source) return io_error("Cannot open " + content);
  const UniqueFd target(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!target && errno == EEXIST) return name_in_use(file.names.front());
  if (!target) return io_error("Cannot create " + path);
  auto made = copy(target.get(), source.get(), file.bytes, path);
  if (made && (::fchown(target.get(), file.uid, file.gid) != 0 || ::fchmod(target.get(), file.mode) != 0))
    made = io_error("Cannot create " + path);
  if (!made) ::unlink(path.c_str());
  return made;
}

// Replaces a file atomically with a copy, which gets the saved content in the file `content` and the mark
// `mark`.
Result<void> replace_file(const NamedFile& file, const std::string& content, const std::string& mark) {
  const std::string path = path_of(file.names.front());
  const std::string copy = path_of("gpumigrate-copy." + std::to_string(file.inode));
  ::unlink(copy.c_str());
  CKPT_TRYV(make_file(file, content, copy));
  set_mark(copy, mark, true);
  if (::rename(copy.c_str(), path.c_str()) == 0) return ok();
  const Error error = io_error("Cannot create " + path);
  ::unlink(copy.c_str());
  return error;
}

Result<void> link_names(const NamedFile& file) {
  for (std::size_t i = 1; i < file.names.size(); ++i) {
    if (is_link_name(file.names[i])) continue;
    if (::link(path_of(file.names.front()).c_str(), path_of(file.names[i]).c_str()) == 0) continue;
    return errno == EEXIST ? name_in_use(file.names[i]) : io_error("Cannot create " + path_of(file.names[i]));
  }
  return ok();
}

void remove_names(const NamedFile& file) {
  for (const std::string& name : file.names) {
    const std::string path = path_of(name);
    if (inode_at(path) == file.inode) ::unlink(path.c_str());
  }
}

// Creates one file and its names. `made` contains the file even if a name could not be created.
Result<void> make(const NamedFile& file, const std::string& content, const std::string& mark,
                  NamedMemory& made) {
  const std::string path = path_of(file.names.front());
  CKPT_TRYV(make_file(file, content, path));
  set_mark(path, mark, true);
  NamedFile& own = made.files.emplace_back(file);
  own.inode = inode_at(path_of(file.names.front()));
  return link_names(file);
}

Result<void> make_all(const NamedMemory& memory, const std::string& images, const std::string& mark,
                      NamedMemory& made) {
  made.place = this_place();
  const bool same_machine = !made.place.empty() && memory.place == made.place;
  for (std::size_t i = 0; i < memory.files.size(); ++i) {
    const NamedFile& file = memory.files[i];
    const std::uint64_t here = inode_at(path_of(file.names.front()));
    if (!same_machine || here != file.inode) {
      CKPT_TRYV(make(file, content_path(images, i), mark, made));
    } else if (file.by_name && file.names.size() == 1) {
      CKPT_TRYV(replace_file(file, content_path(images, i), mark));
    }
    ::unlink(content_path(images, i).c_str());
  }
  return write_index(made, images + kMade);
}

// Creates the links in the image's folder. CRIU opens the file through such a link, and removes the link.
Result<void> place_links(const NamedMemory& memory, const std::string& images) {
  std::vector<LinkPath> links;
  for (const NamedFile& file : memory.files) {
    for (const std::string& name : file.names) {
      if (!is_link_name(name)) continue;
      LinkPath& link = links.emplace_back();
      link.link = name;
      link.path = images + "/" + name;
      if (::link(path_of(file.names.front()).c_str(), link.path.c_str()) != 0)
        return io_error("Cannot create " + link.path);
    }
  }
  return links.empty() ? ok() : set_link_paths(images, links);
}

// Returns the files that the tree has open or mapped, by inode. The value is true if a process has the file
// by a removed name.
Result<std::map<std::uint64_t, bool>> held_files_of(pid_t root) {
  CKPT_TRY(processes, processes_of(root));
  std::map<std::uint64_t, bool> found;
  for (const pid_t pid : processes) {
    for (const auto& [inode, lost] : shared_files_of(pid)) found[inode] = found[inode] || lost;
  }
  return found;
}

}  // namespace

std::uint64_t NamedMemory::bytes() const {
  std::uint64_t sum = 0;
  for (const NamedFile& file : files) sum += file.bytes;
  return sum;
}

bool NamedMemory::needs_links() const {
  return std::any_of(files.begin(), files.end(), [](const NamedFile& file) { return file.lost_name; });
}

const NamedFile* NamedMemory::find(std::uint64_t inode) const {
  const auto at = std::find_if(files.begin(), files.end(),
                               [inode](const NamedFile& file) { return file.inode == inode; });
  return at == files.end() ? nullptr : &*at;
}

Result<NamedMemory> named_memory_of(pid_t root) {
  NameOwner owner;
  owner.root = root;
  return named_memory_of(owner);
}

Result<NamedMemory> named_memory_of(const NameOwner& owner) {
  CKPT_TRY(found, held_files_of(owner.root));
  std::set<std::uint64_t> inodes;
  for (const auto& [inode, lost] : found) inodes.insert(inode);
  const std::set<std::uint64_t> alone = names_alone_of(owner, inodes).files;
  inodes.insert(alone.begin(), alone.end());
  NamedMemory memory;
  memory.place = this_place();
  for (auto& [inode, names] : names_of(inodes)) {
    NamedFile file;
    file.inode = inode;
    file.lost_name = found[inode];
    file.by_name = alone.contains(inode);
    // CRIU's links are sorted to the end, so that the first name is a permanent one.
    std::stable_partition(names.begin(), names.end(), [](const auto& name) { return !is_link_name(name); });
    file.names = std::move(names);
    if (file.names.size() > kMaxNamesOfFile || memory.files.size() == kMaxNamedFiles)
      return Error(ErrorCode::kRefused, "The program has too many files in " + std::string(kSharedFolder));
    if (!is_link_name(file.names.front()) && describe(file)) memory.files.push_back(std::move(file));
  }
  return memory;
}

std::vector<std::string> names_in_doubt(const NameOwner& owner) {
  const auto found = held_files_of(owner.root);
  if (!found.has_value()) return {};
  std::set<std::uint64_t> inodes;
  for (const auto& [inode, lost] : *found) inodes.insert(inode);
  return names_alone_of(owner, inodes).problems;
}

std::vector<std::string> shared_outside(const NamedMemory& memory, pid_t root) {
  std::vector<std::string> problems;
  const auto processes = processes_of(root);
  if (!processes || memory.files.empty()) return problems;
  const std::set<pid_t> own(processes->begin(), processes->end());
  for (const auto& [inode, pid] : holders_of(inodes_of(memory), own)) {
    const NamedFile* file = memory.find(inode);
    const auto name = read_file(proc_path(pid, "/comm"), 64);
    if (file == nullptr || !name) continue;
    problems.push_back(path_of(file->names.front()) + " is shared with process " + std::to_string(pid) +
                       " (" + name->substr(0, name->find('\n')) + ") outside of the job");
  }
  return problems;
}

std::vector<std::string> why_not_made(const NamedMemory& memory) {
  std::vector<std::string> problems;
  if (!is_proper(memory)) return {"The list of shared memory from the source is malformed"};
  const bool same_machine = memory.place == this_place();
  for (const NamedFile& file : memory.files) {
    for (const std::string& name : file.names) {
      const std::uint64_t here = is_link_name(name) ? 0 : inode_at(path_of(name));
      if (here != 0 && !(same_machine && here == file.inode)) problems.push_back(name_in_use(name).message());
    }
  }
  return problems;
}

Result<NamedMemory> save_named_memory(const NameOwner& owner, const std::string& images) {
  CKPT_TRY(memory, named_memory_of(owner));
  if (memory.files.empty()) return memory;
  auto saved = write_index(memory, images + kIndex);
  for (std::size_t i = 0; saved && i < memory.files.size(); ++i)
    saved = save_content(memory.files[i], content_path(images, i));
  remove_links(memory);
  if (!saved) return std::move(saved).error();
  return memory;
}

Result<NamedMemory> restore_named_memory(const std::string& images, const std::string& job) {
  CKPT_TRY(memory, read_index(images + kIndex));
  if (memory.files.empty()) return memory;
  NamedMemory made;
  auto done = make_all(memory, images, mark_of_job(job), made);
  if (done) done = place_links(memory, images);
  if (done) return made;
  for (const NamedFile& file : made.files) remove_names(file);
  return std::move(done).error();
}

void remove_links(const NamedMemory& memory) {
  for (const NamedFile& file : memory.files) {
    for (const std::string& name : file.names) {
      if (is_link_name(name) && inode_at(path_of(name)) == file.inode) ::unlink(path_of(name).c_str());
    }
  }
}

void remove_links_of(const NamedMemory& memory) {
  for (const auto& [inode, names] : names_of(inodes_of(memory))) {
    for (const std::string& name : names) {
      if (is_link_name(name) && inode_at(path_of(name)) == inode) ::unlink(path_of(name).c_str());
    }
  }
}

bool is_this_place(const NamedMemory& memory) {
  return !memory.place.empty() && memory.place == this_place();
}

void remove_unused(const NamedMemory& memory) {
  const auto holders = holders_of(inodes_of(memory), {});
  for (const NamedFile& file : memory.files) {
    if (!holders.contains(file.inode)) remove_names(file);
  }
}

void remove_made_for(const std::string& images) {
  const auto made = read_index(images + kMade);
  if (made && is_this_place(*made)) remove_unused(*made);
}

}  // namespace ckpt::agent::host
