// SPDX-License-Identifier: Apache-2.0
// Tests which offers of memory a receiver accepts, and how it handles unreadable memory. The conformance
// suite tests that payloads arrive ("near").
#include "libckpt/datapath/transport/same_host_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "libckpt/datapath/transport/ucx_windows.h"

namespace ckpt::transport {
namespace {

constexpr SessionToken kToken = {std::byte{9}, std::byte{8}, std::byte{7}};
constexpr SessionToken kOther = {std::byte{9}, std::byte{8}, std::byte{6}};

// A child with a copy of this process's memory. The child sleeps, or runs another program, until the test
// ends.
class Child {
 public:
  explicit Child(const char* program = nullptr) : pid_(::fork()) {
    if (pid_ != 0) return;
    if (program != nullptr) ::execlp(program, program, "600", nullptr);
    while (true) ::pause();
  }
  ~Child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] std::uint64_t pid() const { return static_cast<std::uint64_t>(pid_); }

 private:
  pid_t pid_;
};

class SameHostMemoryTest : public ::testing::Test {
 protected:
  std::array<std::byte, 64> memory_{};
  SameHostOffer offer_ = offer_same_host({.room = memory_}, kToken);
};

TEST_F(SameHostMemoryTest, MemoryOfAProcessWithTheTokenIsRead) {
  std::strcpy(reinterpret_cast<char*>(&memory_[32]), "payload");
  const Child child;
  offer_.pid = child.pid();
  std::memset(memory_.data(), 0, memory_.size());  // the child's copy is unchanged
  const auto reader = SameHostReader::open(offer_, kToken);
  ASSERT_TRUE(reader);
  std::array<std::byte, 8> read{};
  ASSERT_TRUE(reader->read(offer_.address + 32, read));
  EXPECT_STREQ(reinterpret_cast<const char*>(read.data()), "payload");
}

TEST_F(SameHostMemoryTest, MemoryOfAProcessWithoutTheTokenIsNotRead) {
  EXPECT_FALSE(SameHostReader::open({}, kToken));
  EXPECT_FALSE(SameHostReader::open({~std::uint64_t{0}, offer_.address}, kToken));
  EXPECT_FALSE(SameHostReader::open(offer_, kOther));
  EXPECT_FALSE(SameHostReader::open({offer_.pid, 8}, kToken)) << "nothing is mapped there";
  EXPECT_FALSE(offer_same_host({.room = std::span(memory_).first(8)}, kToken).pid)
      << "too little room for the token";
  Child child;
  const SameHostOffer gone{child.pid(), offer_.address};
  EXPECT_TRUE(SameHostReader::open(gone, kToken));
  child.end();
  EXPECT_FALSE(SameHostReader::open(gone, kToken));
}

// The token alone does not let a receiver read the memory of a process that runs another program. In this
// test that process has the token as its argument.
TEST_F(SameHostMemoryTest, MemoryOfAnotherProgramIsNotRead) {
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const Child other("sleep");
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 0) << "closed by the exec";
  ::close(ready[0]);
  const std::string path = "/proc/" + std::to_string(other.pid()) + "/stat";
  std::FILE* file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  // Field 48 is the start address of the arguments.
  std::uint64_t arguments = 0;
  std::array<char, 1024> line{};
  ASSERT_NE(std::fgets(line.data(), static_cast<int>(line.size()), file), nullptr);
  std::fclose(file);
  char* at = std::strrchr(line.data(), ')') + 2;
  for (int field = 3; field < 48; ++field) at = std::strchr(at, ' ') + 1;
  arguments = std::strtoull(at, nullptr, 10);
  SessionToken token{};
  const iovec local{token.data(), token.size()};
  const iovec remote{reinterpret_cast<void*>(arguments), token.size()};
  ASSERT_EQ(::process_vm_readv(static_cast<pid_t>(other.pid()), &local, 1, &remote, 1, 0),
            static_cast<ssize_t>(token.size()));
  EXPECT_FALSE(SameHostReader::open({other.pid(), arguments}, token));
}

TEST_F(SameHostMemoryTest, ReadFailsForUnmappedMemoryAndForAnExitedProcess) {
  Child child;
  const auto reader = SameHostReader::open({child.pid(), offer_.address}, kToken);
  ASSERT_TRUE(reader);
  std::array<std::byte, 16> read{};
  EXPECT_FALSE(reader->read(8, read));
  EXPECT_TRUE(reader->read(offer_.address, read));
  child.end();
  EXPECT_FALSE(reader->read(offer_.address, read));
}

// A timer during a test whose signal has a handler.
class Interruptions {
 public:
  Interruptions() : before_(std::signal(SIGALRM, [](int) {})) { set(kMicroseconds); }
  ~Interruptions() {
    set(0);
    std::signal(SIGALRM, before_);
  }

 private:
  static constexpr int kMicroseconds = 20;
  static void set(int microseconds) {
    const itimerval every{{0, microseconds}, {0, microseconds}};
    ::setitimer(ITIMER_REAL, &every, nullptr);
  }
  void (*before_)(int);
};

