// SPDX-License-Identifier: Apache-2.0
// The program that keepers start in the keeper's tests. It needs no GPU. The first argument selects its
// behavior.
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include <ckpt/ckpt.h>

namespace {

void print_line(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(1, line.data(), line.size()) < 0) std::exit(99);
}

void must(ckpt_status status, const char* what) {
  if (status == CKPT_OK) return;
  print_line(std::string(what) + ": " + ckpt_last_error());
  std::exit(3);
}

int list_descriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || fd == ::dirfd(folder)) continue;
    char target[256] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(path.c_str(), target, sizeof target - 1) < 0) return 1;
    print_line("fd " + std::to_string(fd) + " " + target);
  }
  ::closedir(folder);
  const char* socket = std::getenv("CKPT_SOCKET");
  print_line(std::string("socket ") + (socket != nullptr ? socket : "none"));
  print_line(std::string("home ") + (std::getenv("HOME") != nullptr ? "inherited" : "clean"));
  print_line(std::string("given ") + (std::getenv("GIVEN") != nullptr ? std::getenv("GIVEN") : "missing"));
  char folder_now[512] = {};
  print_line(std::string("cwd ") + ::getcwd(folder_now, sizeof folder_now));
  return 0;
}

int wait_for_ever() {
  print_line("waiting");
  for (;;) ::pause();
}

// Runs steps with a barrier each. `bytes` is the size of the host state, so that two programs of different
// sizes do not match. If `keeps_on` is true, the program continues even if it could not load the source's
// state.
int steps(std::size_t bytes, bool with_barrier, bool keeps_on = false) {
  static char state[64];
  std::uint64_t step = 0;
  ckpt_session* session = nullptr;
  ckpt_role role{};
  ckpt_start start{};
  must(ckpt_init(nullptr, &session, &role), "ckpt_init");
  must(ckpt_host_state(session, "step", &step, sizeof step), "ckpt_host_state");
  must(ckpt_host_state(session, "state", state, bytes), "ckpt_host_state");
  if (keeps_on && ckpt_ready(session, &start) != CKPT_OK) return wait_for_ever();
  if (!keeps_on) must(ckpt_ready(session, &start), "ckpt_ready");
  print_line(std::string(start == CKPT_RESUMED ? "resumed" : "fresh") + " at " + std::to_string(step));
  if (!with_barrier) return wait_for_ever();
  for (;;) {
    const timespec work{0, 200'000};
    ::nanosleep(&work, nullptr);
    ++step;
    must(ckpt_barrier(session), "ckpt_barrier");
  }
}

// Starts a child that stops itself, and a child in a session of its own, then waits.
int wait_with_children() {
  const pid_t stopped = ::fork();
  if (stopped == 0) {
    ::raise(SIGSTOP);
    for (;;) ::pause();
  }
  int status = 0;
  ::waitpid(stopped, &status, WUNTRACED);
  int ends[2];
  if (::pipe(ends) != 0) return 1;
  const pid_t apart = ::fork();
  if (apart == 0) {
    ::setsid();
    (void)!::write(ends[1], "r", 1);
    for (;;) ::pause();
  }
  char ready = 0;
  (void)!::read(ends[0], &ready, 1);
  print_line("children " + std::to_string(stopped) + " " + std::to_string(apart));
  return wait_for_ever();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "exit") return std::atoi(argv[2]);
  if (mode == "descriptors") return list_descriptors();
  if (mode == "wait") return wait_for_ever();
  if (mode == "children") return wait_with_children();
  if (mode == "stubborn") {
    ::signal(SIGTERM, SIG_IGN);
    return wait_for_ever();
  }
  if (mode == "steps") return steps(16, true);
  if (mode == "steps-other") return steps(32, true);
  if (mode == "steps-other-keeps-on") return steps(32, true, true);
  if (mode == "no-barrier") return steps(16, false);
  if (mode == "session-end") {
    ckpt_session* session = nullptr;
    must(ckpt_init(nullptr, &session, nullptr), "ckpt_init");
    must(ckpt_shutdown(session), "ckpt_shutdown");
    return wait_for_ever();
  }
  return 64;
}
