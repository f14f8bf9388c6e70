// SPDX-License-Identifier: Apache-2.0
// gpumigrate-init --report FD -- PROGRAM ARGS...: process 1 of a job's own PID namespace, child of the
// keeper, parent of the program. The namespace lets a copy of the program keep its process ids while the
// stopped original still has them. The init moves with the program, so it is small and static, and has no
// descriptor except 0-2. The keeper starts the init with the program's environment, folder and descriptors.
//   Signals: a signal to this process alone is passed on to the program. The keeper itself signals each
//   process of the job.
//   Status: it reaps, and exits when the program has exited (the kernel then kills the rest of the namespace).
//   After a SIGTERM to the whole job it waits until all others have exited, too. It exits with the program's
//   exit code; its name has the rest of the program's wait status (init_words.h).
//   FD: an int (errno) is written to it if PROGRAM cannot be started; it is closed with nothing written once
//   PROGRAM runs.
// gpumigrate-init --hold: process 1 of a PID namespace into which other processes are restored. It exits when
// its standard input is closed (holder.h).
// Threads: one. Errors: exit code 127 after a report, 64 for wrong usage.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/keeper/init/init_words.h"

namespace {

using ckpt::keeper::kExitName;
using ckpt::keeper::kSignalName;
using ckpt::keeper::kToTheWholeJob;

constexpr int kExitUsage = 64;
constexpr int kExitNotStarted = 127;
constexpr int kSignalBase = 128;

volatile sig_atomic_t program = 0;
volatile sig_atomic_t is_terminated = 0;  // set when the whole job received SIGTERM

void pass_on(int number, siginfo_t* info, void*) {
  if (number == SIGTERM && info->si_code == SI_QUEUE && info->si_pid == 0 &&
      info->si_value.sival_int == kToTheWholeJob) {
    is_terminated = 1;
    return;
  }
  // A signal from the namespace's own processes (the program's kill(0, …)), or to the whole group, also
  // reaches the program directly.
  const bool from_outside = info->si_code <= 0 && info->si_pid == 0;
  if (from_outside && program > 0 && ::getpgid(program) != ::getpgrp()) ::kill(program, number);
}

// Installs handlers for the signals that a keeper or a user sends on purpose. Without a handler, process 1
// would lose them.
void pass_signals_on() {
  struct sigaction action {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  constexpr int kPassedOn[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
  for (const int number : kPassedOn) {
    ::sigaction(number, &action, nullptr);
  }
}

[[noreturn]] void become_program(char** argv, int report) {
  ::execvp(argv[0], argv);
  const int error_number = errno;
  (void)!::write(report, &error_number, sizeof error_number);
  ::_exit(kExitNotStarted);
}

int status_of(pid_t wanted) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == wanted) return status;
    if (ended < 0 && errno != EINTR) return kExitNotStarted << 8;
  }
}

void wait_for_all_others() {
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

// Stores the program's exit in the process name. An exit code has too few bits, and a killed process 1 has no
// exit code. The name stays readable until process 1 is reaped.
void report_end(int status) {
  char name[16];
  if (WIFSIGNALED(status)) {
    std::snprintf(name, sizeof name, "%s%d", kSignalName, WTERMSIG(status));
  } else {
    std::snprintf(name, sizeof name, "%s%d", kExitName, WEXITSTATUS(status));
  }
  ::prctl(PR_SET_NAME, name);
}

// Orphans of the namespace become children of this process and leave no zombies.
int hold() {
  ::signal(SIGCHLD, SIG_IGN);
  char nothing = 0;
  ssize_t got = 0;
  do {
    got = ::read(STDIN_FILENO, &nothing, 1);
  } while (got > 0 || (got < 0 && errno == EINTR));
  return 0;
}

int parse_report(int argc, char** argv) {
  if (argc < 5 || std::strcmp(argv[1], "--report") != 0 || std::strcmp(argv[3], "--") != 0) return -1;
  char* end = nullptr;
  const long number = std::strtol(argv[2], &end, 10);
  return *end == '\0' && number > 2 && number < INT_MAX ? static_cast<int>(number) : -1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--hold") == 0) return hold();
  const int report = parse_report(argc, argv);
  if (report < 0 || ::fcntl(report, F_SETFD, FD_CLOEXEC) != 0) {
    std::fprintf(stderr, "gpumigrate-init must be started by gpumigrate-keeper\n");
    return kExitUsage;
  }
  const pid_t child = ::fork();
  if (child == 0) become_program(argv + 4, report);
  if (child < 0) {
    const int error_number = errno;
    (void)!::write(report, &error_number, sizeof error_number);
    return kExitNotStarted;
  }
  program = child;
  pass_signals_on();
  ::close(report);
  const int status = status_of(child);
  program = 0;
  report_end(status);
  if (is_terminated != 0) wait_for_all_others();
  return WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}
