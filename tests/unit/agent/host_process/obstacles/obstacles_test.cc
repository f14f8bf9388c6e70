// SPDX-License-Identifier: Apache-2.0
// Tests that obstacles, which CRIU cannot dump or restore, are named before a dump. This test's own job has
// each obstacle. All were tried with CRIU 4.2.1, which fails with them or loses them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/vm_sockets.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

#include <string>

#include "agent/host_process/file_list.h"
#include "tests/unit/agent/host_process/obstacles/small_job.h"

namespace ckpt::agent::host {
namespace {

struct Obstacle {
  const char* name;
  std::function<bool()> prepare;
  std::vector<const char*> texts;  // texts that the refusal contains
};
std::ostream& operator<<(std::ostream& out, const Obstacle& obstacle) {
  return out << obstacle.name;
}

std::function<bool()> child_in(int space) {
  return [space] { return SmallJob::fork_and([space] { return ::unshare(space) == 0; }); };
}

// Starts a second thread that does `work` and waits.
bool start_thread(bool (*work)()) {
  static bool (*to_do)() = nullptr;
  static int ends[2];
  to_do = work;
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  pthread_t thread{};
  const auto run = [](void*) -> void* {
    const char done = to_do() ? 'r' : '-';
    (void)!::write(ends[1], &done, 1);
    for (;;) ::pause();
  };
  if (::pthread_create(&thread, nullptr, run, nullptr) != 0) return false;
  char ready = 0;
  const bool done = ::read(ends[0], &ready, 1) == 1 && ready == 'r';
  ::close(ends[0]);
  ::close(ends[1]);
  return done;
}

bool unread_netlink_message() {
  const int socket = ::socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  struct {
    nlmsghdr header;
    rtgenmsg message;
  } ask{};
  ask.header.nlmsg_len = sizeof ask;
  ask.header.nlmsg_type = RTM_GETLINK;
  ask.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  return ::send(socket, &ask, sizeof ask, 0) == static_cast<ssize_t>(sizeof ask);
}

bool corked_socket() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  const int on = 1;
  return ::setsockopt(socket, IPPROTO_UDP, UDP_CORK, &on, sizeof on) == 0;
}

bool group_above_32() {
  const int socket = ::socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  const int group = 33;
  return ::setsockopt(socket, 270, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) == 0;
}

bool deadline_schedule() {
  struct {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } wanted{48, 6, 0, 0, 0, 10'000'000, 30'000'000, 30'000'000};
  return SmallJob::fork_and([&] { return ::syscall(SYS_sched_setattr, 0, &wanted, 0) == 0; });
}

bool shared_with_parent(unsigned long what) {
  alignas(16) static char stack[65536];
  const auto wait = [](void*) -> int {
    for (;;) ::pause();
  };
  return ::clone(wait, stack + sizeof stack, static_cast<int>(what) | SIGCHLD, nullptr) > 0;
}

bool traced_child() {
  return SmallJob::fork_and([] {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    return ::ptrace(PTRACE_SEIZE, child, nullptr, 0) == 0;
  });
}

bool other_user() {
  return SmallJob::fork_and(
      [] { return ::setresgid(65534, 65534, 65534) == 0 && ::setresuid(65534, 65534, 65534) == 0; });
}

bool few_descriptors_left() {
  return SmallJob::fork_and([] {
    const rlimit limit{16, 64};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    while (::open("/dev/null", O_RDONLY) >= 0) {
    }
    return true;
  });
}

bool high_descriptor() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && [&] {
    limit.rlim_cur = limit.rlim_max;
    return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && ::dup2(0, static_cast<int>(limit.rlim_cur) - 1) > 0;
  }();
}

