// SPDX-License-Identifier: Apache-2.0
// The precompiled header of ckpt_control and the daemons. It contains the headers that nearly all their
// sources include.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/net/control/log.h"
#include "libckpt/protocol/wire/codec.h"