TEST_F(SameHostMemoryTest, ASignalDoesNotFailARead) {
  const Child child;
  const auto reader = SameHostReader::open({child.pid(), offer_.address}, kToken);
  ASSERT_TRUE(reader);
  const Interruptions interruptions;
  std::array<std::byte, 16> read{};
  for (int i = 0; i < 5'000; ++i) ASSERT_TRUE(reader->read(offer_.address, read)) << i;
}

class Taker final : public LaneHandler {
 public:
  std::size_t takes = 64;
  UniqueFd file;
  std::size_t asked = 0;

 private:
  std::span<const std::byte> map_same_host(UniqueFd came, std::size_t bytes) override {
    ++asked;
    file = std::move(came);
    return std::span<const std::byte>(room_).first(std::min(takes, bytes));
  }
  std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t) override { return {}; }
  void on_message(std::span<const std::byte>, std::span<const std::byte>) override {}
  void on_sent(std::uint64_t) override {}
  void on_closed(const Error&) override {}
  std::array<std::byte, 64> room_{};
};

TEST_F(SameHostMemoryTest, OfferedFileOfTheProcessIsOpened) {
  const UniqueFd file = *make_memory_file("offered", 64);
  ASSERT_EQ(::pwrite(file.get(), "theirs", 7, 0), 7);
  offer_ = offer_same_host({.room = memory_, .file = file.get(), .mapped = memory_}, kToken);
  EXPECT_EQ(offer_.bytes, memory_.size());
  EXPECT_EQ(offer_.mapped_at, offer_.address);
  const Child child;
  offer_.pid = child.pid();
  const UniqueFd other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::dup3(other.get(), file.get(), O_CLOEXEC), file.get()) << "the child's is as it was";
  const auto reader = SameHostReader::open(offer_, kToken);
  ASSERT_TRUE(reader);
  Taker taker;
  const SameHostMapping mapping = reader->map(offer_, taker);
  std::array<char, 7> read{};
  ASSERT_EQ(::pread(taker.file.get(), read.data(), read.size(), 0), 7);
  EXPECT_STREQ(read.data(), "theirs");
  EXPECT_EQ(mapping.find(offer_.mapped_at + 60, 4).data(), mapping.here.data() + 60);

  Taker nobody;
  SameHostOffer wrong = offer_;
  wrong.bytes = 0;
  EXPECT_TRUE(reader->map(wrong, nobody).here.empty());
  wrong = offer_;
  wrong.file = 1'000'000;
  EXPECT_TRUE(reader->map(wrong, nobody).here.empty()) << "no such descriptor";
  wrong.file = (std::uint64_t{1} << 32) + offer_.file;
  EXPECT_TRUE(reader->map(wrong, nobody).here.empty());
  EXPECT_EQ(nobody.asked, 0U);
  Taker refuses;
  refuses.takes = 63;
  EXPECT_TRUE(reader->map(offer_, refuses).here.empty());
  EXPECT_EQ(refuses.asked, 1U);
}

TEST(SameHostMapping, RangesPartlyOutsideAreNotFound) {
  const std::array<std::byte, 100> here{};
  const SameHostMapping mapping{here, 1000};
  EXPECT_EQ(mapping.find(1000, 100).data(), here.data());
  EXPECT_EQ(mapping.find(1099, 1).data(), here.data() + 99);
  EXPECT_TRUE(mapping.find(999, 2).empty());
  EXPECT_TRUE(mapping.find(1001, 100).empty());
  EXPECT_TRUE(mapping.find(1100, 1).empty());
  EXPECT_TRUE(mapping.find(5000, 1).empty());
  EXPECT_TRUE(mapping.find(~std::uint64_t{0}, 8).empty());
  EXPECT_TRUE(mapping.find(1050, ~std::size_t{0}).empty());
  EXPECT_TRUE(mapping.find(~std::uint64_t{0} - 4, ~std::size_t{0}).empty());
  EXPECT_TRUE(SameHostMapping{}.find(0, 1).empty());
}

class Room final : public LaneHandler {
  std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t bytes) override {
    room_.resize(bytes);
    return room_;
  }
  void on_message(std::span<const std::byte>, std::span<const std::byte>) override {}
  void on_sent(std::uint64_t) override {}
  void on_closed(const Error&) override {}
  std::vector<std::byte> room_;
};

TEST_F(SameHostMemoryTest, AnUnrequestedSameHostFrameIsRefused) {
  Frame frame;
  frame.kind = FrameKind::kSameHost;
  frame.payload_bytes = kLargePayloadBytes;
  std::uint64_t address = offer_.address;
  EXPECT_FALSE(parse_frame(&frame, sizeof frame, frame.payload_bytes))
      << "the address must follow, no payload";
  const auto view = parse_frame(&frame, sizeof frame, sizeof address);
  ASSERT_TRUE(view.has_value());
  ReceiveWindow window;
  Room handler;
  std::size_t outstanding = 0;
  const auto taken = window.accept(nullptr, *view, &address, false, {}, handler, outstanding);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code(), ErrorCode::kProtocol);
}

}  // namespace
}  // namespace ckpt::transport
