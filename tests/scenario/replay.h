// SPDX-License-Identifier: Apache-2.0
// Replays scenario files. A file contains blocks of commands, "----", the caused events, and an empty line; #
// starts a comment line before commands.
//   PROGRAM FILE...            exit 1 at the first difference
//   PROGRAM --update FILE...   writes what happened into the files (then read the difference in git)
// Player: `std::string play(const std::vector<std::string>& commands)` returns the events that a block
// causes, one per line. There is one player for each file. A line with VIOLATION or "unknown command" fails
// in both modes.
// Threads: one. Errors: on stderr.
#pragma once

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace ckpt::scenario {

template <class Player>
bool replay(const std::string& path, bool update) {
  std::ifstream file(path);
  if (!file) {
    std::cerr << path << ": cannot be read\n";
    return false;
  }
  Player player;
  std::string line, result;
  bool same = true;
  std::vector<std::string> commands;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') {
      result += line + "\n";
      continue;
    }
    if (line != "----") {
      commands.push_back(line);
      result += line + "\n";
      continue;
    }
    std::string expected;
    while (std::getline(file, line) && !line.empty()) expected += line + "\n";
    const std::string actual = player.play(commands);
    if (actual != expected && !update) {
      std::cerr << path << ": after '" << (commands.empty() ? "" : commands.back()) << "'\n--- expected\n"
                << expected << "--- happened\n"
                << actual;
      return false;
    }
    same = same && actual.find("VIOLATION") == std::string::npos &&
           actual.find("unknown command") == std::string::npos;
    result += "----\n" + actual + "\n";
    commands.clear();
  }
  if (!commands.empty()) {
    std::cerr << path << ": commands without ---- at the end\n";
    return false;
  }
  if (update) std::ofstream(path) << result;
  return same;
}

template <class Player>
int replay_all(int argc, char** argv) {
  const bool update = argc > 1 && std::string(argv[1]) == "--update";
  int played = 0;
  for (int i = update ? 2 : 1; i < argc; ++i, ++played)
    if (!replay<Player>(argv[i], update)) return 1;
  std::cout << played << " scenarios\n";
  return played > 0 ? 0 : 64;
}

}  // namespace ckpt::scenario
