// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/control_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

namespace ckpt::local {
namespace {

UniqueFd duplicate(int fd) {
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

TEST(ControlPage, RankReadsTheRequestsOfTheKeeper) {
  ControlPageMapping keeper = std::move(*ControlPageMapping::create());
  const ControlPageMapping rank = std::move(*ControlPageMapping::open(duplicate(keeper.fd())));
  EXPECT_EQ(rank.fd(), -1) << "the program has one descriptor more";
  EXPECT_EQ(rank.page().request.load(), 0u);
  keeper.ask_pause(17);
  EXPECT_EQ(rank.page().request.load(), kPauseAsked);
  EXPECT_EQ(rank.page().pause_request.load(), 17u);
  keeper.set_gate(true);
  EXPECT_EQ(rank.page().request.load(), kPauseAsked | kGateClosed);
  keeper.withdraw_pause();
  EXPECT_EQ(rank.page().request.load(), kGateClosed);
  keeper.set_gate(false);
  EXPECT_EQ(rank.page().request.load(), 0u);
}

TEST(ControlPage, ClosedGateHoldsTheRankUntilTheGateOpens) {
  ControlPageMapping keeper = std::move(*ControlPageMapping::create());
  const ControlPageMapping rank = std::move(*ControlPageMapping::open(duplicate(keeper.fd())));
  keeper.set_gate(true);
  std::atomic<bool> opened{false};
  std::atomic<bool> passed_too_early{false};
  std::thread waiter([&] {
    rank.wait_for_gate();
    passed_too_early = !opened;
  });
  keeper.ask_pause(1);  // another change wakes the futex, but does not open the gate
  opened = true;
  keeper.set_gate(false);
  waiter.join();
  EXPECT_FALSE(passed_too_early);
}

TEST(ControlPage, RankCannotWriteTheControlPage) {
  ControlPageMapping keeper = std::move(*ControlPageMapping::create());
  const UniqueFd fd = duplicate(keeper.fd());
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(fd.get(), "x", 1, 0), -1);
}

TEST(ControlPage, InvalidFilesAreRefused) {
  EXPECT_FALSE(ControlPageMapping::open(std::move(*make_memory_file("a", 100))).has_value());
  EXPECT_FALSE(ControlPageMapping::open(std::move(*make_memory_file("a", 4096))).has_value());
  UniqueFd unsealed(::memfd_create("a", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  EXPECT_FALSE(ControlPageMapping::open(std::move(unsealed)).has_value());
}

}  // namespace
}  // namespace ckpt::local
