// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/log.h"

template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view, fmt::format_args,
                                            fmt::detail::locale_ref);
