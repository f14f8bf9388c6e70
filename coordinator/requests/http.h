// SPDX-License-Identifier: Apache-2.0
// The HTTP server that coordinator and agent share, under the names that the coordinator uses.
#pragma once

#include "libckpt/net/control/http_server.h"

namespace ckpt::coordinator {

using control::HttpRequest;
using control::HttpResponse;
using control::HttpServer;

}  // namespace ckpt::coordinator
