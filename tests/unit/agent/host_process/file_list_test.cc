// SPDX-License-Identifier: Apache-2.0
// Tests of the lists of files that a process needs on its node, and of files that prevent a move. A child has
// the files open.
#include "agent/host_process/file_list.h"

#include "agent/host_process/criu.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "agent/host_process/files/build_id.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/sockets/pipes.h"
#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/codec.h"
#include "tests/unit/agent/support/child.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

std::string why_not(const std::function<void()>& prepare, const FileRules& rules = {}, int kept = -1) {
  const Child child(prepare, kept);
  const auto list = collect_files(child.pid(), rules);
  return list.has_value() ? "" : list.error().message();
}

FileList files_of(const std::function<void()>& prepare, const FileRules& rules = {}) {
  const Child child(prepare);
  const auto list = collect_files(child.pid(), rules);
  EXPECT_TRUE(list.has_value()) << list.error().message();
  return list.has_value() ? *list : FileList{};
}

const FileFact* find(const FileList& list, const std::string& path) {
  const auto at =
      std::find_if(list.files.begin(), list.files.end(), [&](const auto& fact) { return fact.path == path; });
  return at == list.files.end() ? nullptr : &*at;
}

std::string own_path() {
  char path[4096] = {};
  return ::readlink("/proc/self/exe", path, sizeof path - 1) > 0 ? path : "";
}

TEST(FileList, OpenAndMappedFilesAreListed) {
  TemporaryFolder folder;
  std::ofstream(folder / "read.txt") << "12345";
  std::ofstream(folder / "log.txt") << "123";
  FileRules rules;
  rules.own_log = folder / "own.log";
  const FileList list = files_of(
      [&] {
        ::open((folder / "read.txt").c_str(), O_RDONLY);
        ::open((folder / "log.txt").c_str(), O_WRONLY | O_APPEND);
        ::open(rules.own_log.c_str(), O_WRONLY | O_CREAT, 0600);
        ::eventfd(0, 0);
        ::epoll_create1(0);
        (void)!::chdir(folder.path().c_str());
      },
      rules);
  ASSERT_NE(find(list, folder / "read.txt"), nullptr);
  EXPECT_EQ(find(list, folder / "read.txt")->use, FileUse::kRead);
  EXPECT_EQ(find(list, folder / "read.txt")->bytes, 5u);
  ASSERT_NE(find(list, folder / "log.txt"), nullptr);
  EXPECT_EQ(find(list, folder / "log.txt")->use, FileUse::kWritten);
  ASSERT_NE(find(list, folder.path()), nullptr);
  EXPECT_EQ(find(list, folder.path())->use, FileUse::kFolder);
  ASSERT_NE(find(list, "/dev/null"), nullptr);
  EXPECT_EQ(find(list, "/dev/null")->use, FileUse::kDevice);
  ASSERT_NE(find(list, own_path()), nullptr);
  EXPECT_EQ(find(list, own_path())->use, FileUse::kProgram);
  EXPECT_EQ(find(list, own_path())->build_id.size(), 40u);
  EXPECT_EQ(find(list, rules.own_log), nullptr);
  EXPECT_TRUE(check_files(list).has_value());
}

TEST(FileList, TargetReportsEachDifference) {
  TemporaryFolder folder;
  std::ofstream(folder / "same") << "12345";
  std::ofstream(folder / "grown") << "123";
  FileList list = files_of([&] {
    ::open((folder / "same").c_str(), O_RDONLY);
    ::open((folder / "grown").c_str(), O_RDWR);
  });
  std::ofstream(folder / "grown", std::ios::app) << "more";
  EXPECT_TRUE(check_files(list).has_value());
  std::ofstream(folder / "another") << "123456789";
  ASSERT_EQ(::rename((folder / "another").c_str(), (folder / "same").c_str()), 0);
  list.kernel = "another";
  for (FileFact& fact : list.files) {
    if (fact.use == FileUse::kProgram) {
      fact.build_id = std::string(40, '0');
      fact.identity.inode += 1;
    }
    if (fact.use == FileUse::kDevice) fact.device += 1;
    if (fact.use == FileUse::kFolder) fact.path = "/nonexistent/folder";
  }
  const auto checked = check_files(list);
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code(), ErrorCode::kRefused);
  const std::string& reason = checked.error().message();
  for (const std::string& part :
       {folder / "same has 9 bytes", std::string("different build"), std::string("different device"),
        std::string("/nonexistent/folder does not exist")})
    EXPECT_NE(reason.find(part), std::string::npos) << part << " in " << reason;
}

