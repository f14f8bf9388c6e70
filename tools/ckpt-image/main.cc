// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "tools/ckpt-image/commands.h"

int main(int argc, char** argv) {
  return ckpt::image_tool::run({argv + 1, argv + argc}, std::cout, std::cerr);
}
