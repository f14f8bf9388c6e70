// SPDX-License-Identifier: Apache-2.0
// Tests the calls that the guard replaces, one by one. aborted_lanes_test.cc checks that these calls end no
// mover.
#include "libckpt/datapath/transport/ucx_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <ucs/type/status.h>

#include <array>
#include <vector>

#include "tests/unit/libckpt/datapath/transport/processes.h"

extern "C" {
ucs_status_t ucs_socket_send_nb(int fd, const void* data, std::size_t* bytes);
ucs_status_t ucs_socket_sendv_nb(int fd, iovec* parts, std::size_t count, std::size_t* bytes);
ucs_status_t ucs_socket_recv_nb(int fd, void* data, std::size_t* bytes);
void ucs_close_fd(int* fd);
}

namespace ckpt::transport {
namespace {

TEST(UcxGuard, UcxCallsTheGuardFunctions) {
  EXPECT_TRUE(check_ucx_guard().has_value());
}

TEST(UcxGuard, SendToAClosedConnectionSucceedsAndAReadReportsTheEnd) {
  auto [here, there] = make_line();
  there.reset();
  std::array<char, 5> data{};
  std::array<iovec, 2> parts = {iovec{data.data(), 3}, iovec{data.data(), 2}};
  std::size_t bytes = 0;
  EXPECT_EQ(ucs_socket_sendv_nb(here.get(), parts.data(), parts.size(), &bytes), UCS_OK);
  EXPECT_EQ(bytes, 5U);
  bytes = data.size();
  EXPECT_EQ(ucs_socket_send_nb(here.get(), data.data(), &bytes), UCS_OK);
  EXPECT_EQ(bytes, data.size());
  EXPECT_EQ(ucs_socket_recv_nb(here.get(), data.data(), &bytes), UCS_ERR_NOT_CONNECTED);
}

TEST(UcxGuard, OtherSendResultsAreUnchanged) {
  auto [here, there] = make_line();
  ASSERT_EQ(::fcntl(here.get(), F_SETFL, O_NONBLOCK), 0);
  std::vector<char> data(1 << 20);
  ucs_status_t status = UCS_OK;
  std::size_t taken = 0;
  while (status == UCS_OK) {
    std::size_t bytes = data.size();
    status = ucs_socket_send_nb(here.get(), data.data(), &bytes);
    taken += bytes;
  }
  EXPECT_EQ(status, UCS_ERR_NO_PROGRESS);
  EXPECT_GT(taken, 0U);
  std::size_t bytes = data.size();
  EXPECT_EQ(ucs_socket_send_nb(-1, data.data(), &bytes),
            UCS_ERR_IO_ERROR);  // an invalid descriptor is not a lost connection
}

TEST(UcxGuard, ClosedSocketNumberIsNotReusedImmediately) {
  auto [here, there] = make_line();
  const int number = here.get();
  int closed = here.release();
  ucs_close_fd(&closed);
  EXPECT_EQ(closed, -1);
  char byte = 0;
  EXPECT_EQ(::read(there.get(), &byte, 1), 0) << "the socket is open";
  for (std::size_t i = 0; i + 1 < kKeptNumbers; ++i) {
    auto [one, other] = make_line();
    EXPECT_NE(one.get(), number);
    EXPECT_NE(other.get(), number);
    int next = one.release();
    ucs_close_fd(&next);
  }
  // After the guard has closed as many other descriptors as it retains, the descriptor is free.
  auto [last, other] = make_line();
  int next = last.release();
  ucs_close_fd(&next);
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

}  // namespace
}  // namespace ckpt::transport