TEST(FileList, MalformedListIsRefused) {
  FileList list;
  FileFact& fact = list.files.emplace_back();
  fact.path = "relative";
  EXPECT_EQ(check_files(list).error().code(), ErrorCode::kProtocol);
  fact.path = std::string("/a\0b", 4);
  EXPECT_EQ(check_files(list).error().code(), ErrorCode::kProtocol);
  fact.path = "/" + std::string(5000, 'a');
  EXPECT_EQ(check_files(list).error().code(), ErrorCode::kProtocol);
}

TEST(FileList, DeletedFilesAreTransferredUpToALimit) {
  TemporaryFolder folder;
  const std::string path = folder / "gone";
  const auto make = [&path](off_t bytes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    (void)!::ftruncate(fd, bytes);
    ::unlink(path.c_str());
    return fd;
  };
  const auto map = [&](off_t bytes) {
    const int fd = make(bytes);
    (void)::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
  };
  const auto limit = static_cast<off_t>(kMaxUnlinkedBytes);
  EXPECT_EQ(why_not([&] { make(limit); }), "");  // the file moves with the process
  EXPECT_EQ(why_not([&] { map(limit); }), "");
  EXPECT_NE(
      why_not([&] { make(limit + 1); }).find(path + " (1073741825 bytes) was deleted and is still opened"),
      std::string::npos);
  EXPECT_NE(why_not([&] { map(limit + 1); }).find("was deleted and is still mapped"), std::string::npos);
  const auto together = [&] {
    map(limit);
    map(1);
  };
  EXPECT_NE(why_not(together).find("bytes in total"), std::string::npos);
}

TEST(FileList, DeletedFileWithAnotherNameIsRefused) {
  TemporaryFolder folder;
  const std::string reason = why_not([&] {
    const int fd = ::open((folder / "first").c_str(), O_RDWR | O_CREAT, 0600);
    (void)!::ftruncate(fd, 4096);
    (void)::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    (void)!::link((folder / "first").c_str(), (folder / "second").c_str());
    ::unlink((folder / "first").c_str());
  });
  EXPECT_NE(reason.find("another hard link"), std::string::npos) << reason;
}

TEST(FileList, BoundSocketsAreAcceptedOnlyInANewNetworkNamespace) {
  FileList list = files_of([] {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)!::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
    (void)!::listen(socket, 1);
  });
  ASSERT_EQ(list.bound.size(), 1u);
  EXPECT_EQ(list.bound[0].protocol, "TCP");
  EXPECT_TRUE(list.bound[0].address.starts_with("127.0.0.1:"));
  const UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(holder.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(holder.get(), 1), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  list.bound[0].address = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  EXPECT_TRUE(check_files(list).has_value());  // the program itself holds the address
  list.network = "elsewhere";
  EXPECT_NE(check_files(list).error().message().find(list.bound[0].address + " cannot be bound"),
            std::string::npos);
  list.bound[0].address = "192.0.2.1:0";  // an address that no machine has (RFC 5737)
  EXPECT_FALSE(check_files(list).has_value());
  list.bound[0].address = "127.0.0.1:0";
  EXPECT_TRUE(check_files(list).has_value());
  list.bound[0].address = "nowhere";
  EXPECT_FALSE(check_files(list).has_value());
  list.bound.resize(kMaxBound + 1);
  EXPECT_EQ(check_files(list).error().code(), ErrorCode::kProtocol);
}

TEST(FileList, MappedSystemVMemoryIsRefusedByName) {
  const std::string reason = why_not([] {
    const int id = ::shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    (void)::shmat(id, nullptr, 0);
    ::shmctl(id, IPC_RMID, nullptr);
  });
  EXPECT_NE(reason.find("System V"), std::string::npos) << reason;
}

TEST(FileList, AnOpenTcpConnectionIsRefusedButAListenerIsAccepted) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string there = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const std::string reason = why_not([&] {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    (void)!::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  });
  EXPECT_NE(reason.find("open TCP connection"), std::string::npos) << reason;
  EXPECT_NE(reason.find("-> " + there), std::string::npos) << reason;
  EXPECT_EQ(why_not([] {
              const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
              (void)!::listen(socket, 1);
            }),
            "");
}

