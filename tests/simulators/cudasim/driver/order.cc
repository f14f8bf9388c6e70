// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/order.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <semaphore>
#include <string>

#include "tests/simulators/cudasim/driver/checkpoint.h"
#include "tests/simulators/cudasim/driver/gate.h"
#include "tests/simulators/cudasim/protocol/message.h"

namespace cudasim {
namespace {

// The time limit for the program's connection. A stopped program does not connect.
constexpr auto kConnectTime = std::chrono::seconds(10);

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

socklen_t fill_address(std::uint64_t number, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const int length = std::snprintf(address->sun_path + 1, sizeof address->sun_path - 1,
                                   "cudasim-order-%016llx", static_cast<unsigned long long>(number));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
}

bool peer_of(int socket, ucred* peer) {
  socklen_t length = sizeof *peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, peer, &length) == 0;
}

// Runs an order in the program that receives it. A process with permission to send the signal may give
// orders. The caller's user is checked nevertheless, since another process than the listening one could send
// a number.
void take_order(std::uint64_t number) {
  const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  const socklen_t length = fill_address(number, &address);
  ucred peer{};
  if (socket.get() < 0 || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      !peer_of(socket.get(), &peer) || (peer.uid != 0 && peer.uid != ::geteuid())) {
    return;
  }
  static Order order;
  int fd = -1;
  if (!receive_message(socket.get(), &order, sizeof order, &fd)) return;
  if (fd >= 0) ::close(fd);
  order.dir[sizeof order.dir - 1] = '\0';
  order.name[sizeof order.name - 1] = '\0';
  const OrderReply reply = Checkpoint::get().obey(order);
  send_message(socket.get(), &reply, sizeof reply, -1);
}

// Another process may search for the thread once cuInit has returned.
std::binary_semaphore named(0);

void* take_orders(void*) {
  ::prctl(PR_SET_NAME, kOrderThread);  // set by the thread itself: from outside this needs a /proc of the
                                       // same PID namespace
  named.release();
  sigset_t orders;
  sigemptyset(&orders);
  sigaddset(&orders, kOrderSignal);
  for (;;) {
    siginfo_t info{};
    if (::sigwaitinfo(&orders, &info) != kOrderSignal || info.si_code != SI_QUEUE) continue;
    take_order(reinterpret_cast<std::uint64_t>(info.si_value.sival_ptr));
  }
  return nullptr;
}

bool is_order_thread(const std::string& path) {
  char name[32] = {};
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return false;
  const bool read = std::fgets(name, sizeof name, file) != nullptr;
  std::fclose(file);
  return read && std::string(name) == std::string(kOrderThread) + "\n";
}

// Waits for the program's connection. Returns -1 if the program has exited or does not connect.
int accept_program(int listener, pid_t pid) {
  const Descriptor program(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (program.get() < 0) return -1;
  const Deadline deadline = std::chrono::steady_clock::now() + kConnectTime;
  for (;;) {
    pollfd ends[2] = {{listener, POLLIN, 0}, {program.get(), POLLIN, 0}};
    const int ready = ::poll(ends, 2, milliseconds_left(deadline, 60000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || ends[1].revents != 0) return -1;
    const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    ucred peer{};
    if (socket >= 0 && peer_of(socket, &peer) && peer.pid == pid) return socket;
    if (socket >= 0) ::close(socket);
  }
}

}  // namespace

void start_taking_orders() {
  // This thread never handles a signal of the program, and no other thread's mask changes.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, take_orders, nullptr) == 0) {
    pthread_detach(thread);
    named.acquire();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CUresult find_order_thread(pid_t pid, pid_t* thread) {
  if (pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  DIR* folder = ::opendir(tasks.c_str());
  if (folder == nullptr) return CUDA_ERROR_INVALID_VALUE;
  pid_t found = 0;
  while (const dirent* entry = ::readdir(folder)) {
    if (!is_order_thread(tasks + "/" + entry->d_name + "/comm")) continue;
    found = static_cast<pid_t>(std::atoi(entry->d_name));
    break;
  }
  ::closedir(folder);
  *thread = found;
  return found > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult give_order(pid_t pid, const Order& order, OrderReply* reply) {
  pid_t thread = 0;
  const CUresult found = find_order_thread(pid, &thread);
  if (found != CUDA_SUCCESS) return found;
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) return CUDA_ERROR_OPERATING_SYSTEM;
  const Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  const socklen_t length = fill_address(number, &address);
  if (listener.get() < 0 || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), 1) != 0) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  siginfo_t info{};
  info.si_signo = kOrderSignal;
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_ptr = reinterpret_cast<void*>(number);
  if (::syscall(SYS_rt_tgsigqueueinfo, pid, thread, kOrderSignal, &info) != 0)
    return CUDA_ERROR_OPERATING_SYSTEM;
  const Descriptor program(accept_program(listener.get(), pid));
  int fd = -1;
  if (program.get() < 0 || !send_message(program.get(), &order, sizeof order, -1) ||
      !receive_message(program.get(), reply, sizeof *reply, &fd)) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  if (fd >= 0) ::close(fd);
  // Waits until the program has closed its end, so that a subsequent dump finds no socket.
  char none;
  while (::recv(program.get(), &none, sizeof none, 0) < 0 && errno == EINTR) {
  }
  return static_cast<CUresult>(reply->result);
}

}  // namespace cudasim
