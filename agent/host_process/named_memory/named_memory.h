// SPDX-License-Identifier: Apache-2.0
// Files in /dev/shm that have a name and by which the processes of a job share memory. Python's spawn and forkserver
// use POSIX semaphores and shared memory. The files travel with the image: the target makes them again under their
// names. A semaphore's file is mapped by a name that is gone, since sem_open links a temporary file. So CRIU saves it
// by a link, which the target makes, too. Files that the job has by name alone travel as well. Subfolders do not.
// Threads: any; all of it blocks for milliseconds (offload()). Errors: kRefused for more than kMaxNamedFiles or a
// name that is taken at the target, kCorrupt for an image that is malformed, kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/host_process/processes/name_owner.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxNamedFiles = 4096;
inline constexpr std::size_t kMaxNamesOfFile = 16;

struct NamedFile {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::string_view kName = "NamedFile";
  std::vector<std::string> names;  // in /dev/shm; those of CRIU's links, too
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::uint32_t mode = 0;  // the rights alone
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  bool lost_name = false;  // a process has it by a name that is gone
  bool by_name = false;    // no process has it: the job opens it again by its name (names_alone.h)
  template <class A>
  decltype(auto) fields(A& a) {
    return a(names, inode, bytes, mode, uid, gid, lost_name, by_name);
  }
};

struct NamedMemory {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "NamedMemory";
  std::string place;  // tells this machine's /dev/shm from all others
  std::vector<NamedFile> files;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(place, files);
  }
  [[nodiscard]] std::uint64_t bytes() const;
  // The dump must be allowed to make links.
  [[nodiscard]] bool needs_links() const;
  [[nodiscard]] const NamedFile* find(std::uint64_t inode) const;
};

// The files that the tree has open or mapped.
Result<NamedMemory> named_memory_of(pid_t root);
// With what it has by name alone.
Result<NamedMemory> named_memory_of(const NameOwner& owner);
// Names that may be the job's, and do not travel. A text for each.
std::vector<std::string> names_in_doubt(const NameOwner& owner);

// Why these files cannot travel: processes outside of the tree have them open or mapped. A text for each file.
std::vector<std::string> shared_outside(const NamedMemory& memory, pid_t root);
// At the target: why the files cannot be made here. They can, or are these very files.
std::vector<std::string> why_not_made(const NamedMemory& memory);

// At the source, after the dump: contents and names go into its folder, and CRIU's links are removed.
Result<NamedMemory> save_named_memory(const NameOwner& owner, const std::string& images);

// At the target, before the restore from the folder: makes the files, and has CRIU's description of them name links
// in that folder, which must lie in /dev/shm. Returns what was made; a failure leaves nothing. What is made is marked as
// that of `job` (NameRules). On the source's own machine a file by name alone gets a copy in its place, so that the
// source has nothing to remove.
Result<NamedMemory> restore_named_memory(const std::string& images, const std::string& job);

// CRIU's links to these files, by the names that they had.
void remove_links(const NamedMemory& memory);
// The same, whatever names the links have.
void remove_links_of(const NamedMemory& memory);
// Its files are of this machine's /dev/shm.
[[nodiscard]] bool is_this_place(const NamedMemory& memory);
// Removes the names of files that no process has open or mapped.
void remove_unused(const NamedMemory& memory);
// The same for what restore_named_memory() has made for a folder whose agent was killed.
void remove_made_for(const std::string& images);

}  // namespace ckpt::agent::host