// Listens on a port of its own, and connects a client that is not accepted.
int connected_listener() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)!::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address);
  (void)!::listen(listener, 1);
  socklen_t size = sizeof address;
  (void)!::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  (void)!::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return listener;
}

TEST(FileList, InternalConnectionIsAcceptedOnlyInANewNetworkNamespace) {
  FileList list = files_of([] {
    const int listener = connected_listener();
    (void)!::accept(listener, nullptr, nullptr);
  });
  ASSERT_EQ(list.connected.size(), 2u);
  EXPECT_EQ(list.bound.size(), 1u) << "the listener";
  const auto here = check_files(list);
  ASSERT_FALSE(here.has_value());
  EXPECT_NE(here.error().message().find("cannot be moved within one network"), std::string::npos)
      << here.error().to_string();
}

TEST(FileList, UnacceptedConnectionIsRefused) {
  const std::string reason = why_not([] { (void)connected_listener(); });
  EXPECT_NE(reason.find("is an open TCP connection"), std::string::npos) << reason;
}

TEST(FileList, ListenerThatCriuCannotSaveIsReportedWithItsPort) {
  FileRules rules;
  rules.no_internet = "CRIU 4.1 cannot save";
  const std::string reason = why_not(
      [] {
        const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        (void)!::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
        (void)!::listen(socket, 1);
        (void)!::socket(AF_INET6, SOCK_DGRAM, 0);
      },
      rules);
  EXPECT_NE(reason.find("listens at 127.0.0.1:"), std::string::npos) << reason;
  EXPECT_NE(reason.find("descriptor 4 of process "), std::string::npos) << reason;
  EXPECT_NE(reason.find("is a UDPv6 socket, which CRIU 4.1 cannot save"), std::string::npos) << reason;
  EXPECT_EQ(why_not(
                [] {
                  int both[2];
                  (void)!::socketpair(AF_UNIX, SOCK_STREAM, 0, both);
                },
                rules),
            "");
}

TEST(FileList, SocketSharedWithAnotherProcessIsReportedWithItsOwner) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  const int high = ::fcntl(theirs.get(), F_DUPFD, 200);
  const UniqueFd kept(high);
  // The child closes all descriptors above 3 before it prepares. The socket therefore reaches the child as a
  // copy next to descriptor 3.
  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
    ::dup2(high, 3);
    ::close_range(4, ~0U, 0);
    (void)!::write(3, "r", 1);
    for (;;) ::pause();
  }
  char ready = 0;
  EXPECT_EQ(::read(mine.get(), &ready, 1), 1);
  std::ifstream name_file("/proc/self/comm");
  std::string name;
  std::getline(name_file, name);

  const auto refused = collect_files(child, {});
  EXPECT_FALSE(refused.has_value());
  if (!refused.has_value()) {
    EXPECT_NE(refused.error().message().find("a socket to " + name), std::string::npos)
        << refused.error().message();
  }
  FileRules rules;
  rules.keeper = ::getpid();
  EXPECT_TRUE(collect_files(child, rules).has_value());
  rules.keeper = 0;
  rules.driver_processes = {name};
  EXPECT_TRUE(collect_files(child, rules).has_value());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(FileList, DriverFilesAreAcceptedOnlyInTheCheckpointedProcess) {
  const Child child([] {
    const int fd = ::memfd_create("driver", 0);
    (void)!::ftruncate(fd, 4096);
    ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  });
  FileRules rules;
  EXPECT_TRUE(collect_files(child.pid(), rules).has_value());
  rules.driver_files = {"/memfd:driver"};
  rules.gpu_process = child.pid();
  EXPECT_TRUE(collect_files(child.pid(), rules).has_value());
  rules.gpu_process = 1;
  const auto refused = collect_files(child.pid(), rules);
  ASSERT_FALSE(refused.has_value());
  const std::string reason = refused.error().message();
  const std::string process = "process " + std::to_string(child.pid()) + " (";
  EXPECT_NE(reason.find(process), std::string::npos) << reason;
  EXPECT_EQ(reason.find(process), reason.rfind(process)) << "each process is named once: " << reason;
  EXPECT_NE(reason.find("has the GPU driver's /memfd:driver open"), std::string::npos) << reason;
}

