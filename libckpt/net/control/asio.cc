// SPDX-License-Identifier: Apache-2.0
// The code of Asio and Beast, which every source would otherwise compile again
// (BOOST_ASIO_SEPARATE_COMPILATION).
#include "libckpt/net/control/asio.h"

#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
