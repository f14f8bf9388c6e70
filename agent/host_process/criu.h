// SPDX-License-Identifier: Apache-2.0
// Runs CRIU as a program: finds a working CRIU, dumps a process tree, and builds the command that restores
// the tree. A dumped tree stays stopped, and its image is in a folder in memory. CRIU is always a child
// process, and no part of CRIU is linked in.
// Threads: the event loop. Every Task may take as long as its process. Ownership: the images are in the
// caller's folders. Errors: kNotSupported (no CRIU, no root, or a missing kernel feature), kTimedOut, kIo.
// kRefused contains CRIU's own error line for a process that cannot be dumped. That process continues as
// before.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/io/async.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// CRIU and its abilities on this node. `gpumigrate doctor` and the reasons for refused moves use these facts.
struct CriuFacts {
  std::string program;           // path of the CRIU program; empty if no CRIU was found
  std::string version;           // version of CRIU, such as "4.1.1"
  bool works = false;            // true if `criu check` succeeded
  bool restores_lazily = false;  // true if the kernel supports a lazy restore (Criu::restores_lazily())
  std::string problem;           // the reason why CRIU does not work, and the remedy; empty if CRIU works
};

// Returns the time that a dump or restore of `bytes` bytes may take (time_limit.h). The time is at least 60
// s, or $GPUMIGRATE_CRIU_TIMEOUT seconds.
[[nodiscard]] Milliseconds criu_timeout(std::uint64_t bytes);
// Returns the least time that CRIU gets: `usual`, or the value of $GPUMIGRATE_CRIU_TIMEOUT.
[[nodiscard]] Milliseconds least_criu_time(Milliseconds usual);

struct DumpOptions {
  std::string images;                      // an empty folder in memory for the images
  std::string work;                        // a folder for criu-dump.log that only root may write to
  Milliseconds timeout = criu_timeout(0);  // CRIU is killed after this time
  std::vector<std::string> more;           // additional arguments for CRIU's dump (pid_namespace_image.h)
  bool connections =
      false;  // true: saves connections within the tree (connections.h); false: an open connection fails the
              // dump
  bool ends_connections = false;  // true: restored connections have ended; `connections` saves them
                                  // nevertheless
  bool makes_links = false;       // true: CRIU creates links to files that have lost a name (named_memory.h)
  bool own_namespaces = false;    // true: the tree has its own mount, IPC and UTS namespaces, which are saved
  std::string preload;  // library to preload into CRIU (left_out_pages_library()); empty if there is none
  std::function<bool()> may_repeat;  // returns whether a dump that collided with another dump may be
                                     // repeated; without this function a repeat is allowed
};

struct DumpFacts {
  std::uint64_t bytes = 0;  // size of all images
  Nanos took_ns = 0;
};

struct RestoreOptions {
  std::string images;
  std::string work;     // a folder for criu-restore.log and restored.pid that only root may write to
  std::string old_log;  // path of the program's log at the dump; restored descriptors of that log refer to
                        // the new log
  std::vector<std::string> more;  // additional arguments for CRIU's restore
  int log_fd = 10;                // descriptor of the new log in the process that runs the command; not 0-2
  bool stopped = true;            // true: all restored processes stay stopped until the caller continues them
  bool connections = false;       // the value of DumpOptions::connections at the dump
  bool lazy = false;              // true: the private memory is restored while the process runs
                                  // (lazy_pages_choice.h); this requires images == work
  bool own_namespaces = false;    // the value of DumpOptions::own_namespaces at the dump
};

class Criu {
 public:
  // Finds the first CRIU of version >= 4. The function tries `configured` (and then no other path),
  // $GPUMIGRATE_CRIU, `criu` of PATH, and lib/criu/bin/criu of a bundle. The last paths are
  // ${XDG_CACHE_HOME:-~/.cache}/gpumigrate/criu/bin/criu and /usr/local/lib/gpumigrate/criu/bin/criu
  // (tools/criu installs the second). `work` is a folder for CRIU's output.
  static Task<Result<Criu>> find(std::string configured, std::string work);
  // Runs find() and check(), and returns failures as facts.
  static Task<CriuFacts> probe(std::string configured, std::string work);

  // Runs `criu check`, which needs root. kNotSupported contains the error that CRIU printed.
  Task<Result<void>> check(std::string work) const;

  // Writes the tree under `root` (the init of its PID namespace) into options.images. After success all
  // processes of the tree stay stopped (resume_source()). After a failure the processes run or are stopped,
  // as they were before. A dump that takes longer than the timeout is killed, and the error is kTimedOut.
  // CRIU's code in the processes then removes itself. A process that is killed in the few instructions before
  // that removal is lost, so the timeout is long. CRIU briefly creates a folder with a fixed name in the
  // working folder of `root`. A dump that meets the folder of another dump is repeated.
  Task<Result<DumpFacts>> dump(pid_t root, DumpOptions options) const;

  // Returns the command for the keeper that becomes the restored program's parent
  // (agent/keeper/init/restored.h).
  [[nodiscard]] std::vector<std::string> restore_command(const RestoreOptions& options) const;
  // Checks whether this kernel reports to CRIU how a process changes memory that has not arrived yet.
  Task<bool> restores_lazily(std::string work) const;
  [[nodiscard]] static std::string pid_file(const RestoreOptions& options);
  [[nodiscard]] static std::string restore_log(const RestoreOptions& options);
  [[nodiscard]] static std::string dump_log(const DumpOptions& options);

  // Returns the cause of a failure from a CRIU log: the first error line, and the log's path.
  [[nodiscard]] static std::string first_error(const std::string& log_path);
  // Returns the first error line of a CRIU log, and the log's path. Returns nothing if the log is missing or
  // contains no error.
  [[nodiscard]] static std::optional<std::string> find_error(const std::string& log_path);

  // Returns the value for FileRules::no_internet: the reason why this CRIU cannot dump Internet sockets.
  [[nodiscard]] std::string why_no_internet() const;

  [[nodiscard]] const std::string& program() const noexcept { return program_; }
  [[nodiscard]] const std::string& version() const noexcept { return version_; }

 private:
  Criu(std::string program, std::string version, std::string answers)
      : program_(std::move(program)), version_(std::move(version)), answers_(std::move(answers)) {}
  Task<Result<DumpFacts>> dump_once(pid_t root, const DumpOptions& options) const;

  std::string program_;
  std::string version_;
  std::string answers_;  // the folder of cached kernel answers (criu_answers.h)
};

// Returns the reason why a dump of sockets would fail. CRIU before 4.2 reads an option of each socket.
// Kernels since 6.16 provide the option for few kinds of sockets (sockets.h). An empty string means that the
// dump does not fail.
[[nodiscard]] std::string why_no_internet(const std::string& version, bool kernel_tells_all);

// The maximum total size of unlinked files, open or mapped, that travel with an image.
inline constexpr std::uint64_t kMaxUnlinkedBytes = std::uint64_t{1} << 30;

// The interval at which a caller that waits until a dump has finished checks for other events.
inline constexpr Milliseconds kDumpCheck{500};

// Blocks until no CRIU process dumps the tree. An earlier agent may have started a CRIU process, which would
// stop a process that is continued before CRIU exits. After kTimedOut, call the function again. A CRIU
// process that has run for longer than criu_timeout() of the tree is killed.
Result<void> wait_for_dump(pid_t root, Milliseconds timeout);

}  // namespace ckpt::agent::host