TEST(FileList, ProcessTooLargeForTheTargetMemoryIsRefusedBeforeThePause) {
  FileList list = files_of([] {});
  EXPECT_GT(list.memory_bytes, 0u);
  EXPECT_TRUE(check_files(list).has_value());
  for (const std::uint64_t bytes : {std::uint64_t{1} << 50, ~std::uint64_t{0}}) {
    list.memory_bytes = bytes;
    const auto room = check_files(list);
    ASSERT_FALSE(room.has_value());
    if (bytes == std::uint64_t{1} << 50) {
      EXPECT_EQ(room.error().code(), ErrorCode::kRefused);
      EXPECT_NE(room.error().message().find("too little memory"), std::string::npos);
    }
  }
}

TEST(FileList, PipesAndSocketsWithinTheTreeAreAccepted) {
  EXPECT_EQ(why_not([] {
              int ends[2];
              (void)!::pipe(ends);
              (void)!::socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
            }),
            "");
}

TEST(FileList, PipeToAnExternalProcessIsReportedWithThatProcess) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string owner = "is a pipe to unit_host_proce (process " + std::to_string(::getpid()) + ")";
  for (const int end : ends) {
    const std::string reason = why_not([] {}, {}, end);
    EXPECT_THAT(reason, testing::HasSubstr("descriptor 4 of process ")) << reason;
    EXPECT_THAT(reason, testing::HasSubstr(owner)) << reason;
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

// The state is as after `process.stdin.close()` of Python's subprocess.
TEST(FileList, PipeWithAClosedEndIsAccepted) {
  for (const int closed : {0, 1}) {
    EXPECT_EQ(why_not([closed] {
                int ends[2];
                (void)!::pipe(ends);
                ::close(ends[closed]);
              }),
              "")
        << closed;
  }
}

// A child of a program may have ended before the program has waited for it.
TEST(FileList, ExitedProcessIsAccepted) {
  EXPECT_EQ(why_not([] {
              const pid_t child = ::fork();
              if (child == 0) ::_exit(0);
              siginfo_t ended{};
              (void)::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
            }),
            "");
}

// A program that starts other programs all the time opens pipe ends between two scans of its processes.
TEST(TreePipes, PipeEndsOpenedOrClosedBetweenTwoScansAreNotExternal) {
  const Child child([] {
    int ends[2];
    (void)!::pipe(ends);
  });
  const std::string folder = proc_path(child.pid(), "/fd/");
  struct stat pipe {};
  ASSERT_EQ(::stat((folder + "4").c_str(), &pipe), 0);
  TreePipes opened;
  opened.note(pipe.st_ino, child.pid(), 4, O_RDONLY);
  EXPECT_THAT(*opened.to_outside(child.pid()), testing::IsEmpty());
  TreePipes closed;
  closed.note(pipe.st_ino, child.pid(), 77, O_RDONLY);
  closed.note(pipe.st_ino + 1, child.pid(), 4, O_RDONLY);  // the pipe's number belongs to another pipe by now
  EXPECT_THAT(*closed.to_outside(child.pid()), testing::IsEmpty());
  EXPECT_EQ(TreePipes().to_outside(child.pid())->size(), 0U);
}

TEST(FileList, ListSurvivesEncodingAndDecoding) {
  const FileList list = files_of([] {});
  ASSERT_FALSE(list.files.empty());
  const auto bytes = wire::encode(list);
  const auto again = wire::decode<FileList>(bytes);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->files, list.files);
}

TEST(BuildId, OnlyProgramsHaveABuildId) {
  EXPECT_EQ(build_id_of(own_path()).size(), 40u);
  EXPECT_EQ(build_id_of("/etc/passwd"), "");
  EXPECT_EQ(build_id_of("/nonexistent"), "");
  TemporaryFolder folder;
  std::ifstream program(own_path(), std::ios::binary);
  std::string start(64, '\0');
  program.read(start.data(), 64);
  std::ofstream(folder / "cut", std::ios::binary) << start;
  EXPECT_EQ(build_id_of(folder / "cut"), "");
}

}  // namespace
}  // namespace ckpt::agent::host
