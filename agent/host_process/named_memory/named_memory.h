// SPDX-License-Identifier: Apache-2.0
// Files in /dev/shm that have a name and by which the processes of a job share memory. Python's spawn and
// forkserver use POSIX semaphores and shared memory. The files travel with the image: the target makes them
// again under their names. A semaphore's file is mapped by a name that is gone, since sem_open links a
// temporary file. So CRIU saves the file by a link, which the target makes as well. Files that the job has by
// name alone travel, too. Subfolders do not.
// Threads: any; all of it blocks for milliseconds (offload()). Errors: kRefused for more than kMaxNamedFiles
// or a name that is taken at the target, kCorrupt for an image that is malformed, kIo.
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
  std::vector<std::string> names;  // in /dev/shm, with the names of CRIU's links
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::uint32_t mode = 0;  // permission bits only
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  bool lost_name = false;  // a process has it by a name that is gone
  bool by_name = false;    // no process has it; the job may open it again by its name (names_alone.h)
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
  // True if the dump must be allowed to make links.
  [[nodiscard]] bool needs_links() const;
  [[nodiscard]] const NamedFile* find(std::uint64_t inode) const;
};

// Returns the files that the tree has open or mapped.
Result<NamedMemory> named_memory_of(pid_t root);
// The same, with the files that the job has by name alone.
Result<NamedMemory> named_memory_of(const NameOwner& owner);
// Returns a text for each name that may be the job's and does not travel.
std::vector<std::string> names_in_doubt(const NameOwner& owner);

// Returns a text for each file that cannot travel because a process outside of the tree has it open or
// mapped.
std::vector<std::string> shared_outside(const NamedMemory& memory, pid_t root);
// Returns why the files cannot be made at this target. Empty: they can, or they are these very files.
std::vector<std::string> why_not_made(const NamedMemory& memory);

// Writes contents and names into the dump's folder, and removes CRIU's links. Called at the source, after the
// dump.
Result<NamedMemory> save_named_memory(const NameOwner& owner, const std::string& images);

// Makes the files, and changes CRIU's description of them to links in that folder, which must lie in
// /dev/shm. Called at the target, before the restore from the folder. Returns the files made, which are
// marked as those of `job` (NameRules). A failure leaves nothing. If the target is the source's own machine,
// a file by name alone is replaced by a copy, so that the source has nothing to remove.
Result<NamedMemory> restore_named_memory(const std::string& images, const std::string& job);

// Removes CRIU's links to these files, by the names that they had.
void remove_links(const NamedMemory& memory);
// Removes the links under whatever names they have.
void remove_links_of(const NamedMemory& memory);
// True if its files are of this machine's /dev/shm.
[[nodiscard]] bool is_this_place(const NamedMemory& memory);
// Removes the names of files that no process has open or mapped.
void remove_unused(const NamedMemory& memory);
// Removes the files that restore_named_memory() has made for a folder whose agent was killed.
void remove_made_for(const std::string& images);

}  // namespace ckpt::agent::host
