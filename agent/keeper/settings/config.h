// SPDX-License-Identifier: Apache-2.0
// The program of a keeper: JOBDIR/keeper.json, written by the agent.
// Threads: none. Errors: kInvalidArgument, naming the field.
//   { "job": "j-1", "name": "train", "incarnation": 1, "role": "fresh" | "standby",
//     "argv": ["prog", ...], "env": {"K": "V"}, "cwd": "/...",
//     "ranks": 1, "gang": false, "uid": 1000, "gid": 1000,
//     "way": "cooperative" | "transparent", "preload": "/.../libckpt_shim.so",
//     "gpu_memory_quota": 12884901888, "init": "/.../gpumigrate-init",
//     "namespaces": { "private_tmp": false },
//     "restore": { "command": ["/.../criu", ...], "pid_file": "/...", "timeout_ms": 60000 },
//     "adopt": { "pid": 4711, "start_ticks": 123456 } }
// `env` is the whole environment of the program. From the keeper the program inherits only CKPT_SOCKET and
// CKPT_RANK. `name`, `gang`, `uid` and `gid` may be left out. The default of `way` is cooperative. The other
// fields belong to the transparent mode. `preload` comes first in the program's LD_PRELOAD.
// `gpu_memory_quota` (bytes, 0: none) is passed to the program. `init` starts the program in its own PID
// namespace (needs root). `namespaces` gives it further namespaces of its own (init/own_namespaces.h); a
// restored program has those of its image. `restore` restores the program from an image instead of starting it
// (init/restored.h). The program is then in phase kDumped until Reattach. The processes in `stopped` of
// `restore`, such as `[3, 4]`, then stay stopped. `lazy_pages` of `restore`, `{ "command": [...], "pid_file":
// "/..." }`, brings the program's memory while the program runs (init/lazy_pages.h). `context_program` saves
// a context before a kill (rank/saver.h). Its default is gpumigrate-context in the folder of the keeper's own
// program. `way` "adopted" means a process without any of the project's libraries. `adopt` names a running
// process; `argv` and `env` are then the known facts about it. With `restore` an adopted process is restored
// into a PID namespace that the keeper makes. `init` is the first process of that namespace.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::keeper {

struct Config {
  std::string job;
  std::string name;
  std::uint64_t incarnation = 0;
  local::Role role = local::Role::kFresh;
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;
  std::string cwd;
  std::optional<uid_t> uid;
  std::optional<gid_t> gid;
  MigrationMode mode = MigrationMode::kCooperative;
  std::string preload;
  std::uint64_t gpu_memory_quota = 0;
  std::string init;
  struct OwnNamespaces {
    bool private_tmp = false;
  };
  std::optional<OwnNamespaces> namespaces;  // needs `init`
  std::string context_program;
  struct Restore {
    std::vector<std::string> command;
    std::string pid_file;
    std::chrono::milliseconds timeout{60000};
    std::vector<std::string> lazy_pages;  // command that starts the page server; empty if there is none
    std::string lazy_pages_pid_file;
    std::vector<pid_t>
        stopped;  // processes that the program had stopped itself, by their ids in its PID namespace
  };
  std::optional<Restore> restore;
  bool gang = false;     // true for one of several ranks; its barriers are counted
  bool adopted = false;  // true for an adopted process; `mode` is then kTransparent
  struct Adopt {
    pid_t pid = 0;
    std::uint64_t start_ticks = 0;
  };
  std::optional<Adopt> adopt;
};

Result<Config> parse_config(const std::string& json);
[[nodiscard]] const char* role_name(local::Role role) noexcept;

}  // namespace ckpt::keeper
