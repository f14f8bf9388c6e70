// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/preloaded.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <sstream>

#include "libckpt/base/fd.h"

namespace ckpt {
namespace {

constexpr int kMaxInterpreters = 4;  // the maximum depth of nested interpreters, which is the kernel's own
                                     // limit
constexpr unsigned kMaxHeaders = 256;

std::string found_in(const std::string& program, const std::string& search_path, const std::string& folder) {
  const auto absolute = [&folder](const std::string& path) {
    return path.starts_with('/') ? path : folder + "/" + path;
  };
  if (program.find('/') != std::string::npos) return absolute(program);
  std::istringstream folders(search_path.empty() ? "/usr/local/bin:/bin:/usr/bin" : search_path);
  for (std::string each; std::getline(folders, each, ':');) {
    std::string path = absolute(each.empty() ? program : each + "/" + program);
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

bool takes_other_rights(const UniqueFd& file, uid_t user) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return false;
  const bool other_user = (facts.st_mode & S_ISUID) != 0 && facts.st_uid != user;
  const bool other_group = (facts.st_mode & S_ISGID) != 0 && user != 0;
  return other_user || other_group ||
         (user != 0 && ::fgetxattr(file.get(), "security.capability", nullptr, 0) > 0);
}

bool has_interpreter(const UniqueFd& file, const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMaxHeaders) return true;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    const auto at = static_cast<off_t>(header.e_phoff + i * sizeof part);
    if (::pread(file.get(), &part, sizeof part, at) != static_cast<ssize_t>(sizeof part)) return true;
    if (part.p_type == PT_INTERP) return true;
  }
  return false;
}

// Returns the interpreter that the first line of a script names.
std::string interpreter_of(const std::array<char, 256>& begin) {
  std::istringstream line(std::string(begin.data() + 2, ::strnlen(begin.data() + 2, begin.size() - 2)));
  std::string words;
  std::getline(line, words);
  std::string interpreter;
  std::istringstream(words) >> interpreter;
  return interpreter;
}

}  // namespace

std::string why_not_preloaded(const std::string& program, const std::string& search_path,
                              const std::string& folder, uid_t user) {
  std::string path = found_in(program, search_path, folder);
  for (int depth = 0; depth <= kMaxInterpreters && !path.empty(); ++depth) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    std::array<char, 256> begin{};
    if (!file || ::pread(file.get(), begin.data(), begin.size() - 1, 0) < 2) return {};
    if (begin[0] == '#' && begin[1] == '!') {
      path = interpreter_of(begin);
      continue;
    }
    if (takes_other_rights(file, user)) return path + " runs with other rights than its user's (set-user-ID)";
    if (std::memcmp(begin.data(), ELFMAG, SELFMAG) != 0) return {};
    if (begin[EI_CLASS] != ELFCLASS64) return path + " is a 32-bit program";
    Elf64_Ehdr header{};
    std::memcpy(&header, begin.data(), sizeof header);
    return has_interpreter(file, header) ? std::string() : path + " is a static program";
  }
  return {};
}

}  // namespace ckpt
