// SPDX-License-Identifier: Apache-2.0
// The precompiled header of spdlog. Without it, spdlog's calls would compile fmt's formatter again in each
// source.
// Threads: any.
#pragma once

#include <fmt/format.h>
#include <spdlog/spdlog.h>

extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                                   fmt::format_args, fmt::detail::locale_ref);
