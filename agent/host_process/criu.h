// SPDX-License-Identifier: Apache-2.0
// CRIU as a program: finding one that works, dumping a process tree, and the command that restores it. A
// dumped tree stays stopped, and its image lies in a folder in memory. CRIU is always a child process;
// nothing of it is linked in. Threads: the event loop; every Task may take as long as its process does.
// Ownership: images lie in the caller's folders. Errors: kNotSupported (no CRIU, no root, the kernel lacks
// what it needs), kTimedOut, kIo. kRefused has CRIU's own error line, for a process that cannot be dumped (it
// goes on as before).
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

// CRIU and its abilities on this node, for doctor and for refusals.
struct CriuFacts {
  std::string program;           // empty: none found
  std::string version;           // "4.1.1"
  bool works = false;            // `criu check` succeeded
  bool restores_lazily = false;  // Criu::restores_lazily()
  std::string problem;           // why it does not work, and what to do; empty: it does
};

// Returns the time that a dump or restore of so many bytes may take (time_limit.h): at least 60 s, or
// $GPUMIGRATE_CRIU_TIMEOUT seconds.
[[nodiscard]] Milliseconds criu_timeout(std::uint64_t bytes);
// `usual`, or what $GPUMIGRATE_CRIU_TIMEOUT sets: the least time that CRIU gets.
[[nodiscard]] Milliseconds criu_least(Milliseconds usual);

struct DumpOptions {
  std::string images;                      // an empty folder in memory
  std::string work;                        // a folder for criu-dump.log that only root may write to
  Milliseconds timeout = criu_timeout(0);  // later CRIU is killed
  std::vector<std::string> more;           // further arguments for CRIU (pid_namespace_image.h)
  bool connections =
      false;  // saves connections within the tree (connections.h); else an open connection fails the dump
  bool makes_links = false;          // to files that have lost a name (named_memory.h)
  std::string preload;               // a library for CRIU (left_out_pages_library()); empty: none
  std::function<bool()> may_repeat;  // whether a dump that met another's may be begun again; none: it may
};

struct DumpFacts {
  std::uint64_t bytes = 0;  // of all images
  Nanos took_ns = 0;
};

struct RestoreOptions {
  std::string images;
  std::string work;     // a folder for criu-restore.log and restored.pid that only root may write to
  std::string old_log;  // the path of the program's log when it was dumped; its descriptors get the new log
  std::vector<std::string> more;  // further arguments for CRIU
  int log_fd = 10;           // the descriptor of the new log in the process that runs the command; not 0-2
  bool stopped = true;       // all its processes stay stopped until they are continued
  bool connections = false;  // DumpOptions::connections of its dump
  bool lazy = false;         // its private memory follows while it runs (lazy_pages_choice.h); images == work
};

class Criu {
 public:
  // Finds the first CRIU of version >= 4 among: `configured` (then only this one), $GPUMIGRATE_CRIU, `criu`
  // of PATH, lib/criu/bin/criu of a bundle, ${XDG_CACHE_HOME:-~/.cache}/gpumigrate/criu/bin/criu,
  // /usr/local/lib/gpumigrate/criu/bin/criu (tools/criu installs it). `work` is a folder for CRIU's output.
  static Task<Result<Criu>> find(std::string configured, std::string work);
  // find() and check(), with failures as facts.
  static Task<CriuFacts> probe(std::string configured, std::string work);

  // `criu check`: needs root. kNotSupported with the error that it printed.
  Task<Result<void>> check(std::string work) const;

  // Writes the tree under `root` (the init of its PID namespace) into options.images. After success all its
  // processes stay stopped (resume_source()). After a failure they run, or are stopped, as before. A dump
  // that takes longer than the timeout is killed: kTimedOut. CRIU's code in the processes then removes
  // itself. A process that is killed in the few instructions before that is lost, which is why the timeout is
  // long. CRIU makes a folder of a fixed name in the working folder of `root` for a moment; a dump that meets
  // another's is begun again.
  Task<Result<DumpFacts>> dump(pid_t root, DumpOptions options) const;

  // Returns the command for the keeper that becomes the restored program's parent
  // (agent/keeper/init/restored.h).
  [[nodiscard]] std::vector<std::string> restore_command(const RestoreOptions& options) const;
  // True if this kernel reports to CRIU how a process changes memory that has not arrived yet.
  Task<bool> restores_lazily(std::string work) const;
  [[nodiscard]] static std::string pid_file(const RestoreOptions& options);
  [[nodiscard]] static std::string restore_log(const RestoreOptions& options);
  [[nodiscard]] static std::string dump_log(const DumpOptions& options);

  // The cause of a failure by a log of CRIU: its first error line, and the path.
  [[nodiscard]] static std::string first_error(const std::string& log_path);
  // The same; nothing if there is no log, or no error in it.
  [[nodiscard]] static std::optional<std::string> find_error(const std::string& log_path);

  // Returns FileRules::no_internet.
  [[nodiscard]] std::string why_no_internet() const;

  [[nodiscard]] const std::string& program() const noexcept { return program_; }
  [[nodiscard]] const std::string& version() const noexcept { return version_; }

 private:
  Criu(std::string program, std::string version, std::string answers)
      : program_(std::move(program)), version_(std::move(version)), answers_(std::move(answers)) {}
  Task<Result<DumpFacts>> dump_once(pid_t root, const DumpOptions& options) const;

  std::string program_;
  std::string version_;
  std::string answers_;  // criu_answers.h
};

// Returns why a dump of sockets would fail. CRIU before 4.2 reads an option of each socket that kernels since
// 6.16 have for few kinds (sockets.h). Empty: it does not fail.
[[nodiscard]] std::string why_no_internet(const std::string& version, bool kernel_tells_all);

// The most bytes of unlinked files, open or mapped, that travel with an image.
inline constexpr std::uint64_t kMaxUnlinkedBytes = std::uint64_t{1} << 30;

// The interval at which a caller that waits for the end of a dump checks for other events.
inline constexpr Milliseconds kDumpCheck{500};

// Blocks until no CRIU dumps that tree. An earlier agent may have started one, which would stop a process
// that is continued before its end. kTimedOut: ask again. A CRIU that has run for longer than criu_timeout()
// of the tree is killed.
Result<void> wait_for_dump(pid_t root, Milliseconds timeout);

}  // namespace ckpt::agent::host
