// SPDX-License-Identifier: Apache-2.0
// gpumigrate-lazy-pages FOLDER PIDFILE: provides the memory of the processes that `criu restore --lazy-pages`
// restores from FOLDER. FOLDER is also the working folder of that restore. The program returns 0 when it
// waits for the restore. A process continues in the background, with its id in PIDFILE. That process exits
// with 0 when no memory is missing. Otherwise it writes one line on standard error.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "agent/keeper/lazy_pages/server.h"
#include "libckpt/base/fault.h"
#include "libckpt/base/fd.h"

namespace ckpt::lazy_pages {
namespace {

constexpr int kExitUsage = 64;
constexpr Nanos kMaxRestore = Nanos{3600} * 1'000'000'000;  // longest time that a keeper waits for a restore

Result<void> write_pid(const std::string& path, pid_t pid) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Error::from_errno("Cannot create " + path);
  const std::string text = std::to_string(pid);
  return write_all(file.get(), std::as_bytes(std::span(text.data(), text.size())));
}

// Protects this process from the kernel's out-of-memory killer. The restored program cannot continue without
// this process, which appears large because it maps the image. Without the necessary right, the process
// continues unprotected.
void spare_from_oom_killer() {
  const UniqueFd file(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file) (void)!::write(file.get(), "-1000", 5);
}

int report(const Error& error) {
  std::fprintf(stderr, "gpumigrate-lazy-pages: %s\n", error.to_string().c_str());
  return EXIT_FAILURE;
}

Result<void> start(const std::string& folder, const std::string& pid_file) {
  CKPT_TRY(server, Server::create(folder));
  if (::chdir(folder.c_str()) != 0) return Error::from_errno("Cannot enter " + folder);
  CKPT_TRY(listener, listen_for_criu());
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno("Cannot start a process");
  if (child > 0) return write_pid(pid_file, child);
  ::setsid();
  ::signal(SIGHUP, SIG_IGN);
  spare_from_oom_killer();
  set_fault_role("lazy_pages");
  const Result<void> done = server.run(listener.get(), now_ns() + kMaxRestore);
  std::_Exit(done.has_value() ? EXIT_SUCCESS : report(done.error()));
}

int main_with(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::printf("gpumigrate-lazy-pages %s\n", GPUMIGRATE_VERSION);
    return EXIT_SUCCESS;
  }
  if (argc != 3) {
    std::fprintf(stderr, "usage: gpumigrate-lazy-pages FOLDER PIDFILE\n");
    return kExitUsage;
  }
  const Result<void> started = start(argv[1], argv[2]);
  return started.has_value() ? EXIT_SUCCESS : report(started.error());
}

}  // namespace
}  // namespace ckpt::lazy_pages

int main(int argc, char** argv) {
  return ckpt::lazy_pages::main_with(argc, argv);
}