bool first_thread_ended() {
  return SmallJob::fork_and([] {
    const pid_t child = ::fork();
    if (child == 0) {
      pthread_t thread{};
      const auto run = [](void*) -> void* {
        for (;;) ::pause();
      };
      ::pthread_create(&thread, nullptr, run, nullptr);
      ::syscall(SYS_exit, 0);
    }
    const std::string path = "/proc/self/task/" + std::to_string(::syscall(SYS_gettid)) + "/children";
    siginfo_t info{};
    // The child is a zombie for its parent once its first thread has ended. waitid() does not report it,
    // since other threads run.
    while (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
      FILE* stat = ::fopen(("/proc/thread-self/children"), "re");
      int seen = 0;
      if (stat == nullptr || ::fscanf(stat, "%d", &seen) != 1) return false;
      ::fclose(stat);
      char state = 0;
      FILE* of_child = ::fopen(("/proc/" + std::to_string(seen) + "/stat").c_str(), "re");
      if (of_child == nullptr || ::fscanf(of_child, "%*d (%*[^)]) %c", &state) != 1) return false;
      ::fclose(of_child);
      if (state == 'Z') return true;
      ::sched_yield();
    }
    return false;
  });
}

bool open_queue() {
  const mqd_t queue = ::mq_open("/gm-obstacle", O_RDWR | O_CREAT, 0600, nullptr);
  ::mq_unlink("/gm-obstacle");
  return queue >= 0;
}

const std::vector<Obstacle> kObstacles = {
    {"UserNamespace", child_in(CLONE_NEWUSER), {"another user namespace"}},
    {"UtsNamespace", child_in(CLONE_NEWUTS), {"another uts namespace"}},
    {"CgroupNamespace", child_in(CLONE_NEWCGROUP), {"another cgroup namespace"}},
    {"MountNamespace", child_in(CLONE_NEWNS), {"another mnt namespace"}},
    {"NetNamespace", child_in(CLONE_NEWNET), {"another net namespace"}},
    {"IpcNamespace", child_in(CLONE_NEWIPC), {"another ipc namespace"}},
    {"PidNamespaceOfChildren", child_in(CLONE_NEWPID), {"starts its children in another pid namespace"}},
    {"TimeNamespaceOfChildren", child_in(CLONE_NEWTIME), {"starts its children in another time namespace"}},
    {"ThreadsNamespace",
     [] { return start_thread([] { return ::unshare(CLONE_NEWUTS) == 0; }); },
     {"another uts namespace than its first"}},
    {"ThreadsDescriptors",
     [] { return start_thread([] { return ::unshare(CLONE_FILES) == 0; }); },
     {"descriptors of its own"}},
    {"ThreadsFolder",
     [] { return start_thread([] { return ::unshare(CLONE_FS) == 0; }); },
     {"a working directory of its own"}},
    {"OtherUser",
     other_user,
     {"runs with user id 65534, while the job runs with 0", "runs with group id 65534"}},
    {"Tracer", traced_child, {"is traced by process"}},
    {"Deadline", deadline_schedule, {"SCHED_DEADLINE"}},
    {"SharedMemory", [] { return shared_with_parent(CLONE_VM); }, {"shares its memory with its parent"}},
    {"SharedFolder",
     [] { return shared_with_parent(CLONE_FS); },
     {"shares its working directory with its parent"}},
    {"FirstThreadEnded", first_thread_ended, {"has ended its main thread"}},
    {"FewDescriptorsLeft", few_descriptors_left, {"of at most 16 descriptors open"}},
    {"HighDescriptor", high_descriptor, {"too close to this agent's limit"}},
    {"Vsock", [] { return ::socket(AF_VSOCK, SOCK_STREAM, 0) >= 0; }, {"AF_VSOCK"}},
    {"Packet", [] { return ::socket(AF_PACKET, SOCK_RAW, htons(3)) >= 0; }, {"AF_PACKET"}},
    {"MultipathTcp", [] { return ::socket(AF_INET, SOCK_STREAM, 262) >= 0; }, {"Multipath TCP"}},
    {"CorkedUdp", corked_socket, {"UDP_CORK"}},
    {"UnreadNetlink", unread_netlink_message, {"netlink socket with unread messages"}},
    {"NetlinkGroup", group_above_32, {"netlink socket in a group above 32"}},
    {"NamespaceDescriptor",
     [] { return ::open("/proc/self/ns/net", O_RDONLY) >= 0; },
     {"descriptor 3", "is net:["}},
    {"PacketPipe",
     [] {
       int ends[2];
       return ::pipe2(ends, O_DIRECT) == 0;
     },
     {"pipe in packet mode"}},
    {"SecretMemory", [] { return ::syscall(447, 0) >= 0; }, {"memfd_secret"}},
    {"SecretMapping",
     [] {
       const auto file = static_cast<int>(::syscall(447, 0));
       const bool good = ::ftruncate(file, 4096) == 0 &&
                         ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED;
       ::close(file);
       return good;
     },
     {"a mapping of process", "memfd_secret"}},
    {"HugeMemoryFile", [] { return ::memfd_create("huge", MFD_HUGETLB) >= 0; }, {"huge pages"}},
    {"MessageQueue", open_queue, {"POSIX message queue"}},
    {"AlarmTimer", [] { return ::timerfd_create(CLOCK_BOOTTIME_ALARM, 0) >= 0; }, {"timer of clock 9"}},
    {"ThreadPidfd",
     [] { return ::syscall(SYS_pidfd_open, ::getpid(), O_EXCL) >= 0; },
     {"refers to a thread"}},
    {"PerfEvent",
     [] {
       std::uint32_t attributes[32] = {1, 128};
       return ::syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0) >= 0;
     },
     {"[perf_event]"}},
};

