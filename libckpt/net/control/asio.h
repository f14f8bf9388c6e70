// SPDX-License-Identifier: Apache-2.0
// The only header that includes Boost.Asio. It is a precompiled header of ckpt_control and of the daemons,
// because it would otherwise add seconds per file. It includes Boost.Asio's headers in the order that g++ 12
// needs (<utility> before awaitable.hpp). Rules for coroutines: Pass parameters by value. Derive sessions
// from shared_from_this. Start a coroutine only with control::spawn. Name a message before co_await
// f(message), since g++ 12 destroys aggregate temporaries there twice.
#pragma once

#include <utility>
// clang-format off
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
// clang-format on

namespace ckpt::control {

namespace asio = boost::asio;

template <class T = void>
using Task = asio::awaitable<T>;

// A completion token: co_await op(..., kTuple) -> [error_code, result...]. It never throws for I/O errors.
inline constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

}  // namespace ckpt::control
