// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/target/host_memory_reservation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

namespace ckpt::engine {
namespace {

constexpr std::uint64_t kHostMib = 1 << 20;

std::uint64_t resident_pages(const std::byte* at, std::uint64_t bytes) {
  std::vector<unsigned char> there(bytes / 4096);
  if (::mincore(const_cast<std::byte*>(at), bytes, there.data()) != 0) return 0;
  return static_cast<std::uint64_t>(
      std::ranges::count_if(there, [](unsigned char page) { return page & 1; }));
}

std::uint64_t anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8));
  return 0;
}

TEST(HostMemoryReservation, ExpectedPartIsAllocatedBeforeTheStateArrives) {
  const auto made = HostMemoryReservation::create(64 * kHostMib, 48 * kHostMib);
  ASSERT_TRUE(made.has_value());
  const auto& reservation = *made;
  reservation->wait_until_filled();
  EXPECT_EQ(resident_pages(reservation->memory(), 48 * kHostMib), 48 * kHostMib / 4096);
  EXPECT_EQ(resident_pages(reservation->memory() + 48 * kHostMib, 16 * kHostMib), 0u);
}

TEST(HostMemoryReservation, ReservationHoldsFutureProcessMemoryUntilTheStateIsComplete) {
  const std::uint64_t before = anonymous_kib();
  const auto made = HostMemoryReservation::create(64 * kHostMib, 48 * kHostMib);
  ASSERT_TRUE(made.has_value());
  const auto& reservation = *made;
  reservation->wait_until_filled();
  EXPECT_GE(anonymous_kib(), before + (40 << 10));
  reservation->memory()[0] = std::byte{7};
  const auto taken = reservation->extract(10 * kHostMib + 1);
  ASSERT_TRUE(taken.has_value());
  const ReceivedHostState& state = *taken;
  EXPECT_EQ(state.bytes, 10 * kHostMib + 1);
  struct stat facts {};
  ASSERT_EQ(::fstat(state.file.get(), &facts), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(facts.st_size), state.bytes);
  EXPECT_NE(::ftruncate(state.file.get(), 1), 0) << "its length is for good";
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (anonymous_kib() > before + (20 << 10) && std::chrono::steady_clock::now() < latest)
    std::this_thread::yield();
  EXPECT_LE(anonymous_kib(), before + (20 << 10)) << "waited 30 s for what was held to be given back";
}

TEST(HostMemoryReservation, WaitWithoutExpectedBytesReturnsImmediately) {
  const auto made = HostMemoryReservation::create(kHostMib, 0);
  ASSERT_TRUE(made.has_value());
  (*made)->wait_until_filled();
  EXPECT_EQ(resident_pages((*made)->memory(), kHostMib), 0u);
}

}  // namespace
}  // namespace ckpt::engine