class ObstacleTest : public ::testing::TestWithParam<Obstacle> {};

TEST_P(ObstacleTest, ObstacleIsReportedWithItsProcess) {
  const SmallJob job(GetParam().prepare);
  if (!job.is_there()) GTEST_SKIP() << "this kernel has none";
  const auto refused = collect_files(job.pid(), {});
  ASSERT_FALSE(refused.has_value());
  const std::string text = refused.error().message();
  for (const char* part : GetParam().texts) EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_NE(text.find("process "), std::string::npos) << text;
}
INSTANTIATE_TEST_SUITE_P(Kinds, ObstacleTest, ::testing::ValuesIn(kObstacles),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Obstacles, AllObstaclesAreReportedTogether) {
  const SmallJob job([] {
    int ends[2];
    return ::socket(AF_VSOCK, SOCK_STREAM, 0) >= 0 && ::pipe2(ends, O_DIRECT) == 0 && other_user();
  });
  if (!job.is_there()) GTEST_SKIP() << "this kernel has no AF_VSOCK";
  const auto refused = collect_files(job.pid(), {});
  ASSERT_FALSE(refused.has_value());
  for (const char* part : {"AF_VSOCK", "packet mode", "user id 65534"})
    EXPECT_NE(refused.error().message().find(part), std::string::npos) << refused.error().message();
}

TEST(Obstacles, StateThatCriuRestoresIsAccepted) {
  const SmallJob job([] {
    int ends[2];
    const int raw = ::socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    const int netlink = ::socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    const int datagram = ::socket(AF_INET, SOCK_DGRAM, 0);
    const sched_param priority{1};
    return raw >= 0 && netlink >= 0 && datagram >= 0 && ::pipe2(ends, 0) == 0 &&
           ::memfd_create("plain", 0) >= 0 && ::timerfd_create(CLOCK_MONOTONIC, 0) >= 0 &&
           ::syscall(SYS_pidfd_open, ::getpid(), 0) >= 0 &&
           ::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 && start_thread([] { return true; }) &&
           SmallJob::fork_and(
               [&] { return ::sched_setscheduler(0, SCHED_RR, &priority) == 0 || errno == EPERM; });
  });
  ASSERT_TRUE(job.is_there());
  const auto list = collect_files(job.pid(), {});
  EXPECT_TRUE(list.has_value()) << list.error().message();
}

}  // namespace
}  // namespace ckpt::agent::host
